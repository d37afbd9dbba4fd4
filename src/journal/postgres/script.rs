//! What a transaction writes, as two statements: one that erases, if anything goes, and one that
//! writes all the rest, each part of it many rows from arrays. It knows no connection.
//!
//! The parts of a statement see the database as it was before, so no two of them touch one row.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use super::opening::Locked;
use super::statement::{Statement, push_names};
use crate::base::{StreamName, Timestamp};
use crate::domain::{Column, ColumnType, Row, RowKey, Table, Value};
use crate::journal::Head;
use crate::journal::batch::{Plan, StreamWrite};

/// The parts that write the heads, those that stand and those that are begun, whose names others use.
const HEADS: &str = "heads";
const BEGUN: &str = "begun";

/// The id of the sub-transaction that writes, with all 64 bits: it was given after the positions
/// were drawn, so whoever drew a lower one has a lower id. (The newest id of a snapshot would not
/// do: it says what has ended, not what was given.) `h` holds its lower 32 bits, as a part that
/// writes heads gives them.
fn horizon(part: &str) -> String {
    format!(
        "(SELECT (own.id + ((h.id - own.id) & 4294967295))::text::xid8 \
         FROM (SELECT xmin::text::bigint AS id FROM {part} LIMIT 1) AS h, \
         (SELECT pg_current_xact_id()::text::bigint AS id) AS own)"
    )
}

/// A statement of parts, and how many rows those of them must write that others may have written
/// at the same moment.
pub(super) struct Script {
    statement: Statement,
    parts: usize,
    guarded: Vec<(String, usize)>,
    /// The parts that remove rows.
    removing: Vec<String>,
}

impl Script {
    pub(super) fn new() -> Self {
        let statement = Statement::new("WITH ");
        Self { statement, parts: 0, guarded: Vec::new(), removing: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Begins a part.
    fn part(&mut self, sql: &str) {
        self.part_named(&format!("w{}", self.parts), sql);
    }

    fn part_named(&mut self, name: &str, sql: &str) {
        let comma = if self.parts == 0 { "" } else { ", " };
        let _ = write!(self.statement.sql, "{comma}{name} AS ({sql}");
        self.parts += 1;
    }

    /// The part that was begun, which has no name of its own, must write so many rows.
    fn guard(&mut self, rows: usize) {
        self.guarded.push((format!("w{}", self.parts - 1), rows));
    }

    /// The statement. It gives a column for each guarded part: how many rows it has written; and one
    /// behind them: how many rows were removed.
    pub(super) fn finish(mut self) -> (Statement, Vec<usize>) {
        self.statement.push(" SELECT ");
        for (part, _) in &self.guarded {
            let _ = write!(self.statement.sql, "(SELECT count(*) FROM {part}), ");
        }
        self.statement.push("0::bigint");
        for part in self.removing {
            let _ = write!(self.statement.sql, " + (SELECT count(*) FROM {part})");
        }
        (self.statement, self.guarded.into_iter().map(|(_, rows)| rows).collect())
    }

    /// What a plan erases of streams that are there.
    pub(super) fn of_erasures(
        plan: &Plan<'_>,
        ids: &HashMap<StreamName, i64>,
    ) -> sqlx::Result<Self> {
        let mut script = Self::new();
        let written: Vec<_> = plan.streams.values().filter(|write| write.existed).collect();
        let through = |write: &&&StreamWrite<'_>| write.cut_through();
        let cut: Vec<_> = written.iter().filter(|write| through(write).is_some()).collect();
        if !cut.is_empty() {
            script.part("DELETE FROM connector_journal AS j USING unnest(");
            let streams = cut.iter().map(|write| id_of(ids, write.name)).collect::<Vec<i64>>();
            script.statement.bind(streams)?;
            script.statement.push(", ");
            script.statement.bind(cut.iter().map(through).collect::<Vec<Option<i64>>>())?;
            script.statement.push(
                ") AS v (stream, through) \
                 WHERE j.stream = v.stream AND j.stream_version <= v.through)",
            );
        }
        let rebased: Vec<&StreamWrite<'_>> =
            plan.streams.values().filter(|write| write.cut_through().is_some()).collect();
        if !rebased.is_empty() {
            script.add_bases(&rebased, ids)?;
        }
        let erased = written.iter().filter(|write| write.erase_through.is_some());
        let erased: Vec<i64> = erased.map(|write| id_of(ids, write.name)).collect();
        if !erased.is_empty() {
            script.part("DELETE FROM connector_snapshot WHERE stream = ANY (");
            script.statement.bind(erased)?;
            script.statement.push("))");
        }
        Ok(script)
    }

    /// What a plan writes, if all is as it was judged on. `positions` are those of its events; rows of
    /// `absent` are expected not to be there.
    pub(super) fn of_plan(
        plan: &Plan<'_>,
        locked: &Locked,
        positions: &[i64],
        now: Timestamp,
        absent: &BTreeSet<&RowKey>,
    ) -> sqlx::Result<Self> {
        let (mut script, ids) = (Self::new(), &locked.ids);
        let written = plan.streams.values().filter(|write| write.head.version > 0);
        let (begun, mut written): (Vec<_>, Vec<_>) =
            written.partition(|write| locked.begun.contains_key(write.name));
        written.sort_by_key(|write| id_of(ids, write.name));
        // Missing ones first, as they are locked.
        if !begun.is_empty() {
            script.add_begun(&begun, ids)?;
        }
        if !written.is_empty() {
            script.add_heads(&written, ids, &locked.view.heads)?;
        }
        if !plan.journal.is_empty() {
            script.add_journal(plan, ids, positions, now)?;
        }
        written.extend(begun);
        script.add_snapshots(&written, ids)?;
        script.add_rows(&plan.rows, absent)?;
        script.add_commands(plan, now)?;
        Ok(script)
    }

    /// Here and not with the heads, as few appends have one. A stream whose first events these are has
    /// a head by now.
    fn add_bases(
        &mut self,
        rebased: &[&StreamWrite<'_>],
        ids: &HashMap<StreamName, i64>,
    ) -> sqlx::Result<()> {
        self.part(
            "UPDATE connector_stream AS s SET base_version = v.version, base_hash = v.hash \
             FROM unnest(",
        );
        let streams = rebased.iter();
        self.statement.bind(streams.clone().map(|at| id_of(ids, at.name)).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let versions = streams.clone().map(|at| at.base.map(|base| base.version));
        self.statement.bind(versions.collect::<Vec<Option<i64>>>())?;
        self.statement.push(", ");
        let hashes = streams.map(|at| at.base.as_ref().map(|base| base.hash.as_bytes().as_slice()));
        self.statement.bind(hashes.collect::<Vec<Option<&[u8]>>>())?;
        self.statement.push(") AS v (stream, version, hash) WHERE s.stream = v.stream)");
        Ok(())
    }

    /// A head is written in the place of the one that the plan was made on, whose hash says all of it.
    fn add_heads(
        &mut self,
        written: &[&StreamWrite<'_>],
        ids: &HashMap<StreamName, i64>,
        before: &HashMap<StreamName, Head>,
    ) -> sqlx::Result<()> {
        self.part_named(
            HEADS,
            "UPDATE connector_stream AS s SET version = v.version, \
             last_command_id = v.command_id, hash = v.hash FROM unnest(",
        );
        let heads = written.iter();
        self.statement.bind(heads.clone().map(|at| id_of(ids, at.name)).collect::<Vec<i64>>())?;
        self.bind_heads(written)?;
        self.statement.push(", ");
        let hash = |at: &&StreamWrite<'_>| match before.get(at.name) {
            Some(head) => head.hash.as_bytes().as_slice(),
            None => &[],
        };
        self.statement.bind(heads.map(hash).collect::<Vec<&[u8]>>())?;
        self.statement.push(
            ") AS v (stream, version, command_id, hash, before) \
             WHERE s.stream = v.stream AND s.hash = v.before RETURNING s.xmin)",
        );
        self.guarded.push((HEADS.to_owned(), written.len()));
        Ok(())
    }

    /// A head is written where there was none. By their names, in one order for all hosts, as one that
    /// another host is about to create is waited for.
    fn add_begun(
        &mut self,
        begun: &[&StreamWrite<'_>],
        ids: &HashMap<StreamName, i64>,
    ) -> sqlx::Result<()> {
        self.part_named(
            BEGUN,
            "INSERT INTO connector_stream (stream, name, kind, version, last_command_id, hash) \
             SELECT * FROM unnest(",
        );
        let heads = begun.iter();
        self.statement.bind(heads.clone().map(|at| id_of(ids, at.name)).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        self.statement.bind(heads.clone().map(|at| &**at.name).collect::<Vec<&str>>())?;
        self.statement.push(", ");
        self.statement.bind(heads.clone().map(|at| at.kind.number()).collect::<Vec<i64>>())?;
        self.bind_heads(begun)?;
        self.statement.push(") ON CONFLICT (name) DO NOTHING RETURNING xmin)");
        self.guarded.push((BEGUN.to_owned(), begun.len()));
        Ok(())
    }

    fn bind_heads(&mut self, written: &[&StreamWrite<'_>]) -> sqlx::Result<()> {
        let heads = written.iter().map(|at| &at.head);
        self.statement.push(", ");
        self.statement.bind(heads.clone().map(|head| head.version).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let commands = heads.clone().map(|head| head.command_id.as_bytes().as_slice());
        self.statement.bind(commands.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let hashes = heads.map(|head| head.hash.as_bytes().as_slice());
        self.statement.bind(hashes.collect::<Vec<&[u8]>>())
    }

    /// No event is written where a head was another one: its place in the stream may be taken.
    fn add_journal(
        &mut self,
        plan: &Plan<'_>,
        ids: &HashMap<StreamName, i64>,
        positions: &[i64],
        now: Timestamp,
    ) -> sqlx::Result<()> {
        let heads = self.guarded.clone();
        self.part(
            "INSERT INTO connector_journal (recorded_at, horizon, position, stream, \
             stream_version, event_type, event_schema, payload, command_id, hash) SELECT ",
        );
        self.statement.bind(now.as_millis())?;
        let horizon = heads.first().map_or_else(|| "NULL".to_owned(), |(part, _)| horizon(part));
        let _ = write!(self.statement.sql, ", {horizon}, v.* FROM unnest(");
        let events = plan.journal.iter();
        self.statement.bind(positions)?;
        self.statement.push(", ");
        self.statement
            .bind(events.clone().map(|at| id_of(ids, at.stream)).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        self.statement.bind(events.clone().map(|at| at.version).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let types = events.clone().map(|at| i64::from(at.event.event_type));
        self.statement.bind(types.collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let schemas = events.clone().map(|at| i64::from(at.event.schema));
        self.statement.bind(schemas.collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let payloads = events.clone().map(|at| at.event.payload.as_slice());
        self.statement.bind(payloads.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let commands = events.clone().map(|at| at.command_id.as_bytes().as_slice());
        self.statement.bind(commands.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let hashes = events.map(|at| at.hash.as_bytes().as_slice());
        self.statement.bind(hashes.collect::<Vec<&[u8]>>())?;
        self.statement.push(") AS v");
        for (at, (part, rows)) in heads.into_iter().enumerate() {
            self.statement.push(if at == 0 { " WHERE " } else { " AND " });
            let _ = write!(self.statement.sql, "(SELECT count(*) FROM {part}) = ");
            self.statement.bind(i64::try_from(rows).unwrap_or(i64::MAX))?;
        }
        self.statement.push(")");
        Ok(())
    }

    fn add_snapshots(
        &mut self,
        written: &[&StreamWrite<'_>],
        ids: &HashMap<StreamName, i64>,
    ) -> sqlx::Result<()> {
        let snapshots: Vec<_> = written
            .iter()
            .filter_map(|write| Some((id_of(ids, write.name), write.snapshot.as_ref()?)))
            .collect();
        if snapshots.is_empty() {
            return Ok(());
        }
        self.part(
            "INSERT INTO connector_snapshot \
             (stream, stream_version, schema, payload, hash, checksum) SELECT * FROM unnest(",
        );
        let snapshots = snapshots.iter();
        self.statement.bind(snapshots.clone().map(|(id, _)| *id).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        self.statement.bind(snapshots.clone().map(|(_, at)| at.version).collect::<Vec<i64>>())?;
        self.statement.push(", ");
        let schemas = snapshots.clone().map(|(_, at)| i64::from(at.schema));
        self.statement.bind(schemas.collect::<Vec<i64>>())?;
        self.statement.push(", ");
        self.statement.bind(snapshots.clone().map(|(_, at)| at.payload).collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let hashes = snapshots.clone().map(|(_, at)| at.hash.as_bytes().as_slice());
        self.statement.bind(hashes.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let checksums = snapshots.map(|(_, at)| at.checksum.as_bytes().as_slice());
        self.statement.bind(checksums.collect::<Vec<&[u8]>>())?;
        self.statement.push(
            ") ON CONFLICT (stream) DO UPDATE SET stream_version = excluded.stream_version, \
             schema = excluded.schema, payload = excluded.payload, hash = excluded.hash, \
             checksum = excluded.checksum)",
        );
        Ok(())
    }

    /// The last change of each row. One that is expected to be absent is inserted, never replaced.
    pub(super) fn add_rows(
        &mut self,
        rows: &BTreeMap<RowKey, Option<Row>>,
        absent: &BTreeSet<&RowKey>,
    ) -> sqlx::Result<()> {
        let mut puts: BTreeMap<(Table, bool, u32), Vec<&Row>> = BTreeMap::new();
        for (key, row) in rows.iter().filter_map(|(key, row)| Some((key, row.as_ref()?))) {
            let mut kept = 0_u32;
            for (at, value) in row.values.iter().enumerate() {
                kept |= u32::from(*value == Value::Keep) << at;
            }
            puts.entry((key.table, absent.contains(key), kept)).or_default().push(row);
        }
        for ((table, is_first, kept), rows) in puts {
            self.add_put(table, is_first, kept, &rows)?;
        }
        self.add_removals(rows)
    }

    /// The removals among the changes alone.
    pub(super) fn of_removals(rows: &BTreeMap<RowKey, Option<Row>>) -> sqlx::Result<Self> {
        let mut script = Self::new();
        script.add_removals(rows)?;
        Ok(script)
    }

    fn add_removals(&mut self, rows: &BTreeMap<RowKey, Option<Row>>) -> sqlx::Result<()> {
        let removed = rows.iter().filter(|(_, row)| row.is_none()).map(|(key, _)| key);
        let removed: Vec<&RowKey> = removed.collect();
        for keys in removed.chunk_by(|a, b| a.table == b.table) {
            let Some(table) = keys.first().map(|key| key.table) else { continue };
            self.removing.push(format!("w{}", self.parts));
            self.part("DELETE FROM ");
            let _ = write!(self.statement.sql, "{} WHERE ", table.spec().name);
            self.statement.push_key_match(table, keys)?;
            self.statement.push(" RETURNING 1)");
        }
        Ok(())
    }

    fn add_put(
        &mut self,
        table: Table,
        is_first: bool,
        kept: u32,
        rows: &[&Row],
    ) -> sqlx::Result<()> {
        let spec = table.spec();
        let is_kept = |at: usize| kept & (1 << at) != 0;
        self.part("INSERT INTO ");
        let _ = write!(self.statement.sql, "{} (", spec.name);
        let given = spec.columns.iter().enumerate().filter(|(at, _)| !is_kept(*at));
        let unknown = spec.columns.iter().enumerate().filter(|(at, _)| is_kept(*at));
        let columns = given.clone().chain(unknown.clone()).map(|(_, column)| column);
        push_names(&mut self.statement.sql, columns);
        self.statement.push(") SELECT v.*");
        for (_, column) in unknown {
            let _ = write!(self.statement.sql, ", {}", stand_in(column));
        }
        self.statement.push(" FROM unnest(");
        for (place, (at, column)) in given.clone().enumerate() {
            self.statement.push(if place == 0 { "" } else { ", " });
            let values = rows.iter().map(|row| row.values.get(at));
            self.statement.bind_column(column.kind, values)?;
        }
        self.statement.push(") AS v ON CONFLICT (");
        push_names(&mut self.statement.sql, spec.key.iter().map(|&at| &spec.columns[at]));
        self.statement.push(") DO ");
        let mut set = 0;
        for (_, column) in given.filter(|(at, _)| !is_first && !spec.key.contains(at)) {
            self.statement.push(if set == 0 { "UPDATE SET " } else { ", " });
            let _ = write!(self.statement.sql, "{0} = excluded.{0}", column.name);
            set += 1;
        }
        self.statement.push(if set == 0 { "NOTHING" } else { "" });
        self.statement.push(if is_first { " RETURNING 1)" } else { ")" });
        if is_first {
            self.guard(rows.len());
        }
        Ok(())
    }

    fn add_commands(&mut self, plan: &Plan<'_>, now: Timestamp) -> sqlx::Result<()> {
        if plan.commands.is_empty() {
            return Ok(());
        }
        let mut commands = plan.commands.clone();
        commands.sort_by_key(|(command_id, _)| *command_id);
        let commands = commands.iter();
        self.part("INSERT INTO connector_command (at, command_id, digest, answer) SELECT ");
        self.statement.bind(now.as_millis())?;
        self.statement.push(", v.* FROM unnest(");
        let ids = commands.clone().map(|(command_id, _)| command_id.as_bytes().as_slice());
        self.statement.bind(ids.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let digests = commands.clone().map(|(_, record)| record.digest.as_bytes().as_slice());
        self.statement.bind(digests.collect::<Vec<&[u8]>>())?;
        self.statement.push(", ");
        let answers = commands.clone().map(|(_, record)| record.answer.as_slice());
        self.statement.bind(answers.collect::<Vec<&[u8]>>())?;
        self.statement.push(") AS v ON CONFLICT (command_id) DO NOTHING RETURNING 1)");
        self.guard(commands.len());
        Ok(())
    }

    /// Removes heads without an event.
    pub(super) fn add_empty(&mut self, streams: &[i64]) -> sqlx::Result<()> {
        self.part("DELETE FROM connector_stream WHERE stream = ANY (");
        self.statement.bind(streams)?;
        self.statement.push("))");
        Ok(())
    }

    /// Says which time rows were stamped with.
    pub(super) fn add_stamp(&mut self, stamp: Timestamp) -> sqlx::Result<()> {
        self.part("UPDATE connector_meta SET value = ");
        self.statement.bind(stamp.as_millis())?;
        self.statement.push(" WHERE key = 'stamped_at')");
        Ok(())
    }
}

fn id_of(ids: &HashMap<StreamName, i64>, name: &StreamName) -> i64 {
    ids.get(name).copied().unwrap_or_default()
}

/// What the row to be inserted holds in a column that is kept. The server checks NOT NULL before it
/// sees that the row is there, so such a column needs a value that is never stored.
const fn stand_in(column: &Column) -> &'static str {
    match (column.kind, column.required) {
        (ColumnType::Text, true) => "''::text",
        (ColumnType::Text, false) => "NULL::text",
        (ColumnType::Int, true) => "0::bigint",
        (ColumnType::Int, false) => "NULL::bigint",
        (ColumnType::Blob, true) => "''::bytea",
        (ColumnType::Blob, false) => "NULL::bytea",
    }
}
