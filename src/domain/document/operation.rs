//! Provider-write operations: each is one intended write to the provider, and as long as its row
//! exists a replay cannot write twice.
//!
//! The rules are pure. Sending itself, and its time-out, are the host's.

use super::command::{
    ClaimOperation, DocumentReply, FinalOutcome, OperationOutcome, SendPermit, WatchOptions,
};
use super::event::{
    DocumentEvent, OperationClaimed, OperationCreated, OperationDeferred, OperationFinalized,
    OperationLeaseChanged, OperationRecorded, ReconcileReadBegun, SendStarted,
};
use super::state::{Document, Operation, OperationPhase, SendMark};
use super::{restore, watch};
use crate::base::limits::{
    MAX_DELAY_MS, MAX_ERROR_TEXT_BYTES, MAX_LEASE_MS, MAX_SOURCE_VERSION_BYTES, MIN_LEASE_MS,
};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{DocumentId, Error, Holder, OperationId, Result, SourceId, Timestamp, check_nul};
use crate::domain::{
    Context, Decision, FencingToken, Lease, LeaseScope, RowKey, Table, Value, forgetting_key,
};

type Decided = Result<Decision<Document>>;

/// An operation under a token that was found to be the current one.
struct Leased<'a> {
    id: &'a OperationId,
    operation: &'a Operation,
    lease: &'a Lease,
}

impl Document {
    pub(super) fn unfinished_operation(&self) -> Option<(&OperationId, &Operation)> {
        let unfinished = self.operations.iter().filter(|(_, operation)| !operation.is_final());
        unfinished.min_by_key(|(_, operation)| operation.sequence)
    }

    pub(super) fn find_operation(&self, id: &OperationId) -> Result<&Operation> {
        self.operations.get(id).ok_or(Error::NotFound { what: "operation" })
    }

    fn leased<'a>(
        &'a self,
        document: &DocumentId,
        id: &'a OperationId,
        token: FencingToken,
        context: &Context,
    ) -> Result<Leased<'a>> {
        let operation = self.find_operation(id)?;
        match operation.standing_lease(context) {
            Some(lease) if lease.token == token => Ok(Leased { id, operation, lease }),
            _ => Err(scope(document, id).lost()),
        }
    }

    /// A fence of another scope is judged where that lease's row is, with the append.
    pub(super) fn check_fence(&self, document: &DocumentId, context: &Context) -> Result<()> {
        let Some(fence) = &context.fence else { return Ok(()) };
        match &fence.scope {
            LeaseScope::Operation { document_id, operation_id } if document_id == document => {
                let operation = self.operations.get(operation_id);
                fence.check(operation.and_then(|operation| operation.standing_lease(context)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn claim_operation(
        &self,
        document: &DocumentId,
        claim: &ClaimOperation,
        context: &Context,
    ) -> Decided {
        check_ttl(claim.ttl_ms)?;
        check_delay("visibility_delay", claim.visibility_delay_ms)?;
        let Some(operation) = self.operations.get(&claim.operation_id) else {
            return self.create_operation(document, claim, context);
        };
        let same = operation.owner == claim.owner
            && operation.connector == claim.connector
            && operation.op == claim.op
            && operation.version == claim.version
            && operation.request_digest == claim.request_digest;
        if !same {
            return Err(Error::OperationMismatch { operation_id: claim.operation_id.clone() });
        }
        if operation.is_final() {
            let view = operation.view(document, &claim.operation_id);
            return Ok(Decision::unchanged(DocumentReply::Finished(Box::new(view))));
        }
        self.refuse_while_swept(document)?;
        if let Some(lease) = operation.standing_lease(context)
            && lease.holder != claim.holder
            && lease.expires_at > context.now
        {
            let (operation_id, expires_at) = (claim.operation_id.clone(), lease.expires_at);
            return Err(Error::OperationBusy { operation_id, expires_at });
        }
        if let Some(deferral) = operation.deferral.filter(|at| at.not_before > context.now) {
            return Err(Error::Deferred {
                operation_id: claim.operation_id.clone(),
                not_before: deferral.not_before,
                reason: deferral.reason.as_str(),
            });
        }
        let lease = grant(&claim.holder, claim.ttl_ms, context.next_version, context);
        // Whatever was sent may have arrived: whoever claims must ask the provider first.
        let reconcile = !matches!(operation.phase, OperationPhase::Attempted { sent: None })
            && !is_planted(PlantedBug::StartedSendHandedOut);
        let event = DocumentEvent::OperationClaimed(OperationClaimed {
            operation_id: claim.operation_id.clone(),
            lease: lease.clone(),
            reconcile,
            attempts: operation.attempts.saturating_add(u32::from(!reconcile)),
            at: context.now,
        });
        let mut decision = self.claimed(document, &claim.operation_id, vec![event], lease)?;
        decision.absent.push(forgetting_key(&operation.owner, &operation.connector));
        Ok(decision)
    }

    fn create_operation(
        &self,
        document: &DocumentId,
        claim: &ClaimOperation,
        context: &Context,
    ) -> Decided {
        self.refuse_while_swept(document)?;
        let lease = grant(&claim.holder, claim.ttl_ms, context.next_version, context);
        let event = DocumentEvent::OperationCreated(OperationCreated {
            operation_id: claim.operation_id.clone(),
            owner: claim.owner.clone(),
            connector: claim.connector.clone(),
            op: claim.op,
            version: claim.version.clone(),
            request_digest: claim.request_digest,
            visibility_delay_ms: claim.visibility_delay_ms,
            sequence: self.operation_sequence.saturating_add(1),
            sent: restore::lost_send(&claim.version, context),
            lease: lease.clone(),
            at: context.now,
        });
        let mut decision = self.claimed(document, &claim.operation_id, vec![event], lease)?;
        decision.absent.push(id_row_key(&claim.operation_id));
        decision.absent.push(forgetting_key(&claim.owner, &claim.connector));
        Ok(decision)
    }

    /// The answer of a claim shows the operation as the event leaves it.
    fn claimed(
        &self,
        document: &DocumentId,
        id: &OperationId,
        events: Vec<DocumentEvent>,
        lease: Lease,
    ) -> Decided {
        // Not the others: a document keeps its finished ones until it is swept.
        let standing = self.operations.get_key_value(id);
        let operations = standing.map(|(id, operation)| (id.clone(), operation.clone()));
        let mut after = Self { operations: operations.into_iter().collect(), ..Self::default() };
        events.iter().for_each(|event| after.apply_event(event));
        let operation = Box::new(after.find_operation(id)?.view(document, id));
        Ok(Decision::events(DocumentReply::Claimed { operation, lease }, events))
    }

    pub(super) fn refuse_while_swept(&self, document: &DocumentId) -> Result<()> {
        match self.sweep_begun_at {
            Some(_) => Err(Error::DocumentBeingSwept { document_id: document.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn mark_send_started(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        context: &Context,
    ) -> Decided {
        let leased = self.leased(document, id, token, context)?;
        if !matches!(leased.operation.phase, OperationPhase::Attempted { sent: None })
            && !is_planted(PlantedBug::StartedSendHandedOut)
        {
            return Err(Error::ReconcileFirst { operation_id: id.clone() });
        }
        let until = leased.lease.expires_at;
        if until <= context.now {
            return Err(Error::LeaseExpired { scope: scope(document, id).to_string() });
        }
        let mark = SendMark { started_at: context.now, until };
        let event = DocumentEvent::SendStarted(SendStarted { operation_id: id.clone(), mark });
        let within = until.as_millis().saturating_sub(context.now.as_millis());
        let permit = SendPermit { send_within_ms: within, send_until: until };
        Ok(Decision::events(DocumentReply::SendPermit(permit), vec![event]))
    }

    pub(super) fn defer_operation(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        deferral: super::command::Deferral,
        context: &Context,
    ) -> Decided {
        check_delay("delay", deferral.delay_ms)?;
        let leased = self.leased(document, id, token, context)?;
        let clears_mark = match &leased.operation.phase {
            OperationPhase::Attempted { sent: Some(_) } if !deferral.definite_refusal => {
                return Err(Error::ReconcileFirst { operation_id: id.clone() });
            }
            OperationPhase::Attempted { .. } => true,
            _ => false,
        };
        let event = DocumentEvent::OperationDeferred(OperationDeferred {
            operation_id: id.clone(),
            reason: deferral.reason,
            not_before: context.now.plus_millis(deferral.delay_ms),
            clears_mark,
            at: context.now,
        });
        Ok(Decision::events(DocumentReply::Done, vec![event]))
    }

    pub(super) fn record_operation(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        outcome: OperationOutcome,
        context: &Context,
    ) -> Decided {
        let leased = self.leased(document, id, token, context)?;
        let phase = match (outcome, &leased.operation.phase) {
            // Without a mark nobody knows when it was sent: the lease may end later than now, or
            // may have ended before.
            (OperationOutcome::Unknown, OperationPhase::Attempted { sent }) => {
                let until = leased.lease.expires_at.max(context.now);
                let unmarked = SendMark { started_at: context.now, until };
                OperationPhase::ReconcileOnly { sent: sent.unwrap_or(unmarked), read_at: None }
            }
            (OperationOutcome::NotWritten, OperationPhase::ReconcileOnly { sent, read_at }) => {
                let not_before = sent.until.plus_millis(leased.operation.visibility_delay_ms);
                if read_at.is_none_or(|read_at| read_at <= not_before)
                    && !is_planted(PlantedBug::EarlyReadProves)
                {
                    let operation_id = id.clone();
                    return Err(Error::ReconcileTooEarly { operation_id, not_before });
                }
                OperationPhase::Attempted { sent: None }
            }
            (OperationOutcome::NotWritten, OperationPhase::Attempted { sent: Some(_) }) => {
                return Err(Error::ReconcileFirst { operation_id: id.clone() });
            }
            _ => return Ok(Decision::unchanged(DocumentReply::Done)),
        };
        let event = DocumentEvent::OperationRecorded(OperationRecorded {
            operation_id: id.clone(),
            phase,
            at: context.now,
        });
        Ok(Decision::events(DocumentReply::Done, vec![event]))
    }

    pub(super) fn begin_reconcile_read(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        context: &Context,
    ) -> Decided {
        let leased = self.leased(document, id, token, context)?;
        match leased.operation.phase {
            OperationPhase::ReconcileOnly { .. } => {
                let event = ReconcileReadBegun { operation_id: leased.id.clone(), at: context.now };
                let events = vec![DocumentEvent::ReconcileReadBegun(event)];
                Ok(Decision::events(DocumentReply::Done, events))
            }
            _ => Err(Error::invalid("operation", "expected one that is reconcile_only")),
        }
    }

    pub(super) fn finalize_operation(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        outcome: &FinalOutcome,
        context: &Context,
    ) -> Decided {
        let leased = self.leased(document, id, token, context)?;
        let (phase, armed) = match outcome {
            FinalOutcome::Committed { source_id, source_version, watch } => {
                if let Some(version) = source_version {
                    check_source_version(version)?;
                }
                let phase = OperationPhase::Committed {
                    source_id: source_id.clone(),
                    source_version: source_version.clone(),
                };
                let armed =
                    watch.as_ref().map(|options| self.watch_of(&leased, source_id, options));
                (phase, armed)
            }
            FinalOutcome::Dead { error } => {
                check_text("error", error, MAX_ERROR_TEXT_BYTES)?;
                (OperationPhase::Dead { error: error.clone() }, None)
            }
        };
        let mut events = vec![DocumentEvent::OperationFinalized(OperationFinalized {
            operation_id: id.clone(),
            phase,
            at: context.now,
        })];
        let mut reply = DocumentReply::Finalized(None);
        if let Some((identity, options)) = armed {
            let (outcome, event) = self.arm(&identity, options, context)?;
            events.extend(event);
            reply = DocumentReply::Finalized(Some(outcome));
        }
        Ok(Decision::events(reply, events))
    }

    fn watch_of<'a>(
        &self,
        leased: &Leased<'_>,
        source_id: &SourceId,
        options: &'a WatchOptions,
    ) -> (watch::WatchIdentity, &'a WatchOptions) {
        let identity = watch::WatchIdentity {
            owner: leased.operation.owner.clone(),
            connector: leased.operation.connector.clone(),
            source_id: source_id.clone(),
        };
        (identity, options)
    }

    pub(super) fn renew_operation_lease(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        ttl_ms: i64,
        context: &Context,
    ) -> Decided {
        check_ttl(ttl_ms)?;
        let leased = self.leased(document, id, token, context)?;
        let lease = Lease { expires_at: context.now.plus_millis(ttl_ms), ..leased.lease.clone() };
        let event = lease_changed(id, Some(lease.clone()), context.now);
        Ok(Decision::events(DocumentReply::Lease(lease), vec![event]))
    }

    pub(super) fn release_operation_lease(
        &self,
        document: &DocumentId,
        id: &OperationId,
        token: FencingToken,
        context: &Context,
    ) -> Decided {
        self.leased(document, id, token, context)?;
        Ok(Decision::events(DocumentReply::Done, vec![lease_changed(id, None, context.now)]))
    }

    /// Is there one on the document with a higher sequence that is not dead?
    pub(super) fn has_newer_operation(&self, id: &OperationId) -> Result<bool> {
        let sequence = self.find_operation(id)?.sequence;
        Ok(self.operations.values().any(|other| {
            other.sequence > sequence && !matches!(other.phase, OperationPhase::Dead { .. })
        }))
    }
}

pub(super) fn lease_changed(
    id: &OperationId,
    lease: Option<Lease>,
    at: Timestamp,
) -> DocumentEvent {
    let operation_id = id.clone();
    DocumentEvent::OperationLeaseChanged(OperationLeaseChanged { operation_id, lease, at })
}

fn grant(holder: &Holder, ttl_ms: i64, version: i64, context: &Context) -> Lease {
    Lease {
        holder: holder.clone(),
        token: FencingToken { generation: context.generation, version },
        expires_at: context.now.plus_millis(ttl_ms),
    }
}

/// The scope of an operation's lease.
pub(super) fn scope(document: &DocumentId, id: &OperationId) -> LeaseScope {
    LeaseScope::Operation { document_id: document.clone(), operation_id: id.clone() }
}

/// The key of the row that makes an operation id known to all documents.
pub(super) fn id_row_key(id: &OperationId) -> RowKey {
    RowKey::new(Table::OperationId, vec![Value::Text(id.shared())])
}

fn check_ttl(ttl_ms: i64) -> Result<()> {
    if (MIN_LEASE_MS..=MAX_LEASE_MS).contains(&ttl_ms) {
        Ok(())
    } else {
        let reason = format!("expected {MIN_LEASE_MS} to {MAX_LEASE_MS} ms");
        Err(Error::invalid("ttl", reason))
    }
}

pub(super) fn check_delay(field: &'static str, delay_ms: i64) -> Result<()> {
    if (0..=MAX_DELAY_MS).contains(&delay_ms) {
        Ok(())
    } else {
        Err(Error::invalid(field, format!("expected 0 to {MAX_DELAY_MS} ms")))
    }
}

fn check_source_version(version: &str) -> Result<()> {
    check_text("source_version", version, MAX_SOURCE_VERSION_BYTES)?;
    if version.chars().any(char::is_control) {
        return Err(Error::invalid("source_version", "expected no control character"));
    }
    Ok(())
}

fn check_text(field: &'static str, text: &str, max_bytes: usize) -> Result<()> {
    if text.len() <= max_bytes {
        check_nul(field, text)
    } else {
        let got = text.len();
        Err(Error::invalid(field, format!("expected at most {max_bytes} bytes, got {got}")))
    }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
