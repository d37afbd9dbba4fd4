//! The faults that a storage can be told to have: by a script, or by chance from a seed.
//!
//! What they do to a storage is not known here.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;

#[cfg(doc)]
use super::FaultyStorage;
use crate::base::{Error, StorageFault};
#[cfg(doc)]
use crate::journal::{AppendOutcome, Storage};
use crate::testing::chance::draw;

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
    /// So many appends that write, this one first, find the disk full, as after
    /// [`FaultyStorage::set_full`].
    Full(u64),
    /// Another host was first on a stream of the batch, which the seed chooses: every append that
    /// names it is refused as [`AppendOutcome::Conflict`], and so is what stands on one of those.
    ///
    /// No event is written for it: none of the domain is harmless to every state, reader of the feed
    /// and count of a test. A rival that writes is [`FaultyStorage::rival`], or another store. Only
    /// where several hosts share a storage can it happen.
    Rival,
    /// The process is killed while this append is under way, as by [`FaultyStorage::kill`].
    Kill,
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

    pub(super) async fn pass(&self) {
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
    /// [`Fault::Full`], for some appends.
    pub full: u32,
    /// [`Fault::Rival`].
    pub rival: u32,
    /// [`Fault::Kill`].
    pub kill: u32,
}

impl Chances {
    /// Everything goes well.
    pub const NONE: Self = Self {
        fail: 0,
        passing: 0,
        lose_acknowledgement: 0,
        lose_commit: 0,
        stall: 0,
        full: 0,
        rival: 0,
        kill: 0,
    };
}

/// Most times that a randomly stalled call gives way.
const MAX_YIELDS: u64 = 16;
/// Most appends that find the disk full when it is full by chance.
const MAX_FULL_APPENDS: u64 = 16;

/// The chance of a seed.
#[derive(Default)]
pub(super) struct Seeded(AtomicU64);

impl Seeded {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        draw(&self.0) % bound
    }

    pub(super) fn one_of<'a, T>(&self, choice: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(choice.len()).unwrap_or(u64::MAX);
        let at = self.below(count.max(1));
        usize::try_from(at).ok().and_then(|at| choice.get(at))
    }

    /// The fault of the next append, and how often the call gives way first.
    pub(super) fn fault(&self, chances: Chances) -> (Fault, u64) {
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
        } else if falls_on(chances.full) {
            (Fault::Full(1 + self.below(MAX_FULL_APPENDS)), 0)
        } else if falls_on(chances.rival) {
            (Fault::Rival, 0)
        } else if falls_on(chances.kill) {
            (Fault::Kill, 0)
        } else {
            (Fault::None, 0)
        }
    }
}

pub(super) fn unreachable() -> Error {
    Error::storage(StorageFault::Unavailable, "the connection was cut as a test asked")
}

pub(super) fn full() -> Error {
    Error::storage(StorageFault::Full, "the disk is full as a test asked")
}
