//! Operations in a store that was restored from a backup. It is in the past, and what was sent since
//! the backup was taken has happened all the same.
//!
//! So nothing is sent on the word of a backup: the provider is asked, by a read that begins after
//! the restore.

use super::command::DocumentReply;
use super::event::{DocumentEvent, OperationRecorded};
use super::operation::lease_changed;
use super::state::{Document, Operation, OperationPhase, SendMark};
use crate::base::Timestamp;
use crate::domain::{Context, Decision};
use crate::records::Hlc;

/// The mark of a write of which is known only that it left at this time or before, if it did.
const fn sent_by(at: Timestamp) -> SendMark {
    SendMark { started_at: at, until: at }
}

/// The mark of an operation that is not known, and whose local change is not newer than the restore:
/// it may have been claimed and sent in the future that is lost.
pub(super) fn lost_send(version: &Hlc, context: &Context) -> Option<SendMark> {
    let restored_at = context.restored_at?;
    (version.wall_ms() <= restored_at.as_millis()).then(|| sent_by(restored_at))
}

impl Document {
    /// Takes all claims back, and has the provider asked about each operation that is not finished.
    pub(super) fn restore_operations(&self, context: &Context) -> Decision<Self> {
        let mut events = Vec::new();
        for (id, operation) in &self.operations {
            // A claim of this generation is younger than the restore.
            let restored_at = match operation.standing_lease(context) {
                Some(_) => None,
                None => context.restored_at,
            };
            let Some(phase) = restored_at.and_then(|at| operation.restored(at)) else { continue };
            if operation.phase != phase {
                let (operation_id, at) = (id.clone(), context.now);
                let recorded = OperationRecorded { operation_id, phase, at };
                events.push(DocumentEvent::OperationRecorded(recorded));
            }
            if operation.lease.is_some() {
                events.push(lease_changed(id, None, context.now));
            }
        }
        Decision::events(DocumentReply::Done, events)
    }
}

impl Operation {
    /// Its phase once a copy that holds it was restored; none when it is finished. What was to be
    /// asked may have been asked and sent again since, so what was read before counts no more.
    fn restored(&self, at: Timestamp) -> Option<OperationPhase> {
        let sent = match self.phase {
            OperationPhase::Attempted { sent } => sent.unwrap_or(sent_by(at)),
            OperationPhase::ReconcileOnly { sent, .. } => sent,
            OperationPhase::Committed { .. } | OperationPhase::Dead { .. } => return None,
        };
        let sent = SendMark { until: sent.until.max(at), ..sent };
        Some(OperationPhase::ReconcileOnly { sent, read_at: None })
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
