//! One stream, looked at whole: its chain, its head, its snapshot, and the state they come to.
//!
//! Pure. The one place that knows which aggregate a kind of stream has.

use std::collections::BTreeMap;

use super::chain::{ChainHash, start_hash};
use super::codec::{decode_event, decode_snapshot, encode_snapshot};
use super::damage::Damage;
use super::fold::{Chain, Link, fold, hash_of, is_whole};
use super::port::{JournalRecord, Loaded, SnapshotRecord};
use crate::base::{Error, StreamKey, StreamKind, StreamName, Timestamp};
use crate::domain::auth::PendingAuth;
use crate::domain::connector::Connector;
use crate::domain::document::Document;
use crate::domain::{Aggregate, ContentRef, Row, RowKey, StoredEvent, Value};

/// A stream as it is stored.
#[derive(Debug)]
pub(super) struct Stored {
    /// Its name.
    pub(super) name: StreamName,
    /// The stored number of its kind.
    pub(super) kind: i64,
    /// What it is loaded from.
    pub(super) loaded: Loaded,
    /// All its events that are there.
    pub(super) events: Vec<JournalRecord>,
}

/// What became of a look at a stream.
pub(super) struct Inspected {
    /// What is wrong with it.
    pub(super) damages: Vec<Damage>,
    /// The rows that it must have, if its state could be told.
    pub(super) rows: Option<Box<dyn StreamRows>>,
}

/// The rows that a stream's state has, whatever its aggregate is.
pub(super) trait StreamRows: Send + Sync {
    /// The stream's key.
    fn key(&self) -> &StreamKey;
    /// The keys of all rows.
    fn keys(&self) -> Vec<RowKey>;
    /// The row of a key. A stamped column holds [`Value::Keep`] where its event is gone.
    fn row(&self, row: &RowKey) -> Option<Row>;
    /// What the row-only columns of the row must hold.
    fn content(&self, row: &RowKey) -> Vec<(usize, ContentRef)>;
    /// What the row must be whose key the stream does not hold.
    fn secret_row(&self) -> Option<ContentRef>;
}

struct Held<A> {
    key: StreamKey,
    state: A,
    secret_row: Option<ContentRef>,
    stamps: Stamps,
}

/// When stamped rows were written, by the newest event that touched each and is still there.
type Stamps = BTreeMap<RowKey, Timestamp>;

impl<A: Aggregate> StreamRows for Held<A> {
    fn key(&self) -> &StreamKey {
        &self.key
    }

    fn keys(&self) -> Vec<RowKey> {
        self.state.rows(&self.key)
    }

    fn row(&self, row: &RowKey) -> Option<Row> {
        let mut found = self.state.row(&self.key, row)?;
        if let Some(at) = self.stamps.get(row) {
            let columns = row.table.spec().columns.iter().zip(&mut found.values);
            for (_, value) in columns.filter(|(column, _)| column.stamped) {
                *value = Value::Int(at.as_millis());
            }
        }
        Some(found)
    }

    fn content(&self, row: &RowKey) -> Vec<(usize, ContentRef)> {
        self.state.content(&self.key, row)
    }

    fn secret_row(&self) -> Option<ContentRef> {
        self.secret_row
    }
}

/// Looks at a stream of any kind.
pub(super) fn inspect(stored: &Stored) -> Inspected {
    let key = StreamKey::from_stream_name(&stored.name);
    let Some(key) = key.filter(|key| key.kind().number() == stored.kind) else {
        let damage = Damage::UnknownKind { stream: stored.name.clone(), kind: stored.kind };
        return Inspected { damages: vec![damage], rows: None };
    };
    match key.kind() {
        StreamKind::Document => inspect_as::<Document>(key, stored, |_| None),
        StreamKind::Connector => inspect_as::<Connector>(key, stored, |_| None),
        StreamKind::Auth => inspect_as(key, stored, PendingAuth::pending_row),
    }
}

fn inspect_as<A: Aggregate>(
    key: StreamKey,
    stored: &Stored,
    secret_row: fn(&A) -> Option<ContentRef>,
) -> Inspected {
    let mut walk = Walk::<A>::start(&key, stored);
    walk.take_events();
    walk.compare_head();
    walk.compare_snapshot();
    let Walk { state: from_start, mut damages, stamps, .. } = walk;
    let state = match fold::<A>(&key, &stored.loaded) {
        Ok(loaded) => Some(loaded.state),
        Err(_) if from_start.is_some() => from_start,
        Err(error) => {
            // The walk names what the fold stumbles over; this is for what only the fold sees.
            if damages.is_empty() {
                damages.push(unreadable(&stored.name, 0, &error));
            }
            None
        }
    };
    let rows = state.map(|state| {
        let secret_row = secret_row(&state);
        Box::new(Held { key, state, secret_row, stamps }) as Box<dyn StreamRows>
    });
    Inspected { damages, rows }
}

/// A walk along all events of a stream.
struct Walk<'a, A> {
    key: &'a StreamKey,
    stored: &'a Stored,
    chain: Chain,
    /// The fold from the stream's start, as long as nothing of it is missing or damaged.
    state: Option<A>,
    /// The chain's hash and the fold at the snapshot's version, if an event is there.
    at_snapshot: Option<(ChainHash, Option<A>)>,
    damages: Vec<Damage>,
    stamps: Stamps,
}

impl<'a, A: Aggregate> Walk<'a, A> {
    fn start(key: &'a StreamKey, stored: &'a Stored) -> Self {
        let Loaded { head, base, snapshot, .. } = &stored.loaded;
        let first = stored.events.first();
        let starts =
            first.is_some_and(|first| first.version == 1 || restarts::<A>(&stored.name, first));
        let mut walk = Self {
            key,
            stored,
            chain: Chain::start(&stored.name),
            state: starts.then(A::default),
            at_snapshot: None,
            damages: Vec::new(),
            stamps: Stamps::new(),
        };
        if starts {
            return walk;
        }
        // The start is gone: it was cut off up to the base, and the snapshot stands in for it.
        let is_cut = match (base, snapshot) {
            (Some(base), Some(snapshot)) => base.version <= snapshot.version,
            _ => false,
        };
        if !is_cut {
            let newest = head.map_or(0, |head| head.version);
            let version = first.map_or(newest, |first| first.version);
            walk.damages.push(Damage::HistoryMissing { stream: stored.name.clone(), version });
        }
        if let Some(base) = base {
            walk.chain = Chain { version: base.version, hash: base.hash };
        }
        walk
    }

    fn take_events(&mut self) {
        let stored = self.stored;
        let snapshot_version = stored.loaded.snapshot.as_ref().map(|snapshot| snapshot.version);
        if Some(self.chain.version) == snapshot_version {
            self.at_snapshot = Some((self.chain.hash, None));
        }
        for (at, record) in stored.events.iter().enumerate() {
            self.take(record, at == 0);
            if Some(record.version) == snapshot_version {
                self.at_snapshot = Some((record.hash, self.state.clone()));
            }
        }
    }

    fn take(&mut self, record: &JournalRecord, is_first: bool) {
        let (stream, version) = (&self.stored.name, record.version);
        let before = self.chain;
        let starts = is_first && self.state.is_some();
        let is_gap = Some(version) != before.version.checked_add(1) && !starts;
        let link = self.chain.take(stream, record);
        let event = decode_event::<A::Event>(record.event_type, record.schema, &record.payload);
        // Where there is no base, all that is before the first event is named as missing already.
        if is_gap && before.version > 0 {
            let version = before.version.saturating_add(1);
            self.damages.push(Damage::EventsMissing { stream: stream.clone(), version });
            self.state = None;
        }
        // The hash before an event behind a gap is not known.
        let is_linked = match link {
            Some(Link::Next) => true,
            Some(Link::Restarted) => event.as_ref().is_ok_and(StoredEvent::is_swept),
            None => is_gap,
        };
        if !is_linked {
            self.damages.push(Damage::EventChanged { stream: stream.clone(), version });
            self.state = None;
            return;
        }
        match event {
            Ok(event) => {
                self.note_stamps(&event, record.recorded_at);
                if let Some(state) = &mut self.state {
                    state.apply(&event);
                }
            }
            Err(error) => {
                self.damages.push(unreadable(stream, version, &error));
                self.state = None;
            }
        }
    }

    fn note_stamps(&mut self, event: &A::Event, recorded_at: Timestamp) {
        let mut touched = Vec::new();
        A::touched(self.key, event, &mut touched);
        touched.retain(|row| row.table.spec().columns.iter().any(|column| column.stamped));
        let at = event.stamped_at().unwrap_or(recorded_at);
        self.stamps.extend(touched.into_iter().map(|row| (row, at)));
    }

    fn compare_head(&mut self) {
        let stream = &self.stored.name;
        let Some(head) = self.stored.loaded.head else { return };
        let newest = self.stored.events.last();
        let command_id = newest.map_or(head.command_id, |event| event.command_id);
        let end = (self.chain.version, self.chain.hash, command_id);
        let is_named = self.damages.iter().any(|damage| match damage {
            Damage::EventChanged { version, .. } => *version == head.version,
            Damage::HistoryMissing { .. } => newest.is_none(),
            _ => false,
        });
        if end != (head.version, head.hash, head.command_id) {
            self.state = None;
            if !is_named {
                let damage = Damage::HeadDiffers { stream: stream.clone(), version: head.version };
                self.damages.push(damage);
            }
        }
    }

    fn compare_snapshot(&mut self) {
        let Some(snapshot) = &self.stored.loaded.snapshot else { return };
        let (stream, version) = (self.stored.name.clone(), snapshot.version);
        if !is_whole(&stream, snapshot) {
            self.damages.push(Damage::SnapshotChanged { stream, version });
            return;
        }
        let state = match decode_snapshot::<A>(snapshot.schema, &snapshot.payload) {
            Ok(state) => state,
            Err(Error::UnknownSchema { what, number, schema, .. }) => {
                self.damages.push(Damage::UnknownSchema { stream, what, number, schema });
                return;
            }
            Err(_) => {
                self.damages.push(Damage::SnapshotChanged { stream, version });
                return;
            }
        };
        if !self.agrees(snapshot, &state) {
            self.damages.push(Damage::SnapshotDiffers { stream, version });
        }
    }

    fn agrees(&self, snapshot: &SnapshotRecord, state: &A) -> bool {
        let head = self.stored.loaded.head;
        let is_within = head.is_some_and(|head| snapshot.version <= head.version);
        let is_same = self.at_snapshot.as_ref().is_none_or(|(hash, folded)| {
            // States have no common equality, but one encoding.
            let encoded = |state: &A| encode_snapshot(state).ok();
            *hash == snapshot.hash
                && folded.as_ref().is_none_or(|folded| encoded(folded) == encoded(state))
        });
        is_within && is_same
    }
}

/// The event says that it stands for erased history, whether or not its hash proves it.
fn restarts<A: Aggregate>(stream: &str, record: &JournalRecord) -> bool {
    let event = decode_event::<A::Event>(record.event_type, record.schema, &record.payload);
    event.is_ok_and(|event| event.is_swept()) || hash_of(record, &start_hash(stream)) == record.hash
}

fn unreadable(stream: &StreamName, version: i64, error: &Error) -> Damage {
    let stream = stream.clone();
    match *error {
        Error::UnknownSchema { what, number, schema, .. } => {
            Damage::UnknownSchema { stream, what, number, schema }
        }
        _ => Damage::EventChanged { stream, version },
    }
}
