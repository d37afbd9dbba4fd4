//! From what is stored to a state: the newest snapshot, the events behind it, and the row-only
//! content that the state keeps in memory.
//!
//! Every event's hash is computed again and the end is compared with the head, so a state is never
//! built from a changed, missing or swapped event. It knows no aggregate.

use std::collections::BTreeSet;
use std::fmt;

use super::chain::{ChainHash, EventHashInput, snapshot_checksum, start_hash};
use super::codec::{decode_event, decode_snapshot};
use super::owners::{RowPages, rows_of};
use super::port::{Base, Expected, JournalRecord, Loaded, SnapshotRecord, Storage};
use crate::base::{Error, Result, StreamKey};
use crate::domain::{Aggregate, ContentRef, Row, RowKey, StoredEvent, Table, Value};

/// How often a stream is loaded again because another host wrote to it between two reads.
pub(super) const MAX_LOADS: u32 = 8;

/// A state and the place in its stream that it stands at.
#[derive(Clone, Debug)]
pub struct LoadedState<A> {
    /// The state.
    pub state: A,
    /// The head that the next append is decided on.
    pub expected: Expected,
    /// How many events lie behind the newest snapshot that can be read.
    pub tail_len: u64,
}

impl<A: Default> LoadedState<A> {
    /// The state of a stream without an event.
    pub(crate) fn of_none() -> Self {
        Self { state: A::default(), expected: Expected::NONE, tail_len: 0 }
    }
}

/// Loads the state of a key, with the row-only content that it keeps in memory.
///
/// A damaged snapshot is passed over when all events of the stream are there.
///
/// # Errors
/// Damage, [`Error::UnknownSchema`], what the storage answers; [`Error::Contention`] when other
/// hosts wrote to the stream during every try.
pub async fn load_state<A: Aggregate>(
    storage: &dyn Storage,
    key: &StreamKey,
) -> Result<LoadedState<A>> {
    if key.kind() != A::KIND {
        return Err(Error::invalid("key", "expected a key of the aggregate's kind"));
    }
    let stream = key.stream_name();
    for _ in 0..MAX_LOADS {
        let loaded = storage.load(&stream).await?;
        let expected = loaded.head.map_or(Expected::NONE, |head| Expected {
            version: head.version,
            command_id: head.command_id,
        });
        let (result, is_proved) = complete::<A>(storage, key, loaded).await?;
        if is_proved {
            return result;
        }
        let confirmed = storage.confirm_heads(std::slice::from_ref(&stream)).await?;
        let standing = confirmed.heads.first().copied().flatten().unwrap_or(Expected::NONE);
        if standing == expected {
            return result;
        }
    }
    Err(Error::Contention)
}

/// What a load came to, and whether it is proved. A write between two reads explains as well as
/// damage does that content is missing: then it holds only if the head still stands.
type Completed<A> = (Result<LoadedState<A>>, bool);

async fn complete<A: Aggregate>(
    storage: &dyn Storage,
    key: &StreamKey,
    loaded: Loaded,
) -> Result<Completed<A>> {
    let head = loaded.head;
    let has_snapshot = loaded.snapshot.is_some();
    let mut folded = match fold::<A>(key, &loaded) {
        Ok(folded) => folded,
        Err(error) if !has_snapshot => return Err(error),
        Err(error) => {
            let events = storage.stream_events(&key.stream_name()).await?;
            if !are_all_there::<A>(&events) {
                return Err(error);
            }
            match fold(key, &Loaded { head, base: None, snapshot: None, events }) {
                Ok(folded) => folded,
                Err(error) => return Ok((Err(error), false)),
            }
        }
    };
    let missing = attach_content(storage, key, &mut folded.state).await?;
    let is_proved = missing.is_empty();
    let result = match missing.into_iter().find(|row_key| !A::can_do_without(row_key)) {
        Some(row_key) => Err(Error::damaged(format_args!("{key}: the content of {row_key:?}"))),
        None => Ok(folded),
    };
    Ok((result, is_proved))
}

/// Attaches the content that a state keeps in memory, as far as it is what was written. Gives the
/// keys of the rows of which some is not.
async fn attach_content<A: Aggregate>(
    storage: &dyn Storage,
    key: &StreamKey,
    state: &mut A,
) -> Result<BTreeSet<RowKey>> {
    let mut missing: BTreeSet<RowKey> = state.resident(key).into_iter().collect();
    let tables: BTreeSet<Table> = missing.iter().map(|row_key| row_key.table).collect();
    let queries = rows_of(key).into_iter().filter(|query| tables.contains(&query.table));
    for query in queries {
        let mut pages = RowPages::new(query);
        while let Some(page) = pages.next(storage).await? {
            for row in page {
                let row_key = row.key();
                if !missing.contains(&row_key) {
                    continue;
                }
                let mut is_whole = true;
                for (column, reference) in state.content(key, &row_key) {
                    match row.values.get(column) {
                        Some(value) if is_intact(Some(&row), column, &reference) => {
                            state.attach(&row_key, column, value);
                        }
                        _ => is_whole = false,
                    }
                }
                if is_whole {
                    missing.remove(&row_key);
                }
            }
        }
    }
    Ok(missing)
}

/// Folds what one query loaded: the snapshot, or the start, and every event behind it.
///
/// # Errors
/// Damage, or [`Error::UnknownSchema`]; a snapshot that can't be used is not passed over here.
pub fn fold<A: Aggregate>(key: &StreamKey, loaded: &Loaded) -> Result<LoadedState<A>> {
    let stream = key.stream_name();
    let Some(head) = loaded.head else {
        if loaded.snapshot.is_some() || !loaded.events.is_empty() {
            return Err(damaged(key, "its head is missing"));
        }
        return Ok(LoadedState::of_none());
    };
    let mut chain = Chain::start(&stream);
    let mut state = A::default();
    if let Some(snapshot) = &loaded.snapshot {
        if !is_whole(&stream, snapshot) {
            return Err(damaged(key, "its snapshot is not what was written"));
        }
        state = decode_snapshot(snapshot.schema, &snapshot.payload)?;
        chain = Chain { version: snapshot.version, hash: snapshot.hash };
        if loaded.base.is_some_and(|base| !reaches(snapshot, base)) {
            return Err(damaged(key, "its snapshot does not go with what was cut off"));
        }
    }
    for record in &loaded.events {
        let changed = || damaged(key, format_args!("its event {} was changed", record.version));
        let link = chain.take(&stream, record).ok_or_else(changed)?;
        let event: A::Event = decode_event(record.event_type, record.schema, &record.payload)?;
        if link == Link::Restarted && !event.is_swept() {
            return Err(changed());
        }
        state.apply(&event);
    }
    let newest_command = loaded.events.last().map_or(head.command_id, |event| event.command_id);
    if (chain.version, chain.hash, newest_command) != (head.version, head.hash, head.command_id) {
        return Err(damaged(key, "its newest events are missing"));
    }
    Ok(LoadedState {
        state,
        expected: Expected { version: head.version, command_id: head.command_id },
        tail_len: u64::try_from(loaded.events.len()).unwrap_or(u64::MAX),
    })
}

fn damaged(key: &StreamKey, what: impl fmt::Display) -> Error {
    Error::damaged(format_args!("{key}: {what}"))
}

/// Where a walk along a stream's hash chain stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The version of the last event taken.
    pub(super) version: i64,
    /// The hash at it.
    pub(super) hash: ChainHash,
}

impl Chain {
    /// Before a stream's first event.
    pub(super) fn start(stream: &str) -> Self {
        Self { version: 0, hash: start_hash(stream) }
    }

    /// Goes on by one event, if it is what was written: the next one, or one that starts the chain
    /// anew because it stands for erased history.
    pub(super) fn take(&mut self, stream: &str, record: &JournalRecord) -> Option<Link> {
        let is_next = Some(record.version) == self.version.checked_add(1);
        let link = if is_next && hash_of(record, &self.hash) == record.hash {
            Some(Link::Next)
        } else if hash_of(record, &start_hash(stream)) == record.hash {
            Some(Link::Restarted)
        } else {
            None
        };
        *self = Self { version: record.version, hash: record.hash };
        link
    }
}

/// How an event hangs on the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It is the next one.
    Next,
    /// It starts the chain anew; only an event that stands for erased history may.
    Restarted,
}

pub(super) fn hash_of(record: &JournalRecord, previous: &ChainHash) -> ChainHash {
    let input = EventHashInput {
        version: record.version,
        event_type: record.event_type,
        schema: record.schema,
        command_id: record.command_id,
        recorded_at: record.recorded_at,
        payload: &record.payload,
    };
    input.chain(previous)
}

/// The snapshot is what was written.
pub(super) fn is_whole(stream: &str, snapshot: &SnapshotRecord) -> bool {
    let SnapshotRecord { version, schema, payload, hash, checksum } = snapshot;
    snapshot_checksum(stream, *version, *schema, payload, hash) == *checksum
}

/// The snapshot can stand for events that were cut off up to this base.
fn reaches(snapshot: &SnapshotRecord, base: Base) -> bool {
    base.version < snapshot.version
        || (base.version, base.hash) == (snapshot.version, snapshot.hash)
}

/// The events reach back to the stream's start, or to the event that stands for erased history.
pub(super) fn are_all_there<A: Aggregate>(events: &[JournalRecord]) -> bool {
    events.first().is_some_and(|first| {
        let decoded: Result<A::Event> =
            decode_event(first.event_type, first.schema, &first.payload);
        first.version == 1 || decoded.is_ok_and(|event| event.is_swept())
    })
}

/// The row holds the content that the journal speaks of. A table whose every column is row-only
/// has one reference for the whole row.
pub(super) fn is_intact(row: Option<&Row>, column: usize, reference: &ContentRef) -> bool {
    row.is_some_and(|row| {
        if row.table.spec().columns.iter().all(|column| column.row_only) {
            return ContentRef::of_row(row) == *reference;
        }
        let found = row.values.get(column).and_then(|value| match value {
            Value::Text(text) => Some(ContentRef::of(text)),
            Value::Blob(bytes) => Some(ContentRef::of_bytes(bytes)),
            Value::Null | Value::Int(_) | Value::Keep | Value::Stamp => None,
        });
        found == Some(*reference)
    })
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
