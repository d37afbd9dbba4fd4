//! Simulated time: it stands still until a test moves it.
//!
//! Sleepers wake in the order of their times, the ones of one time in the order in which they lay
//! down. It knows no store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::base::Timestamp;
use crate::journal::BoxFuture;
use crate::runtime::Clock;

struct Inner {
    wall: Timestamp,
    elapsed: Duration,
    next: u64,
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
}

/// A clock that a test moves. Clones are one clock.
#[derive(Clone)]
pub struct SimClock {
    inner: Arc<Mutex<Inner>>,
    lain_down: Arc<watch::Sender<u64>>,
}

impl SimClock {
    /// A clock whose wall shows `wall`.
    #[must_use]
    pub fn new(wall: Timestamp) -> Self {
        let sleepers = BTreeMap::new();
        let inner = Inner { wall, elapsed: Duration::ZERO, next: 0, sleepers };
        Self { inner: Arc::new(Mutex::new(inner)), lain_down: Arc::new(watch::Sender::new(0)) }
    }

    /// Lets time pass: wakes everybody whose time comes, in order.
    pub fn advance(&self, duration: Duration) {
        let inner = self.lock();
        self.pass(inner, duration);
    }

    /// Lets time pass up to the next sleeper that is waited for, and wakes it; false if there is none.
    pub fn advance_to_next(&self) -> bool {
        let mut inner = self.lock();
        while let Some(next) = inner.sleepers.first_entry() {
            if next.get().is_closed() {
                next.remove();
                continue;
            }
            let (time, _) = *next.key();
            let duration = time.saturating_sub(inner.elapsed);
            self.pass(inner, duration);
            return true;
        }
        false
    }

    fn pass(&self, mut inner: MutexGuard<'_, Inner>, duration: Duration) {
        inner.wall = inner.wall.plus(duration);
        inner.elapsed = inner.elapsed.saturating_add(duration);
        let now = inner.elapsed;
        let rest = inner.sleepers.split_off(&(now, u64::MAX));
        let awake = std::mem::replace(&mut inner.sleepers, rest);
        drop(inner);
        for sleeper in awake.into_values() {
            // One that was dropped needs no waking.
            let _ = sleeper.send(());
        }
    }

    /// Steps the wall clock, as an administrator or a time server would. No time passes.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().wall = wall;
    }

    /// How many sleep and are still waited for.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        let mut inner = self.lock();
        inner.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        inner.sleepers.len()
    }

    /// Waits until somebody sleeps for exactly `duration`, counted from now.
    pub async fn someone_sleeps_for(&self, duration: Duration) {
        let mut lain_down = self.lain_down.subscribe();
        loop {
            let is_there = {
                let inner = self.lock();
                let until = inner.elapsed.saturating_add(duration);
                let mut at_that_time = inner.sleepers.range((until, 0)..=(until, u64::MAX));
                at_that_time.any(|(_, sleeper)| !sleeper.is_closed())
            };
            // The sender is held by this clock, so the wait ends only with the next sleeper.
            if is_there || lain_down.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SimClock {
    /// A clock whose wall shows some day of the year 2025.
    fn default() -> Self {
        Self::new(Timestamp::from_millis(1_750_000_000_000))
    }
}

impl std::fmt::Debug for SimClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimClock").field("elapsed", &self.lock().elapsed).finish_non_exhaustive()
    }
}

impl Clock for SimClock {
    fn wall(&self) -> Timestamp {
        self.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.lock().elapsed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        let mut inner = self.lock();
        // Those that nobody waits for any more leave from time to time, so that they do not pile up.
        if inner.next.is_multiple_of(1_024) {
            inner.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        }
        let place = (inner.elapsed.saturating_add(duration), inner.next);
        inner.next += 1;
        inner.sleepers.insert(place, wake);
        drop(inner);
        self.lain_down.send_modify(|count| *count += 1);
        Box::pin(async move {
            // Without its clock a sleeper sleeps for ever.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_times() {
        let clock = SimClock::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (name, seconds) in [("c", 3), ("a", 1), ("b", 2), ("later", 9)] {
            let (sleep, woken) = (clock.sleep(SECOND * seconds), Arc::clone(&woken));
            tasks.push(tokio::spawn(async move {
                sleep.await;
                woken.lock().unwrap().push(name);
            }));
        }
        // Each task lies down before the first is woken.
        tokio::task::yield_now().await;
        assert_eq!(clock.sleepers(), 4);
        // All lie down before anyone is woken.
        tokio::task::yield_now().await;
        clock.advance(SECOND * 3);
        for task in tasks.drain(..3) {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), ["a", "b", "c"]);
        assert_eq!(clock.sleepers(), 1);
    }

    #[test]
    fn the_wall_steps_and_monotonic_time_does_not() {
        let clock = SimClock::new(Timestamp::from_millis(5_000));
        clock.advance(SECOND);
        assert_eq!(clock.wall(), Timestamp::from_millis(6_000));
        clock.set_wall(Timestamp::from_millis(7));
        assert_eq!((clock.wall(), clock.monotonic()), (Timestamp::from_millis(7), SECOND));
    }

    #[tokio::test]
    async fn a_dropped_sleep_is_forgotten() {
        let clock = SimClock::default();
        drop(clock.sleep(SECOND));
        assert_eq!(clock.sleepers(), 0);
        let sleep = clock.sleep(SECOND * 2);
        clock.someone_sleeps_for(SECOND * 2).await;
        clock.advance(SECOND * 2);
        sleep.await;
    }
}
