//! What a database in memory holds, and how a judged batch is written to it.
//!
//! Every function here runs under the database's lock, so each is a transaction.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::base::{Error, Result, StreamName, Timestamp};
use crate::domain::{Row, RowChange, RowKey, Value};
use crate::journal::batch::{
    JournalWrite, LEASE_TOKEN_COLUMN, Plan, SnapshotWrite, StreamWrite, View, judge, named_rows,
    stamps,
};
use crate::journal::port::{
    Append, AppendOutcome, Base, CommandRecord, Expected, Head, HistoryCut, JournalRecord, Lineage,
    SnapshotRecord,
};

/// All tables of a database in memory.
#[derive(Debug, Default)]
pub struct Tables {
    /// The streams that have an event, by name.
    pub streams: BTreeMap<StreamName, Stream>,
    /// The events, by position.
    pub journal: BTreeMap<i64, JournalRecord>,
    /// The rows of all read tables.
    pub rows: BTreeMap<RowKey, Row>,
    /// The outcomes of callers' command ids, and when they were recorded.
    pub commands: HashMap<Uuid, (CommandRecord, Timestamp)>,
    /// The newest position that was ever given.
    pub last_position: i64,
    /// The position up to which retention removed events somewhere.
    pub trimmed_up_to: i64,
    /// The newest time that a batch was written with.
    pub newest_time: Timestamp,
    /// The newest time that a row was stamped with.
    pub stamped_at: Timestamp,
    /// Which life of the store this is.
    pub lineage: Lineage,
    /// How many stores have the database open.
    pub(super) open: usize,
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// The stored number of its kind.
    pub kind: i64,
    /// Its newest event.
    pub head: Head,
    /// Its newest event that was cut off.
    pub base: Option<Base>,
    /// The positions of its events that are there, by version.
    pub positions: BTreeMap<i64, i64>,
    /// Its newest snapshot.
    pub snapshot: Option<SnapshotRecord>,
}

impl Stream {
    /// The head as an append expects it.
    #[must_use]
    pub const fn expected(&self) -> Expected {
        self.head.expected()
    }
}

impl Tables {
    /// The head of a stream as an append expects it, if the stream has an event.
    #[must_use]
    pub fn expected(&self, stream: &str) -> Option<Expected> {
        self.streams.get(stream).map(Stream::expected)
    }

    /// The events of a stream behind a version, in order.
    #[must_use]
    pub fn events_behind(&self, stream: &Stream, version: i64) -> Vec<JournalRecord> {
        let behind = stream.positions.range(version.saturating_add(1)..);
        behind.filter_map(|(_, position)| self.journal.get(position)).cloned().collect()
    }

    pub(super) fn append(&mut self, batch: &[Append], now: Timestamp) -> Vec<AppendOutcome> {
        let now = if stamps(batch) { self.next_stamp(now) } else { now };
        let view = self.view(batch);
        let judged = judge(batch, &view, now);
        self.write(judged.plan, now);
        judged.outcomes
    }

    /// What would become of a batch.
    #[cfg(feature = "testing")]
    pub(super) fn judge(&self, batch: &[Append], now: Timestamp) -> Vec<AppendOutcome> {
        let stamp = now.max(self.stamped_at.plus_millis(1));
        judge(batch, &self.view(batch), if stamps(batch) { stamp } else { now }).outcomes
    }

    /// A time for rows that are stamped: greater than every one before.
    fn next_stamp(&mut self, now: Timestamp) -> Timestamp {
        self.stamped_at = now.max(self.stamped_at.plus_millis(1));
        self.stamped_at
    }

    fn view(&self, batch: &[Append]) -> View {
        let mut view = View::default();
        for append in batch {
            if let Some((record, _)) = self.commands.get(&append.command_id) {
                view.commands.insert(append.command_id, record.clone());
            }
            for fence in &append.fences {
                let key = fence.scope.row_key();
                let token = self.rows.get(&key).and_then(|row| row.values.get(LEASE_TOKEN_COLUMN));
                if let Some(token) = token.cloned() {
                    view.leases.insert(key, token);
                }
            }
            for part in &append.parts {
                if let Some(stream) = self.streams.get(&part.stream) {
                    view.heads.insert(part.stream.clone(), stream.head);
                }
            }
        }
        for key in named_rows(batch) {
            if let Some(row) = self.rows.get(key) {
                view.standing.insert(key.clone(), row.clone());
            }
        }
        view
    }

    fn write(&mut self, plan: Plan<'_>, now: Timestamp) {
        self.newest_time = self.newest_time.max(now);
        for write in plan.streams.into_values() {
            self.write_stream(write);
        }
        for write in plan.journal {
            self.write_event(&write, now);
        }
        for (key, row) in plan.rows {
            match row {
                Some(row) => self.put_row(key, &row),
                None => drop(self.rows.remove(&key)),
            }
        }
        for (command_id, record) in plan.commands {
            self.commands.insert(command_id, (record.clone(), now));
        }
    }

    fn write_stream(&mut self, write: StreamWrite<'_>) {
        if write.head.version == 0 {
            return;
        }
        let stream = self.streams.entry(write.name.clone()).or_insert_with(|| Stream {
            kind: write.kind.number(),
            head: write.head,
            base: None,
            positions: BTreeMap::new(),
            snapshot: None,
        });
        stream.head = write.head;
        if write.trim_through.is_some() {
            self.trimmed_up_to = self.last_position;
        }
        if write.erase_through.is_some() {
            stream.snapshot = None;
        }
        if let Some(through) = write.cut_through() {
            stream.base = write.base;
            let kept = stream.positions.split_off(&through.saturating_add(1));
            for position in std::mem::replace(&mut stream.positions, kept).into_values() {
                self.journal.remove(&position);
            }
        }
        if let Some(snapshot) = write.snapshot {
            stream.snapshot = Some(snapshot_record(&snapshot));
        }
    }

    fn write_event(&mut self, write: &JournalWrite<'_>, now: Timestamp) {
        let Some(stream) = self.streams.get_mut(write.stream) else { return };
        self.last_position += 1;
        stream.positions.insert(write.version, self.last_position);
        let record = JournalRecord {
            position: self.last_position,
            stream: write.stream.clone(),
            kind: stream.kind,
            version: write.version,
            event_type: write.event.event_type,
            schema: write.event.schema,
            payload: write.event.payload.clone(),
            command_id: write.command_id,
            recorded_at: now,
            hash: write.hash,
        };
        self.journal.insert(self.last_position, record);
    }

    /// Puts a row; a column that keeps what it has is NULL in a row that is new.
    pub(super) fn put_row(&mut self, key: RowKey, row: &Row) {
        let standing = self.rows.get(&key);
        let values = row.values.iter().enumerate().map(|(at, value)| match value {
            Value::Keep => {
                standing.and_then(|row| row.values.get(at)).cloned().unwrap_or(Value::Null)
            }
            other => other.clone(),
        });
        let row = Row::new(row.table, values.collect());
        self.rows.insert(key, row);
    }

    pub(super) fn replace_rows(&mut self, changes: &[RowChange]) {
        // No event says when, so it is the first time that no reader of stamps has passed.
        let stamps = changes.iter().any(RowChange::stamps);
        let stamp = stamps.then(|| self.next_stamp(Timestamp::default()));
        for change in changes {
            match change {
                RowChange::Put(row) => {
                    let row = stamp.map_or_else(|| row.clone(), |at| row.stamped(at));
                    self.put_row(row.key(), &row);
                }
                RowChange::Delete(key) | RowChange::Take(key) => drop(self.rows.remove(key)),
            }
        }
    }

    /// An append is there when one of its streams holds an event of its command right behind the
    /// version that it was decided on, or when its record is kept.
    pub(super) fn look_up(&self, append: &Append) -> Result<Option<AppendOutcome>> {
        let recorded = append.record.as_ref().and_then(|record| {
            let (kept, _) = self.commands.get(&append.command_id)?;
            Some((kept, kept == record))
        });
        if let Some((kept, false)) = recorded {
            return Ok(Some(AppendOutcome::CommandKnown(kept.clone())));
        }
        let written = append.parts.iter().any(|part| {
            let stream = self.streams.get(&part.stream);
            !part.events.is_empty()
                && stream.is_some_and(|stream| {
                    let positions = stream.positions.range(part.expected.version + 1..);
                    stream.head.command_id == append.command_id
                        || positions
                            .filter_map(|(_, position)| self.journal.get(position))
                            .any(|record| record.command_id == append.command_id)
                })
        });
        // An append behind it has erased or trimmed the event.
        let is_gone = append.parts.iter().filter(|part| !part.events.is_empty()).any(|part| {
            self.streams.get(&part.stream).is_some_and(|stream| {
                let version = part.expected.version + 1;
                stream.head.version >= version && !stream.positions.contains_key(&version)
            })
        });
        if is_gone && !written && append.record.is_none() {
            return Err(Error::OutcomeUnknown { command_id: append.command_id });
        }
        let is_there = written || recorded.is_some();
        Ok(is_there.then(|| AppendOutcome::Committed { taken: Vec::new() }))
    }

    /// Cuts the oldest events of streams, each up to its first event that is too new or behind
    /// the snapshot: what is left of a stream has no hole.
    pub(super) fn cut_history(&mut self, cut: HistoryCut) -> u64 {
        let mut gone = 0;
        let mut streams_left = cut.limit;
        for stream in self.streams.values_mut() {
            let Some(snapshot) = &stream.snapshot else { continue };
            if streams_left == 0 {
                break;
            }
            let old = stream.positions.range(..=snapshot.version).take_while(|(_, position)| {
                let record = self.journal.get(position);
                record.is_none_or(|record| record.recorded_at < cut.recorded_before)
            });
            let versions: Vec<(i64, i64)> = old.map(|(&version, &at)| (version, at)).collect();
            if versions.is_empty() {
                continue;
            }
            streams_left -= 1;
            for (version, position) in versions {
                stream.positions.remove(&version);
                if let Some(record) = self.journal.remove(&position) {
                    stream.base = Some(Base { version, hash: record.hash });
                }
                self.trimmed_up_to = self.trimmed_up_to.max(position);
                gone += 1;
            }
        }
        gone
    }

    /// Drops the streams whose heads are the expected ones. Their events are trimmed history to
    /// a reader of the feed.
    pub(super) fn drop_streams(&mut self, streams: &[(StreamName, Expected)]) -> u64 {
        let mut dropped = 0;
        for (name, expected) in streams {
            if self.expected(name) != Some(*expected) {
                continue;
            }
            let Some(stream) = self.streams.remove(name) else { continue };
            for position in stream.positions.into_values() {
                self.journal.remove(&position);
                self.trimmed_up_to = self.trimmed_up_to.max(position);
            }
            dropped += 1;
        }
        dropped
    }
}

fn snapshot_record(write: &SnapshotWrite<'_>) -> SnapshotRecord {
    SnapshotRecord {
        version: write.version,
        schema: write.schema,
        payload: write.payload.to_vec(),
        hash: write.hash,
        checksum: write.checksum,
    }
}
