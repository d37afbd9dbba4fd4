//! Projection watches: after a provider write the next reads must show the written value; until one
//! does, the document is watched. And who wins a read meanwhile.

use serde::{Deserialize, Serialize};

use super::command::{ArmOutcome, DocumentReply, ReadWinner, Verification, WatchOptions};
use super::event::{DocumentEvent, WatchArmed, WatchExpired, WatchMismatched};
use super::operation::check_delay;
use super::state::{Document, Watch, WatchStatus};
use crate::base::{ConnectorName, Digest, DocumentId, OwnerDid, Result, SourceId};
use crate::domain::{Context, Decision, forgetting_key};
use crate::records::Hlc;

/// What a watch is on, besides its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchIdentity {
    /// Whose.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// The entity at the provider.
    pub source_id: SourceId,
}

impl Document {
    /// What arming comes to: the event is none when the standing watch is kept.
    pub(super) fn arm(
        &self,
        identity: &WatchIdentity,
        options: &WatchOptions,
        context: &Context,
    ) -> Result<(ArmOutcome, Option<DocumentEvent>)> {
        check_delay("deadline", options.deadline_ms)?;
        let outcome = match &self.watch {
            Some(standing) if standing.written_hlc > options.written_hlc => {
                return Ok((ArmOutcome::Kept, None));
            }
            Some(_) => ArmOutcome::Replaced,
            None => ArmOutcome::Armed,
        };
        let armed = WatchArmed {
            identity: identity.clone(),
            reason: options.reason,
            expected_digest: options.expected_digest,
            written_hlc: options.written_hlc.clone(),
            deadline: context.now.plus_millis(options.deadline_ms),
            at: context.now,
        };
        Ok((outcome, Some(DocumentEvent::WatchArmed(armed))))
    }

    pub(super) fn arm_watch(
        &self,
        document: &DocumentId,
        identity: &WatchIdentity,
        options: &WatchOptions,
        context: &Context,
    ) -> Result<Decision<Self>> {
        self.refuse_while_swept(document)?;
        let (outcome, event) = self.arm(identity, options, context)?;
        let mut decision =
            Decision::events(DocumentReply::Armed(outcome), event.into_iter().collect());
        let mark = forgetting_key(&identity.owner, &identity.connector);
        decision.absent.push(mark);
        Ok(decision)
    }

    /// A fetch older than the write proves nothing. An equal value verifies, also after the
    /// deadline; a different one counts before it, and expires the watch behind it.
    pub(super) fn record_verification(
        &self,
        fetch_hlc: &Hlc,
        observed: Option<Digest>,
        context: &Context,
    ) -> Decision<Self> {
        let Some(watch) = &self.watch else {
            return Decision::unchanged(DocumentReply::Verification(Verification::NoWatch));
        };
        // Fetches may be told in another order than they began.
        let newest = watch.last_fetch_hlc.as_ref().map_or(fetch_hlc, |last| last.max(fetch_hlc));
        let has_expired = watch.status == WatchStatus::Expired || watch.deadline <= context.now;
        let (outcome, event) = if fetch_hlc < &watch.written_hlc {
            (Verification::Stale, None)
        } else if observed == watch.expected_digest {
            (Verification::Verified, Some(DocumentEvent::WatchVerified))
        } else if has_expired {
            let expired = DocumentEvent::WatchExpired(WatchExpired {
                fetch_hlc: newest.clone(),
                at: context.now,
            });
            let is_new = watch.status != WatchStatus::Expired
                || watch.last_fetch_hlc.as_ref() != Some(newest);
            (Verification::Expired, is_new.then_some(expired))
        } else {
            let count = watch.mismatches.saturating_add(1);
            let mismatched = DocumentEvent::WatchMismatched(WatchMismatched {
                mismatches: count,
                fetch_hlc: newest.clone(),
                at: context.now,
            });
            (Verification::Mismatched { count }, Some(mismatched))
        };
        Decision::events(DocumentReply::Verification(outcome), event.into_iter().collect())
    }

    pub(super) fn disarm_watch(&self) -> Decision<Self> {
        let event = self.watch.iter().map(|_| DocumentEvent::WatchDisarmed).collect();
        Decision::events(DocumentReply::Done, event)
    }

    /// The local write that comes before a value fetched at `fetch_hlc`, if there is one.
    pub(super) fn local_write(&self, fetch_hlc: &Hlc) -> Option<ReadWinner> {
        if let Some((id, _)) = self.unfinished_operation() {
            return Some(ReadWinner::LocalWrite { operation_id: Some(id.clone()) });
        }
        let watch = self.watch.as_ref().filter(|watch| &watch.written_hlc > fetch_hlc);
        watch.map(|_| ReadWinner::LocalWrite { operation_id: None })
    }
}

impl Watch {
    pub(super) fn armed(armed: &WatchArmed) -> Self {
        Self {
            identity: armed.identity.clone(),
            reason: armed.reason,
            expected_digest: armed.expected_digest,
            written_hlc: armed.written_hlc.clone(),
            armed_at: armed.at,
            deadline: armed.deadline,
            status: WatchStatus::Pending,
            mismatches: 0,
            last_fetch_hlc: None,
        }
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
