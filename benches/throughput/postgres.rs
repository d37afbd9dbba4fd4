//! The raw limit on PostgreSQL: what the store wrote, written again into a database of the same schema
//! by a bare connection, one statement of `unnest` arrays for each batch, which is a transaction of its
//! own; and by clients that do not gather, as a store is that somebody writes by hand: a transaction for
//! each command, which locks and reads what it is decided on, and a statement for each row.
//!
//! It knows no command and no actor.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use connector_store::domain::{ColumnType, Row, RowChange, Table, Value};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{
    Arguments as _, AssertSqlSafe, Connection as _, Executor as _, Row as _, ValueRef as _,
};

use crate::Outcome;
use crate::raw::{Event, Kind, ReadRows, RowsOf, Section, fold, insert, or_update};

/// Most connections of clients that write row by row: what a pool of the SQL library has unless it is
/// told otherwise.
const MAX_CLIENTS: usize = 10;

use ColumnType::{Blob, Int, Text};
const STREAM: [ColumnType; 6] = [Int, Text, Int, Int, Blob, Blob];
const JOURNAL: [ColumnType; 9] = [Int, Int, Int, Int, Int, Blob, Blob, Int, Blob];
const SNAPSHOT: [ColumnType; 6] = [Int, Int, Int, Blob, Blob, Blob];

const INSERT_STREAM: &str =
    "INSERT INTO connector_stream (stream, name, kind, version, last_command_id, hash) ";
const INSERT_EVENT: &str = "INSERT INTO connector_journal (position, stream, stream_version, \
    event_type, event_schema, payload, command_id, recorded_at, hash, horizon) ";
const READ_STREAM: &str =
    "SELECT version, last_command_id, hash FROM connector_stream WHERE name = $1 FOR UPDATE";
const UPDATE_STREAM: &str = "UPDATE connector_stream SET version = $2, last_command_id = $3, \
    hash = $4 WHERE stream = $1 AND version < $2";

/// The store's database, read, and two copies, written: in batches, and row by row.
pub struct Mirror {
    source: PgConnection,
    copy: PgConnection,
    rows_url: String,
    clients: Vec<PgConnection>,
    position: i64,
    /// What was written last, each event with the rows that it changed.
    last: Vec<(Event, Vec<RowChange>)>,
}

/// A statement and its values.
struct Statement {
    text: String,
    arguments: PgArguments,
}

impl Mirror {
    /// Connects to the three.
    pub async fn open(source: &str, copy: &str, rows: &str) -> Outcome<Self> {
        Ok(Self {
            source: PgConnection::connect(source).await?,
            copy: PgConnection::connect(copy).await?,
            rows_url: rows.to_owned(),
            clients: Vec::new(),
            position: 0,
            last: Vec::new(),
        })
    }

    /// As the mirror of SQLite.
    pub async fn follow(
        &mut self,
        tables: &[Table],
        batch: usize,
        rows_of: &RowsOf<'_>,
    ) -> Outcome<(usize, Duration)> {
        let events = self.new_events().await?;
        let mut read_rows = ReadRows::new();
        for &table in tables {
            for row in all_rows(&mut self.source, table).await? {
                read_rows.insert(row.key(), row);
            }
        }
        let snapshots = self.snapshots().await?;
        let statements: Vec<Statement> = events
            .chunks(batch.max(1))
            .map(|events| Statement::of(&fold(events, &snapshots, &read_rows, rows_of)))
            .collect::<Outcome<_>>()?;
        let begun = Instant::now();
        for statement in statements {
            statement.execute(&mut self.copy).await?;
        }
        let (took, count) = (begun.elapsed(), events.len());
        let changes = |event: Event| {
            let changes = rows_of(&event, &read_rows);
            (event, changes)
        };
        self.last = events.into_iter().map(changes).collect();
        Ok((count, took))
    }

    /// Writes what was written last, or what of it there is time for, by clients that write row by row.
    /// Gives how many events in a second; none where nothing was written.
    pub async fn follow_by_row(&mut self, callers: usize, time: Duration) -> Outcome<Option<f64>> {
        let work = Arc::new(std::mem::take(&mut self.last));
        if work.is_empty() {
            return Ok(None);
        }
        while self.clients.len() < callers.min(MAX_CLIENTS) {
            self.clients.push(PgConnection::connect(&self.rows_url).await?);
        }
        let mut heads = Section { kind: Kind::Streams, rows: 0, values: Vec::new() };
        for (event, _) in &*work {
            let mut head = event.head();
            head[3] = Value::Int(0);
            heads.rows += 1;
            heads.values.extend(head);
        }
        // They are there already where clients write what is known to them.
        let mut statement = Statement::new(INSERT_STREAM);
        statement.unnest(&STREAM, &heads.values)?;
        statement.text.push_str(" ON CONFLICT DO NOTHING");
        statement.execute(&mut self.clients[0]).await?;

        let next = Arc::new(AtomicUsize::new(0));
        let begun = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for mut client in self.clients.drain(..) {
            let (work, next) = (Arc::clone(&work), Arc::clone(&next));
            tasks.spawn(async move {
                let mut count = 0_usize;
                while begun.elapsed() < time
                    && let Some((event, changes)) = work.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    write_by_row(&mut client, event, changes).await?;
                    count += 1;
                }
                Outcome::Ok((client, count))
            });
        }
        let mut all = 0;
        while let Some(done) = tasks.join_next().await {
            let (client, count) = done??;
            self.clients.push(client);
            all += count;
        }
        Ok(Some(all as f64 / begun.elapsed().as_secs_f64()))
    }

    async fn new_events(&mut self) -> Outcome<Vec<Event>> {
        let sql = "SELECT j.position, j.stream, j.stream_version, j.event_type, j.event_schema, \
                   j.payload, j.command_id, j.recorded_at, j.hash, s.name, s.kind \
                   FROM connector_journal AS j JOIN connector_stream AS s USING (stream) \
                   WHERE j.position > $1 ORDER BY j.position";
        let rows = sqlx::query(sql).bind(self.position).fetch_all(&mut self.source).await?;
        if let Some(last) = rows.last() {
            self.position = last.try_get(0)?;
        }
        rows.iter().map(event).collect()
    }

    async fn snapshots(&mut self) -> Outcome<HashMap<i64, Vec<Value>>> {
        let sql = "SELECT stream, schema, payload, hash, checksum FROM connector_snapshot";
        let rows = sqlx::query(sql).fetch_all(&mut self.source).await?;
        let columns = |row: &PgRow| {
            let columns = (1..5).map(|at| value(row, at, SNAPSHOT[at + 1]));
            Ok((row.try_get(0)?, columns.collect::<Outcome<_>>()?))
        };
        rows.iter().map(columns).collect()
    }

    /// Fails unless both databases hold the same events and rows.
    pub async fn check(&mut self, tables: &[Table]) -> Outcome<()> {
        let names = tables.iter().map(|table| table.spec().name);
        for name in names.chain(["connector_journal", "connector_stream"]) {
            let sql = format!("SELECT count(*) FROM {name}");
            let count = || sqlx::query(AssertSqlSafe(sql.clone()));
            let here: i64 = count().fetch_one(&mut self.source).await?.try_get(0)?;
            let there: i64 = count().fetch_one(&mut self.copy).await?.try_get(0)?;
            if here != there {
                return Err(format!("{name} has {here} rows, its copy {there}").into());
            }
        }
        Ok(())
    }

    /// As the mirror of SQLite.
    pub async fn read(
        &mut self,
        sql: &'static str,
        keys: &[Arc<str>],
        time: Duration,
    ) -> Outcome<(usize, Duration)> {
        let sql: Arc<str> = sql.replace('?', "$1").into();
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < time {
            let query =
                sqlx::query(AssertSqlSafe(Arc::clone(&sql))).bind(&*keys[count % keys.len()]);
            if query.fetch_all(&mut self.source).await?.is_empty() {
                return Err("a raw read found nothing".into());
            }
            count += 1;
        }
        Ok((count, begun.elapsed()))
    }

    /// Closes all connections.
    pub async fn close(self) -> Outcome<()> {
        for connection in self.clients.into_iter().chain([self.source, self.copy]) {
            connection.close().await?;
        }
        Ok(())
    }
}

/// One event and its rows, as a client writes them that does not gather.
async fn write_by_row(
    client: &mut PgConnection,
    event: &Event,
    changes: &[RowChange],
) -> Outcome<()> {
    client.execute("BEGIN").await?;
    let [stream, name, _, version, command_id, hash] = event.head();
    let mut read = Statement::new(READ_STREAM);
    read.add(Text, &name)?;
    read.execute(client).await?;
    let mut head = Statement::new(UPDATE_STREAM);
    for (kind, value) in [(Int, stream), (Int, version), (Blob, command_id), (Blob, hash)] {
        head.add(kind, &value)?;
    }
    head.execute(client).await?;
    let mut journal = Statement::new(INSERT_EVENT);
    journal.values(&JOURNAL, &event.columns, ", pg_current_xact_id()")?;
    journal.execute(client).await?;
    for change in changes {
        let statement = match change {
            RowChange::Put(row) => {
                let mut put = Statement::new(&insert(row.table));
                put.values(&kinds(row.table), &row.values, "")?;
                put.text.push_str(&or_update(row.table));
                put
            }
            RowChange::Delete(key) | RowChange::Take(key) => {
                let spec = key.table.spec();
                let mut delete = Statement::new(&format!("DELETE FROM {} WHERE ", spec.name));
                for (at, (&column, value)) in spec.key.iter().zip(&key.values).enumerate() {
                    let and = if at == 0 { "" } else { " AND " };
                    let _ = write!(delete.text, "{and}{} = ${}", spec.columns[column].name, at + 1);
                    delete.add(spec.columns[column].kind, value)?;
                }
                delete
            }
        };
        statement.execute(client).await?;
    }
    client.execute("COMMIT").await?;
    Ok(())
}

impl Statement {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), arguments: PgArguments::default() }
    }

    /// A batch in one statement, which the server commits by itself.
    fn of(sections: &[Section]) -> Outcome<Self> {
        let mut statement = Self::new("WITH ");
        for (at, section) in sections.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(statement.text, "{comma}w{at} AS (");
            statement.part(section)?;
            statement.text.push(')');
        }
        statement.text.push_str(" SELECT 0");
        Ok(statement)
    }

    fn part(&mut self, section: &Section) -> Outcome<()> {
        let values = &section.values;
        match section.kind {
            Kind::Streams => {
                self.text.push_str(INSERT_STREAM);
                self.unnest(&STREAM, values)?;
                self.text.push_str(
                    " ON CONFLICT (stream) DO UPDATE SET version = excluded.version, \
                     last_command_id = excluded.last_command_id, hash = excluded.hash",
                );
            }
            Kind::Journal => {
                self.text.push_str(INSERT_EVENT);
                self.text.push_str("SELECT v.*, pg_current_xact_id() FROM (");
                self.unnest(&JOURNAL, values)?;
                self.text.push_str(") AS v");
            }
            Kind::Snapshots => {
                self.text.push_str(
                    "INSERT INTO connector_snapshot \
                     (stream, stream_version, schema, payload, hash, checksum) ",
                );
                self.unnest(&SNAPSHOT, values)?;
                self.text.push_str(
                    " ON CONFLICT (stream) DO UPDATE SET stream_version = \
                     excluded.stream_version, schema = excluded.schema, payload = \
                     excluded.payload, hash = excluded.hash, checksum = excluded.checksum",
                );
            }
            Kind::Put(table) => {
                self.text.push_str(&insert(table));
                self.unnest(&kinds(table), values)?;
                self.text.push_str(&or_update(table));
            }
            Kind::Delete(table) => {
                let spec = table.spec();
                let key = spec.key.iter().map(|&at| &spec.columns[at]);
                let names: Vec<&str> = key.clone().map(|column| column.name).collect();
                let kinds: Vec<ColumnType> = key.map(|column| column.kind).collect();
                let _ =
                    write!(self.text, "DELETE FROM {} WHERE ({}) IN (", spec.name, names.join(","));
                self.unnest(&kinds, values)?;
                self.text.push(')');
            }
            Kind::EraseEvents | Kind::EraseSnapshots => {
                return Err("sweeps are not written again on PostgreSQL".into());
            }
        }
        Ok(())
    }

    /// Rows from an array for each column.
    fn unnest(&mut self, kinds: &[ColumnType], values: &[Value]) -> Outcome<()> {
        self.text.push_str("SELECT * FROM unnest(");
        for (at, kind) in kinds.iter().enumerate() {
            let column = values.iter().skip(at).step_by(kinds.len());
            match kind {
                Int => self.arguments.add(column.map(Value::as_int).collect::<Vec<_>>())?,
                Text => self.arguments.add(column.map(Value::as_text).collect::<Vec<_>>())?,
                Blob => self.arguments.add(column.map(blob).collect::<Vec<_>>())?,
            }
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(self.text, "{comma}${}", self.arguments.len());
        }
        self.text.push(')');
        Ok(())
    }

    /// One row of values, and what follows them.
    fn values(&mut self, kinds: &[ColumnType], values: &[Value], more: &str) -> Outcome<()> {
        self.text.push_str("VALUES (");
        for (at, (&kind, value)) in kinds.iter().zip(values).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(self.text, "{comma}${}", at + 1);
            self.add(kind, value)?;
        }
        self.text.push_str(more);
        self.text.push(')');
        Ok(())
    }

    fn add(&mut self, kind: ColumnType, value: &Value) -> Outcome<()> {
        match kind {
            Int => self.arguments.add(value.as_int())?,
            Text => self.arguments.add(value.as_text())?,
            Blob => self.arguments.add(blob(value))?,
        }
        Ok(())
    }

    async fn execute(self, connection: &mut PgConnection) -> Outcome<()> {
        sqlx::query_with(AssertSqlSafe(self.text), self.arguments).execute(connection).await?;
        Ok(())
    }
}

fn kinds(table: Table) -> Vec<ColumnType> {
    table.spec().columns.iter().map(|column| column.kind).collect()
}

fn blob(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Blob(blob) => Some(blob),
        _ => None,
    }
}

fn value(row: &PgRow, at: usize, kind: ColumnType) -> Outcome<Value> {
    Ok(match kind {
        _ if row.try_get_raw(at)?.is_null() => Value::Null,
        Text => Value::text(row.try_get::<String, _>(at)?),
        Int => Value::Int(row.try_get(at)?),
        Blob => Value::Blob(row.try_get::<Vec<u8>, _>(at)?.into()),
    })
}

fn event(row: &PgRow) -> Outcome<Event> {
    let mut columns = [const { Value::Null }; 9];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = value(row, at, JOURNAL[at])?;
    }
    Ok(Event {
        name: row.try_get::<String, _>(9)?.into(),
        event_type: row.try_get(3)?,
        stream: row.try_get(1)?,
        kind: row.try_get(10)?,
        version: row.try_get(2)?,
        columns,
    })
}

async fn all_rows(connection: &mut PgConnection, table: Table) -> Outcome<Vec<Row>> {
    let names: Vec<&str> = table.spec().columns.iter().map(|column| column.name).collect();
    let sql = format!("SELECT {} FROM {}", names.join(","), table.spec().name);
    let stored = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let kinds = kinds(table);
    let row = |stored: &PgRow| {
        let values = kinds.iter().enumerate().map(|(at, &kind)| value(stored, at, kind));
        Ok(Row::new(table, values.collect::<Outcome<_>>()?))
    };
    stored.iter().map(row).collect()
}
