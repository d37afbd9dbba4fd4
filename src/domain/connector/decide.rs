//! A connector as an aggregate: which rule decides which command. The rules are in the file of
//! their family.

use super::command::{ConnectorCommand, ConnectorReply};
use super::event::{self, ConnectorEvent};
use super::rows::{Naming, RECOVERY_COLUMN};
use super::state::Connector;
use crate::base::{Error, Json, Result, StreamKey, StreamKind};
use crate::domain::{Aggregate, ContentRef, Context, Decision, Row, RowKey, Table, Value};

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
            ConnectorCommand::VoidLease => "void_lease",
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
            ConnectorCommand::BeginForget => "begin_forget",
            ConnectorCommand::Forgetting => "forgetting",
            ConnectorCommand::AbandonForget { .. } => "abandon_forget",
            ConnectorCommand::ForgetPage { .. } => "forget_page",
            ConnectorCommand::FinishForget { .. } => "finish_forget",
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
                | ConnectorCommand::Forgetting
        )
    }

    fn is_timeless(command: &ConnectorCommand) -> bool {
        matches!(
            command,
            ConnectorCommand::SetSyncState(_)
                | ConnectorCommand::UpdateSyncProgress { .. }
                | ConnectorCommand::DeleteSyncState
        )
    }

    fn decide(
        &self,
        key: &StreamKey,
        command: &ConnectorCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let naming =
            naming(key).ok_or_else(|| Error::invalid("key", "expected an owner's connector"))?;
        let scope = naming.lease();
        // A fence of another scope is judged where that lease's row is, with the append.
        if let Some(fence) = context.fence.as_ref().filter(|fence| fence.scope == scope) {
            fence.check(self.standing_lease(context))?;
        }
        self.refuse_while_forgotten(&naming, command)?;
        self.dispatch(&naming, command, context)
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
    fn dispatch(
        &self,
        naming: &Naming<'_>,
        command: &ConnectorCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let answer = match command {
            ConnectorCommand::SetSyncState(input) => {
                return self.set_sync_state(naming, input, context);
            }
            ConnectorCommand::UpdateSyncProgress { update, guard } => {
                return self.update_sync_progress(naming, update, *guard, context);
            }
            ConnectorCommand::DeleteSyncState => return Ok(self.delete_sync_state()),
            ConnectorCommand::AcquireLease { holder, ttl_ms } => {
                return self.acquire_lease(holder, *ttl_ms, context);
            }
            ConnectorCommand::RenewLease { token, ttl_ms } => {
                return self.renew_lease(&naming.lease(), *token, *ttl_ms, context);
            }
            ConnectorCommand::ReleaseLease { token } => {
                return self.release_lease(&naming.lease(), *token, context);
            }
            ConnectorCommand::VoidLease => return Ok(self.void_lease(context)),
            ConnectorCommand::BeginReceipt(input) => {
                return self.begin_receipt(naming, input, context);
            }
            ConnectorCommand::ExtendReceipt(input) => return self.extend_receipt(naming, input),
            ConnectorCommand::CompleteReceipt(input) => {
                return self.complete_receipt(naming, input);
            }
            ConnectorCommand::PlanReceipt(input) => return self.plan_receipt(input, context),
            ConnectorCommand::CommitReceipt(input) => return self.commit_receipt(input, context),
            ConnectorCommand::RecordSweepOutcome { candidate, outcome } => {
                return self.record_sweep_outcome(candidate, *outcome, context);
            }
            ConnectorCommand::RecordSweepApplyFailure { candidate, error } => {
                return self.record_sweep_apply_failure(candidate, error, context);
            }
            ConnectorCommand::SweepApplied { candidate } => {
                return Ok(self.sweep_applied(candidate, context));
            }
            ConnectorCommand::CursorLost { partition } => {
                return Ok(Self::cursor_lost(partition, context));
            }
            ConnectorCommand::DropDocumentCandidates { document_id } => {
                return Ok(self.drop_document_candidates(document_id, context));
            }
            ConnectorCommand::BeginForget => return Ok(self.begin_forget(context)),
            ConnectorCommand::AbandonForget { mark } => return Ok(self.abandon_forget(*mark)),
            ConnectorCommand::ForgetPage { mark, limit } => {
                return self.forget_page(*mark, *limit);
            }
            ConnectorCommand::FinishForget { mark } => return self.finish_forget(*mark),
            ConnectorCommand::Forgetting => ConnectorReply::Forgetting(self.forgetting),
            ConnectorCommand::SyncState => ConnectorReply::SyncState(self.sync_state()),
            ConnectorCommand::Lease => {
                ConnectorReply::StandingLease(self.standing_lease(context).cloned())
            }
            ConnectorCommand::Receipt { partition, provenance } => {
                ConnectorReply::Receipt(self.sweep_receipt(partition, provenance))
            }
            ConnectorCommand::SweepCheckpoint { partition } => {
                ConnectorReply::SweepCheckpoint(self.sweep_checkpoint(partition))
            }
            ConnectorCommand::Candidates { partition, after, limit } => {
                ConnectorReply::Candidates(self.candidates(partition, after.as_ref(), *limit)?)
            }
            ConnectorCommand::OwedSweeps => ConnectorReply::OwedSweeps(self.owed_sweeps()),
        };
        Ok(Decision::unchanged(answer))
    }
}

fn naming(key: &StreamKey) -> Option<Naming<'_>> {
    match key {
        StreamKey::Connector(owner, connector) => Some(Naming { owner, connector }),
        _ => None,
    }
}
