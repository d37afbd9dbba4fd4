//! The rules of candidates and of owed sweeps, and the connector's part of a document sweep.

use std::ops::Bound;
use std::time::Duration;

use super::checkpoint::Closed;
use super::command::{CandidateKey, ConnectorReply, SweepOutcome};
use super::event::{
    CandidateApplyFailed, CandidateConfirmed, CandidateDeferred, CandidateGone,
    CandidatesWithdrawn, ConnectorEvent, CursorLost,
};
use super::state::{Candidate, CandidateState, Connector, SweptEra};
use super::sync::check_error;
use super::view::{OwedSweep, SweepCandidate};
use crate::base::limits::{
    MAX_PAGE_ROWS, MAX_SWEEP_APPLY_ATTEMPTS, SWEEP_BACKOFF_BASE_MS, SWEEP_BACKOFF_CAP_MS,
};
use crate::base::{DocumentId, Error, PartitionId, Result, Timestamp};
use crate::domain::{Context, Decision};

impl Connector {
    /// Standing candidates of a partition in the order of their documents.
    pub(super) fn candidates(
        &self,
        partition: &PartitionId,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> Result<Vec<SweepCandidate>> {
        let limit =
            usize::try_from(limit).ok().filter(|_| limit <= MAX_PAGE_ROWS).ok_or_else(|| {
                Error::invalid("limit", format!("expected at most {MAX_PAGE_ROWS}, got {limit}"))
            })?;
        let Some(swept) = self.partitions.get(partition).and_then(|known| known.swept.as_ref())
        else {
            return Ok(Vec::new());
        };
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = swept.candidates.range::<DocumentId, _>((start, Bound::Unbounded)).take(limit);
        Ok(page.map(|(document, candidate)| view(partition, swept, document, candidate)).collect())
    }

    /// What the provider said. A dead candidate stays dead unless the entity is there; only a new
    /// receipt that lacks it makes it pending again.
    pub(super) fn record_sweep_outcome(
        &self,
        key: &CandidateKey,
        outcome: SweepOutcome,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let (swept, candidate) = self.standing(key).ok_or_else(gone)?;
        let now = context.now;
        let (state, event) = match (outcome, candidate.state) {
            (SweepOutcome::Present, _) => {
                let withdrawn = ConnectorEvent::CandidatesWithdrawn(CandidatesWithdrawn {
                    partition: key.partition.clone(),
                    provenance: key.provenance.clone(),
                    documents: vec![key.document_id.clone()],
                });
                let reply = ConnectorReply::CandidateNow(None);
                return Ok(closing(key, swept, candidate, withdrawn, reply, now));
            }
            (SweepOutcome::Absent, CandidateState::Pending) => {
                let confirmed = CandidateConfirmed { candidate: key.clone(), at: now };
                (CandidateState::Confirmed, Some(ConnectorEvent::CandidateConfirmed(confirmed)))
            }
            (SweepOutcome::Unknown, CandidateState::Pending | CandidateState::Confirmed) => {
                let attempts = candidate.attempts.saturating_add(1);
                let deferred = CandidateDeferred {
                    candidate: key.clone(),
                    attempts,
                    next_attempt_at: due_after(attempts, context),
                    at: now,
                };
                (candidate.state, Some(ConnectorEvent::CandidateDeferred(deferred)))
            }
            (SweepOutcome::Absent, CandidateState::Confirmed) | (_, CandidateState::Dead) => {
                (candidate.state, None)
            }
        };
        let reply = ConnectorReply::CandidateNow(Some(state));
        Ok(Decision::events(reply, event.into_iter().collect()))
    }

    /// The host could not delete the document. After too many tries it is dead.
    pub(super) fn record_sweep_apply_failure(
        &self,
        key: &CandidateKey,
        error: &str,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_error(Some(error))?;
        let (swept, candidate) = self.standing(key).ok_or_else(gone)?;
        if candidate.state == CandidateState::Dead {
            let reply = ConnectorReply::CandidateNow(Some(CandidateState::Dead));
            return Ok(Decision::unchanged(reply));
        }
        let apply_failures = candidate.apply_failures.saturating_add(1);
        let is_dead = apply_failures >= MAX_SWEEP_APPLY_ATTEMPTS;
        let event = ConnectorEvent::CandidateApplyFailed(CandidateApplyFailed {
            candidate: key.clone(),
            apply_failures,
            error: error.to_owned(),
            next_attempt_at: due_after(apply_failures, context),
            is_dead,
            at: context.now,
        });
        if is_dead {
            let reply = ConnectorReply::CandidateNow(Some(CandidateState::Dead));
            return Ok(closing(key, swept, candidate, event, reply, context.now));
        }
        Ok(Decision::events(ConnectorReply::CandidateNow(Some(candidate.state)), vec![event]))
    }

    /// The host deleted the document. It is a report of what has happened, so it is taken in every
    /// state of the candidate: a refusal would bring nothing back.
    pub(super) fn sweep_applied(&self, key: &CandidateKey, context: &Context) -> Decision<Self> {
        let reply = ConnectorReply::Done;
        match self.standing(key) {
            None => Decision::unchanged(reply),
            Some((swept, candidate)) => {
                let event =
                    ConnectorEvent::CandidateApplied(CandidateGone { candidate: key.clone() });
                closing(key, swept, candidate, event, reply, context.now)
            }
        }
    }

    /// Everything of the document goes, in every partition.
    pub(super) fn drop_document_candidates(
        &self,
        document: &DocumentId,
        context: &Context,
    ) -> Decision<Self> {
        let mut events = Vec::new();
        for (partition, known) in &self.partitions {
            let Some(swept) = &known.swept else { continue };
            let Some(candidate) = swept.candidates.get(document) else { continue };
            let candidate_key = CandidateKey {
                partition: partition.clone(),
                provenance: swept.era.provenance.clone(),
                document_id: document.clone(),
                source_id: candidate.source_id.clone(),
            };
            let gone = CandidateGone { candidate: candidate_key };
            events.push(ConnectorEvent::CandidateDropped(gone));
            events.extend(swept.moved_after(partition, &Closed::one(candidate), context.now));
        }
        Decision::events(ConnectorReply::Done, events)
    }

    /// The partition owes a sweep that begins behind this event.
    pub(super) fn cursor_lost(partition: &PartitionId, context: &Context) -> Decision<Self> {
        let event = ConnectorEvent::CursorLost(CursorLost {
            partition: partition.clone(),
            version: context.next_version,
            at: context.now,
        });
        Decision::events(ConnectorReply::Done, vec![event])
    }

    pub(super) fn owed_sweeps(&self) -> Vec<OwedSweep> {
        let owed = self.partitions.iter().filter_map(|(partition, known)| {
            let owed = known.owed?;
            Some(OwedSweep { partition: partition.clone(), owed_since: owed.since })
        });
        owed.collect()
    }

    fn standing(&self, key: &CandidateKey) -> Option<(&SweptEra, &Candidate)> {
        let swept = self.partitions.get(&key.partition)?.swept.as_ref()?;
        let found = swept.candidates.get(&key.document_id)?;
        // A candidate of the same document for another entity is another candidate.
        let is_meant = swept.era.provenance == key.provenance && found.source_id == key.source_id;
        is_meant.then_some((swept, found))
    }
}

fn view(
    partition: &PartitionId,
    swept: &SweptEra,
    document: &DocumentId,
    candidate: &Candidate,
) -> SweepCandidate {
    SweepCandidate {
        partition: partition.clone(),
        provenance: swept.era.provenance.clone(),
        document_id: document.clone(),
        source_id: candidate.source_id.clone(),
        model_id: candidate.model_id.clone(),
        state: candidate.state,
        attempts: candidate.attempts,
        apply_failures: candidate.apply_failures,
        last_error: candidate.last_error.as_deref().map(str::to_owned),
        next_attempt_at: candidate.next_attempt_at,
        updated_at: candidate.updated_at,
    }
}

/// An event that closes the candidate, and the move of the checkpoint that it may bring.
fn closing(
    key: &CandidateKey,
    swept: &SweptEra,
    candidate: &Candidate,
    event: ConnectorEvent,
    reply: ConnectorReply,
    now: Timestamp,
) -> Decision<Connector> {
    let mut events = vec![event];
    events.extend(swept.moved_after(&key.partition, &Closed::one(candidate), now));
    Decision::events(reply, events)
}

const fn gone() -> Error {
    Error::NotFound { what: "sweep candidate" }
}

/// Exponential backoff with full jitter: any time up to the ceiling, so that the many candidates
/// of one commit do not come back together.
fn due_after(failures: u32, context: &Context) -> Timestamp {
    // Past this many doublings the cap holds in any case.
    let doublings = failures.saturating_sub(1).min(30);
    let ceiling_ms =
        SWEEP_BACKOFF_BASE_MS.saturating_mul(1_i64 << doublings).min(SWEEP_BACKOFF_CAP_MS);
    let ceiling = Duration::from_millis(u64::try_from(ceiling_ms).unwrap_or(0));
    let chance = if context.jitter.is_finite() { context.jitter.clamp(0.0, 1.0) } else { 1.0 };
    context.now.plus(ceiling.mul_f64(chance))
}

#[cfg(test)]
#[path = "candidate_tests.rs"]
mod tests;
