//! What the writing side remembers of the streams that it wrote, so that a batch need not ask for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::StreamName;
use crate::journal::Head;

/// Streams whose ids and heads are remembered. When they are more, all are forgotten: the next batches
/// look theirs up by name.
const MAX_KNOWN_STREAMS: usize = 65_536;
/// Batches that lock and read all once something was not as presumed: where hosts write to the same
/// streams, few batches are begun in vain.
pub(super) const DOUBTED_BATCHES: u32 = 16;

/// A stream that was locked or written before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Its id. What is found by it says its name or has its hash, so the id of a stream that is gone,
    /// or another one's on a server that took over, locks nothing that is used.
    pub(super) stream: i64,
    /// Its head then.
    pub(super) head: Head,
    /// The batch that it was in.
    pub(super) batch: u64,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Nothing,
    /// It is in a batch whose commit is not known.
    UnderWay,
    Standing(Known),
}

/// The streams that were locked or written before.
#[derive(Debug, Default)]
pub(super) struct KnownStreams {
    streams: HashMap<StreamName, Known>,
    /// The newest batch that was committed.
    committed: Arc<AtomicU64>,
    /// So many batches presume nothing.
    doubted: u32,
}

impl KnownStreams {
    /// What is known of a stream. The head of a batch under way is not to be gone by: a statement that
    /// begins before that is committed sees neither the head nor the rows beside it, and would not delete
    /// those.
    pub(super) fn find(&self, name: &StreamName) -> Found {
        match self.streams.get(name) {
            None => Found::Nothing,
            Some(known) if known.batch > self.committed.load(Ordering::Acquire) => Found::UnderWay,
            Some(known) => Found::Standing(*known),
        }
    }

    /// The next batch may presume something.
    pub(super) const fn are_trusted(&self) -> bool {
        self.doubted == 0
    }

    /// The number of the newest batch whose commit is known.
    pub(super) fn committed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.committed)
    }

    /// Remembers the streams of a batch that was written.
    pub(super) fn learn(&mut self, streams: HashMap<StreamName, Known>) {
        self.doubted = self.doubted.saturating_sub(1);
        if self.streams.len().saturating_add(streams.len()) > MAX_KNOWN_STREAMS {
            self.forget();
        }
        self.streams.extend(streams);
    }

    /// A batch came to nothing that had presumed something.
    pub(super) const fn doubt(&mut self) {
        self.doubted = DOUBTED_BATCHES;
    }

    pub(super) fn forget(&mut self) {
        self.streams.clear();
    }

    /// These are gone.
    pub(super) fn remove<'a>(&mut self, names: impl Iterator<Item = &'a StreamName>) {
        for name in names {
            self.streams.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::journal::chain::start_hash;

    #[test]
    fn so_many_streams_are_known_and_no_more() {
        let mut known = KnownStreams::default();
        for n in 0..=MAX_KNOWN_STREAMS {
            let head = Head { version: 1, command_id: Uuid::nil(), hash: start_hash("any") };
            let one = Known { stream: 1, head, batch: 1 };
            known.learn(HashMap::from([(StreamName::from(n.to_string()), one)]));
            assert!(known.streams.len() <= MAX_KNOWN_STREAMS);
        }
        let left = known.streams.len();
        assert_eq!(left, 1, "the newest is known, the others are looked up by name again");
    }
}
