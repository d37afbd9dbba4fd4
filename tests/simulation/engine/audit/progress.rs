//! Sync states: each write bears a number of its own, so that no update is lost, none is done twice, none
//! is made on a state that was deleted in between, and a read says which write it saw.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::domain::connector::{ConnectorEvent, SyncRecord};
use connector_store::{Event, ProgressVersion, StreamKey, SyncState};
use uuid::Uuid;

use super::Written;
use crate::engine::work::progress;
use crate::engine::world::World;

const NONE_LOST: &str = "no progress is lost or done twice";
const FRESH_READ: &str = "a read sees what was acknowledged before it";

/// A sync state as a write has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    number: u64,
    count: i64,
    version: i64,
    incarnation: Uuid,
}

impl Left {
    fn of(record: &SyncRecord) -> Self {
        Self {
            number: progress::number(record.checkpoint.as_ref()),
            count: record.entity_count,
            version: record.version,
            incarnation: record.incarnation,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Progress {
    standing: BTreeMap<StreamKey, Left>,
    /// The counts that each state had since its version last grew: a state that is replaced keeps its
    /// version, so that an update computed from the state before it is written all the same.
    counts: BTreeMap<StreamKey, BTreeSet<i64>>,
    /// Numbers of updates that are computed outside the actor's turn.
    slow: BTreeSet<u64>,
    incarnations: BTreeSet<Uuid>,
    /// Where each number was written, and what it left.
    written: BTreeMap<u64, (i64, Left)>,
    /// Where each state was deleted for the last time.
    deleted: BTreeMap<StreamKey, i64>,
    /// The newest position that somebody was told of.
    told: BTreeMap<StreamKey, i64>,
    /// Numbers whose writers were told that nothing was done.
    refused: BTreeSet<u64>,
}

impl Progress {
    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        let StreamKey::Connector(_, connector) = &written.key else { return };
        let Event::Connector(event) = &written.event else { return };
        if connector.as_str() != progress::CONNECTOR {
            return;
        }
        let before = self.standing.get(&written.key).copied();
        match event {
            ConnectorEvent::SyncStateSet(record) => {
                let left = Left::of(record);
                let holds = match before {
                    Some(of) => (of.version, of.incarnation) == (left.version, left.incarnation),
                    None => self.is_new(left),
                };
                self.left(world, written, left, before, holds);
            }
            ConnectorEvent::SyncProgressUpdated(record) => {
                let left = Left::of(record);
                let holds = match before {
                    Some(of) => {
                        let is_next =
                            (of.version + 1, of.incarnation) == (left.version, left.incarnation);
                        is_next && self.is_computed_from(&written.key, of.count, left)
                    }
                    None => left.count == 1 && self.is_new(left),
                };
                self.counts.remove(&written.key);
                self.left(world, written, left, before, holds);
            }
            ConnectorEvent::SyncStateDeleted | ConnectorEvent::ConnectionForgotten(_) => {
                self.standing.remove(&written.key);
                self.counts.remove(&written.key);
                self.deleted.insert(written.key.clone(), written.position);
            }
            _ => {}
        }
    }

    fn is_computed_from(&self, key: &StreamKey, newest: i64, left: Left) -> bool {
        let is_slow = self.slow.contains(&left.number);
        let before = self.counts.get(key).filter(|_| is_slow);
        left.count == newest + 1 || before.is_some_and(|of| of.contains(&(left.count - 1)))
    }

    /// The update with this number is computed while others write.
    pub fn is_slow(&mut self, number: u64) {
        self.slow.insert(number);
    }

    fn is_new(&self, left: Left) -> bool {
        left.version == 0 && !self.incarnations.contains(&left.incarnation)
    }

    fn left(
        &mut self,
        world: &World,
        written: &Written,
        left: Left,
        before: Option<Left>,
        holds: bool,
    ) {
        let holds = holds && !self.written.contains_key(&left.number);
        world.hold(NONE_LOST, holds, || {
            format!(
                "{} at {}: {left:?} after {before:?}",
                written.key.stream_name(),
                written.position
            )
        });
        world.hold("refused has no effect", !self.refused.contains(&left.number), || {
            format!("progress {} was refused, and written at {}", left.number, written.position)
        });
        self.incarnations.insert(left.incarnation);
        self.counts.entry(written.key.clone()).or_default().insert(left.count);
        self.standing.insert(written.key.clone(), left);
        self.written.insert(left.number, (written.position, left));
    }

    /// Where a read may stand at the earliest that begins now.
    pub fn floor(&self, key: &StreamKey) -> i64 {
        self.told.get(key).copied().unwrap_or(0)
    }

    /// The writer of this number was told that it is done.
    pub fn done(
        &mut self,
        world: &World,
        key: &StreamKey,
        number: u64,
        version: Option<ProgressVersion>,
    ) {
        let written = self.written.get(&number).copied();
        let holds = match (written, version) {
            (Some((_, left)), Some(told)) => {
                (left.version, left.incarnation) == (told.version, told.incarnation)
            }
            (Some(_), None) => true,
            (None, _) => false,
        };
        world.hold("acknowledged is durable", holds, || {
            format!("progress {number} with {version:?}: {written:?}")
        });
        self.stand(key, written.map_or(0, |(position, _)| position));
    }

    /// The writer of this number was told that it is not done, and never will be.
    pub fn refused(&mut self, world: &World, number: u64) {
        let written = self.written.get(&number);
        world.hold("refused has no effect", written.is_none(), || {
            format!("progress {number} was refused, and written: {written:?}")
        });
        self.refused.insert(number);
    }

    /// Somebody has read this state.
    pub fn read(&mut self, world: &World, key: &StreamKey, state: Option<&SyncState>, floor: i64) {
        let position = match state {
            None => self.deleted.get(key).copied().unwrap_or(0),
            Some(state) => {
                let read = Left {
                    number: progress::number(state.checkpoint.as_ref()),
                    count: state.entity_count,
                    version: state.version,
                    incarnation: state.incarnation,
                };
                let written = self.written.get(&read.number).copied();
                let holds = written.is_some_and(|(_, left)| left == read);
                world.hold(FRESH_READ, holds, || format!("{read:?} is read, {written:?} written"));
                written.map_or(0, |(position, _)| position)
            }
        };
        world.hold(FRESH_READ, position >= floor, || {
            format!("{} as of {position}, and something newer at {floor}", key.stream_name())
        });
        self.stand(key, position);
    }

    fn stand(&mut self, key: &StreamKey, position: i64) {
        let told = self.told.entry(key.clone()).or_default();
        *told = (*told).max(position);
    }
}
