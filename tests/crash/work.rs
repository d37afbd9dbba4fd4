//! What the tasks of the crash test do, and what the store must hold after it: pure.
//!
//! Every key belongs to one task, and a task waits for each answer, so the store must hold either
//! what was acknowledged, or that and the one command in flight. It knows no store.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Tasks that work at once.
pub const TASKS: usize = 24;
/// Documents of each task.
pub const DOCS: usize = 6;
/// The task whose authorizations expire: deleting expired ones reaches over all keys.
pub const EXPIRING_TASK: usize = 0;
/// Consumed authorizations that a task remembers.
const MAX_CONSUMED: usize = 10;
/// Commands with own ids that a task remembers.
const MAX_IDS: usize = 4;

/// SplitMix64: small, and the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.next() % bound).unwrap()
    }
}

/// One command. `n` is a number that the task never used before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    SetTrim {
        doc: usize,
        n: u64,
        way: Way,
    },
    ClearTrim {
        doc: usize,
    },
    BeginSweep {
        doc: usize,
    },
    AbandonSweep {
        doc: usize,
    },
    SweepRows {
        doc: usize,
    },
    SetState {
        n: u64,
    },
    Progress {
        n: u64,
    },
    DeleteState,
    /// A trim and progress in one unit of work.
    Unit {
        doc: usize,
        n: u64,
    },
    Acquire,
    Renew,
    Release,
    /// A write under a lease that was taken anew since: must be refused.
    StaleTrim {
        doc: usize,
        n: u64,
    },
    BeginReceipt,
    Extend {
        page: u32,
        ids: BTreeSet<usize>,
    },
    Complete,
    Commit,
    Confirm {
        doc: usize,
    },
    Applied {
        doc: usize,
    },
    LoseCursor,
    CreateAuth {
        n: u64,
    },
    ConsumeAuth {
        n: u64,
    },
    ExpireAuths {
        below: u64,
    },
}

/// How a trim is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Plain,
    /// Through the session of the task's lease.
    Fenced,
    /// With this command id.
    WithId(u128),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Doc {
    pub trim: Option<u64>,
    pub sweep_begun: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub n: u64,
    pub count: i64,
    pub status: String,
    pub version: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseSeen {
    pub token: String,
    pub expires_at: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    pub sequence: i64,
    pub next_page: u32,
    pub ids: u64,
    pub complete: bool,
    pub committed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auth {
    Pending,
    Consumed,
}

/// What can be read of a task's keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub docs: Vec<Doc>,
    pub sync: Option<Sync>,
    pub lease: Option<LeaseSeen>,
    pub receipt: Option<Receipt>,
    /// Candidates by document: whether the provider confirmed them.
    pub candidates: BTreeMap<usize, bool>,
    pub checkpoint: Option<i64>,
    pub owed: bool,
    pub auths: BTreeMap<u64, Auth>,
}

/// A task's keys as they must be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    pub seen: Seen,
    listed: BTreeSet<usize>,
    candidate_of: BTreeMap<usize, i64>,
    committed: BTreeSet<i64>,
    /// The newest commands with ids of their own.
    pub ids: Vec<(u128, usize, u64)>,
    next: u64,
    /// The task has a handle on its lease, and on an older one. No process inherits that.
    #[serde(skip)]
    pub has_lease: bool,
    #[serde(skip)]
    pub has_stale: bool,
}

impl TaskState {
    pub fn new() -> Self {
        let seen = Seen { docs: vec![Doc::default(); DOCS], ..Seen::default() };
        Self { seen, ..Self::default() }
    }

    /// Gets ready for another round: no number comes twice, and what is old is forgotten.
    pub fn next_round(&mut self) {
        self.next += 100_000;
        let consumed =
            self.seen.auths.iter().filter(|(_, auth)| **auth == Auth::Consumed).map(|(n, _)| *n);
        let consumed: Vec<u64> = consumed.collect();
        for n in consumed.iter().rev().skip(MAX_CONSUMED) {
            self.seen.auths.remove(n);
        }
        self.ids.drain(..self.ids.len().saturating_sub(MAX_IDS));
    }

    /// The next command.
    pub fn choose(&mut self, task: usize, random: &mut Random) -> Op {
        self.next += 1;
        let (n, doc) = (self.next, random.below(DOCS));
        match random.below(24) {
            0..4 => Op::SetTrim { doc, n, way: Way::Plain },
            4 => {
                let id = u128::from(random.next()) << 64 | u128::from(random.next());
                Op::SetTrim { doc, n, way: Way::WithId(id) }
            }
            5 if self.has_lease => Op::SetTrim { doc, n, way: Way::Fenced },
            6 => Op::ClearTrim { doc },
            7 if self.seen.docs[doc].sweep_begun => Op::AbandonSweep { doc },
            7 | 8 => Op::BeginSweep { doc },
            9 => Op::SweepRows { doc },
            10 => Op::SetState { n },
            11 | 12 => Op::Progress { n },
            13 if random.below(3) == 0 => Op::DeleteState,
            13 => Op::Unit { doc, n },
            5 | 14 | 15 => self.lease_op(doc, n, random),
            16..20 => self.receipt_op(random),
            20 => self.candidate_op(random),
            _ => self.auth_op(task, n, random),
        }
    }

    fn lease_op(&self, doc: usize, n: u64, random: &mut Random) -> Op {
        match random.below(6) {
            0 if self.has_lease => Op::Release,
            1 if self.has_stale => Op::StaleTrim { doc, n },
            2 | 3 if self.has_lease => Op::Renew,
            4 if self.has_lease => Op::SetTrim { doc, n, way: Way::Fenced },
            _ => Op::Acquire,
        }
    }

    fn receipt_op(&self, random: &mut Random) -> Op {
        let open = self.seen.receipt.as_ref().filter(|receipt| !receipt.committed);
        match open {
            // A loss while an enumeration is under way would outlive its commit.
            None if random.below(4) == 0 => Op::LoseCursor,
            None => Op::BeginReceipt,
            Some(_) if random.below(12) == 0 => Op::BeginReceipt,
            Some(receipt) if receipt.complete => Op::Commit,
            Some(receipt) if receipt.next_page >= 2 && !self.listed.is_empty() => Op::Complete,
            Some(receipt) => {
                let ids = (0..DOCS).filter(|doc| !self.listed.contains(doc));
                let ids = ids.filter(|_| random.below(5) < 2).collect();
                Op::Extend { page: receipt.next_page, ids }
            }
        }
    }

    fn candidate_op(&self, random: &mut Random) -> Op {
        let candidates: Vec<_> = self.seen.candidates.iter().collect();
        if candidates.is_empty() {
            return self.receipt_op(random);
        }
        let (&doc, &confirmed) = candidates[random.below(candidates.len())];
        match random.below(3) {
            0 => Op::SweepRows { doc },
            _ if confirmed => Op::Applied { doc },
            _ => Op::Confirm { doc },
        }
    }

    fn auth_op(&self, task: usize, n: u64, random: &mut Random) -> Op {
        let pending = self.seen.auths.iter().filter(|(_, auth)| **auth == Auth::Pending);
        let pending: Vec<u64> = pending.map(|(n, _)| *n).collect();
        match pending.as_slice() {
            [.., middle, _] if task == EXPIRING_TASK && random.below(3) == 0 => {
                Op::ExpireAuths { below: *middle }
            }
            [first, ..] if random.below(2) == 0 => Op::ConsumeAuth { n: *first },
            _ => Op::CreateAuth { n },
        }
    }

    /// Takes over what a command has done. A lease's token comes with its answer.
    pub fn apply(&mut self, op: &Op, lease: Option<&LeaseSeen>) {
        match op {
            Op::SetTrim { doc, n, way } => {
                self.seen.docs[*doc].trim = Some(*n);
                if let Way::WithId(id) = way {
                    self.ids.push((*id, *doc, *n));
                }
            }
            Op::ClearTrim { doc } => self.seen.docs[*doc].trim = None,
            Op::BeginSweep { doc } => self.seen.docs[*doc].sweep_begun = true,
            Op::AbandonSweep { doc } => self.seen.docs[*doc].sweep_begun = false,
            Op::SweepRows { doc } => {
                self.seen.docs[*doc] = Doc::default();
                self.drop_candidate(*doc);
            }
            Op::SetState { n } => {
                let version = self.seen.sync.as_ref().map_or(0, |sync| sync.version);
                let status = status(*n).to_owned();
                let count = i64::try_from(*n).unwrap();
                self.seen.sync = Some(Sync { n: *n, count, status, version });
            }
            Op::Progress { n } => self.progress(*n),
            Op::DeleteState => self.seen.sync = None,
            Op::Unit { doc, n } => {
                self.seen.docs[*doc].trim = Some(*n);
                self.progress(*n);
            }
            Op::Acquire => {
                self.has_stale = self.has_lease;
                self.has_lease = true;
                self.seen.lease = lease.cloned();
            }
            Op::Renew => self.seen.lease = lease.cloned(),
            Op::Release => {
                self.has_lease = false;
                self.seen.lease = None;
            }
            Op::StaleTrim { .. } => {}
            Op::CreateAuth { n } => _ = self.seen.auths.insert(*n, Auth::Pending),
            Op::ConsumeAuth { n } => _ = self.seen.auths.insert(*n, Auth::Consumed),
            Op::ExpireAuths { below } => {
                self.seen.auths.retain(|n, auth| n >= below || *auth == Auth::Consumed);
            }
            _ => self.apply_sweep(op),
        }
    }

    fn progress(&mut self, n: u64) {
        self.seen.sync = Some(match &self.seen.sync {
            None => Sync { n, count: 0, status: "idle".to_owned(), version: 0 },
            Some(Sync { count, status, version, .. }) => {
                Sync { n, count: count + 1, status: status.clone(), version: version + 1 }
            }
        });
    }

    fn apply_sweep(&mut self, op: &Op) {
        match op {
            Op::BeginReceipt => {
                let sequence = self.seen.receipt.as_ref().map_or(1, |receipt| receipt.sequence + 1);
                self.listed.clear();
                self.seen.receipt = Some(Receipt {
                    sequence,
                    next_page: 0,
                    ids: 0,
                    complete: false,
                    committed: false,
                });
            }
            Op::Confirm { doc } => _ = self.seen.candidates.insert(*doc, true),
            Op::Applied { doc } => self.drop_candidate(*doc),
            Op::LoseCursor => self.seen.owed = true,
            Op::Commit => self.commit(),
            _ => {
                let receipt = self.seen.receipt.as_mut().unwrap();
                if let Op::Extend { ids, .. } = op {
                    receipt.next_page += 1;
                    self.listed.extend(ids);
                    receipt.ids = u64::try_from(self.listed.len()).unwrap();
                } else {
                    receipt.complete = true;
                }
            }
        }
    }

    fn commit(&mut self) {
        let receipt = self.seen.receipt.as_mut().unwrap();
        receipt.committed = true;
        let sequence = receipt.sequence;
        self.seen.owed = false;
        self.committed.insert(sequence);
        for doc in 0..DOCS {
            if self.listed.contains(&doc) {
                self.seen.candidates.remove(&doc);
                self.candidate_of.remove(&doc);
            } else {
                self.seen.candidates.entry(doc).or_insert(false);
                self.candidate_of.entry(doc).or_insert(sequence);
            }
        }
        self.settle();
    }

    fn drop_candidate(&mut self, doc: usize) {
        if self.seen.candidates.remove(&doc).is_some() {
            self.candidate_of.remove(&doc);
            self.settle();
        }
    }

    /// The checkpoint is the newest committed receipt behind which no candidate is left.
    fn settle(&mut self) {
        let open = self.candidate_of.values().min().copied().unwrap_or(i64::MAX);
        if let Some(settled) = self.committed.range(..open).next_back() {
            self.seen.checkpoint = Some(*settled);
        }
    }

    /// The state with a command that was in flight when the process died. Where its effect can't be
    /// known beforehand it is taken from what was found, if that is possible at all.
    pub fn with_in_flight(&self, op: &Op, found: &Seen) -> Self {
        let mut state = self.clone();
        match (op, &self.seen.lease, &found.lease) {
            (Op::Acquire, old, Some(new))
                if old.as_ref().is_none_or(|old| old.token != new.token) =>
            {
                state.apply(op, Some(new));
            }
            (Op::Renew, Some(old), Some(new))
                if old.token == new.token && old.expires_at <= new.expires_at =>
            {
                state.apply(op, Some(new));
            }
            (Op::Acquire | Op::Renew, ..) => {}
            (Op::ExpireAuths { below }, ..) => {
                state.seen.auths.retain(|n, auth| {
                    n >= below || *auth == Auth::Consumed || found.auths.contains_key(n)
                });
            }
            _ => state.apply(op, None),
        }
        (state.has_lease, state.has_stale) = (false, false);
        state
    }
}

/// The status that `SetState` writes.
pub fn status(n: u64) -> &'static str {
    ["idle", "syncing", "error"][usize::try_from(n % 3).unwrap()]
}

/// A JSON text of `n`, of a length that varies.
pub fn text(n: u64) -> String {
    let filler = "ä~".repeat(usize::try_from(n % 7 * 60).unwrap());
    format!("{{\"n\":{n},\"filler\":\"{filler}\"}}")
}

/// What is fetched and not applied at `n`: none at times.
pub fn recovery(n: u64) -> Option<String> {
    (!n.is_multiple_of(3)).then(|| text(n + 2))
}
