//! The checkpoint of a partition: the newest committed receipt behind which no pending or
//! confirmed candidate is left, of it or of an earlier one.
//!
//! Each receipt's open candidates are counted, so nothing is scanned when one of many closes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use super::command::ReceiptKey;
use super::event::{CandidatesCreated, CheckpointMoved, ConnectorEvent};
use super::state::{Candidate, CandidateState, Connector, Era, Partition, SweptEra};
use super::view::SweepCheckpoint;
use crate::base::{DocumentId, PartitionId, Timestamp};

/// The open candidates that a decision closes, counted by their receipt.
#[derive(Debug, Default)]
pub(super) struct Closed(BTreeMap<i64, u64>);

impl Closed {
    /// Counts the candidate if it is open.
    pub(super) fn count(&mut self, candidate: &Candidate) {
        if candidate.is_open() {
            *self.0.entry(candidate.sequence).or_default() += 1;
        }
    }

    /// The candidate alone.
    pub(super) fn one(candidate: &Candidate) -> Self {
        let mut closed = Self::default();
        closed.count(candidate);
        closed
    }

    fn leaves_none(&self, sequence: i64, open: u64) -> bool {
        self.0.get(&sequence).is_some_and(|closed| *closed >= open)
    }
}

impl Candidate {
    /// It is pending or confirmed: it holds the checkpoint back.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, CandidateState::Pending | CandidateState::Confirmed)
    }
}

impl SweptEra {
    pub(super) const fn new(era: Era) -> Self {
        Self {
            era,
            committed: 0,
            candidates: BTreeMap::new(),
            open: BTreeMap::new(),
            awaiting: BTreeSet::new(),
        }
    }

    /// Where the checkpoint moves when these candidates close, if it moves.
    pub(super) fn checkpoint_after(&self, closed: &Closed) -> Option<i64> {
        match self.first_open_after(closed) {
            Some(open) => self.awaiting.range(..open).next_back().copied(),
            None => self.awaiting.last().copied(),
        }
    }

    /// The earliest receipt that has an open candidate when these close.
    pub(super) fn first_open_after(&self, closed: &Closed) -> Option<i64> {
        let mut open = self.open.iter();
        open.find(|(sequence, open)| !closed.leaves_none(**sequence, **open)).map(|(at, _)| *at)
    }

    /// The event that moves the checkpoint when these candidates close, if it moves.
    pub(super) fn moved_after(
        &self,
        partition: &PartitionId,
        closed: &Closed,
        now: Timestamp,
    ) -> Option<ConnectorEvent> {
        self.checkpoint_after(closed).map(|sequence| moved(partition, &self.era, sequence, now))
    }

    /// The checkpoint may move to this newest receipt. A receipt is let go when none is open
    /// between it and the next: the checkpoint would pass it over.
    pub(super) fn wait_for(&mut self, sequence: i64) {
        let awaiting: Vec<i64> = self.awaiting.iter().copied().collect();
        for pair in awaiting.windows(2) {
            if self.open.range((Excluded(pair[0]), Included(pair[1]))).next().is_none() {
                self.awaiting.remove(&pair[0]);
            }
        }
        self.awaiting.insert(sequence);
    }

    pub(super) fn create(&mut self, created: &CandidatesCreated) {
        for entry in &created.candidates {
            let candidate = Candidate {
                source_id: entry.source_id.clone(),
                model_id: created.model_id.clone(),
                sequence: created.key.sequence,
                state: CandidateState::Pending,
                attempts: 0,
                apply_failures: 0,
                last_error: None,
                next_attempt_at: created.at,
                updated_at: created.at,
            };
            *self.open.entry(candidate.sequence).or_default() += 1;
            let earlier = self.candidates.insert(entry.document_id.clone(), candidate);
            if let Some(open) = earlier.filter(Candidate::is_open) {
                self.close(open.sequence);
            }
        }
    }

    pub(super) fn remove(&mut self, document: &DocumentId) {
        if let Some(open) = self.candidates.remove(document).filter(Candidate::is_open) {
            self.close(open.sequence);
        }
    }

    pub(super) fn change(&mut self, document: &DocumentId, change: impl FnOnce(&mut Candidate)) {
        if let Some(candidate) = self.candidates.get_mut(document) {
            let was_open = candidate.is_open();
            change(candidate);
            if was_open && !candidate.is_open() {
                let sequence = candidate.sequence;
                self.close(sequence);
            }
        }
    }

    fn close(&mut self, sequence: i64) {
        if let Some(open) = self.open.get_mut(&sequence) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.open.remove(&sequence);
            }
        }
    }
}

impl Connector {
    /// The checkpoint of a partition, or none.
    #[must_use]
    pub fn sweep_checkpoint(&self, partition: &PartitionId) -> Option<SweepCheckpoint> {
        self.partitions.get(partition)?.checkpoint.clone()
    }
}

impl Partition {
    pub(super) fn move_checkpoint(&mut self, moved: &CheckpointMoved) {
        if let Some(swept) = &mut self.swept {
            swept.awaiting.retain(|sequence| *sequence > moved.key.sequence);
        }
        self.checkpoint = Some(SweepCheckpoint {
            provenance: moved.key.provenance.clone(),
            era: moved.era,
            receipt_sequence: moved.key.sequence,
            updated_at: moved.at,
        });
    }
}

/// The event that moves the checkpoint to a receipt of an era.
pub(super) fn moved(
    partition: &PartitionId,
    era: &Era,
    sequence: i64,
    now: Timestamp,
) -> ConnectorEvent {
    let key =
        ReceiptKey { partition: partition.clone(), provenance: era.provenance.clone(), sequence };
    ConnectorEvent::CheckpointMoved(CheckpointMoved { key, era: era.number, at: now })
}
