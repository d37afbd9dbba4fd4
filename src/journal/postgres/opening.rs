//! What a transaction that writes begins with: it locks what it is judged on, in one order for all
//! hosts, and then reads it.
//!
//! The order is: the table of marks, lease rows, the table of heads where some are not locked, heads that
//! are missing, heads (by their ids), the row of stamps; each kind sorted, each row once, in the strongest
//! mode that the batch needs. So no two batches wait for each other. What locked statements give back is
//! the newest version of a row, also where they had to wait for it.
//!
//! What a batch expects is not always locked and read first. A head that this store wrote last is
//! presumed to stand, a stream that an append begins to be none yet, and a row that it puts as the first
//! not to be there: the batch is judged on that, and the statement that writes confirms it, by the hash
//! of the head before, or by how many rows it wrote. Where it was not so, nothing is written, and the
//! batch begins anew with locks, as the next ones do. A head that a batch under way leaves is presumed, too;
//! what it would have to lock or read of that one, a batch is behind: it is opened once that has ended.
//!
//! All of it is one text, because each round trip costs as much as the locks of many rows. Each
//! statement in it still sees what was committed before it began.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{Column as _, Row as _};
use uuid::Uuid;

use super::connect::Session;
use super::known::{Found, Known, KnownStreams};
use super::read::{blob_digest, blob_uuid, bytes, get, head_of, int, row_of, text};
use super::statement::Statement;
use crate::base::{Error, Result, StreamKey, StreamKind, StreamName, Timestamp};
use crate::domain::{Row, RowChange, RowKey, Table, Value};
use crate::journal::batch::{View, named_rows, stamps};
use crate::journal::{Append, CommandRecord, Expected, Part};

/// Names of the last column of a row, which say what it is.
const LEASE: &str = "a_lease";
const HEAD: &str = "a_head";
const STAMP: &str = "a_stamp";
const MOMENT: &str = "a_moment";
const COMMAND: &str = "a_command";
const ROW_OF: &str = "a_row_of_";

/// The table of marks that many expect to be absent and do not set themselves.
const MARKS: Table = Table::Forgetting;
/// How long what sets a mark waits for what must not find one, before it is tried again: longer than
/// the server leaves a vacuum in the way (its `deadlock_timeout`, 1 s).
const EXCLUSIVE_LIMIT_MS: u32 = 1_500;
/// Where the limit of all other locks is kept meanwhile.
const KEPT_LIMIT: &str = "connector_store.lock_timeout";
/// The savepoint behind which is written.
pub(super) const DRAWN: &str = "drawn";

/// What was found under the locks.
#[derive(Debug, Default)]
pub(super) struct Locked {
    pub(super) view: View,
    /// The ids of the streams; all that can be written to are there.
    pub(super) ids: HashMap<StreamName, i64>,
    /// The streams without an event.
    pub(super) empty: Vec<i64>,
    /// The streams whose heads are not locked yet: what is written has to confirm each.
    pub(super) presumed: Vec<StreamName>,
    /// Those of them that are to be none yet, with their ids to be.
    pub(super) begun: HashMap<StreamName, i64>,
    /// The rows that were not read, since what is written is to be the first of each.
    pub(super) unread: BTreeSet<RowKey>,
    /// The newest stamp, if it was locked.
    pub(super) stamped_at: Option<Timestamp>,
    /// What was drawn, if anything was.
    pub(super) drawn: Option<Drawn>,
}

/// Positions of events, ids of streams, the time, and which life the store is in. It stays in that until
/// the end of the transaction: a restore waits for all that have locked heads, or their table.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) generation: i64,
    pub(super) now: Timestamp,
    /// In their order.
    pub(super) positions: Vec<i64>,
    streams: Vec<i64>,
}

/// A stream to be locked.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    kind: StreamKind,
    /// It is created if it is missing: an append may be its first.
    creates: bool,
    /// What the batch writes to it confirms its head.
    is_presumable: bool,
    /// The batch begins it.
    begins: bool,
}

/// The text behind `BEGIN`.
pub(super) struct Opening {
    statement: Statement,
    /// The streams that must be there.
    needed: Vec<StreamName>,
    /// The streams that are judged as they were known.
    remembered: Vec<(StreamName, Known)>,
    /// The streams that are judged to be none yet.
    begun: Vec<StreamName>,
    /// The rows that are judged not to be there.
    unread: BTreeSet<RowKey>,
    /// What is written has to confirm what the batch is judged on.
    presumes: bool,
    /// Something would be locked or read that a batch under way has still to write.
    is_behind: bool,
}

impl Opening {
    fn new() -> Self {
        let statement = Statement::written_out("");
        Self {
            statement,
            needed: Vec::new(),
            remembered: Vec::new(),
            begun: Vec::new(),
            unread: BTreeSet::new(),
            presumes: false,
            is_behind: false,
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.statement.sql
    }

    /// Something is not locked or not read.
    pub(super) const fn presumes(&self) -> bool {
        self.presumes
    }

    /// It is of use only once no batch is under way.
    pub(super) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// All that a batch is judged on, but rows whose keys are secrets.
    pub(super) fn of_batch(batch: &[Append], known: &KnownStreams) -> sqlx::Result<Self> {
        let mut opening = Self::new();
        let parts = || batch.iter().flat_map(|append| &append.parts);
        let rows = || parts().flat_map(|part| &part.rows);
        opening.lock_marks(rows(), batch.iter().flat_map(|append| &append.absent));
        let written = written_leases(rows());
        let mode = if written.is_empty() { "SHARE" } else { "UPDATE" };
        let fences = batch.iter().flat_map(|append| &append.fences);
        let leases = fences.map(|fence| fence.scope.row_key()).chain(written).collect();
        opening.lock_leases(&leases, mode)?;
        let (mut wanted, stamps) = (wanted(parts()), stamps(batch));
        let mut named = named_rows(batch);
        // The row of stamps is locked behind all heads.
        if known.are_trusted() && !stamps {
            opening.presume_streams(&mut wanted, known);
            opening.presume_rows(batch, &mut named);
        }
        opening.is_behind =
            leases.iter().chain(named.iter().copied()).any(|key| known.is_changing(key));
        opening.lock_heads(&wanted, known)?;
        if stamps {
            opening.lock_stamps();
        }
        let events: usize = parts().map(|part| part.events.len()).sum();
        let has_trim = parts().any(|part| part.trim);
        opening.draw(events.max(usize::from(has_trim)));
        let recorded = batch.iter().filter(|append| append.record.is_some());
        opening.read_commands(recorded.map(|append| append.command_id).collect())?;
        opening.read_rows(named.into_iter().filter(|key| !is_secret(key)).collect())?;
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
        opening.lock_marks(changes.iter(), std::iter::empty());
        opening.lock_leases(&written_leases(changes.iter()), "UPDATE")?;
        let mut wanted = BTreeMap::new();
        for (name, expected) in expected {
            let key = StreamKey::from_stream_name(name)
                .ok_or_else(|| decode(Error::damaged(format_args!("a stream is named {name}"))))?;
            let creates = *expected == Expected::NONE;
            let stream = Wanted { kind: key.kind(), creates, is_presumable: false, begins: false };
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

    /// While a batch is under way that must not find a mark of forgetting, none is set: a mark is rare, so
    /// that what sets it can wait for all of those. What removes one waits for what sets another.
    fn lock_marks<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a RowChange>,
        mut absent: impl Iterator<Item = &'a RowKey>,
    ) {
        let marks: Vec<_> = changes.filter(|change| change.table() == MARKS).collect();
        let mode = if marks.iter().any(|change| matches!(change, RowChange::Put(_))) {
            "EXCLUSIVE"
        } else if !marks.is_empty() {
            "ROW EXCLUSIVE"
        } else if absent.any(|key| key.table == MARKS) {
            "ROW SHARE"
        } else {
            return;
        };
        let lock = format!("LOCK TABLE {} IN {mode} MODE", MARKS.spec().name);
        if mode == "EXCLUSIVE" {
            // Who comes behind it waits as well.
            self.next(&format!(
                "SELECT set_config('{KEPT_LIMIT}', current_setting('lock_timeout'), true), \
                 set_config('lock_timeout', '{EXCLUSIVE_LIMIT_MS}', true); {lock}; \
                 SELECT set_config('lock_timeout', current_setting('{KEPT_LIMIT}'), true)"
            ));
        } else {
            self.next(&lock);
        }
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

    /// Takes out the streams that need no lock before they are written to. The lock of the table is what
    /// writing takes as well: a restore that waits for it must find it before the generation is read.
    fn presume_streams(&mut self, wanted: &mut BTreeMap<StreamName, Wanted>, known: &KnownStreams) {
        wanted.retain(|name, wanted| {
            match known.find(name) {
                Found::Standing(at) | Found::UnderWay(at) if wanted.is_presumable => {
                    self.remembered.push((name.clone(), at));
                }
                Found::Nothing if wanted.is_presumable && wanted.begins => {
                    self.begun.push(name.clone());
                }
                _ => return true,
            }
            false
        });
        if !self.remembered.is_empty() || !self.begun.is_empty() {
            self.presumes = true;
            self.next("LOCK TABLE connector_stream IN ROW EXCLUSIVE MODE");
        }
    }

    /// Takes out the rows that the batch puts as the first. What it takes must be read to be handed back.
    fn presume_rows<'b>(&mut self, batch: &'b [Append], named: &mut BTreeSet<&'b RowKey>) {
        let absent: BTreeSet<_> = batch.iter().flat_map(|append| &append.absent).collect();
        let tables: BTreeSet<Table> = absent.iter().map(|key| key.table).collect();
        let changes = || batch.iter().flat_map(|append| &append.parts).flat_map(|part| &part.rows);
        for change in changes() {
            if let RowChange::Put(row) = change
                && tables.contains(&row.table)
                && let Some(key) = absent.get(&row.key())
            {
                self.unread.insert(RowKey::clone(key));
            }
        }
        for change in changes() {
            if let RowChange::Take(key) = change {
                self.unread.remove(key);
            }
        }
        named.retain(|key| !self.unread.contains(*key));
        self.presumes |= !self.unread.is_empty();
    }

    /// Creates heads at version 0 that are not there, and locks all. A row of a transaction that is
    /// under way is waited for.
    fn lock_heads(
        &mut self,
        wanted: &BTreeMap<StreamName, Wanted>,
        known: &KnownStreams,
    ) -> sqlx::Result<()> {
        let (mut ids, mut unknown) = (Vec::new(), Vec::new());
        for (name, &wanted) in wanted {
            match known.find(name) {
                Found::Standing(at) => {
                    ids.push(at.stream);
                    self.needed.push(name.clone());
                }
                Found::UnderWay(_) => self.is_behind = true,
                Found::Nothing => unknown.push((name, wanted)),
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
        let begun = self.begun.len();
        self.next(&format!(
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
             (SELECT value FROM connector_meta WHERE key = 'generation'), pg_current_xact_id(), \
             ARRAY(SELECT nextval('connector_stream_stream_seq') FROM generate_series(1, {begun})), \
             ARRAY(SELECT nextval('connector_journal_position') FROM generate_series(1, {count})) \
             AS {MOMENT}; SAVEPOINT {DRAWN}"
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
            locked.presumed.push(name.clone());
        }
        let drawn = locked.drawn.as_ref().map_or(&[][..], |drawn| &drawn.streams);
        if drawn.len() < self.begun.len() {
            return Err(sqlx::Error::RowNotFound);
        }
        locked.begun = self.begun.iter().cloned().zip(drawn.iter().copied()).collect();
        for (name, stream) in &locked.begun {
            locked.ids.insert(name.clone(), *stream);
            locked.presumed.push(name.clone());
        }
        locked.unread.clone_from(&self.unread);
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
                let (streams, mut positions): (_, Vec<i64>) = (get(row, 3)?, get(row, 4)?);
                positions.sort_unstable();
                self.drawn = Some(Drawn { generation, now, positions, streams });
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
    let leases = changes.filter(|change| change.table() == Table::Lease);
    leases.map(RowChange::key).collect()
}

fn wanted<'a>(parts: impl Iterator<Item = &'a Part>) -> BTreeMap<StreamName, Wanted> {
    let mut wanted = BTreeMap::new();
    for part in parts {
        let begins = part.expected.version == 0;
        let stream = wanted.entry(StreamName::clone(&part.stream)).or_insert(Wanted {
            kind: part.kind,
            creates: false,
            is_presumable: true,
            begins,
        });
        stream.creates |= begins;
        stream.is_presumable &= confirms(part);
    }
    wanted
}

/// What the part writes confirms the head: it is the next one, and nothing of the stream is read or
/// erased before.
fn confirms(part: &Part) -> bool {
    let takes = part.rows.iter().any(|change| matches!(change, RowChange::Take(_)));
    !part.events.is_empty() && !part.erase && !part.trim && !takes
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
pub(super) mod tests;
