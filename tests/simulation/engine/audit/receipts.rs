//! What becomes of enumerations: an incomplete or mixed receipt is never committed, the mass-delete
//! guard holds, candidates are what was missing and nothing else, and the sweep checkpoint moves only,
//! and as soon, as nothing pending or confirmed is left behind it.
//!
//! A model beside the store's: it believes the hosts' words of what they listed and knew, and the order
//! of the events.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::domain::connector::{
    CandidatesCreated, CheckpointMoved, ConnectorEvent, ReceiptBegun, ReceiptCommitted,
    ReceiptCompleted, ReceiptExtended,
};
use connector_store::domain::document::DocumentEvent;
use connector_store::{
    DocumentId, Event, MassDeleteGuard, PartitionId, Provenance, ReceiptKey, SourceId, StreamKey,
};

use super::Written;
use crate::engine::graph::Entity;
use crate::engine::world::World;

const COMPLETE: &str = "an incomplete receipt is never committed";
const GUARD: &str = "the mass-delete guard holds";
const CANDIDATES: &str = "candidates are what an enumeration lacked";
const OWED: &str = "a lost cursor is settled by a receipt that was begun after it";
const CHECKPOINT: &str = "the sweep checkpoint follows the candidates";

/// A page of an enumeration as a host got it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Whose it really was.
    pub remote: String,
    pub source_ids: Vec<SourceId>,
}

/// With what a host commits.
#[derive(Clone, Debug)]
pub struct Commit {
    pub known: BTreeMap<DocumentId, SourceId>,
    pub guard: MassDeleteGuard,
}

#[derive(Clone, Debug, Default)]
struct Receipt {
    sequence: i64,
    era: i64,
    /// The version of its begin.
    begun: i64,
    fingerprint: String,
    pages: Vec<Listed>,
    /// Once it is complete: the provider's count.
    complete: Option<Option<u64>>,
}

impl Receipt {
    fn keep(&self) -> BTreeSet<&SourceId> {
        self.pages.iter().flat_map(|page| &page.source_ids).collect()
    }
}

#[derive(Clone, Debug)]
struct Candidate {
    source_id: SourceId,
    sequence: i64,
    is_open: bool,
}

#[derive(Debug, Default)]
struct Swept {
    receipts: BTreeMap<Provenance, Receipt>,
    era: i64,
    /// The newest era with a committed receipt, and what was committed in it.
    committed_era: i64,
    committed: BTreeSet<i64>,
    candidates: BTreeMap<DocumentId, Candidate>,
    checkpoint: (i64, i64),
    /// The version at which the cursor was lost.
    lost: Option<i64>,
}

impl Swept {
    /// The newest committed receipt with nothing open behind it.
    fn reached(&self) -> Option<i64> {
        let open = self.candidates.values().filter(|candidate| candidate.is_open);
        let first = open.map(|candidate| candidate.sequence).min().unwrap_or(i64::MAX);
        self.committed.range(..first).next_back().copied()
    }
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

type Name = (usize, PartitionId);

/// See the module.
#[derive(Debug, Default)]
pub struct Receipts {
    listed: BTreeMap<(usize, ReceiptKey, u32), Listed>,
    commits: BTreeMap<(usize, ReceiptKey), Commit>,
    partitions: BTreeMap<Name, Swept>,
    /// Touched by the append that is being read.
    touched: BTreeSet<Name>,
    /// Committed by it, with what is kept.
    newly: Vec<(Name, ReceiptKey)>,
    swept: Vec<DocumentId>,
    pub committed: u64,
}

impl Receipts {
    /// A host is about to add this page.
    pub fn listed(&mut self, account: usize, key: &ReceiptKey, page: u32, listed: Listed) {
        self.listed.insert((account, key.clone(), page), listed);
    }

    /// A host is about to commit.
    pub fn commits(&mut self, account: usize, key: &ReceiptKey, commit: Commit) {
        self.commits.insert((account, key.clone()), commit);
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        match (&written.key, &written.event) {
            (StreamKey::Document(document), Event::Document(DocumentEvent::Swept)) => {
                self.swept.push(document.clone());
            }
            (StreamKey::Connector(owner, name), Event::Connector(event))
                if *name == world.accounts.connector =>
            {
                if let Some(account) = world.accounts.number(owner) {
                    self.receipt(world, account, written.version, event);
                    self.candidate(world, account, event);
                }
            }
            _ => {}
        }
    }

    fn partition(&mut self, account: usize, partition: &PartitionId) -> &mut Swept {
        self.touched.insert((account, partition.clone()));
        self.partitions.entry((account, partition.clone())).or_default()
    }

    fn current(&mut self, world: &World, account: usize, key: &ReceiptKey) -> &mut Receipt {
        let swept = self.partition(account, &key.partition);
        let receipt = swept.receipts.entry(key.provenance.clone()).or_default();
        world.hold(COMPLETE, receipt.sequence == key.sequence, || format!("{key:?} is not it"));
        receipt
    }

    fn receipt(&mut self, world: &World, account: usize, version: i64, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::ReceiptBegun(begun) => self.begun(account, version, begun),
            ConnectorEvent::CursorLost(lost) => {
                self.partition(account, &lost.partition).lost = Some(version);
            }
            ConnectorEvent::ReceiptExtended(extended) => self.extended(world, account, extended),
            ConnectorEvent::ReceiptCompleted(done) => self.completed(world, account, done),
            ConnectorEvent::ReceiptCommitted(done) => self.committed(world, account, done),
            ConnectorEvent::CheckpointMoved(moved) => self.moved(world, account, moved),
            ConnectorEvent::ConnectionForgotten(_) => {
                self.partitions.retain(|(of, _), _| *of != account);
                self.touched.clear();
            }
            _ => {}
        }
    }

    fn begun(&mut self, account: usize, version: i64, begun: &ReceiptBegun) {
        let receipt = Receipt {
            sequence: begun.receipt.sequence,
            era: begun.receipt.era,
            begun: version,
            fingerprint: begun.receipt.fingerprint.clone(),
            ..Receipt::default()
        };
        let swept = self.partition(account, &begun.partition);
        swept.era = swept.era.max(receipt.era);
        swept.receipts.insert(begun.provenance.clone(), receipt);
    }

    fn extended(&mut self, world: &World, account: usize, extended: &ReceiptExtended) {
        let name = (account, extended.key.clone(), extended.page);
        let Some(listed) = self.listed.get(&name).cloned() else {
            return world.violate(COMPLETE, format!("nobody has listed {name:?}"));
        };
        let receipt = self.current(world, account, &extended.key);
        let is_next = u32::try_from(receipt.pages.len()) == Ok(extended.page);
        let is_it = listed.source_ids.len() as u64 == extended.ids;
        let is_of_it = listed.remote == receipt.fingerprint;
        world.hold(COMPLETE, is_next && is_it && is_of_it, || {
            format!("{extended:?} of {receipt:?}, and it was {listed:?}")
        });
        receipt.pages.push(listed);
    }

    fn completed(&mut self, world: &World, account: usize, done: &ReceiptCompleted) {
        let receipt = self.current(world, account, &done.key);
        let distinct = receipt.keep().len() as u64;
        let is_whole = done.distinct == distinct
            && done.expected_count.is_none_or(|expected| expected == distinct);
        world.hold(COMPLETE, is_whole, || format!("{done:?} has {distinct}"));
        receipt.complete = Some(done.expected_count);
    }

    fn committed(&mut self, world: &World, account: usize, done: &ReceiptCommitted) {
        let commit = self.commits.get(&(account, done.key.clone())).cloned();
        let receipt = self.current(world, account, &done.key).clone();
        let Some((commit, expected)) = commit.zip(receipt.complete) else {
            return world.violate(COMPLETE, format!("{done:?} of {receipt:?}"));
        };
        let keep = receipt.keep();
        let known = commit.known.len() as u64;
        let missing = commit.known.values().filter(|id| !keep.contains(id)).count() as u64;
        let is_same = done.result.known == known && done.result.missing == missing;
        world.hold(CANDIDATES, is_same, || format!("{done:?}, and {missing} of {known}"));
        let guard = commit.guard;
        let is_too_much = missing >= guard.min_count
            && float(missing) > guard.max_ratio * float(known)
            || missing == known && expected != Some(0);
        world.hold(GUARD, guard.allow_mass_delete || known == 0 || !is_too_much, || {
            format!("{done:?}: {missing} of {known} would go")
        });
        let swept = self.partition(account, &done.key.partition);
        let is_newest = swept.era == done.era
            && swept.committed_era <= done.era
            && (swept.committed_era < done.era
                || swept.committed.last().is_none_or(|last| *last < done.key.sequence));
        world.hold(COMPLETE, is_newest, || format!("{done:?} is not the newest"));
        if swept.committed_era < done.era {
            let left = swept.candidates.len();
            world.hold(CANDIDATES, left == 0, || format!("{left} of the era before {done:?}"));
            swept.committed.clear();
            swept.committed_era = done.era;
        }
        swept.committed.insert(done.key.sequence);
        let settles = swept.lost.is_some_and(|lost| receipt.begun > lost);
        world.hold(OWED, settles == done.settles_owed, || format!("{done:?}"));
        swept.lost = swept.lost.filter(|_| !settles);
        self.newly.push(((account, done.key.partition.clone()), done.key.clone()));
        self.committed += 1;
    }

    fn moved(&mut self, world: &World, account: usize, moved: &CheckpointMoved) {
        let swept = self.partition(account, &moved.key.partition);
        let to = (moved.era, moved.key.sequence);
        let is_reached = swept.committed_era == moved.era
            && swept.committed.contains(&moved.key.sequence)
            && swept.reached().is_some_and(|reached| moved.key.sequence <= reached);
        world.hold(CHECKPOINT, is_reached && swept.checkpoint < to, || {
            format!("{moved:?} from {:?}, with {:?}", swept.checkpoint, swept.candidates)
        });
        swept.checkpoint = to;
    }

    fn candidate(&mut self, world: &World, account: usize, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::CandidatesCreated(created) => self.created(world, account, created),
            ConnectorEvent::CandidatesWithdrawn(withdrawn) => {
                let swept = self.partition(account, &withdrawn.partition);
                withdrawn.documents.iter().for_each(|id| drop(swept.candidates.remove(id)));
            }
            ConnectorEvent::CandidateApplyFailed(failed) if failed.is_dead => {
                let swept = self.partition(account, &failed.candidate.partition);
                if let Some(candidate) = swept.candidates.get_mut(&failed.candidate.document_id) {
                    candidate.is_open = false;
                }
            }
            ConnectorEvent::CandidateApplied(gone) | ConnectorEvent::CandidateDropped(gone) => {
                let swept = self.partition(account, &gone.candidate.partition);
                let known = swept.candidates.remove(&gone.candidate.document_id);
                let is_it = known.is_some_and(|known| known.source_id == gone.candidate.source_id);
                world.hold(CANDIDATES, is_it, || format!("{gone:?} did not stand"));
            }
            _ => {}
        }
    }

    fn created(&mut self, world: &World, account: usize, created: &CandidatesCreated) {
        let known = self.commits.get(&(account, created.key.clone())).map(|of| of.known.clone());
        let keep = self.current(world, account, &created.key).clone();
        let keep = keep.keep();
        for entry in &created.candidates {
            let is_known = known
                .as_ref()
                .is_some_and(|known| known.get(&entry.document_id) == Some(&entry.source_id));
            world.hold(CANDIDATES, is_known && !keep.contains(&entry.source_id), || {
                format!("{entry:?} of {:?}", created.key)
            });
            let candidate = Candidate {
                source_id: entry.source_id.clone(),
                sequence: created.key.sequence,
                is_open: true,
            };
            let swept = self.partition(account, &created.key.partition);
            swept.candidates.insert(entry.document_id.clone(), candidate);
        }
    }

    /// An append has been read as a whole.
    pub(super) fn settle(&mut self, world: &World) {
        for (name, key) in std::mem::take(&mut self.newly) {
            self.settle_commit(world, &name, &key);
        }
        for document in std::mem::take(&mut self.swept) {
            let Some(Entity { account, partition, .. }) = Entity::of(&document) else { continue };
            let of_it = self.partitions.get(&(account, partition));
            let left = of_it.is_some_and(|swept| swept.candidates.contains_key(&document));
            world.hold(CANDIDATES, !left, || format!("{document} is swept and a candidate"));
        }
        for name in std::mem::take(&mut self.touched) {
            let Some(swept) = self.partitions.get(&name) else { continue };
            let reached = swept.reached().map(|sequence| (swept.committed_era, sequence));
            world.hold(CHECKPOINT, reached.is_none_or(|to| to <= swept.checkpoint), || {
                format!("{name:?} is at {:?} and may be at {reached:?}", swept.checkpoint)
            });
        }
    }

    /// Of a commit: what is there is no candidate, what is not is one.
    fn settle_commit(&self, world: &World, name: &Name, key: &ReceiptKey) {
        let (Some(swept), Some(commit)) =
            (self.partitions.get(name), self.commits.get(&(name.0, key.clone())))
        else {
            return;
        };
        let Some(receipt) = swept.receipts.get(&key.provenance) else { return };
        let keep = receipt.keep();
        let there = swept.candidates.values().find(|standing| keep.contains(&standing.source_id));
        world.hold(CANDIDATES, there.is_none(), || format!("{there:?} is in {key:?}"));
        let mut missing = commit.known.iter().filter(|(_, id)| !keep.contains(id));
        let lost = missing.find(|(document, _)| !swept.candidates.contains_key(*document));
        world.hold(CANDIDATES, lost.is_none(), || format!("{lost:?} is missing in {key:?}"));
    }

    /// Whether the checkpoint of a partition of the account is not at the newest committed receipt.
    pub fn is_behind(&self, account: usize, partition: &PartitionId) -> bool {
        self.partitions.get(&(account, partition.clone())).is_some_and(|swept| {
            let newest = swept.committed.last().map(|newest| (swept.committed_era, *newest));
            newest != Some(swept.checkpoint)
        })
    }
}
