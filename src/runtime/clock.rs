//! Time, ids and chance as the runtime is given them, and the machine's own.
//!
//! The only file that reads the machine's clocks. Everything that waits or expires takes its time
//! from here, so a test can run a whole host on simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::unavailable;
use crate::base::{Error, Result, StorageFault, Timestamp};
use crate::journal::BoxFuture;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock. Read once, when a store opens.
    fn wall(&self) -> Timestamp;
    /// Time since a fixed moment; never steps back.
    fn monotonic(&self) -> Duration;
    /// Ends once the monotonic time has passed by `duration`.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// A source of unique ids.
pub trait IdSource: Send + Sync + 'static {
    /// An id never given before; version 7, so that ids of one moment lie together.
    fn id(&self, now: Timestamp) -> Uuid;
}

/// A source of chance.
pub trait Jitter: Send + Sync + 'static {
    /// A number from 0 up to, and without, 1.
    fn unit(&self) -> f64;
}

/// A thread that drives timers. It outlives the store for as long as anyone sleeps: a timer of a
/// runtime that has ended would panic in the caller's task.
struct Timers {
    handle: Handle,
    /// Dropped with the last sleeper; the thread ends then.
    _end: oneshot::Sender<()>,
}

/// The machine's clocks. It brings its own timers, so a caller needs none.
pub(super) struct SystemClock {
    origin: Instant,
    timers: Arc<Timers>,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub(super) async fn start() -> Result<Self> {
        let (started, handle) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || match Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => {
                let _ = started.send(Ok(runtime.handle().clone()));
                let _ = runtime.block_on(ended);
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let failed = |error: std::io::Error| Error::Storage {
            fault: StorageFault::Unavailable,
            context: "starting the thread for timers".to_owned(),
            source: Some(Arc::new(error)),
        };
        thread::Builder::new().name("connector-timers".to_owned()).spawn(run).map_err(failed)?;
        let handle = handle.await.map_err(|_| unavailable("the thread for timers ended"))?;
        let timers = Timers { handle: handle.map_err(failed)?, _end: end };
        Ok(Self { origin: Instant::now(), timers: Arc::new(timers) })
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().plus(since)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let timers = Arc::clone(&self.timers);
        let sleep = {
            let _context = timers.handle.enter();
            tokio::time::sleep(duration)
        };
        Box::pin(async move {
            sleep.await;
            drop(timers);
        })
    }
}

/// Random ids.
pub(super) struct RandomIds;

impl IdSource for RandomIds {
    fn id(&self, now: Timestamp) -> Uuid {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap_or(0);
        Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos))
    }
}

/// A fast generator from a random seed (SplitMix64). For backoff, not for secrets.
pub(super) struct RandomJitter(AtomicU64);

impl RandomJitter {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(Uuid::new_v4().as_u64_pair().0))
    }
}

impl Jitter for RandomJitter {
    fn unit(&self) -> f64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The store's time: the wall clock at open plus monotonic time, so later steps of the wall clock
/// change nothing.
#[derive(Clone)]
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    opened_at: Timestamp,
    origin: Duration,
}

impl StoreTime {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (opened_at, origin) = (clock.wall(), clock.monotonic());
        Self { clock, opened_at, origin }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.opened_at.plus(self.elapsed())
    }

    /// Monotonic time since the store opened.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.origin)
    }

    pub(crate) fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

/// `future`'s output, or none when `limit` passes first. The future is dropped then, so it must not
/// be one that writes.
pub(crate) async fn within<F: Future>(
    time: &StoreTime,
    limit: Duration,
    future: F,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = time.sleep(limit) => None,
    }
}
