//! The life of a key's actor, as those remember it who were told that something stands: whether
//! anything may have been taken back since then.
//!
//! It knows no command. On a storage that several hosts share it proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set once the actor ends: what its successor takes back is not counted here.
const ENDED: u64 = 1 << 63;

/// Counts, while one actor lives, the appends that take something back, and the failures after which
/// nobody knows.
#[derive(Debug, Default)]
pub(super) struct Life(AtomicU64);

impl Life {
    /// Something is taken back, or may have been. Said before anybody can see it.
    pub(super) fn doubt(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// The actor ends. Said before its successor can be sent anything.
    pub(super) fn end(&self) {
        self.0.fetch_or(ENDED, Ordering::AcqRel);
    }

    /// From now on; none once the actor has ended.
    pub(super) fn standing(self: &Arc<Self>) -> Option<Standing> {
        let doubts = self.0.load(Ordering::Acquire);
        (doubts & ENDED == 0).then(|| Standing { life: Arc::clone(self), doubts })
    }
}

/// What stands at or after the moment that this was taken stands as long as it holds.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    life: Arc<Life>,
    doubts: u64,
}

impl Standing {
    pub(super) fn holds(&self) -> bool {
        self.life.0.load(Ordering::Acquire) == self.doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_holds_until_a_doubt_and_never_behind_the_end() {
        let life = Arc::new(Life::default());
        let first = life.standing().unwrap();
        assert!(first.holds());
        life.doubt();
        let second = life.standing().unwrap();
        assert_eq!((first.holds(), second.holds()), (false, true));
        life.end();
        assert!(!second.holds() && life.standing().is_none());
        life.doubt();
        assert!(!second.holds() && life.standing().is_none());
    }
}
