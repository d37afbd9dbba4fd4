//! What the writing side remembers of the streams that it wrote, so that a batch need not ask for it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::base::StreamName;
use crate::domain::{Row, RowKey};
use crate::journal::Head;

/// Streams whose ids and heads are remembered. When they are more, all are forgotten: the next batches
/// look theirs up by name.
const MAX_KNOWN_STREAMS: usize = 65_536;
/// Batches that lock and read all once something was not as presumed: where hosts write to the same
/// streams, few batches are begun in vain.
pub(super) const DOUBTED_BATCHES: u32 = 16;

/// The last change of each row that a batch changes.
pub(super) type RowWrites = Arc<BTreeMap<RowKey, Option<Row>>>;

/// A stream that was locked or written before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Its id. What is found by it says its name or has its hash, so the id of a stream that is gone,
    /// or another one's on a server that took over, locks nothing that is used.
    pub(super) stream: i64,
    /// Its head then.
    pub(super) head: Head,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Nothing,
    /// As a batch leaves it that was judged, and whose end is not known.
    UnderWay(Known),
    Standing(Known),
}

/// How a batch has ended that was judged. Nothing is told of one that was never to be written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    Committed,
    /// Something was perhaps not as it was presumed.
    Doubted,
}

/// A batch that was judged, and whose end is not known.
#[derive(Debug)]
struct UnderWay {
    streams: HashMap<StreamName, Known>,
    rows: RowWrites,
    ended: oneshot::Receiver<Ended>,
}

/// The streams that were locked or written before.
#[derive(Debug, Default)]
pub(super) struct KnownStreams {
    streams: HashMap<StreamName, Known>,
    /// In the order in which they commit.
    under_way: VecDeque<UnderWay>,
    /// So many batches presume nothing.
    doubted: u32,
}

impl KnownStreams {
    /// What is known of a stream.
    pub(super) fn find(&self, name: &StreamName) -> Found {
        let newest = self.under_way.iter().rev().find_map(|batch| batch.streams.get(name));
        match (newest, self.streams.get(name)) {
            (Some(known), _) => Found::UnderWay(*known),
            (None, Some(known)) => Found::Standing(*known),
            (None, None) => Found::Nothing,
        }
    }

    /// A batch that is under way changes this row.
    pub(super) fn is_changing(&self, key: &RowKey) -> bool {
        self.under_way.iter().any(|batch| batch.rows.contains_key(key))
    }

    /// The next batch may presume something.
    pub(super) const fn are_trusted(&self) -> bool {
        self.doubted == 0
    }

    /// A batch is under way that leaves these streams so, once it has committed, and changes these rows.
    /// How it ends is to be told.
    pub(super) fn begin(
        &mut self,
        streams: HashMap<StreamName, Known>,
        rows: RowWrites,
    ) -> oneshot::Sender<Ended> {
        let (tell, ended) = oneshot::channel();
        self.under_way.push_back(UnderWay { streams, rows, ended });
        tell
    }

    /// Goes by what was told of batches under way.
    pub(super) fn settle(&mut self) {
        while let Some(batch) = self.under_way.front_mut() {
            match batch.ended.try_recv() {
                Err(TryRecvError::Empty) => return,
                ended => self.settle_first(ended.ok()),
            }
        }
    }

    /// Returns once no batch is under way any more.
    ///
    /// Cancel safety: what was told meanwhile is kept.
    pub(super) async fn ended(&mut self) {
        while let Some(batch) = self.under_way.front_mut() {
            let ended = (&mut batch.ended).await.ok();
            self.settle_first(ended);
        }
    }

    fn settle_first(&mut self, ended: Option<Ended>) {
        let Some(batch) = self.under_way.pop_front() else { return };
        match ended {
            Some(Ended::Committed) => self.learn(batch.streams),
            Some(Ended::Doubted) => self.doubt(),
            None => {}
        }
    }

    /// Remembers the streams of a batch that has committed.
    fn learn(&mut self, streams: HashMap<StreamName, Known>) {
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

    /// What no batch under way has is looked up again.
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

    fn one(name: &str, version: i64) -> HashMap<StreamName, Known> {
        let head = Head { version, command_id: Uuid::nil(), hash: start_hash("any") };
        HashMap::from([(StreamName::from(name), Known { stream: 1, head })])
    }

    fn version(known: &KnownStreams, name: &str) -> Option<(bool, i64)> {
        match known.find(&StreamName::from(name)) {
            Found::Nothing => None,
            Found::UnderWay(known) => Some((false, known.head.version)),
            Found::Standing(known) => Some((true, known.head.version)),
        }
    }

    #[test]
    fn so_many_streams_are_known_and_no_more() {
        let mut known = KnownStreams::default();
        for n in 0..=MAX_KNOWN_STREAMS {
            known.learn(one(&n.to_string(), 1));
            assert!(known.streams.len() <= MAX_KNOWN_STREAMS);
        }
        let left = known.streams.len();
        assert_eq!(left, 1, "the newest is known, the others are looked up by name again");
    }

    #[test]
    fn only_what_was_committed_stands() {
        let mut known = KnownStreams::default();
        let first = known.begin(one("a", 1), RowWrites::default());
        let next = known.begin(one("a", 2), RowWrites::default());
        assert_eq!(version(&known, "a"), Some((false, 2)));
        // What stands on it can only have ended behind it.
        next.send(Ended::Committed).unwrap();
        known.settle();
        assert_eq!(version(&known, "a"), Some((false, 2)));
        first.send(Ended::Committed).unwrap();
        known.settle();
        assert_eq!(version(&known, "a"), Some((true, 2)));
        for ended in [Some(Ended::Doubted), None] {
            let tell = known.begin(one("a", 3), RowWrites::default());
            known.forget();
            assert_eq!(version(&known, "a"), Some((false, 3)), "it is under way all the same");
            known.learn(one("a", 2));
            match ended {
                Some(ended) => tell.send(ended).unwrap(),
                None => drop(tell),
            }
            known.settle();
            assert_eq!(version(&known, "a"), Some((true, 2)));
            assert!(!known.are_trusted());
        }
    }
}
