//! A runtime that is the same each time: one thread, simulated time, nothing else.
//!
//! Whole hosts run in it, opened with [`StoreBuilder::on_this_thread`], beside the tasks of the test.
//! Time stands still while anything can go on, and then passes up to the next sleeper. It knows no
//! store.
//!
//! [`StoreBuilder::on_this_thread`]: crate::StoreBuilder::on_this_thread

use super::SimClock;
use crate::base::{Error, Result, StorageFault};
use crate::runtime::ThreadSystem;

/// A single-threaded runtime on simulated time. What it runs depends on nothing but its inputs.
///
/// Storage and registries that have threads of their own (SQLite's, PostgreSQL's) run with it, but not
/// the same each time: a [`MemoryJournal`](crate::MemoryJournal) does. Of several tasks that wait on one
/// `tokio::sync::watch` any may wake first, so tasks of a test should wait on a `Notify`.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use connector_store::testing::{SeededIds, SeededJitter, SimRuntime};
/// use connector_store::{Clock, ConnectorName, Holder, MemoryJournal, OwnerDid, Store};
///
/// # fn main() -> connector_store::Result<()> {
/// let runtime = SimRuntime::new()?;
/// let clock = runtime.clock().clone();
/// let passed = runtime.block_on(async {
///     let store = Store::builder()
///         .memory(&MemoryJournal::default())
///         .clock(Arc::new(clock.clone()))
///         .ids(Arc::new(SeededIds::new(1)))
///         .jitter(Arc::new(SeededJitter::new(1)))
///         .on_this_thread()
///         .open()
///         .await?;
///     let connector =
///         store.connector(&OwnerDid::new("did:example:o")?, &ConnectorName::new("caldav")?);
///     let lease = connector.acquire_lease(&Holder::new("a")?, Duration::from_secs(60)).await?;
///     // An hour passes at once: nothing else is to be done.
///     clock.sleep(Duration::from_secs(3_600)).await;
///     lease.release().await?;
///     store.close().await?;
///     Ok::<_, connector_store::Error>(clock.monotonic())
/// })?;
/// assert_eq!(passed?.as_secs(), 3_600);
/// # Ok(())
/// # }
/// ```
pub struct SimRuntime {
    system: ThreadSystem,
    clock: SimClock,
}

impl SimRuntime {
    /// A runtime with a clock of its own.
    ///
    /// # Errors
    /// A storage error if the system gives no runtime.
    pub fn new() -> Result<Self> {
        let clock = SimClock::default();
        let idle = clock.clone();
        let system = ThreadSystem::new(move || idle.advance_to_next()).map_err(|error| {
            Error::storage(StorageFault::Unavailable, format_args!("no runtime: {error}"))
        })?;
        Ok(Self { system, clock })
    }

    /// Its time.
    #[must_use]
    pub const fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Runs until the future ends. Tasks that it leaves behind go on with the next call.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if everything waits and nobody sleeps: nothing would ever happen again.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        self.system.block_on(future).ok_or(Error::TimedOut)
    }
}

impl std::fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimRuntime").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::runtime::Clock as _;

    #[test]
    fn time_passes_when_nothing_else_can() {
        let runtime = SimRuntime::new().unwrap();
        let clock = runtime.clock().clone();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let passed = runtime.block_on(async {
            for seconds in [3, 1, 2] {
                let (clock, seen) = (clock.clone(), Arc::clone(&seen));
                tokio::task::spawn_local(async move {
                    clock.sleep(Duration::from_secs(seconds)).await;
                    seen.lock().unwrap().push((seconds, clock.monotonic().as_secs()));
                });
            }
            // One that nobody waits for any more holds nothing up and brings nothing on.
            drop(clock.sleep(Duration::from_millis(5)));
            clock.sleep(Duration::from_secs(10)).await;
            clock.monotonic()
        });
        assert_eq!(passed.unwrap(), Duration::from_secs(10));
        assert_eq!(*seen.lock().unwrap(), [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn what_can_never_go_on_is_told() {
        let runtime = SimRuntime::new().unwrap();
        let never = runtime.block_on(std::future::pending::<()>());
        assert!(matches!(never, Err(Error::TimedOut)));
        assert_eq!(runtime.block_on(async { 5 }).unwrap(), 5);
    }
}
