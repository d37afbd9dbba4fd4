//! What every actor of a store shares: storage, time, chance, limits, counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::clock::{IdSource, Jitter, StoreTime};
use super::life::Life;
use super::limiter::Limiter;
use super::repository::RepositoryRef;
use super::sampler::SamplerRef;
use super::verifier::Verifier;
use crate::journal::Storage;

/// Where a store runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Threads {
    /// On threads of its own: so many for keys, as many for verifications, one to write, and one to ask
    /// and answer.
    Own(usize),
    /// On the thread that opens it, which runs an actor system, beside other stores.
    #[cfg(feature = "testing")]
    Here,
}

/// The bounds of a store, each with its default and its unit.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_json_bytes: usize,
    pub(crate) mailbox_commands: usize,
    pub(crate) in_flight_commands: usize,
    pub(crate) max_active_keys: usize,
    pub(crate) idle_time: Duration,
    pub(crate) snapshot_every_events: u32,
    pub(crate) hold_limit: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) threads: Threads,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_json_bytes: crate::base::limits::DEFAULT_MAX_JSON_BYTES,
            mailbox_commands: 1_024,
            in_flight_commands: 16_384,
            max_active_keys: 200_000,
            idle_time: Duration::from_secs(300),
            snapshot_every_events: 128,
            hold_limit: Duration::from_secs(5),
            command_timeout: Duration::from_secs(30),
            threads: Threads::Own(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

/// Counters since the store opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commands: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) appends: AtomicU64,
}

/// See the module.
pub(crate) struct Env {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) repository: RepositoryRef,
    pub(super) sampler: SamplerRef,
    pub(crate) time: StoreTime,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) jitter: Arc<dyn Jitter>,
    pub(crate) bounds: Bounds,
    pub(crate) verifier: Verifier,
    pub(super) limiter: Arc<Limiter>,
    pub(crate) counters: Arc<Counters>,
    pub(super) closing: AtomicBool,
    /// Says the same to those who wait.
    pub(super) closed: watch::Sender<bool>,
}

impl Env {
    /// The epoch of keys and signers.
    pub(super) fn records_epoch(&self) -> u64 {
        self.verifier.epoch()
    }
}

/// One life of a key's state in memory, from a load to the failure of an append or the end of its
/// actor. Cursors: `accepted` (the actor's version) ≥ `durable`.
#[derive(Debug)]
pub(super) struct Activation {
    durable: AtomicI64,
    failed: AtomicBool,
    /// The life of its actor.
    life: Arc<Life>,
}

impl Activation {
    pub(super) fn loaded_at(version: i64, life: &Arc<Life>) -> Arc<Self> {
        Arc::new(Self {
            durable: AtomicI64::new(version),
            failed: AtomicBool::new(false),
            life: Arc::clone(life),
        })
    }

    /// The newest version that is on disk. Written by the repository before replies leave.
    pub(super) fn durable(&self) -> i64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(super) fn set_durable(&self, version: i64) {
        self.durable.store(version, Ordering::Release);
    }

    /// An append that takes something back is handed over.
    pub(super) fn doubt(&self) {
        self.life.doubt();
    }

    /// An append failed: nothing decided on this activation counts any more.
    pub(super) fn fail(&self) {
        self.life.doubt();
        self.failed.store(true, Ordering::Release);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}
