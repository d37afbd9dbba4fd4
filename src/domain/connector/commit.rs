//! The rules of a commit: which receipt counts, what becomes a candidate, and the guard against
//! deleting too much.

use std::collections::{BTreeMap, BTreeSet};

use super::checkpoint::{self, Closed};
use super::command::{CommitReceipt, ConnectorReply, MassDeleteGuard, ReceiptKey};
use super::compare::{Comparison, KnownDocument};
use super::event::{CandidatesCreated, CandidatesWithdrawn, ConnectorEvent, ReceiptCommitted};
use super::receipt::{incomplete, superseded};
use super::state::{CandidateState, Completion, Connector, Era, Partition, ReceiptPhase, SweptEra};
use super::view::CommitResult;
use crate::base::limits::MAX_CANDIDATES_PER_EVENT;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{DocumentId, Error, ModelId, Result, SourceId, Timestamp};
use crate::domain::{Context, Decision};

/// The missing documents with their entities, each document once.
type Missing<'a> = BTreeMap<&'a DocumentId, &'a SourceId>;

/// What a commit changes of the standing candidates.
#[derive(Default)]
struct Changes<'a> {
    created: Vec<KnownDocument>,
    withdrawn: BTreeSet<&'a DocumentId>,
    closed: Closed,
}

impl Connector {
    /// Makes the missing documents candidates, and the receipt count.
    pub(super) fn commit_receipt(
        &self,
        input: &CommitReceipt,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let (result, events) = self.plan(input, context)?;
        Ok(Decision::events(ConnectorReply::Committed(result), events))
    }

    /// Answers the same and changes nothing.
    pub(super) fn plan_receipt(
        &self,
        input: &CommitReceipt,
        context: &Context,
    ) -> Result<Decision<Self>> {
        let (result, _) = self.plan(input, context)?;
        Ok(Decision::unchanged(ConnectorReply::Committed(result)))
    }

    fn plan(
        &self,
        input: &CommitReceipt,
        context: &Context,
    ) -> Result<(CommitResult, Vec<ConnectorEvent>)> {
        let key = &input.key;
        let (partition, receipt) = self.current_receipt(key)?;
        if let ReceiptPhase::Committed(_, result, _) = receipt.phase {
            return Ok((result, Vec::new()));
        }
        let era = Era { number: receipt.facts.era, provenance: key.provenance.clone() };
        check_order(partition, key, era.number)?;
        let completion = receipt
            .phase
            .completion()
            .ok_or_else(|| incomplete(key, "the last page is not here".to_owned()))?;
        let missing = missing(&input.comparison)?;
        let of_missing = missing.len() as u64;
        check_guard(key, &input.guard, input.comparison.known, of_missing, completion)?;

        let swept = partition.swept.as_ref();
        let same = swept.filter(|swept| swept.era.number == era.number);
        let older = swept.filter(|swept| swept.era.number != era.number);
        let changes = changes(same, &missing, &input.comparison);
        let of_older = older.map_or(0, |older| older.candidates.len() as u64);
        let result = CommitResult {
            known: input.comparison.known,
            missing: of_missing,
            candidates: changes.created.len() as u64,
            withdrawn: changes.withdrawn.len() as u64 + of_older,
        };
        let owed_version = partition.owed.map(|owed| owed.version);
        let committed = ReceiptCommitted {
            key: key.clone(),
            era: era.number,
            result,
            settles_owed: owed_version.is_some_and(|lost| receipt.facts.begun_version > lost),
            at: context.now,
        };
        let mut events = Vec::new();
        if let Some(older) = older {
            withdraw(key, older, older.candidates.keys(), &mut events);
        }
        if let Some(same) = same {
            withdraw(key, same, changes.withdrawn.iter().copied(), &mut events);
        }
        events.push(ConnectorEvent::ReceiptCommitted(committed));
        create(key, &receipt.facts.model_id, &changes.created, context.now, &mut events);
        if let Some(sequence) = checkpoint_at(same, &changes, key.sequence) {
            events.push(checkpoint::moved(&key.partition, &era, sequence, context.now));
        }
        Ok((result, events))
    }
}

fn check_order(partition: &Partition, key: &ReceiptKey, era: i64) -> Result<()> {
    let newest = partition.era.as_ref().map_or(era, |newest| newest.number);
    let is_behind = partition.swept.as_ref().is_some_and(|swept| {
        swept.era.number > era || (swept.era.number == era && swept.committed >= key.sequence)
    });
    if newest > era || is_behind { Err(superseded(key)) } else { Ok(()) }
}

fn missing(comparison: &Comparison) -> Result<Missing<'_>> {
    let missing: Missing<'_> =
        comparison.missing.iter().map(|entry| (&entry.document_id, &entry.source_id)).collect();
    if missing.len() as u64 > comparison.known {
        return Err(Error::invalid("known", "expected every missing document to be known"));
    }
    Ok(missing)
}

/// Refuses when too large a part of the known documents would go, or when nothing is kept and the
/// provider did not say that the partition is empty.
fn check_guard(
    key: &ReceiptKey,
    guard: &MassDeleteGuard,
    known: u64,
    missing: u64,
    completion: &Completion,
) -> Result<()> {
    if !(0.0..=1.0).contains(&guard.max_ratio) {
        return Err(Error::invalid("max_ratio", "expected a number from 0 to 1"));
    }
    let is_off = is_planted(PlantedBug::MassDeleteUnguarded);
    if guard.allow_mass_delete || known == 0 || is_off {
        return Ok(());
    }
    // The quotient is rounded like the ratio was when it was written, so 29 of 100 is exactly 0.29.
    let is_too_much =
        missing >= guard.min_count && to_f64(missing) / to_f64(known) > guard.max_ratio;
    let is_said_empty = completion.expected_count == Some(0);
    if is_too_much || (missing == known && !is_said_empty) {
        let partition = key.partition.clone();
        return Err(Error::SweepTooLarge { partition, candidates: missing, known });
    }
    Ok(())
}

/// The nearest float.
fn to_f64(number: u64) -> f64 {
    let part = |bits: u64| f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX));
    part(number >> 32) * 4_294_967_296.0 + part(number)
}

/// A document that is missing again keeps its standing candidate, unless that one is dead, or is of
/// another entity: what the provider said of that one does not count.
fn changes<'a>(
    same: Option<&SweptEra>,
    missing: &Missing<'_>,
    comparison: &'a Comparison,
) -> Changes<'a> {
    let mut changes = Changes::default();
    for (document_id, source_id) in missing {
        let standing = same.and_then(|swept| swept.candidates.get(*document_id));
        if let Some(candidate) = standing {
            if candidate.state != CandidateState::Dead && candidate.source_id == **source_id {
                continue;
            }
            changes.closed.count(candidate);
        }
        changes.created.push(KnownDocument {
            document_id: (*document_id).clone(),
            source_id: (*source_id).clone(),
        });
    }
    for (provenance, document) in &comparison.kept_again {
        let standing = same
            .filter(|swept| swept.era.provenance == *provenance)
            .and_then(|swept| swept.candidates.get(document));
        if let Some(candidate) = standing
            && !missing.contains_key(document)
            && !is_planted(PlantedBug::KeptAgainStaysCandidate)
            && changes.withdrawn.insert(document)
        {
            changes.closed.count(candidate);
        }
    }
    changes
}

/// Where the checkpoint moves with this commit. A new era begins without open candidates, as those
/// of the older one are withdrawn.
fn checkpoint_at(same: Option<&SweptEra>, changes: &Changes<'_>, sequence: i64) -> Option<i64> {
    let open = same.and_then(|swept| swept.first_open_after(&changes.closed));
    let nothing_is_left = open.is_none() && changes.created.is_empty();
    if nothing_is_left || is_planted(PlantedBug::CheckpointMovesAtCommit) {
        return Some(sequence);
    }
    same.and_then(|swept| swept.checkpoint_after(&changes.closed))
}

fn withdraw<'a>(
    key: &ReceiptKey,
    swept: &SweptEra,
    documents: impl Iterator<Item = &'a DocumentId>,
    events: &mut Vec<ConnectorEvent>,
) {
    let documents: Vec<&DocumentId> = documents.collect();
    events.extend(documents.chunks(MAX_CANDIDATES_PER_EVENT).map(|chunk| {
        ConnectorEvent::CandidatesWithdrawn(CandidatesWithdrawn {
            partition: key.partition.clone(),
            provenance: swept.era.provenance.clone(),
            documents: chunk.iter().map(|document| (*document).clone()).collect(),
        })
    }));
}

fn create(
    key: &ReceiptKey,
    model_id: &ModelId,
    created: &[KnownDocument],
    now: Timestamp,
    events: &mut Vec<ConnectorEvent>,
) {
    events.extend(created.chunks(MAX_CANDIDATES_PER_EVENT).map(|chunk| {
        ConnectorEvent::CandidatesCreated(CandidatesCreated {
            key: key.clone(),
            model_id: model_id.clone(),
            candidates: chunk.to_vec(),
            at: now,
        })
    }));
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
