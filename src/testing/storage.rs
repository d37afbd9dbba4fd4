//! A storage that fails, stalls, forgets an acknowledgement or lets another host write first, by a
//! script or from a seed.
//!
//! It wraps any [`Storage`] and changes nothing but what it is told to. Given the same seed and the
//! same calls it does the same.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use crate::base::{DocumentId, Error, OwnerDid, Result, StorageFault, StreamName, Timestamp};
use crate::domain::{DueRow, DueSource, Row, RowChange, RowKey};
use crate::journal::{
    Append, AppendOutcome, BatchError, BoxFuture, CommandRecord, DueCandidates, DuePage, Expected,
    Heads, HistoryCut, JournalRecord, Loaded, NewSnapshot, RowQuery, Storage, StreamPage,
};
use crate::runtime::Clock;

/// What happens to one call of [`Storage::append`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: it is written as it should be.
    None,
    /// Nothing is written, and the batch fails with this error.
    Fail(Error),
    /// Nothing is written; the batch may pass when it is tried again.
    Passing,
    /// It is written, and the acknowledgement is lost.
    LoseAcknowledgement,
    /// It is not written, and the caller can't know.
    LoseCommit,
    /// It waits at the gate, then is written.
    StallBefore(Gate),
    /// It is written, then waits at the gate before it is acknowledged.
    StallAfter(Gate),
    /// The call panics before anything is written.
    Panic,
}

/// Where a stalled call waits. Clones are one gate.
#[derive(Clone, Debug)]
pub struct Gate {
    is_open: Arc<watch::Sender<bool>>,
    is_reached: Arc<watch::Sender<bool>>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        let closed = || Arc::new(watch::Sender::new(false));
        Self { is_open: closed(), is_reached: closed() }
    }

    /// Lets everybody through, from now on.
    pub fn open(&self) {
        self.is_open.send_replace(true);
    }

    /// Waits until a call stands at the gate.
    pub async fn reached(&self) {
        wait_for(&self.is_reached).await;
    }

    async fn pass(&self) {
        self.is_reached.send_replace(true);
        wait_for(&self.is_open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

async fn wait_for(flag: &watch::Sender<bool>) {
    // The sender is held by the gate, so the wait ends only with the flag.
    let _ = flag.subscribe().wait_for(|is_set| *is_set).await;
}

/// Where an append stands when its observer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Right before the batch is handed to the storage.
    BeforeCommit,
    /// Right after the storage acknowledged it, before anyone else hears of it.
    AfterCommit,
}

/// How often each fault comes, in a thousand appends. What is left of the thousand goes well.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chances {
    /// [`Fault::Fail`] with a retryable error.
    pub fail: u32,
    /// [`Fault::Passing`].
    pub passing: u32,
    /// [`Fault::LoseAcknowledgement`].
    pub lose_acknowledgement: u32,
    /// [`Fault::LoseCommit`].
    pub lose_commit: u32,
    /// The call gives way to other tasks some times, then is written.
    pub stall: u32,
}

/// Most times that a randomly stalled call gives way.
const MAX_YIELDS: u64 = 16;

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
    random: Option<(Seeded, Chances)>,
}

/// A storage with faults.
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    script: Mutex<Script>,
    is_offline: AtomicBool,
    faults_done: AtomicU64,
    time: Option<Arc<dyn Clock>>,
}

impl FaultyStorage {
    /// Wraps a storage. Without a script nothing goes wrong.
    #[must_use]
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self {
            inner,
            script: Mutex::default(),
            is_offline: AtomicBool::new(false),
            faults_done: AtomicU64::new(0),
            time: None,
        }
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
        storage.script().random = Some((Seeded(seed), chances));
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

    /// No more faults come: the script is dropped, chance ends, the storage is online.
    pub fn heal(&self) {
        let mut script = self.script();
        script.faults.clear();
        script.rivals.clear();
        script.snapshot_gate = None;
        script.look_up_gate = None;
        script.rows_gate = None;
        script.random = None;
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

    fn choose(&self) -> (Fault, u64) {
        let mut script = self.script();
        let scripted = script.faults.pop_front();
        match (scripted, &mut script.random) {
            (Some(fault), _) => (fault, 0),
            (None, Some((seeded, chances))) => seeded.fault(*chances),
            (None, None) => (Fault::None, 0),
        }
    }

    async fn play_rivals(&self, batch: &[Append]) -> Result<(), BatchError> {
        let names = |stream: &StreamName| {
            batch.iter().flat_map(|append| &append.parts).any(|part| part.stream == *stream)
        };
        let due: Vec<(StreamName, Rival)> =
            self.script().rivals.extract_if(.., |(stream, _)| names(stream)).collect();
        for (stream, build) in due {
            let confirmed = self.inner.confirm_heads(&[stream]).await;
            let heads = confirmed.map_err(BatchError::Failed)?;
            let head = heads.heads.first().copied().flatten().unwrap_or(Expected::NONE);
            self.inner.append(&[build(head)], heads.now).await?;
            self.count();
        }
        Ok(())
    }

    fn remember_taken(&self, batch: &[Append], outcomes: Vec<AppendOutcome>) {
        let mut script = self.script();
        for (append, outcome) in batch.iter().zip(outcomes) {
            if let AppendOutcome::Committed { taken } = outcome {
                script.taken_in_doubt.insert(append.command_id, taken);
            }
        }
    }

    async fn look_up_taken(&self, append: &Append) -> Result<Option<AppendOutcome>> {
        let gate = self.script().look_up_gate.clone();
        if let Some(gate) = gate {
            gate.pass().await;
        }
        let found = self.online()?.look_up(append).await?;
        let remembered = self.script().taken_in_doubt.remove(&append.command_id);
        Ok(match (found, remembered) {
            (Some(AppendOutcome::Committed { .. }), Some(taken)) => {
                Some(AppendOutcome::Committed { taken })
            }
            (found, _) => found,
        })
    }

    fn tell(&self, stage: Stage, batch: &[Append]) {
        let observer = self.script().observer.clone();
        if let Some(observer) = observer {
            observer(stage, batch);
        }
    }

    async fn append_faulty(
        &self,
        batch: &[Append],
        now: Timestamp,
    ) -> Result<Vec<AppendOutcome>, BatchError> {
        let (fault, yields) = self.choose();
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        if yields > 0 || !matches!(fault, Fault::None) {
            self.count();
        }
        match &fault {
            Fault::Fail(error) => return Err(BatchError::Failed(error.clone())),
            Fault::Passing => return Err(BatchError::Passing(unreachable())),
            Fault::LoseCommit => return Err(BatchError::Unknown(unreachable())),
            Fault::StallBefore(gate) => gate.pass().await,
            Fault::Panic => panic!("the storage panics as it was told to"),
            Fault::None | Fault::LoseAcknowledgement | Fault::StallAfter(_) => {}
        }
        let inner = self.online().map_err(BatchError::Failed)?;
        self.play_rivals(batch).await?;
        self.tell(Stage::BeforeCommit, batch);
        let outcomes = inner.append(batch, now).await?;
        self.tell(Stage::AfterCommit, batch);
        match fault {
            Fault::LoseAcknowledgement => {
                self.remember_taken(batch, outcomes);
                return Err(BatchError::Unknown(unreachable()));
            }
            Fault::StallAfter(gate) => gate.pass().await,
            _ => {}
        }
        Ok(outcomes)
    }
}

fn unreachable() -> Error {
    Error::storage(StorageFault::Unavailable, "the connection was cut as a test asked")
}

impl std::fmt::Debug for FaultyStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultyStorage")
            .field("is_offline", &self.is_offline)
            .field("faults_done", &self.faults_done)
            .finish_non_exhaustive()
    }
}

/// SplitMix64: small, and the same on every machine.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }

    /// The fault, and how often the call gives way first.
    fn fault(&mut self, chances: Chances) -> (Fault, u64) {
        let mut drawn = self.below(1_000);
        let mut falls_on = |chance: u32| {
            let chance = u64::from(chance);
            let hit = drawn < chance;
            drawn = if hit { u64::MAX } else { drawn - chance };
            hit
        };
        if falls_on(chances.fail) {
            (Fault::Fail(unreachable()), 0)
        } else if falls_on(chances.passing) {
            (Fault::Passing, 0)
        } else if falls_on(chances.lose_acknowledgement) {
            (Fault::LoseAcknowledgement, 0)
        } else if falls_on(chances.lose_commit) {
            (Fault::LoseCommit, 0)
        } else if falls_on(chances.stall) {
            (Fault::None, 1 + self.below(MAX_YIELDS))
        } else {
            (Fault::None, 0)
        }
    }
}

/// Hands a call on, unless the storage is offline.
macro_rules! hand_on {
    ($self:ident . $call:ident ( $($argument:expr),* )) => {
        Box::pin(async move { $self.online()?.$call($($argument),*).await })
    };
}

impl Storage for FaultyStorage {
    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    fn generation(&self) -> i64 {
        self.inner.generation()
    }

    fn restored_at(&self) -> Option<Timestamp> {
        self.inner.restored_at()
    }

    fn is_restoring(&self) -> bool {
        self.inner.is_restoring()
    }

    fn begin_restore(&self, now: Timestamp) -> BoxFuture<'_, Result<()>> {
        hand_on!(self.begin_restore(now))
    }

    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>> {
        hand_on!(self.end_restore(generation))
    }

    fn backup<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        hand_on!(self.backup(path))
    }

    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>> {
        hand_on!(self.load(stream))
    }

    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>> {
        Box::pin(self.append_faulty(batch, now))
    }

    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>> {
        Box::pin(async move {
            let mut heads = self.online()?.confirm_heads(streams).await?;
            heads.now = self.time.as_ref().map_or(heads.now, |clock| clock.wall());
            Ok(heads)
        })
    }

    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>> {
        Box::pin(self.look_up_taken(append))
    }

    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>> {
        hand_on!(self.command(command_id))
    }

    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let gate = self.script().snapshot_gate.clone();
            if let Some(gate) = gate {
                gate.pass().await;
            }
            self.online()?.write_snapshot(stream, expected, snapshot).await
        })
    }

    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>> {
        Box::pin(async move {
            let rows = hand_on!(self.rows(query)).await;
            let gate = self.script().rows_gate.take();
            if let Some(gate) = gate {
                gate.pass().await;
            }
            rows
        })
    }

    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>> {
        hand_on!(self.row(key))
    }

    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>> {
        hand_on!(self.due(page))
    }

    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        hand_on!(self.count_due(sources, until))
    }

    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        hand_on!(self.next_due(after))
    }

    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>> {
        hand_on!(self.due_candidates(page))
    }

    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>> {
        hand_on!(self.observed(after, limit))
    }

    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        hand_on!(self.events(after, limit))
    }

    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        hand_on!(self.stream_events(stream))
    }

    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>> {
        hand_on!(self.streams(after, limit))
    }

    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>> {
        hand_on!(self.trimmed_up_to())
    }

    fn last_position(&self) -> BoxFuture<'_, Result<i64>> {
        hand_on!(self.last_position())
    }

    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>> {
        hand_on!(self.cut_history(cut))
    }

    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>> {
        hand_on!(self.drop_streams(streams))
    }

    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>> {
        hand_on!(self.drop_commands(recorded_before))
    }

    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>> {
        hand_on!(self.replace_rows(changes, expected))
    }

    fn committed(&self) -> watch::Receiver<i64> {
        self.inner.committed()
    }

    fn idle(&self) -> BoxFuture<'_, Result<bool>> {
        hand_on!(self.idle())
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

#[cfg(test)]
#[path = "storage_tests.rs"]
mod tests;
