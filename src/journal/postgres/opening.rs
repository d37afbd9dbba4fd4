//! What a transaction that writes begins with: it locks what it is judged on, in one order for all
//! hosts, and then reads it.
//!
//! The order is: lease rows, heads that are missing, heads (by their ids), the row of stamps; each kind
//! sorted, each row once, in the strongest mode that the batch needs. So no two batches wait for each
//! other. What locked statements give back is the newest version of a row, also where they had to wait
//! for it.
//!
//! A head that this store wrote last is not locked here but remembered, where rows are put beside the
//! next one and none is removed: the batch is judged on it, and the statement that writes the next
//! head, and locks it thereby, confirms that it was still so. Where it was not, nothing is written, and
//! the batch begins anew with locks, as the next ones do. A head that is written by a batch whose
//! commit is still under way is locked here, and waited for.
//!
//! All of it is one text, because each round trip costs as much as the locks of many rows. Each
//! statement in it still sees what was committed before it began.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgRow;
use sqlx::{Column as _, Row as _};
use uuid::Uuid;

use super::connect::Session;
use super::read::{blob_digest, blob_uuid, bytes, get, head_of, int, row_of, text};
use super::statement::Statement;
use crate::base::{
    ConnectorName, Error, OwnerDid, Result, StreamKey, StreamKind, StreamName, Timestamp,
};
use crate::domain::{Row, RowChange, RowKey, Table, Value};
use crate::journal::batch::{View, named_rows, stamps};
use crate::journal::{Append, CommandRecord, Expected, Head, Part};

/// Streams whose ids and heads are remembered. When they are more, all are forgotten: the next batches
/// look theirs up by name.
const MAX_KNOWN_STREAMS: usize = 65_536;
/// Batches that lock all heads once a remembered one was not so: where hosts write to the same streams,
/// few batches are begun in vain.
const DOUBTED_BATCHES: u32 = 16;

/// Names of the last column of a row, which say what it is.
const LEASE: &str = "a_lease";
const HEAD: &str = "a_head";
const STAMP: &str = "a_stamp";
const MOMENT: &str = "a_moment";
const COMMAND: &str = "a_command";
const ROW_OF: &str = "a_row_of_";

/// What was found under the locks.
#[derive(Debug, Default)]
pub(super) struct Locked {
    pub(super) view: View,
    /// The ids of the streams; all that can be written to are there.
    pub(super) ids: HashMap<StreamName, i64>,
    /// The streams without an event.
    pub(super) empty: Vec<i64>,
    /// The streams whose heads are not locked yet: what is written has to confirm each.
    pub(super) remembered: Vec<StreamName>,
    /// The newest stamp, if it was locked.
    pub(super) stamped_at: Option<Timestamp>,
    /// What was drawn, if anything was.
    pub(super) drawn: Option<Drawn>,
}

/// Positions of events, the time, and which life the store is in. It stays in that until the end of
/// the transaction: a restore waits for all that have locked heads, or their table.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) generation: i64,
    pub(super) now: Timestamp,
    /// In their order.
    pub(super) positions: Vec<i64>,
}

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

/// The streams that were locked or written before.
#[derive(Debug, Default)]
pub(super) struct KnownStreams {
    streams: HashMap<StreamName, Known>,
    /// The newest batch that was committed.
    committed: Arc<AtomicU64>,
    /// So many batches lock all their heads.
    doubted: u32,
}

impl KnownStreams {
    /// The number of the newest batch whose commit is known. A head of a later one is not remembered: a
    /// statement that begins before that is committed sees neither the head nor the rows beside it, and
    /// would not delete those.
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

    /// A batch that had remembered heads came to nothing.
    pub(super) const fn doubt(&mut self) {
        self.doubted = DOUBTED_BATCHES;
    }

    pub(super) fn forget(&mut self) {
        self.streams.clear();
    }
}

/// A stream to be locked.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    kind: StreamKind,
    /// It is created if it is missing: an append may be its first.
    creates: bool,
    /// All that the batch does to it are events and rows to put, so its head can be confirmed by what is
    /// written. What removes a row must begin once the head is locked, to see it: a rebuild may have
    /// put it there.
    only_grows: bool,
}

/// The text behind `BEGIN`.
pub(super) struct Opening {
    statement: Statement,
    /// The streams that must be there.
    needed: Vec<StreamName>,
    /// The streams that are judged as they were known.
    remembered: Vec<(StreamName, Known)>,
}

impl Opening {
    fn new() -> Self {
        let statement = Statement::written_out("");
        Self { statement, needed: Vec::new(), remembered: Vec::new() }
    }

    pub(super) fn text(&self) -> &str {
        &self.statement.sql
    }

    /// Some heads are not locked but remembered.
    pub(super) const fn remembers(&self) -> bool {
        !self.remembered.is_empty()
    }

    /// All that a batch is judged on, but rows whose keys are secrets.
    pub(super) fn of_batch(batch: &[Append], known: &KnownStreams) -> sqlx::Result<Self> {
        let mut opening = Self::new();
        let parts = || batch.iter().flat_map(|append| &append.parts);
        let written = written_leases(parts().flat_map(|part| &part.rows));
        let mode = if written.is_empty() { "SHARE" } else { "UPDATE" };
        let fences = batch.iter().flat_map(|append| &append.fences);
        opening.lock_leases(
            &fences.map(|fence| fence.scope.row_key()).chain(written).collect(),
            mode,
        )?;
        let (mut wanted, stamps) = (streams_of(batch), stamps(batch));
        if known.doubted == 0 && !stamps {
            opening.remember(&mut wanted, known);
        }
        opening.lock_heads(&wanted, known)?;
        if stamps {
            opening.lock_stamps();
        }
        let events: usize = parts().map(|part| part.events.len()).sum();
        let has_trim = parts().any(|part| part.trim);
        opening.draw(events.max(usize::from(has_trim)));
        let recorded = batch.iter().filter(|append| append.record.is_some());
        opening.read_commands(recorded.map(|append| append.command_id).collect())?;
        opening.read_rows(named_rows(batch).into_iter().filter(|key| !is_secret(key)).collect())?;
        Ok(opening)
    }

    /// The streams of these parts, also those that another transaction is about to create.
    pub(super) fn of_parts<'a>(parts: impl Iterator<Item = &'a Part>) -> sqlx::Result<Self> {
        let mut opening = Self::new();
        opening.lock_heads(&wanted(parts), &KnownStreams::default())?;
        Ok(opening)
    }

    /// Of these streams those that are there.
    pub(super) fn of_standing<'a>(
        names: impl Iterator<Item = &'a StreamName>,
    ) -> sqlx::Result<Self> {
        let mut opening = Self::new();
        opening.lock_standing(Vec::new(), names.collect())?;
        Ok(opening)
    }

    /// What rows are written under that were told from these streams. A stream that is expected to be
    /// none gets a head, so that nobody else begins it meanwhile.
    pub(super) fn of_told(
        changes: &[RowChange],
        expected: &[(StreamName, Expected)],
    ) -> sqlx::Result<Self> {
        let mut opening = Self::new();
        opening.lock_leases(&written_leases(changes.iter()), "UPDATE")?;
        let mut wanted = BTreeMap::new();
        for (name, expected) in expected {
            let key = StreamKey::from_stream_name(name)
                .ok_or_else(|| decode(Error::damaged(format_args!("a stream is named {name}"))))?;
            let creates = *expected == Expected::NONE;
            let stream = Wanted { kind: key.kind(), creates, only_grows: false };
            wanted.insert(name.clone(), stream);
        }
        opening.lock_heads(&wanted, &KnownStreams::default())?;
        if changes.iter().any(RowChange::stamps) {
            opening.lock_stamps();
        }
        Ok(opening)
    }

    /// The next statement of the text.
    fn next(&mut self, sql: &str) {
        self.statement.push("; ");
        self.statement.push(sql);
    }

    fn lock_leases(&mut self, keys: &BTreeSet<RowKey>, mode: &str) -> sqlx::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let scopes = keys.iter().map(|key| key.values.first().and_then(Value::as_text)).collect();
        self.next(&format!(
            "SELECT scope, token AS {LEASE} FROM connector_lease WHERE scope = ANY ("
        ));
        self.statement.bind_texts(scopes)?;
        self.statement.push(") ORDER BY scope FOR ");
        self.statement.push(mode);
        Ok(())
    }

    /// Takes out what needs no lock before it is written. The lock of the table is what writing takes
    /// as well: a restore that waits for it must find it before the generation is read.
    fn remember(&mut self, wanted: &mut BTreeMap<StreamName, Wanted>, known: &KnownStreams) {
        let committed = known.committed.load(Ordering::Acquire);
        wanted.retain(|name, wanted| match known.streams.get(name) {
            Some(&at) if wanted.only_grows && at.batch <= committed => {
                self.remembered.push((name.clone(), at));
                false
            }
            _ => true,
        });
        if self.remembers() {
            self.next("LOCK TABLE connector_stream IN ROW EXCLUSIVE MODE");
        }
    }

    /// Creates heads at version 0 that are not there, and locks all. A row of a transaction that is
    /// under way is waited for.
    fn lock_heads(
        &mut self,
        wanted: &BTreeMap<StreamName, Wanted>,
        known: &KnownStreams,
    ) -> sqlx::Result<()> {
        let committed = known.committed.load(Ordering::Acquire);
        let (mut ids, mut unknown) = (Vec::new(), Vec::new());
        for (name, &wanted) in wanted {
            match known.streams.get(name) {
                Some(at) if at.batch <= committed => {
                    ids.push(at.stream);
                    self.needed.push(name.clone());
                }
                // It may be created by the batch before, which is waited for where it is created again.
                Some(_) => unknown.push((name, Wanted { creates: true, ..wanted })),
                None => unknown.push((name, wanted)),
            }
        }
        let created = || unknown.iter().filter(|(_, wanted)| wanted.creates);
        self.needed.extend(created().map(|(name, _)| StreamName::clone(name)));
        if created().next().is_some() {
            self.next(
                "INSERT INTO connector_stream (name, kind, version, last_command_id, hash) \
                 SELECT name, kind, 0, '', '' FROM unnest(",
            );
            self.statement.bind_texts(created().map(|(name, _)| Some(&***name)).collect())?;
            self.statement.push(", ");
            let kinds = created().map(|(_, wanted)| Some(wanted.kind.number()));
            self.statement.bind_ints(kinds.collect())?;
            self.statement.push(") AS v (name, kind) ON CONFLICT (name) DO NOTHING");
        }
        self.lock_standing(ids, unknown.into_iter().map(|(name, _)| name).collect())
    }

    /// Locks heads that are there, by their ids, which costs half as much, or their names.
    fn lock_standing(&mut self, ids: Vec<i64>, names: Vec<&StreamName>) -> sqlx::Result<()> {
        if names.is_empty() && ids.is_empty() {
            return Ok(());
        }
        self.next(&format!(
            "SELECT stream, name, version, last_command_id, hash AS {HEAD} FROM connector_stream WHERE "
        ));
        let both = !ids.is_empty() && !names.is_empty();
        if !ids.is_empty() {
            self.statement.push("stream = ANY (");
            self.statement.bind_ints(ids.into_iter().map(Some).collect())?;
            self.statement.push(if both { ") OR " } else { ")" });
        }
        if !names.is_empty() {
            self.statement.push("name = ANY (");
            self.statement.bind_texts(names.into_iter().map(|name| Some(&**name)).collect())?;
            self.statement.push(")");
        }
        self.statement.push(" ORDER BY stream FOR UPDATE");
        Ok(())
    }

    /// Locks the row of stamps until the end of the transaction.
    fn lock_stamps(&mut self) {
        self.next(&format!(
            "SELECT value AS {STAMP} FROM connector_meta WHERE key = 'stamped_at' FOR UPDATE"
        ));
    }

    /// Draws positions, by a transaction that has its id before: a reader that waits for all lower ids
    /// waits for all lower positions. What is written behind it is written under a later id than any
    /// that was given before.
    fn draw(&mut self, count: usize) {
        self.next(&format!(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
             (SELECT value FROM connector_meta WHERE key = 'generation'), pg_current_xact_id(), \
             ARRAY(SELECT nextval('connector_journal_position') FROM generate_series(1, {count})) \
             AS {MOMENT}; SAVEPOINT drawn"
        ));
    }

    fn read_commands(&mut self, ids: Vec<Uuid>) -> sqlx::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.next(&format!(
            "SELECT command_id, digest, answer AS {COMMAND} FROM connector_command \
             WHERE command_id = ANY ("
        ));
        let ids = ids.iter().map(|id| Some(id.as_bytes().as_slice()));
        self.statement.bind_blobs(ids.collect())?;
        self.statement.push(")");
        Ok(())
    }

    fn read_rows(&mut self, keys: Vec<&RowKey>) -> sqlx::Result<()> {
        for keys in keys.chunk_by(|a, b| a.table == b.table) {
            let Some(table) = keys.first().map(|key| key.table) else { continue };
            self.next("");
            self.statement.push_rows(
                table,
                keys,
                &format!(", 0 AS {ROW_OF}{}", table.spec().name),
            )?;
        }
        Ok(())
    }

    /// What its rows say. `None`: a head is gone that was known, or another host took it away between its
    /// creation and its lock, and the transaction must begin anew.
    pub(super) fn read(&self, rows: &[PgRow]) -> sqlx::Result<Option<Locked>> {
        let mut locked = Locked::default();
        for row in rows {
            locked.take(row).map_err(decode)?;
        }
        for (name, known) in &self.remembered {
            locked.ids.insert(name.clone(), known.stream);
            locked.view.heads.insert(name.clone(), known.head);
            locked.remembered.push(name.clone());
        }
        Ok(self.needed.iter().all(|name| locked.ids.contains_key(name)).then_some(locked))
    }
}

impl Locked {
    fn take(&mut self, row: &PgRow) -> Result<()> {
        match row.columns().last().map_or("", |column| column.name()) {
            LEASE => {
                let key = RowKey::new(Table::Lease, vec![Value::text(text(row, 0)?)]);
                self.view.leases.insert(key, Value::text(text(row, 1)?));
            }
            HEAD => {
                let (stream, name) = (int(row, 0)?, StreamName::from(text(row, 1)?));
                if int(row, 2)? == 0 {
                    self.empty.push(stream);
                } else {
                    self.view.heads.insert(name.clone(), head_of(row, 2)?);
                }
                self.ids.insert(name, stream);
            }
            STAMP => self.stamped_at = Some(Timestamp::from_millis(int(row, 0)?)),
            MOMENT => {
                let (now, generation) = (Timestamp::from_millis(int(row, 0)?), int(row, 1)?);
                let mut positions: Vec<i64> = get(row, 3)?;
                positions.sort_unstable();
                self.drawn = Some(Drawn { generation, now, positions });
            }
            COMMAND => {
                let (command_id, record) = command_of(row)?;
                self.view.commands.insert(command_id, record);
            }
            named => {
                let of = |table: &&Table| named.strip_prefix(ROW_OF) == Some(table.spec().name);
                if let Some(&table) = Table::ALL.iter().find(of) {
                    let row = row_of(row, table)?;
                    self.view.standing.insert(row.key(), row);
                }
            }
        }
        Ok(())
    }
}

/// The table whose keys must not stand in a statement's text, which the server may log.
const SECRET: Table = Table::PendingAuth;

fn is_secret(key: &RowKey) -> bool {
    key.table == SECRET
}

/// The rows of a batch whose keys are secrets.
pub(super) async fn secret_rows(session: &mut Session, batch: &[Append]) -> sqlx::Result<Vec<Row>> {
    let keys: Vec<&RowKey> = named_rows(batch).into_iter().filter(|key| is_secret(key)).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = Statement::new("");
    statement.push_rows(SECRET, &keys, "")?;
    let rows = session.all(statement).await?;
    rows.iter().map(|row| row_of(row, SECRET)).collect::<Result<_>>().map_err(decode)
}

fn written_leases<'a>(changes: impl Iterator<Item = &'a RowChange>) -> BTreeSet<RowKey> {
    let keys = changes.map(|change| match change {
        RowChange::Put(row) => row.key(),
        RowChange::Delete(key) | RowChange::Take(key) => key.clone(),
    });
    keys.filter(|key| key.table == Table::Lease).collect()
}

fn streams_of(batch: &[Append]) -> BTreeMap<StreamName, Wanted> {
    let parts = batch.iter().flat_map(|append| &append.parts);
    let mut wanted = wanted(parts);
    for key in batch.iter().flat_map(|append| &append.absent) {
        if let Some(stream) = guard_of(key) {
            let only_grows = wanted.get(&stream.stream_name()).is_some_and(|it| it.only_grows);
            let guard = Wanted { kind: stream.kind(), creates: true, only_grows };
            wanted.insert(stream.stream_name(), guard);
        }
    }
    wanted
}

fn wanted<'a>(parts: impl Iterator<Item = &'a Part>) -> BTreeMap<StreamName, Wanted> {
    let mut wanted = BTreeMap::new();
    for part in parts {
        let stream = wanted.entry(StreamName::clone(&part.stream)).or_insert(Wanted {
            kind: part.kind,
            creates: false,
            only_grows: true,
        });
        stream.creates |= part.expected.version == 0;
        stream.only_grows &= only_grows(part);
    }
    wanted
}

fn only_grows(part: &Part) -> bool {
    let removes = |change: &RowChange| !matches!(change, RowChange::Put(_));
    !part.events.is_empty() && !part.erase && !part.trim && !part.rows.iter().any(removes)
}

/// The stream whose appends alone put a row that others expect to be absent and do not put
/// themselves: under its lock the row stays absent until they have committed.
fn guard_of(key: &RowKey) -> Option<StreamKey> {
    let name = |at: usize| key.values.get(at).and_then(Value::as_text);
    if key.table != Table::Forgetting {
        return None;
    }
    let owner = OwnerDid::new(name(0)?).ok()?;
    Some(StreamKey::Connector(owner, ConnectorName::new(name(1)?).ok()?))
}

/// A command's id and its recorded outcome.
fn command_of(row: &PgRow) -> Result<(Uuid, CommandRecord)> {
    let record = CommandRecord { digest: blob_digest(row, 1)?, answer: bytes(row, 2)? };
    Ok((blob_uuid(row, 0)?, record))
}

/// The recorded outcome of a command's id.
pub(super) async fn stored_command(
    session: &mut Session,
    command_id: Uuid,
) -> sqlx::Result<Option<CommandRecord>> {
    let mut statement = Statement::new(
        "SELECT command_id, digest, answer FROM connector_command WHERE command_id = ",
    );
    statement.bind(command_id.as_bytes().as_slice())?;
    let rows = session.all(statement).await?;
    rows.first().map(|row| command_of(row).map(|(_, record)| record)).transpose().map_err(decode)
}

/// An error of the store as one of the library, for what is between two statements.
pub(super) fn decode(error: Error) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(error))
}

#[cfg(test)]
#[cfg(unix)]
#[path = "opening_tests.rs"]
mod tests;
