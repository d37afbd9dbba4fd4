//! A storage that fails, stalls, forgets an acknowledgement, lets another host write first, fills its
//! disk or dies, by a script or from a seed.
//!
//! It wraps any [`Storage`] and changes nothing but what it is told to. Given the same seed and the
//! same calls it does the same. `fault.rs` has the faults and their chances, `append.rs` what an append
//! meets, `life.rs` how it ends, `port.rs` the other calls.

mod append;
mod fault;
mod life;
mod port;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::RwLock;
use uuid::Uuid;

pub use fault::{Chances, Fault, Gate, Stage};

use self::fault::{Seeded, full, unreachable};
use crate::base::{Result, StreamName, Timestamp};
use crate::domain::Row;
use crate::journal::{Append, Expected, MemoryJournal, Storage};
use crate::runtime::Clock;

type Observer = Arc<dyn Fn(Stage, &[Append]) + Send + Sync>;
type Rival = Box<dyn FnOnce(Expected) -> Append + Send>;

#[derive(Default)]
struct Script {
    faults: VecDeque<Fault>,
    rivals: Vec<(StreamName, Rival)>,
    observer: Option<Observer>,
    snapshot_gate: Option<Gate>,
    look_up_gate: Option<Gate>,
    rows_gate: Option<Gate>,
    /// The rows that appends took whose acknowledgement was lost: a look-up gives them back, as a
    /// backend does that lost the connection and not its memory.
    taken_in_doubt: HashMap<Uuid, Vec<Row>>,
    /// Transactions of two steps that were begun, in all and when the last of their commits failed.
    begun: u64,
    begun_at_failure: u64,
    /// How many more appends find the disk full. Counted from the largest number it never ends.
    appends_without_room: u64,
    /// A batch that waits to be written.
    under_way: Option<(Vec<Append>, Timestamp)>,
    seeded: Seeded,
    chances: Chances,
}

/// How appends are committed in a step of their own.
#[derive(Clone)]
struct Steps {
    journal: MemoryJournal,
    waits: bool,
    /// Held by a commit; if they wait for each other, from the beginning of its transaction on.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A storage with faults. Clones are one storage.
#[derive(Clone)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    script: Arc<Mutex<Script>>,
    is_offline: Arc<AtomicBool>,
    faults_done: Arc<AtomicU64>,
    time: Option<Arc<dyn Clock>>,
    /// Held for reading by a call while it is in the storage below.
    is_killed: Arc<RwLock<bool>>,
    steps: Option<Steps>,
}

impl FaultyStorage {
    /// Wraps a storage. Without a script nothing goes wrong.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self {
            inner,
            script: Arc::default(),
            is_offline: Arc::default(),
            faults_done: Arc::default(),
            time: None,
            is_killed: Arc::default(),
            steps: None,
        }
    }

    /// Appends are begun and committed in two steps, as on a server, and meet their faults at the
    /// commit. `journal` is the database below. If it `waits`, each transaction needs the locks of the
    /// one before: it begins once that has ended. Else it is judged at once, without what that one
    /// writes.
    ///
    /// # Panics
    /// A commit panics that a store must not send: beside another one, or of a transaction that was
    /// begun before an earlier one failed.
    #[must_use]
    pub fn in_two_steps(mut self, journal: &MemoryJournal, waits: bool) -> Self {
        self.steps = Some(Steps { journal: journal.clone(), waits, turn: Arc::default() });
        self
    }

    /// How many transactions were begun that have two steps.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.script().begun
    }

    /// The time of the database that this storage tells its store is that of `clock`, so that a test
    /// moves it. What the database itself stamps is not changed.
    #[must_use]
    pub fn with_time(mut self, clock: Arc<dyn Clock>) -> Self {
        self.time = Some(clock);
        self
    }

    /// Wraps a storage whose appends fail by chance, the same for the same seed.
    #[must_use]
    pub fn random(inner: Arc<dyn Storage>, seed: u64, chances: Chances) -> Self {
        let storage = Self::new(inner);
        let mut script = storage.script();
        (script.seeded, script.chances) = (Seeded::new(seed), chances);
        drop(script);
        storage
    }

    /// Adds what happens to the next call of `append` that has no fault scripted yet.
    pub fn next_append(&self, fault: Fault) {
        self.script().faults.push_back(fault);
    }

    /// Before the next batch that names `stream` is written, another host writes what `build` makes
    /// of the stream's head.
    pub fn rival(
        &self,
        stream: StreamName,
        build: impl FnOnce(Expected) -> Append + Send + 'static,
    ) {
        self.script().rivals.push((stream, Box::new(build)));
    }

    /// Tells `observer` of every batch, right before and right after its commit.
    pub fn observe(&self, observer: impl Fn(Stage, &[Append]) + Send + Sync + 'static) {
        self.script().observer = Some(Arc::new(observer));
    }

    /// Every snapshot that is written on its own waits at the gate from now on.
    pub fn stall_snapshots(&self, gate: Gate) {
        self.script().snapshot_gate = Some(gate);
    }

    /// Every look-up of a doubtful commit waits at the gate from now on.
    pub fn stall_look_ups(&self, gate: Gate) {
        self.script().look_up_gate = Some(gate);
    }

    /// The next query of rows, once it has read them, waits at the gate with its answer.
    pub fn stall_next_rows(&self, gate: Gate) {
        self.script().rows_gate = Some(gate);
    }

    /// From now on every call fails as if the database could not be reached, or no longer does.
    pub fn set_offline(&self, is_offline: bool) {
        self.is_offline.store(is_offline, Ordering::Release);
    }

    /// From now on the disk is full, or no longer is: every write fails with the retryable
    /// [`StorageFault::Full`](crate::StorageFault::Full) and leaves nothing; reads go on.
    pub fn set_full(&self, is_full: bool) {
        self.script().appends_without_room = if is_full { u64::MAX } else { 0 };
    }

    /// No more faults come: the script is dropped, chance ends, the storage is online and has room.
    /// What was killed stays so.
    pub fn heal(&self) {
        let mut script = self.script();
        script.faults.clear();
        script.rivals.clear();
        script.snapshot_gate = None;
        script.look_up_gate = None;
        script.rows_gate = None;
        script.chances = Chances::default();
        script.appends_without_room = 0;
        drop(script);
        self.set_offline(false);
    }

    /// How many faults and rivals have come so far.
    #[must_use]
    pub fn faults_done(&self) -> u64 {
        self.faults_done.load(Ordering::Acquire)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn online(&self) -> Result<&dyn Storage> {
        if self.is_offline.load(Ordering::Acquire) { Err(unreachable()) } else { Ok(&*self.inner) }
    }

    fn count(&self) {
        self.faults_done.fetch_add(1, Ordering::AcqRel);
    }

    /// The storage to write to.
    fn room(&self) -> Result<&dyn Storage> {
        let reached = self.online()?;
        if self.script().appends_without_room > 0 { Err(full()) } else { Ok(reached) }
    }

    fn choose(&self) -> (Fault, u64) {
        let mut script = self.script();
        let scripted = script.faults.pop_front();
        scripted.map_or_else(|| script.seeded.fault(script.chances), |fault| (fault, 0))
    }
}

impl std::fmt::Debug for FaultyStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStorage")
            .field("is_offline", &self.is_offline)
            .field("faults_done", &self.faults_done)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;

#[cfg(test)]
mod store_tests;
