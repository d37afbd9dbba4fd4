//! A connector as an aggregate: which rule decides which command. The rules are in the file of
//! their family.

use super::command::{ConnectorCommand, ConnectorReply};
use super::event::{self, ConnectorEvent};
use super::rows::{Naming, RECOVERY_COLUMN};
use super::state::Connector;
use crate::base::{ConnectorName, Error, Json, OwnerDid, Result, StreamKey, StreamKind};
use crate::domain::{
    Aggregate, ContentRef, Context, Decision, LeaseScope, Row, RowKey, Table, Value,
};

impl Aggregate for Connector {
    const KIND: StreamKind = event::KIND;
    const SNAPSHOT_SCHEMA: u16 = 1;
    type Command = ConnectorCommand;
    type Event = ConnectorEvent;
    type Reply = ConnectorReply;

    fn command_name(command: &ConnectorCommand) -> &'static str {
        match command {
            ConnectorCommand::SyncState => "sync_state",
            ConnectorCommand::SetSyncState(_) => "set_sync_state",
            ConnectorCommand::UpdateSyncProgress { .. } => "update_sync_progress",
            ConnectorCommand::DeleteSyncState => "delete_sync_state",
            ConnectorCommand::AcquireLease { .. } => "acquire_lease",
            ConnectorCommand::RenewLease { .. } => "renew_lease",
            ConnectorCommand::ReleaseLease { .. } => "release_lease",
            ConnectorCommand::Lease => "lease",
            ConnectorCommand::BeginReceipt(_) => "begin_receipt",
            ConnectorCommand::ExtendReceipt(_) => "extend_receipt",
            ConnectorCommand::CompleteReceipt(_) => "complete_receipt",
            ConnectorCommand::PlanReceipt(_) => "plan_receipt",
            ConnectorCommand::CommitReceipt(_) => "commit_receipt",
            ConnectorCommand::Receipt { .. } => "receipt",
            ConnectorCommand::SweepCheckpoint { .. } => "sweep_checkpoint",
            ConnectorCommand::Candidates { .. } => "candidates",
            ConnectorCommand::RecordSweepOutcome { .. } => "record_sweep_outcome",
            ConnectorCommand::RecordSweepApplyFailure { .. } => "record_sweep_apply_failure",
            ConnectorCommand::SweepApplied { .. } => "sweep_applied",
            ConnectorCommand::CursorLost { .. } => "cursor_lost",
            ConnectorCommand::OwedSweeps => "owed_sweeps",
            ConnectorCommand::DropDocumentCandidates { .. } => "drop_document_candidates",
        }
    }

    fn is_read(command: &ConnectorCommand) -> bool {
        matches!(
            command,
            ConnectorCommand::SyncState
                | ConnectorCommand::Lease
                | ConnectorCommand::PlanReceipt(_)
                | ConnectorCommand::Receipt { .. }
                | ConnectorCommand::SweepCheckpoint { .. }
                | ConnectorCommand::Candidates { .. }
                | ConnectorCommand::OwedSweeps
        )
    }

    fn decide(
        &self,
        key: &StreamKey,
        command: &ConnectorCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let StreamKey::Connector(owner, connector) = key else {
            return Err(Error::invalid("key", "expected an owner's connector"));
        };
        let scope = LeaseScope::Sync { owner: owner.clone(), connector: connector.clone() };
        // A fence of another scope is judged where that lease's row is, with the append.
        if let Some(fence) = context.fence.as_ref().filter(|fence| fence.scope == scope) {
            fence.check(self.standing_lease(context))?;
        }
        if Self::is_read(command) {
            return self.read(command, context);
        }
        match command {
            ConnectorCommand::AcquireLease { holder, ttl_ms } => {
                self.acquire_lease(holder, *ttl_ms, context)
            }
            ConnectorCommand::RenewLease { token, ttl_ms } => {
                self.renew_lease(&scope, *token, *ttl_ms, context)
            }
            ConnectorCommand::ReleaseLease { token } => self.release_lease(&scope, *token, context),
            _ => self.write(owner, connector, command, context),
        }
    }

    fn apply(&mut self, event: &ConnectorEvent) {
        self.apply_event(event);
    }

    fn touched(key: &StreamKey, event: &ConnectorEvent, rows: &mut Vec<RowKey>) {
        if let Some(naming) = naming(key) {
            naming.touched(event, rows);
        }
    }

    fn row(&self, key: &StreamKey, row: &RowKey) -> Option<Row> {
        naming(key)?.row(self, row)
    }

    fn rows(&self, key: &StreamKey) -> Vec<RowKey> {
        naming(key).map_or_else(Vec::new, |naming| naming.rows(self))
    }

    fn content(&self, key: &StreamKey, row: &RowKey) -> Vec<(usize, ContentRef)> {
        naming(key).map_or_else(Vec::new, |naming| naming.content(self, row))
    }

    fn resident(&self, key: &StreamKey) -> Vec<RowKey> {
        naming(key).map_or_else(Vec::new, |naming| naming.resident(self))
    }

    fn attach(&mut self, row: &RowKey, column: usize, value: &Value) {
        if row.table == Table::SyncState && column == RECOVERY_COLUMN {
            self.recovery = value.as_text().and_then(|text| Json::parse("recovery", text).ok());
        }
    }
}

impl Connector {
    fn read(&self, command: &ConnectorCommand, context: &Context) -> Result<Decision<Self>> {
        let reply = match command {
            ConnectorCommand::SyncState => ConnectorReply::SyncState(self.sync_state()),
            ConnectorCommand::Lease => {
                ConnectorReply::StandingLease(self.standing_lease(context).cloned())
            }
            ConnectorCommand::PlanReceipt(input) => return self.plan_receipt(input, context),
            ConnectorCommand::Receipt { partition, provenance } => {
                ConnectorReply::Receipt(self.sweep_receipt(partition, provenance))
            }
            ConnectorCommand::SweepCheckpoint { partition } => {
                let known = self.partitions.get(partition);
                let checkpoint = known.and_then(|known| known.checkpoint.clone());
                ConnectorReply::SweepCheckpoint(checkpoint)
            }
            ConnectorCommand::Candidates { partition, after, limit } => {
                ConnectorReply::Candidates(self.candidates(partition, after.as_ref(), *limit)?)
            }
            _ => ConnectorReply::OwedSweeps(self.owed_sweeps()),
        };
        Ok(Decision::unchanged(reply))
    }

    fn write(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
        command: &ConnectorCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        match command {
            ConnectorCommand::SetSyncState(input) => {
                self.set_sync_state(owner, connector, input, context)
            }
            ConnectorCommand::UpdateSyncProgress { update, guard } => {
                self.update_sync_progress(owner, connector, update, *guard, context)
            }
            ConnectorCommand::BeginReceipt(input) => {
                self.begin_receipt(owner, connector, input, context)
            }
            ConnectorCommand::ExtendReceipt(input) => self.extend_receipt(owner, connector, input),
            ConnectorCommand::CompleteReceipt(input) => {
                self.complete_receipt(owner, connector, input)
            }
            ConnectorCommand::CommitReceipt(input) => self.commit_receipt(input, context),
            ConnectorCommand::RecordSweepOutcome { candidate, outcome } => {
                self.record_sweep_outcome(candidate, *outcome, context)
            }
            ConnectorCommand::RecordSweepApplyFailure { candidate, error } => {
                self.record_sweep_apply_failure(candidate, error, context)
            }
            ConnectorCommand::SweepApplied { candidate } => {
                Ok(self.sweep_applied(candidate, context))
            }
            ConnectorCommand::CursorLost { partition } => Ok(Self::cursor_lost(partition, context)),
            ConnectorCommand::DropDocumentCandidates { document_id } => {
                Ok(self.drop_document_candidates(document_id, context))
            }
            _ => Ok(self.delete_sync_state()),
        }
    }
}

fn naming(key: &StreamKey) -> Option<Naming<'_>> {
    match key {
        StreamKey::Connector(owner, connector) => Some(Naming { owner, connector }),
        _ => None,
    }
}
