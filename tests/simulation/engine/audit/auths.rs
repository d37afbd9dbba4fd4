//! Pending authorizations: each is handed out once at most, and nothing of a secret is anywhere but in
//! its row, which dies with it.

use std::collections::BTreeMap;

use connector_store::domain::Table;
use connector_store::domain::auth::PendingAuthEvent;
use connector_store::domain::connector::ConnectorEvent;
use connector_store::journal::JournalRecord;
use connector_store::{Event, StreamKey, Timestamp};

use super::Written;
use crate::engine::world::World;

const ONCE: &str = "an authorization is handed out once";
const SECRET: &str = "a secret is in its row alone";
/// In each secret of a run, and nowhere else.
pub const MARK: &str = "s3cr3t";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Pending { expires_at: Timestamp },
    Consumed,
    Expired,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Auths {
    stages: BTreeMap<StreamKey, Stage>,
    /// How many callers got each.
    handed_out: BTreeMap<StreamKey, u32>,
    /// Connections whose forgetting takes authorizations before they expire.
    forgetting: usize,
    /// The latest that anybody has deleted up to.
    cutoff: Option<Timestamp>,
}

impl Auths {
    /// Nothing written holds a secret.
    pub(super) fn judge_bytes(&self, world: &World, record: &JournalRecord) {
        world.hold(SECRET, !has_secret(&record.payload), || {
            format!("{} at {}", record.stream, record.position)
        });
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        let event = match &written.event {
            Event::PendingAuth(event) => event,
            Event::Connector(ConnectorEvent::ConnectionForgetBegun(_)) => {
                self.forgetting += 1;
                return;
            }
            Event::Connector(
                ConnectorEvent::ConnectionForgotten(_) | ConnectorEvent::ConnectionForgetAbandoned,
            ) => {
                self.forgetting -= 1;
                return;
            }
            _ => return,
        };
        let before = self.stages.get(&written.key).copied();
        let (after, holds) = match (event, before) {
            (PendingAuthEvent::PendingAuthCreated(created), before) => {
                (Stage::Pending { expires_at: created.expires_at }, before.is_none())
            }
            (PendingAuthEvent::PendingAuthConsumed(_), before) => {
                (Stage::Consumed, matches!(before, Some(Stage::Pending { .. })))
            }
            (_, Some(Stage::Pending { expires_at })) => {
                (Stage::Expired, Some(expires_at) < self.cutoff || self.forgetting > 0)
            }
            _ => (Stage::Expired, false),
        };
        self.stages.insert(written.key.clone(), after);
        world.hold(ONCE, holds, || format!("{event:?} at {:?} after {before:?}", written.at));
    }

    /// Somebody deletes what has expired before then.
    pub fn deletes_before(&mut self, cutoff: Timestamp) {
        self.cutoff = self.cutoff.max(Some(cutoff));
    }

    pub fn is_pending(&self, key: &StreamKey) -> bool {
        matches!(self.stages.get(key), Some(Stage::Pending { .. }))
    }

    pub fn pending(&self) -> usize {
        self.stages.values().filter(|of| matches!(of, Stage::Pending { .. })).count()
    }

    /// A caller got the record.
    pub fn handed_out(&mut self, world: &World, key: &StreamKey) {
        let count = self.handed_out.entry(key.clone()).or_default();
        *count += 1;
        let stage = self.stages.get(key);
        world.hold(ONCE, *count == 1 && stage == Some(&Stage::Consumed), || {
            format!("{} got {count} times: {stage:?}", key.stream_name())
        });
    }

    /// Looks for secrets, and for rows of what is not pending any more, in all that is kept.
    pub fn look(&self, world: &World) {
        let (found, rows) = world.journal.tamper(|tables| {
            let snapshot = tables.streams.iter().find(|(_, stream)| {
                stream.snapshot.as_ref().is_some_and(|of| has_secret(&of.payload))
            });
            let answer = tables.commands.values().any(|(record, _)| has_secret(&record.answer));
            let found = snapshot.map(|(name, _)| format!("in the snapshot of {name}"));
            let rows = tables
                .rows
                .range(first_row()..)
                .take_while(|(key, _)| key.table == Table::PendingAuth);
            (found.or(answer.then(|| "in an answer".to_owned())), rows.count())
        });
        world.hold(SECRET, found.is_none(), || found.clone().unwrap_or_default());
        let pending = self.pending();
        world.hold(SECRET, rows == pending, || format!("{rows} rows, {pending} pending"));
    }
}

fn first_row() -> connector_store::domain::RowKey {
    connector_store::domain::RowKey::new(Table::PendingAuth, Vec::new())
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes())
}
