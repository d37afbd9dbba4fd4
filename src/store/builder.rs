//! Opening a store: where it is kept, its bounds, its time and chance.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::owners::OwnerRule;
use super::{DocumentOwners, Store};
use crate::base::{Error, Result};
use crate::journal::{MemoryJournal, Storage};
#[cfg(feature = "postgres")]
use crate::journal::{PostgresOptions, PostgresStorage};
#[cfg(feature = "sqlite")]
use crate::journal::{SqliteOptions, SqliteStorage, Synchronous};
use crate::records::{MethodRegistry, SignerPolicy};
use crate::runtime::{
    Bounds, Clock, IdSource, Jitter, RecordRules, Runtime, Sources, StorageOpener, Threads,
};

/// A number of permits that can be waited for.
const fn within_permits(commands: usize) -> usize {
    if commands == 0 {
        1
    } else if commands > Semaphore::MAX_PERMITS {
        Semaphore::MAX_PERMITS
    } else {
        commands
    }
}

/// Where a store is kept.
enum Place {
    Memory(MemoryJournal),
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    #[cfg(feature = "postgres")]
    Postgres(PostgresOptions),
    Storage(Arc<dyn Storage>),
}

/// How a store is opened.
enum Opening {
    /// As it is.
    Plain,
    /// As one that was restored from a backup.
    Restored,
    /// After its database was filled from this backup.
    #[cfg(feature = "postgres")]
    FromBackup(PathBuf),
}

/// Sets a store up. Every bound has a default that suits a busy host.
#[derive(Default)]
#[must_use]
pub struct StoreBuilder {
    place: Option<Place>,
    bounds: Bounds,
    rules: RecordRules,
    owner_rule: OwnerRule,
    sources: Sources,
    retention: Option<Duration>,
    #[cfg(feature = "sqlite")]
    synchronous: Synchronous,
}

impl std::fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreBuilder").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl StoreBuilder {
    /// Keeps the store in an SQLite file, which is made if it is not there; its directory is not.
    /// One store at a time can have a file open.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Some(Place::Sqlite(path.into()));
        self
    }

    /// Commits to SQLite with this setting ([`Synchronous::Full`] by default).
    #[cfg(feature = "sqlite")]
    pub const fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Keeps the store in the PostgreSQL database of this URL, which many stores may have open:
    /// `postgres://user:password@host:port/database`.
    #[cfg(feature = "postgres")]
    pub fn postgres(self, url: impl Into<String>) -> Self {
        self.postgres_options(PostgresOptions::new(url))
    }

    /// Keeps the store in a PostgreSQL database that is opened with these options.
    #[cfg(feature = "postgres")]
    pub fn postgres_options(mut self, options: PostgresOptions) -> Self {
        self.place = Some(Place::Postgres(options));
        self
    }

    /// Keeps the store in memory: for tests.
    pub fn memory(mut self, journal: &MemoryJournal) -> Self {
        self.place = Some(Place::Memory(journal.clone()));
        self
    }

    /// Keeps the store in a storage of the caller's.
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.place = Some(Place::Storage(storage));
        self
    }

    /// Largest JSON value, in bytes (1 MiB).
    pub const fn max_json_bytes(mut self, bytes: usize) -> Self {
        self.bounds.max_json_bytes = bytes;
        self
    }

    /// Commands that wait in one key's mailbox (1,024), at least 1. Further ones wait outside.
    pub const fn mailbox_commands(mut self, commands: usize) -> Self {
        self.bounds.mailbox_commands = within_permits(commands);
        self
    }

    /// Commands in flight in the whole store (16,384), at least 1: what bounds its memory. While
    /// other owners wait, the sessions of one owner take at most a quarter.
    pub const fn in_flight_commands(mut self, commands: usize) -> Self {
        self.bounds.in_flight_commands = within_permits(commands);
        self
    }

    /// Keys in memory (200,000). Beyond it the least recently used are passivated.
    pub const fn max_active_keys(mut self, keys: usize) -> Self {
        self.bounds.max_active_keys = keys;
        self
    }

    /// Time without a command after which a key is passivated (5 min).
    pub const fn idle_time(mut self, time: Duration) -> Self {
        self.bounds.idle_time = time;
        self
    }

    /// Events of a stream after which a snapshot is written (128), at least 1.
    pub const fn snapshot_every_events(mut self, events: u32) -> Self {
        self.bounds.snapshot_every_events = if events == 0 { 1 } else { events };
        self
    }

    /// How long a unit of work may hold its keys (5 s).
    pub const fn hold_limit(mut self, limit: Duration) -> Self {
        self.bounds.hold_limit = limit;
        self
    }

    /// How long a call may take (30 s). A command that was taken and is not answered by then is
    /// [`Error::OutcomeUnknown`].
    pub const fn command_timeout(mut self, timeout: Duration) -> Self {
        self.bounds.command_timeout = timeout;
        self
    }

    /// Threads for key actors (one for each core).
    pub const fn arbiters(mut self, arbiters: usize) -> Self {
        self.bounds.threads = Threads::Own(arbiters);
        self
    }

    /// Runs on the thread that opens it, inside [`crate::testing::SimRuntime::block_on`], beside what
    /// else runs there: for tests that must be the same each time. Elsewhere it can't be opened.
    #[cfg(feature = "testing")]
    pub const fn on_this_thread(mut self) -> Self {
        self.bounds.threads = Threads::Here;
        self
    }

    /// Removes events behind snapshots once they are this old, every hour. Without it they stay.
    pub const fn retention(mut self, age: Duration) -> Self {
        self.retention = Some(age);
        self
    }

    /// Asks these whose a document is before an observation copy of it is taken. Without them, and
    /// without [`Self::accept_foreign_owners`], none is.
    pub fn document_owners(mut self, owners: Arc<dyn DocumentOwners>) -> Self {
        self.owner_rule.owners = Some(owners);
        self
    }

    /// Takes observation copies of every owner on every document, side by side.
    pub const fn accept_foreign_owners(mut self) -> Self {
        self.owner_rule.accepts_foreign = true;
        self
    }

    /// Resolves the keys of issuers of other DID methods than `key` here. Without it they have none.
    pub fn method_registry(mut self, registry: Arc<dyn MethodRegistry>) -> Self {
        self.rules.registry = Some(registry);
        self
    }

    /// Who may sign observation copies for whom ([`crate::records::OwnerOnly`]).
    pub fn signer_policy(mut self, policy: Arc<dyn SignerPolicy>) -> Self {
        self.rules.policy = policy;
        self
    }

    /// Largest token of an observation copy that is put, in bytes (64 KiB).
    pub const fn max_token_bytes(mut self, bytes: usize) -> Self {
        self.rules.limits.max_token_bytes = bytes;
        self
    }

    /// Largest payload of an observation copy that is put, in bytes (1 MiB).
    pub const fn max_payload_bytes(mut self, bytes: usize) -> Self {
        self.rules.limits.max_payload_bytes = bytes;
        self
    }

    /// How far the stamps of an observation copy that is put may be ahead of the store's time, or of the
    /// wall clock where that is later ([`crate::records::DEFAULT_MAX_DRIFT`]).
    pub const fn max_hlc_drift(mut self, drift: Duration) -> Self {
        self.rules.max_drift = drift;
        self
    }

    /// How many tokens are remembered as valid (65,536): putting or loading one of them once more
    /// does not verify its signature again.
    pub const fn verified_tokens(mut self, tokens: usize) -> Self {
        self.rules.verified_tokens = tokens;
        self
    }

    /// Takes time from here: for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.sources.clock = Some(clock);
        self
    }

    /// Takes ids from here: for tests.
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.sources.ids = Some(ids);
        self
    }

    /// Takes chance from here: for tests.
    pub fn jitter(mut self, jitter: Arc<dyn Jitter>) -> Self {
        self.sources.jitter = Some(jitter);
        self
    }

    /// Opens the store. It runs on threads of its own, so any executor may call it.
    ///
    /// A database that another program's store has written, with the same tables and no journal, is
    /// adopted: from then on this store alone may write to them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when no place was given; [`Error::StoreInUse`],
    /// [`Error::NewerDatabase`] and [`Error::AdoptionRefused`], with the database untouched; storage
    /// errors.
    ///
    /// # Cancel safety
    /// A dropped call opens nothing.
    pub async fn open(self) -> Result<Store> {
        self.start(Opening::Plain).await
    }

    /// Opens a store that was restored from a backup: the file that [`Store::backup`] wrote of one in
    /// SQLite; a PostgreSQL database that is a physical copy, or was filled from a dump of the server's
    /// own tools ([`Self::restore_backup`] fills one from what [`Store::backup`] wrote). Nobody uses it before the following is done and
    /// on the medium; if it is cut short, the next [`Self::open`] goes on with it first.
    ///
    /// The copy is in the past, and what was done after the backup has happened all the same:
    ///
    /// - Leases, claims and permits end: a new generation begins, and a token of another one is
    ///   [`Error::LeaseLost`].
    /// - Every unfinished operation is `reconcile_only`, whether the backup knows that it was sent or not.
    ///   That the provider has not the write is proved only by a read that begins after the restore
    ///   and the provider's visibility delay.
    /// - An operation that the backup does not know, and whose version is not newer than the restore,
    ///   begins as [`crate::Claim::Reconcile`].
    /// - The feed tells a reader from before the restore ([`crate::FeedItem::Restored`]).
    ///
    /// Every host that used the lost store must have ended before: what one sends later, nobody
    /// knows. On a database of several hosts one of them opens it restored, before any other opens it; one
    /// that had it open before can't write to it any more.
    /// A store that is opened so once more takes all claims back once more, which costs a question
    /// to the provider for each unfinished operation, and does no other harm.
    ///
    /// # Errors
    /// As [`Self::open`], and [`Error::InvalidInput`] for the field `path`, or `database`, when no store is
    /// there.
    ///
    /// # Cancel safety
    /// A dropped call has begun the restore, perhaps; the next call finishes it.
    pub async fn open_restored(self) -> Result<Store> {
        self.start(Opening::Restored).await
    }

    /// Fills an empty PostgreSQL database from a file that [`Store::backup`] has written, all or
    /// nothing, and opens it as [`Self::open_restored`] does. If it is cut short once the database is
    /// filled, the next [`Self::open`] goes on with it first.
    ///
    /// The backup of a store in SQLite is a store itself: [`Self::open_restored`] opens it.
    ///
    /// # Errors
    /// As [`Self::open`], and [`Error::InvalidInput`] for the field `place` when it is not a
    /// PostgreSQL database, for the field `database` when a store is in it, and for the field `path`
    /// when no backup is there. A backup that is damaged, or was cut off, is a storage error, and
    /// nothing of it is in the database.
    ///
    /// # Cancel safety
    /// A dropped call has left the database empty, or has filled it and begun the restore; then the
    /// next call of [`Self::open`] finishes that.
    #[cfg(feature = "postgres")]
    pub async fn restore_backup(self, path: impl Into<PathBuf>) -> Result<Store> {
        self.start(Opening::FromBackup(path.into())).await
    }

    async fn start(self, opening: Opening) -> Result<Store> {
        let is_restored = matches!(opening, Opening::Restored);
        #[cfg(feature = "postgres")]
        if matches!(opening, Opening::FromBackup(_))
            && !matches!(self.place, Some(Place::Postgres(_)))
        {
            let reason = "expected postgres; the copy of a file is opened by open_restored";
            return Err(Error::invalid("place", reason));
        }
        let opener: StorageOpener = match self.place {
            None => {
                return Err(Error::invalid(
                    "place",
                    "expected sqlite, postgres, memory or storage",
                ));
            }
            Some(Place::Storage(storage)) => Box::new(|_| Box::pin(async { Ok(storage) })),
            Some(Place::Memory(journal)) => Box::new(move |_| {
                Box::pin(async move { Ok(Arc::new(journal.open()?) as Arc<dyn Storage>) })
            }),
            #[cfg(feature = "postgres")]
            Some(Place::Postgres(options)) => Box::new(move |_| {
                Box::pin(async move {
                    if let Opening::FromBackup(path) = opening {
                        PostgresStorage::restore(options.clone(), path).await?;
                    }
                    let options = if is_restored { options.must_exist() } else { options };
                    let storage = PostgresStorage::open(options).await?;
                    Ok(Arc::new(storage) as Arc<dyn Storage>)
                })
            }),
            #[cfg(feature = "sqlite")]
            Some(Place::Sqlite(path)) => {
                let synchronous = self.synchronous;
                Box::new(move |now| {
                    Box::pin(async move {
                        let options = SqliteOptions::new(path, now).synchronous(synchronous);
                        let options = if is_restored { options.must_exist() } else { options };
                        let storage = SqliteStorage::open(options).await?;
                        Ok(Arc::new(storage) as Arc<dyn Storage>)
                    })
                })
            }
        };
        let runtime = Runtime::start(self.bounds, self.rules, self.sources, opener).await?;
        let store = Store { runtime: Arc::new(runtime), owner_rule: self.owner_rule };
        if let Err(error) = store.restore(is_restored).await {
            // So that the storage is free for the next call. What failed first is what must be seen.
            let _ = store.close().await;
            return Err(error);
        }
        store.keep_house(self.retention);
        Ok(store)
    }
}
