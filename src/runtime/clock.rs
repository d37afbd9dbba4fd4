//! Time, ids and chance as the runtime is given them, and the machine's own.
//!
//! The only file that reads the machine's clocks. Everything that waits or expires takes its time
//! from here, so a test can run a whole host on simulated time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::base::Timestamp;
use crate::journal::BoxFuture;

/// A source of time.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock. What waits or expires goes by what it showed when the store opened; it is read
    /// again only to tell how far ahead others' stamps are.
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

/// The machine's clocks.
pub(super) struct SystemClock {
    origin: Instant,
    timers: Arc<Timers>,
}

/// A thread for timers, so that no caller needs one of its own. Every pending sleep keeps it alive:
/// a timer that is polled after its runtime has ended panics, and callers, as well as what runs on
/// the arbiters, may be polled for a moment longer than the store lives.
struct Timers {
    handle: Handle,
    _alive: oneshot::Sender<()>,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    pub(super) fn start() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        let run = move || {
            // It ends by the other end being dropped, so there is no value to look at.
            let _ = runtime.block_on(ended);
        };
        std::thread::Builder::new().name("connector-store-timers".to_owned()).spawn(run)?;
        Ok(Self { origin: Instant::now(), timers: Arc::new(Timers { handle, _alive: alive }) })
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
        let context = timers.handle.enter();
        let sleep = tokio::time::sleep(duration);
        drop(context);
        Box::pin(async move {
            sleep.await;
            drop(timers);
        })
    }
}

/// Ids of a random start, counted on. A start is drawn once, because asking the system for each id
/// costs more than the rest of a read; two stores' ids meet only if their starts lie side by side
/// among 2^74.
pub(super) struct CountedIds {
    start: u128,
    next: AtomicU64,
}

impl CountedIds {
    pub(super) fn new() -> Self {
        Self { start: Uuid::new_v4().as_u128(), next: AtomicU64::new(0) }
    }
}

impl IdSource for CountedIds {
    fn id(&self, now: Timestamp) -> Uuid {
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let [_, _, _, _, _, _, rest @ ..] = self.start.wrapping_add(count.into()).to_be_bytes();
        uuid::Builder::from_unix_timestamp_millis(millis, &rest).into_uuid()
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

    /// A wall clock that was set back between two runs does not make time step back: what waits
    /// would wait that much longer.
    pub(super) fn hold_at_least(&mut self, floor: Timestamp) {
        self.opened_at = self.opened_at.max(floor);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.opened_at.plus(self.elapsed())
    }

    /// The time that others' stamps are held to. Monotonic time stands still while a machine sleeps,
    /// and from then on every honest stamp would be ahead of it. It is never before [`Self::now`]: what
    /// was taken once is not refused because the wall clock was set back.
    pub(crate) fn for_stamps(&self) -> Timestamp {
        self.now().max(self.clock.wall())
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
    let mut future = pin!(future);
    // What is ready at once needs no timer.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    if let Poll::Ready(output) = first {
        return Some(output);
    }
    tokio::select! {
        biased;
        output = future => Some(output),
        () = time.sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_of_version_7_and_never_given_twice_by_two_stores_of_one_moment() {
        let (one, other) = (CountedIds::new(), CountedIds::new());
        let now = Timestamp::from_millis(1_700_000_000_000);
        let ids: HashSet<Uuid> = (0..1_000).flat_map(|_| [one.id(now), other.id(now)]).collect();
        assert_eq!(ids.len(), 2_000);
        for id in ids {
            let seconds = id.get_timestamp().map(|time| time.to_unix().0);
            assert_eq!((id.get_version_num(), seconds), (7, Some(1_700_000_000)));
        }
    }
}
