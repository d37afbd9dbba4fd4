//! The limit of commands in flight: it holds the memory, and keeps one owner from taking it all.
//!
//! It knows owners and numbers, no commands. Waiters of one owner are served in order, owners in
//! turn; while others wait, the sessions of one owner hold at most a quarter.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::base::OwnerDid;

/// The part of the whole that one owner may hold while others wait.
const OWNER_SHARE: usize = 4;

type Owner = Option<OwnerDid>;

struct Waiter {
    count: usize,
    grant: oneshot::Sender<Permit>,
}

#[derive(Default)]
struct Inner {
    free: usize,
    held: HashMap<OwnerDid, usize>,
    queues: HashMap<Owner, VecDeque<Waiter>>,
    turns: VecDeque<Owner>,
}

pub(super) struct Limiter {
    total: usize,
    inner: Mutex<Inner>,
}

/// A share of the limit, given back when dropped.
pub(super) struct Permit {
    limiter: Arc<Limiter>,
    owner: Owner,
    count: usize,
}

impl Limiter {
    pub(super) fn new(total: usize) -> Arc<Self> {
        let inner = Inner { free: total, ..Inner::default() };
        Arc::new(Self { total, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    pub(super) fn in_flight(&self) -> usize {
        self.total - self.lock().free
    }

    pub(super) fn try_acquire(self: &Arc<Self>, owner: Owner, count: usize) -> Option<Permit> {
        let count = count.min(self.total);
        let mut inner = self.lock();
        if !inner.turns.is_empty() || inner.free < count {
            return None;
        }
        inner.take(&owner, count);
        drop(inner);
        Some(Permit { limiter: Arc::clone(self), owner, count })
    }

    /// Waits for a turn. A dropped wait takes nothing.
    pub(super) async fn acquire(self: &Arc<Self>, owner: Owner, count: usize) -> Permit {
        let count = count.min(self.total);
        if let Some(permit) = self.try_acquire(owner.clone(), count) {
            return permit;
        }
        loop {
            let (grant, granted) = oneshot::channel();
            {
                let mut inner = self.lock();
                let queue = inner.queues.entry(owner.clone()).or_default();
                let first = queue.is_empty();
                // Who gave up leaves at the latest now: while nothing is given back nobody is served.
                while queue.front().is_some_and(|waiter| waiter.grant.is_closed()) {
                    queue.pop_front();
                }
                queue.push_back(Waiter { count, grant });
                if first {
                    inner.turns.push_back(owner.clone());
                }
            }
            self.serve();
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    /// Grants what can be granted. Grants nobody waits for any more are given back outside the lock.
    fn serve(self: &Arc<Self>) {
        let mut unclaimed = Vec::new();
        let mut inner = self.lock();
        let mut refused = 0;
        while refused < inner.turns.len() {
            let Some(owner) = inner.turns.pop_front() else { break };
            let alone = inner.turns.is_empty();
            match inner.next_of(&owner, alone, self.total) {
                Some(waiter) => {
                    refused = 0;
                    let permit = Permit {
                        limiter: Arc::clone(self),
                        owner: owner.clone(),
                        count: waiter.count,
                    };
                    unclaimed.extend(waiter.grant.send(permit).err());
                }
                None => refused += 1,
            }
            if inner.queues.get(&owner).is_some_and(|queue| !queue.is_empty()) {
                inner.turns.push_back(owner);
            } else {
                inner.queues.remove(&owner);
                // One competitor less: those who were refused because of it get another turn.
                refused = 0;
            }
        }
        drop(inner);
        drop(unclaimed);
    }
}

impl Inner {
    fn take(&mut self, owner: &Owner, count: usize) {
        self.free -= count;
        if let Some(owner) = owner {
            *self.held.entry(owner.clone()).or_default() += count;
        }
    }

    fn next_of(&mut self, owner: &Owner, alone: bool, total: usize) -> Option<Waiter> {
        let held = owner.as_ref().and_then(|owner| self.held.get(owner)).copied().unwrap_or(0);
        let queue = self.queues.get_mut(owner)?;
        while queue.front().is_some_and(|waiter| waiter.grant.is_closed()) {
            queue.pop_front();
        }
        let count = queue.front()?.count;
        let share = (total / OWNER_SHARE).max(1);
        let over_share = owner.is_some() && !alone && held > 0 && held + count > share;
        if count > self.free || over_share {
            return None;
        }
        let waiter = queue.pop_front()?;
        self.take(owner, count);
        Some(waiter)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inner = self.limiter.lock();
        inner.free += self.count;
        if let Some(owner) = &self.owner {
            let left = inner.held.get_mut(owner).map(|held| {
                *held -= self.count;
                *held
            });
            if left == Some(0) {
                inner.held.remove(owner);
            }
        }
        let waited_for = !inner.turns.is_empty();
        drop(inner);
        if waited_for {
            self.limiter.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn owner(name: &str) -> Owner {
        OwnerDid::new(format!("did:web:{name}")).ok()
    }

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_owner_alone_may_take_all() {
        let limiter = Limiter::new(8);
        let permits: Vec<Permit> =
            (0..8).filter_map(|_| limiter.try_acquire(owner("a"), 1)).collect();
        assert_eq!((permits.len(), limiter.in_flight()), (8, 8));
        assert!(limiter.try_acquire(None, 1).is_none());
        drop(permits);
        assert_eq!(limiter.in_flight(), 0);
    }

    #[test]
    fn while_others_wait_an_owner_holds_at_most_a_quarter() {
        let limiter = Limiter::new(8);
        let mut held: Vec<Permit> =
            (0..8).filter_map(|_| limiter.try_acquire(owner("a"), 1)).collect();
        let mut more_of_a = pin!(limiter.acquire(owner("a"), 1));
        let mut first_of_b = pin!(limiter.acquire(owner("b"), 1));
        let mut second_of_b = pin!(limiter.acquire(owner("b"), 1));
        assert!(poll(more_of_a.as_mut()).is_pending());
        assert!(poll(first_of_b.as_mut()).is_pending());
        assert!(poll(second_of_b.as_mut()).is_pending());
        held.pop();
        let Poll::Ready(_b1) = poll(first_of_b.as_mut()) else { panic!("b is served first") };
        held.pop();
        let Poll::Ready(_b2) = poll(second_of_b.as_mut()) else { panic!("b is served again") };
        assert!(poll(more_of_a.as_mut()).is_pending(), "nothing is free");
        held.pop();
        assert!(poll(more_of_a.as_mut()).is_ready(), "nobody else waits any more");
    }

    #[test]
    fn a_dropped_wait_takes_nothing() {
        let limiter = Limiter::new(1);
        let held = limiter.try_acquire(None, 1);
        {
            let mut dropped = pin!(limiter.acquire(None, 1));
            assert!(poll(dropped.as_mut()).is_pending());
        }
        drop(held);
        assert_eq!(limiter.in_flight(), 0);
        assert!(limiter.try_acquire(None, 1).is_some());
    }

    #[test]
    fn those_who_gave_up_leave_while_nothing_is_given_back() {
        let limiter = Limiter::new(1);
        let held = limiter.try_acquire(None, 1);
        for _ in 0..100 {
            assert!(poll(pin!(limiter.acquire(owner("a"), 1)).as_mut()).is_pending());
        }
        let waiting = limiter.lock().queues.values().map(VecDeque::len).sum::<usize>();
        assert!(waiting <= 1, "{waiting} wait");
        let mut waits = pin!(limiter.acquire(owner("a"), 1));
        assert!(poll(waits.as_mut()).is_pending());
        drop(held);
        assert!(poll(waits.as_mut()).is_ready());
    }
}
