//! The genesis of a connector whose rows were written before there was a journal: one event for each
//! row, and what the rows do not say.
//!
//! They have no eras: a lineage's is told by when its receipt was begun. A candidate does not say
//! which receipt made it: the newest one of its lineage that can have. Nobody is known to hold the
//! sync, and what an enumeration depended on is not known, so no unfinished one goes on.

use std::collections::{BTreeMap, HashSet};

use super::ReceiptKey;
use super::command::ReceiptKind;
use super::content::SourceIdList;
use super::event::{CandidateAdopted, CheckpointMoved, ConnectorEvent, ReceiptAdopted};
use super::rows::{KEEP_COLUMN, RECOVERY_COLUMN};
use super::state::{
    Candidate, Completion, Era, Partition, Receipt, ReceiptFacts, ReceiptPhase, SweptEra,
    SyncRecord,
};
use super::view::{CommitResult, SweepCandidate, SyncState};
use crate::base::{ModelId, PartitionId, Provenance, Timestamp};
use crate::domain::{BadColumn, Columns, ContentRef, Row, Table, Unfit};

/// The place of `provenance` in the rows of a partition.
const PROVENANCE_COLUMN: usize = 3;

/// The rows of one partition.
#[derive(Default)]
struct PartitionRows<'a> {
    checkpoint: Option<&'a Row>,
    /// Each lineage's receipt.
    receipts: BTreeMap<Provenance, AdoptedReceipt>,
    candidates: Vec<(&'a Row, SweepCandidate)>,
}

struct AdoptedReceipt {
    facts: ReceiptFacts,
    phase: ReceiptPhase,
}

/// The events of a connector's rows, an event for each.
///
/// # Errors
/// The row that no state can have.
pub fn adopt(rows: &[Row]) -> Result<Vec<ConnectorEvent>, Unfit> {
    let mut events = Vec::with_capacity(rows.len());
    let mut partitions: BTreeMap<PartitionId, PartitionRows<'_>> = BTreeMap::new();
    for row in rows {
        let unfit = |bad: BadColumn| bad.of(row);
        if row.table == Table::SyncState {
            events.push(ConnectorEvent::SyncStateSet(sync_record(row).map_err(unfit)?));
            continue;
        }
        let columns = Columns(row);
        let partition = columns.name(2, PartitionId::new).map_err(unfit)?;
        let partition = partitions.entry(partition).or_default();
        match row.table {
            Table::SweepCheckpoint => partition.checkpoint = Some(row),
            Table::SweepReceipt => {
                let provenance = columns.name(PROVENANCE_COLUMN, Provenance::new).map_err(unfit)?;
                partition.receipts.insert(provenance, receipt(row).map_err(unfit)?);
            }
            Table::SweepCandidate => {
                let candidate = SweepCandidate::from_row(row).map_err(unfit)?;
                partition.candidates.push((row, candidate));
            }
            _ => return Err(Unfit::new(row, 0)),
        }
    }
    for (partition, rows) in partitions {
        rows.events(&partition, &mut events)?;
    }
    Ok(events)
}

fn sync_record(row: &Row) -> Result<SyncRecord, BadColumn> {
    let state = SyncState::from_row(row)?;
    Ok(SyncRecord {
        checkpoint: state.checkpoint,
        recovery: Columns(row).optional_text(RECOVERY_COLUMN)?.map(ContentRef::of),
        last_synced_at: state.last_synced_at,
        entity_count: state.entity_count,
        status: state.status,
        error: state.error,
        version: state.version,
        incarnation: state.incarnation,
    })
}

fn receipt(row: &Row) -> Result<AdoptedReceipt, BadColumn> {
    let columns = Columns(row);
    let facts = ReceiptFacts {
        era: 0,
        sequence: columns.int(4)?,
        begun_version: 0,
        model_id: columns.name(5, ModelId::new)?,
        scope: columns.text(6)?.to_owned(),
        source_fetch_hlc: columns.hlc(8)?,
        predicate: columns.optional_json(9)?,
        kind: columns.word(10, ReceiptKind::parse)?,
        fingerprint: String::new(),
        created_at: columns.time(12)?,
    };
    let keep = ContentRef::of(columns.text(KEEP_COLUMN)?);
    let committed_at = columns.optional_time(13)?;
    let phase = match (columns.flag(11)?, committed_at) {
        (false, None) => ReceiptPhase::Abandoned(keep),
        (false, Some(_)) => return Err(columns.bad(13)),
        (true, at) => {
            let ids: HashSet<_> =
                columns.name(KEEP_COLUMN, SourceIdList::ids)?.into_iter().collect();
            let distinct = ids.len() as u64;
            let completion = Completion { expected_count: None, distinct, keep };
            at.map_or(ReceiptPhase::Complete(completion), |at| {
                ReceiptPhase::Committed(completion, CommitResult::default(), at)
            })
        }
    };
    Ok(AdoptedReceipt { facts, phase })
}

impl PartitionRows<'_> {
    fn events(
        self,
        partition: &PartitionId,
        events: &mut Vec<ConnectorEvent>,
    ) -> Result<(), Unfit> {
        let of_candidates = self.candidates.first().map(|(_, first)| first.provenance.clone());
        // The candidates of a partition are of one lineage: a commit withdraws those of others.
        let other =
            self.candidates.iter().find(|(_, one)| Some(&one.provenance) != of_candidates.as_ref());
        if let Some((row, _)) = other {
            return Err(Unfit::new(row, PROVENANCE_COLUMN));
        }
        let eras = self.eras(of_candidates.as_ref());
        let era_of = |provenance: &Provenance| eras.get(provenance).copied().unwrap_or(0);
        if let Some(row) = self.checkpoint {
            let moved = checkpoint(row, partition, era_of).map_err(|bad| bad.of(row))?;
            events.push(ConnectorEvent::CheckpointMoved(moved));
        }
        let made_by = of_candidates.and_then(|provenance| self.receipts.get(&provenance));
        let sequence = made_by.map_or(0, AdoptedReceipt::newest_committed);
        let mut receipts: Vec<_> = self.receipts.into_iter().collect();
        receipts.sort_by_key(|(provenance, _)| era_of(provenance));
        for (provenance, AdoptedReceipt { facts, phase }) in receipts {
            let begun_version = i64::try_from(events.len()).unwrap_or(i64::MAX).saturating_add(1);
            let receipt = ReceiptFacts { era: era_of(&provenance), begun_version, ..facts };
            let partition = partition.clone();
            let adopted = ReceiptAdopted { partition, provenance, receipt, phase };
            events.push(ConnectorEvent::ReceiptAdopted(Box::new(adopted)));
        }
        events.extend(self.candidates.into_iter().map(|(_, candidate)| {
            let number = era_of(&candidate.provenance);
            ConnectorEvent::CandidateAdopted(Box::new(CandidateAdopted {
                partition: partition.clone(),
                era: Era { number, provenance: candidate.provenance },
                document_id: candidate.document_id,
                candidate: Candidate {
                    source_id: candidate.source_id,
                    model_id: candidate.model_id,
                    sequence,
                    state: candidate.state,
                    attempts: candidate.attempts,
                    apply_failures: candidate.apply_failures,
                    last_error: candidate.last_error.map(String::into_boxed_str),
                    next_attempt_at: candidate.next_attempt_at,
                    updated_at: candidate.updated_at,
                },
            }))
        }));
        Ok(())
    }

    /// The era of each lineage that has a receipt or candidates, from 1: in the order in which their
    /// receipts were begun, one without a receipt before all.
    fn eras(&self, of_candidates: Option<&Provenance>) -> BTreeMap<Provenance, i64> {
        let begun = |receipt: &AdoptedReceipt| Some(receipt.facts.created_at);
        let mut lineages: Vec<(Option<Timestamp>, &Provenance)> = self
            .receipts
            .iter()
            .map(|(provenance, receipt)| (begun(receipt), provenance))
            .collect();
        let without = of_candidates.filter(|provenance| !self.receipts.contains_key(*provenance));
        lineages.extend(without.map(|provenance| (None, provenance)));
        lineages.sort_unstable();
        let numbered = (1..).zip(lineages);
        numbered.map(|(number, (_, provenance))| (provenance.clone(), number)).collect()
    }
}

fn checkpoint(
    row: &Row,
    partition: &PartitionId,
    era_of: impl Fn(&Provenance) -> i64,
) -> Result<CheckpointMoved, BadColumn> {
    let columns = Columns(row);
    let provenance = columns.name(PROVENANCE_COLUMN, Provenance::new)?;
    let (era, sequence) = (era_of(&provenance), columns.int(4)?);
    let key = ReceiptKey { partition: partition.clone(), provenance, sequence };
    Ok(CheckpointMoved { key, era, at: columns.time(5)? })
}

impl AdoptedReceipt {
    /// The sequence of the newest receipt of the lineage that can have been committed.
    fn newest_committed(&self) -> i64 {
        let sequence = self.facts.sequence;
        match self.phase {
            ReceiptPhase::Committed(..) => sequence,
            _ => sequence.saturating_sub(1),
        }
    }
}

impl Partition {
    /// Eras come in their order, the checkpoint before them.
    pub(super) fn adopt_receipt(&mut self, adopted: &ReceiptAdopted) {
        let ReceiptAdopted { provenance, receipt: facts, phase, .. } = adopted;
        let era = Era { number: facts.era, provenance: provenance.clone() };
        if matches!(phase, ReceiptPhase::Committed(..)) {
            let mut swept = SweptEra::new(era.clone());
            swept.committed = facts.sequence;
            let moved = self.checkpoint.as_ref().map(|at| (at.era, at.receipt_sequence));
            if moved.is_none_or(|moved| moved < (facts.era, facts.sequence)) {
                swept.wait_for(facts.sequence);
            }
            self.swept = Some(swept);
        }
        self.era = Some(era);
        let (facts, phase) = (facts.clone(), *phase);
        let receipt = Receipt { facts, pages: Vec::new(), ids: 0, id_bytes: 0, phase };
        self.receipts.insert(provenance.clone(), receipt);
    }

    pub(super) fn adopt_candidate(&mut self, adopted: &CandidateAdopted) {
        let CandidateAdopted { era, document_id, candidate, .. } = adopted;
        if self.era.as_ref().is_none_or(|newest| newest.number < era.number) {
            self.era = Some(era.clone());
        }
        let mut swept = match self.swept.take() {
            Some(swept) if swept.era == *era => swept,
            _ => SweptEra::new(era.clone()),
        };
        swept.committed = swept.committed.max(candidate.sequence);
        if candidate.is_open() {
            *swept.open.entry(candidate.sequence).or_default() += 1;
        }
        swept.candidates.insert(document_id.clone(), candidate.clone());
        self.swept = Some(swept);
    }
}

#[cfg(test)]
#[path = "adopt_tests.rs"]
mod tests;
