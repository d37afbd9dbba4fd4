//! A journal in memory: for tests, and the measure that every other backend is held to.
//!
//! [`MemoryJournal`] is the database, [`MemoryStorage`] one store's connection to it. Nothing
//! survives the process. It knows nothing of commands or states.

mod query;
mod storage;
mod tables;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use storage::MemoryStorage;
pub use tables::{Stream, Tables};

use crate::base::{Error, Result, Timestamp};
#[cfg(feature = "testing")]
use crate::journal::{Append, AppendOutcome};

/// The time function of a database that several stores share.
pub type DatabaseClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A database in memory. A cheap clone that names the same one.
#[derive(Clone)]
pub struct MemoryJournal {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    tables: Mutex<Tables>,
    committed: watch::Sender<i64>,
    clock: Option<DatabaseClock>,
}

impl MemoryJournal {
    /// An empty database that one store at a time may open.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(None)
    }

    /// An empty database that several stores may open at once. `now` is the database's own time.
    #[must_use]
    pub fn shared(now: DatabaseClock) -> Self {
        Self::with_clock(Some(now))
    }

    fn with_clock(clock: Option<DatabaseClock>) -> Self {
        let inner = Inner { tables: Mutex::default(), committed: watch::Sender::new(0), clock };
        Self { inner: Arc::new(inner) }
    }

    /// Opens the database for one store.
    ///
    /// # Errors
    /// [`Error::StoreInUse`] when it is not shared and a store has it open.
    pub fn open(&self) -> Result<MemoryStorage> {
        let mut tables = self.inner.lock();
        if self.inner.clock.is_none() && tables.open > 0 {
            return Err(Error::StoreInUse { path: PathBuf::from(":memory:") });
        }
        tables.open += 1;
        drop(tables);
        Ok(MemoryStorage::new(Arc::clone(&self.inner)))
    }

    /// What would become of a batch that were written now.
    #[cfg(feature = "testing")]
    pub(crate) fn judge(&self, batch: &[Append], now: Timestamp) -> Vec<AppendOutcome> {
        let now = self.inner.clock.as_ref().map_or(now, |clock| clock());
        self.inner.lock().judge(batch, now)
    }

    /// Changes what is stored behind the back of every store, as a damaged medium would.
    #[cfg(any(test, feature = "testing"))]
    pub fn tamper<T>(&self, change: impl FnOnce(&mut Tables) -> T) -> T {
        change(&mut self.inner.lock())
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryJournal").field("shared", &self.inner.clock.is_some()).finish()
    }
}

impl Inner {
    /// The tables are whole even after a panic elsewhere: nothing can panic between two writes of
    /// one transaction.
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
