//! Work on its way to somebody who looks for more by himself as long as he is at work: only one at
//! rest is woken. A message for each piece of work would wake a thread for nothing while it waits
//! for the disk. It knows neither the work nor the worker.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct Inbox<T>(Mutex<State<T>>);

struct State<T> {
    work: VecDeque<T>,
    /// The worker will look here again without being woken.
    is_awake: bool,
    is_closed: bool,
}

impl<T> Inbox<T> {
    pub(super) const fn new() -> Self {
        let state = State { work: VecDeque::new(), is_awake: false, is_closed: false };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes work; true when the worker must be woken. Behind a closed inbox nobody works any more:
    /// what comes is dropped.
    pub(super) fn push(&self, work: T) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            // Dropped without the lock, because work may answer somebody when it is dropped.
            drop(state);
            return false;
        }
        state.work.push_back(work);
        !std::mem::replace(&mut state.is_awake, true)
    }

    /// Gives all that came, in its order, behind what is queued. When nothing is, the worker is at
    /// rest from now on.
    pub(super) fn take(&self, queue: &mut VecDeque<T>) {
        let mut state = self.lock();
        queue.append(&mut state.work);
        state.is_awake = !queue.is_empty();
    }

    /// Drops what is there and what will come.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.work);
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_a_worker_at_rest_is_woken() {
        let (inbox, mut queue) = (Inbox::new(), VecDeque::new());
        assert!(inbox.push(1));
        assert!(!inbox.push(2), "it was woken by the first");
        inbox.take(&mut queue);
        assert_eq!(queue, [1, 2]);
        assert!(!inbox.push(3), "it is at work");
        queue.clear();
        inbox.take(&mut queue);
        assert_eq!(queue, [3]);
        queue.clear();
        inbox.take(&mut queue);
        assert!(inbox.push(4), "it found nothing, so it rests");
    }

    #[test]
    fn a_closed_inbox_drops_what_is_there_and_what_comes() {
        let (inbox, work) = (Inbox::new(), Arc::new(()));
        inbox.push(Arc::clone(&work));
        inbox.close();
        assert!(!inbox.push(Arc::clone(&work)));
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
