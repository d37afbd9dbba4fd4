//! The rules of a document: trims, the two ends of a sweep, and which rule decides which command.
//! Operations and watches have files of their own.

use super::command::{DocumentCommand, DocumentReply, FinalOutcome};
use super::event::{
    self, DocumentConnectionForgotten, DocumentEvent, DocumentSweepBegun, EntityTrimSet,
};
use super::repair::WRITTEN_AT_COLUMN;
use super::rows;
use super::state::{Document, EntityTrimRecord, ProjectionWatch};
use crate::base::{
    ConnectorName, DocumentId, Error, Json, OwnerDid, Result, StreamKey, StreamKind, Timestamp,
};
use crate::domain::{
    Aggregate, ContentRef, Context, Decision, Row, RowChange, RowKey, Table, Value,
};

impl Aggregate for Document {
    const KIND: StreamKind = event::KIND;
    const SNAPSHOT_SCHEMA: u16 = 1;
    type Command = DocumentCommand;
    type Event = DocumentEvent;
    type Reply = DocumentReply;

    fn command_name(command: &DocumentCommand) -> &'static str {
        match command {
            DocumentCommand::SetEntityTrim { .. } => "set_entity_trim",
            DocumentCommand::EntityTrim => "entity_trim",
            DocumentCommand::ClearEntityTrim => "clear_entity_trim",
            DocumentCommand::BeginDocumentSweep => "begin_document_sweep",
            DocumentCommand::AbandonDocumentSweep => "abandon_document_sweep",
            DocumentCommand::SweepDocumentRows => "sweep_document_rows",
            DocumentCommand::ClaimOperation(_) => "claim_operation",
            DocumentCommand::MarkSendStarted { .. } => "mark_send_started",
            DocumentCommand::DeferOperation { .. } => "defer_operation",
            DocumentCommand::RecordOperation { .. } => "record_operation",
            DocumentCommand::BeginReconcileRead { .. } => "begin_reconcile_read",
            DocumentCommand::FinalizeOperation { .. } => "finalize_operation",
            DocumentCommand::RenewOperationLease { .. } => "renew_operation_lease",
            DocumentCommand::ReleaseOperationLease { .. } => "release_operation_lease",
            DocumentCommand::RestoreOperations => "restore_operations",
            DocumentCommand::Operation { .. } => "operation",
            DocumentCommand::HasNewerOperation { .. } => "has_newer_operation",
            DocumentCommand::ArmWatch { .. } => "arm_watch",
            DocumentCommand::WatchByDocument => "watch_by_document",
            DocumentCommand::RecordVerification { .. } => "record_verification",
            DocumentCommand::DisarmWatch => "disarm_watch",
            DocumentCommand::ReadWinner { .. } => "read_winner",
            DocumentCommand::HasWork => "has_document_connector_work",
            DocumentCommand::PutObservationCopy(_) => "put_observation_copy",
            DocumentCommand::PruneObservationCopies { .. } => "prune_observation_copy",
            DocumentCommand::ObservationDecision { .. } => "observation_decision",
            DocumentCommand::PutRepair(_) => "put_repair",
            DocumentCommand::Repair => "repair",
            DocumentCommand::ClearRepair => "clear_repair",
            DocumentCommand::ForgetDocumentConnection { .. } => "forget_document_connection",
        }
    }

    fn is_read(command: &DocumentCommand) -> bool {
        matches!(
            command,
            DocumentCommand::EntityTrim
                | DocumentCommand::Operation { .. }
                | DocumentCommand::HasNewerOperation { .. }
                | DocumentCommand::WatchByDocument
                | DocumentCommand::ReadWinner { .. }
                | DocumentCommand::ObservationDecision { .. }
                | DocumentCommand::Repair
                | DocumentCommand::HasWork
        )
    }

    fn is_timeless(command: &DocumentCommand) -> bool {
        match command {
            DocumentCommand::SetEntityTrim { .. } | DocumentCommand::ClearEntityTrim => true,
            // What it arms has a deadline.
            DocumentCommand::FinalizeOperation { outcome, .. } => match outcome {
                FinalOutcome::Committed { watch, .. } => watch.is_none(),
                FinalOutcome::Dead { .. } => true,
            },
            _ => false,
        }
    }

    fn decide(
        &self,
        key: &StreamKey,
        command: &DocumentCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let document = document_id(key)?;
        self.check_fence(document, context)?;
        match command {
            DocumentCommand::EntityTrim => Ok(self.entity_trim(document)),
            DocumentCommand::SetEntityTrim { owner, connector, trimmed_fields } => {
                Ok(self.set_entity_trim(owner, connector, trimmed_fields, context))
            }
            DocumentCommand::ClearEntityTrim => {
                let event = self.trim.iter().map(|_| DocumentEvent::EntityTrimCleared);
                Ok(Decision::events(DocumentReply::Done, event.collect()))
            }
            DocumentCommand::BeginDocumentSweep => self.begin_sweep(document, context),
            DocumentCommand::AbandonDocumentSweep => {
                let begun = self.sweep_begun_at.iter();
                let event = begun.map(|_| DocumentEvent::DocumentSweepAbandoned);
                Ok(Decision::events(DocumentReply::Done, event.collect()))
            }
            DocumentCommand::SweepDocumentRows => self.sweep_rows(document),
            DocumentCommand::ForgetDocumentConnection { owner, connector } => {
                Ok(self.forget_connection(owner, connector))
            }
            DocumentCommand::ArmWatch { identity, options } => {
                self.arm_watch(document, identity, options, context)
            }
            DocumentCommand::WatchByDocument => {
                let watch = self.watch.as_ref().map(|watch| {
                    let (document_id, watch) = (document.clone(), (**watch).clone());
                    Box::new(ProjectionWatch { document_id, watch })
                });
                Ok(Decision::unchanged(DocumentReply::Watch(watch)))
            }
            DocumentCommand::RecordVerification { fetch_hlc, observed } => {
                Ok(self.record_verification(fetch_hlc, *observed, context))
            }
            DocumentCommand::DisarmWatch => Ok(self.disarm_watch()),
            DocumentCommand::ReadWinner { owner, fetch_hlc } => {
                Ok(self.read_winner(document, owner, fetch_hlc, context))
            }
            DocumentCommand::PutObservationCopy(put) => {
                Ok(self.put_observation_copy(document, put, context))
            }
            DocumentCommand::PruneObservationCopies { owner, issuer } => {
                Ok(self.prune_observation_copies(document, owner, issuer, context))
            }
            DocumentCommand::ObservationDecision { owner } => {
                Ok(self.observation_decision(document, owner, context))
            }
            DocumentCommand::PutRepair(repair) => Ok(self.put_repair(document, repair)),
            DocumentCommand::Repair => {
                Ok(Decision::unchanged(DocumentReply::Repair(self.repair.clone())))
            }
            DocumentCommand::ClearRepair => Ok(self.clear_repair()),
            DocumentCommand::HasWork => {
                let works = self.watch.is_some()
                    || self.trim.is_some()
                    || self.unfinished_operation().is_some();
                Ok(Decision::unchanged(DocumentReply::HasWork(works)))
            }
            _ => self.decide_operation(document, command, context),
        }
    }

    fn apply(&mut self, event: &DocumentEvent) {
        self.apply_event(event);
    }

    fn touched(key: &StreamKey, event: &DocumentEvent, rows: &mut Vec<RowKey>) {
        if let StreamKey::Document(document) = key {
            rows::touched(document, event, rows);
        }
    }

    fn row(&self, key: &StreamKey, row: &RowKey) -> Option<Row> {
        match key {
            StreamKey::Document(document) => rows::row(self, document, row),
            _ => None,
        }
    }

    fn rows(&self, key: &StreamKey) -> Vec<RowKey> {
        match key {
            StreamKey::Document(document) => rows::rows(self, document),
            _ => Vec::new(),
        }
    }

    fn content(&self, _key: &StreamKey, row: &RowKey) -> Vec<(usize, ContentRef)> {
        if row.table == Table::ObservationRecords { self.copy_content(row) } else { Vec::new() }
    }

    fn resident(&self, key: &StreamKey) -> Vec<RowKey> {
        match key {
            StreamKey::Document(document) => self.copy_keys(document),
            _ => Vec::new(),
        }
    }

    fn attach(&mut self, row: &RowKey, column: usize, value: &Value) {
        if row.table == Table::ObservationRecords {
            self.attach_copy(row, column, value);
        }
    }

    /// A copy that can't be read counts as one that does not verify.
    fn can_do_without(row: &RowKey) -> bool {
        row.table == Table::ObservationRecords
    }

    fn with_taken(reply: DocumentReply, taken: Vec<Row>) -> DocumentReply {
        match reply {
            DocumentReply::RepairPut(None) => {
                let repair = taken.iter().find(|row| row.table == Table::ObservationRepair);
                let written = repair.and_then(|row| row.values.get(WRITTEN_AT_COLUMN)?.as_int());
                DocumentReply::RepairPut(written.map(Timestamp::from_millis))
            }
            reply => reply,
        }
    }

    /// A finished operation stands in its row, which may be longer than a recorded answer. What a
    /// copy was not verified for is decided again.
    fn recorded(reply: &DocumentReply) -> Option<DocumentReply> {
        let is_recorded = !matches!(
            reply,
            DocumentReply::Finished(_) | DocumentReply::Decision(_) | DocumentReply::Unverified(_)
        );
        is_recorded.then(|| reply.clone())
    }
}

impl Document {
    fn entity_trim(&self, document: &DocumentId) -> Decision<Self> {
        let trim = self.trim.as_ref().map(|trim| EntityTrimRecord {
            document_id: document.clone(),
            owner: trim.owner.clone(),
            connector: trim.connector.clone(),
            trimmed_fields: trim.trimmed_fields.clone(),
            updated_at: trim.updated_at,
        });
        Decision::unchanged(DocumentReply::Trim(trim))
    }

    fn set_entity_trim(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
        trimmed_fields: &Json,
        context: &Context,
    ) -> Decision<Self> {
        let (owner, connector) = match &self.trim {
            Some(standing) => (&standing.owner, &standing.connector),
            None => (owner, connector),
        };
        let event = DocumentEvent::EntityTrimSet(EntityTrimSet {
            owner: owner.clone(),
            connector: connector.clone(),
            trimmed_fields: trimmed_fields.clone(),
            updated_at: context.now,
        });
        Decision::events(DocumentReply::Done, vec![event])
    }

    fn refuse_unfinished(&self, document: &DocumentId) -> Result<()> {
        match self.unfinished_operation() {
            Some(_) => Err(Error::SweepUnfinishedOperation { document_id: document.clone() }),
            None => Ok(()),
        }
    }

    fn begin_sweep(&self, document: &DocumentId, context: &Context) -> Result<Decision<Self>> {
        self.refuse_unfinished(document)?;
        let begun = DocumentEvent::DocumentSweepBegun(DocumentSweepBegun { at: context.now });
        let events = if self.sweep_begun_at.is_none() { vec![begun] } else { Vec::new() };
        Ok(Decision::events(DocumentReply::Done, events))
    }

    /// Deleting the row of an unfinished operation would let a replay write to the provider again.
    fn sweep_rows(&self, document: &DocumentId) -> Result<Decision<Self>> {
        self.refuse_unfinished(document)?;
        let mut decision = Decision::unchanged(DocumentReply::Done);
        if self.has_history {
            decision.events.push(DocumentEvent::Swept);
            // The event has no content, so it can't name the operations whose rows go.
            let keys = self.operations.keys().flat_map(|id| rows::operation_keys(document, id));
            let keys = keys.chain(self.copy_keys(document));
            decision.rows = keys.map(RowChange::Delete).collect();
            decision.erase = true;
            decision.retracts = true;
        }
        Ok(decision)
    }

    fn forget_connection(&self, owner: &OwnerDid, connector: &ConnectorName) -> Decision<Self> {
        let event = DocumentEvent::DocumentConnectionForgotten(DocumentConnectionForgotten {
            owner: owner.clone(),
            connector: connector.clone(),
        });
        let mut after = self.clone();
        after.apply_event(&event);
        after.has_history = self.has_history;
        if &after == self {
            return Decision::unchanged(DocumentReply::Done);
        }
        let mut decision = Decision::events(DocumentReply::Done, vec![event]);
        decision.trim = true;
        decision
    }

    fn decide_operation(
        &self,
        document: &DocumentId,
        command: &DocumentCommand,
        context: &Context,
    ) -> Result<Decision<Self>> {
        match command {
            DocumentCommand::ClaimOperation(claim) => {
                self.claim_operation(document, claim, context)
            }
            DocumentCommand::MarkSendStarted { operation_id, token } => {
                self.mark_send_started(document, operation_id, *token, context)
            }
            DocumentCommand::DeferOperation { operation_id, token, deferral } => {
                self.defer_operation(document, operation_id, *token, *deferral, context)
            }
            DocumentCommand::RecordOperation { operation_id, token, outcome } => {
                self.record_operation(document, operation_id, *token, *outcome, context)
            }
            DocumentCommand::BeginReconcileRead { operation_id, token } => {
                self.begin_reconcile_read(document, operation_id, *token, context)
            }
            DocumentCommand::FinalizeOperation { operation_id, token, outcome } => {
                self.finalize_operation(document, operation_id, *token, outcome, context)
            }
            DocumentCommand::RenewOperationLease { operation_id, token, ttl_ms } => {
                self.renew_operation_lease(document, operation_id, *token, *ttl_ms, context)
            }
            DocumentCommand::ReleaseOperationLease { operation_id, token } => {
                self.release_operation_lease(document, operation_id, *token, context)
            }
            DocumentCommand::RestoreOperations => Ok(self.restore_operations(context)),
            DocumentCommand::Operation { operation_id } => {
                let operation = self.operations.get(operation_id);
                let view = operation.map(|at| Box::new(at.view(document, operation_id)));
                Ok(Decision::unchanged(DocumentReply::Operation(view)))
            }
            DocumentCommand::HasNewerOperation { operation_id } => {
                let newer = self.has_newer_operation(operation_id)?;
                Ok(Decision::unchanged(DocumentReply::HasNewer(newer)))
            }
            _ => Err(Error::invalid("command", "expected a command of a document")),
        }
    }
}

fn document_id(key: &StreamKey) -> Result<&DocumentId> {
    match key {
        StreamKey::Document(document) => Ok(document),
        _ => Err(Error::invalid("key", "expected a document")),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
