//! The raw limit: what the store wrote, written again by a bare connection into a file of the same
//! schema, and what it read, read by one prepared statement. It knows no command and no actor.
//!
//! After each slice of work the mirror reads the new events from the store's file and writes the
//! identical rows (events, heads, snapshots, read rows), so that both files grow alike.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use connector_store::domain::{ColumnType, Row, RowChange, RowKey, Table, Value};
use sqlx::ValueRef as _;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use crate::Outcome;

/// What a store writes after so many events of a stream unless told otherwise.
const SNAPSHOT_EVERY_EVENTS: i64 = 128;
/// The database's own way to a trim.
pub const READ_TRIM: &str = "SELECT document_id, owner_did, connector_name, trimmed_fields, \
    updated_at FROM kubun_connector_entity_trim WHERE document_id = substr(?, 10)";
/// The database's own way to a stream's head, snapshot and tail.
pub const LOAD_STREAM: &str = "SELECT s.version, s.hash, j.stream_version, j.event_type, \
    j.event_schema, j.payload, j.command_id, j.recorded_at, j.hash, n.payload, n.checksum \
    FROM connector_stream AS s LEFT JOIN connector_snapshot AS n ON n.stream = s.stream \
    LEFT JOIN connector_journal AS j ON j.stream = s.stream \
    AND j.stream_version > coalesce(n.stream_version, 0) WHERE s.name = ?";

/// An event with its stream, as it is stored.
pub struct Event {
    /// The stream's name.
    pub name: Arc<str>,
    /// The number of its type.
    pub event_type: i64,
    /// The stream's number.
    pub stream: i64,
    /// The number of the stream's kind.
    pub kind: i64,
    /// Its place in the stream.
    pub version: i64,
    /// Its row in the journal.
    pub columns: [Value; 9],
}

/// The read rows of the store's file, by their keys.
pub type ReadRows = HashMap<RowKey, Row>;

/// Says what an event changed in the read tables.
pub type RowsOf<'a> = dyn Fn(&Event, &ReadRows) -> Vec<RowChange> + 'a;

/// The store's file, read, and its copy, written.
pub struct Mirror {
    source: SqliteConnection,
    copy: SqliteConnection,
    position: i64,
    texts: HashMap<Vec<(Kind, usize)>, Arc<str>>,
}

/// One transaction: the text of all its statements, and their values.
struct Transaction {
    text: Arc<str>,
    values: Vec<Value>,
}

/// Rows of one kind that are written together.
pub struct Section {
    /// What is done with them.
    pub kind: Kind,
    /// How many there are.
    pub rows: usize,
    /// Their values, row by row.
    pub values: Vec<Value>,
}

/// What is done with rows of one table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    EraseEvents,
    EraseSnapshots,
    Streams,
    Journal,
    Snapshots,
    Put(Table),
    Delete(Table),
}

impl Kind {
    fn write(self, rows: usize, sql: &mut String) {
        match self {
            Self::EraseEvents => {
                sql.push_str(
                    "DELETE FROM connector_journal WHERE position IN (SELECT j.position FROM (",
                );
                values(2, rows, sql);
                sql.push_str(
                    ") AS v CROSS JOIN connector_journal AS j \
                     ON j.stream = v.column1 AND j.stream_version < v.column2)",
                );
            }
            Self::EraseSnapshots => {
                sql.push_str("DELETE FROM connector_snapshot WHERE stream IN (");
                values(1, rows, sql);
                sql.push(')');
            }
            Self::Streams => {
                sql.push_str("INSERT INTO connector_stream (stream, name, kind, version, last_command_id, hash) ");
                values(6, rows, sql);
                sql.push_str(
                    " ON CONFLICT (stream) DO UPDATE SET version = excluded.version, \
                     last_command_id = excluded.last_command_id, hash = excluded.hash",
                );
            }
            Self::Journal => {
                sql.push_str("INSERT INTO connector_journal (position, stream, stream_version, event_type, event_schema, payload, command_id, recorded_at, hash) ");
                values(9, rows, sql);
            }
            Self::Snapshots => {
                sql.push_str("REPLACE INTO connector_snapshot (stream, stream_version, schema, payload, hash, checksum) ");
                values(6, rows, sql);
            }
            Self::Put(table) => put(table, rows, sql),
            Self::Delete(table) => {
                let spec = table.spec();
                let names: Vec<&str> = spec.key.iter().map(|&at| spec.columns[at].name).collect();
                let _ = write!(sql, "DELETE FROM {} WHERE ({}) IN (", spec.name, names.join(","));
                values(names.len(), rows, sql);
                sql.push(')');
            }
        }
    }
}

fn values(width: usize, rows: usize, sql: &mut String) {
    let row = format!("({})", vec!["?"; width].join(","));
    let _ = write!(sql, "VALUES {}", vec![row.as_str(); rows].join(","));
}

fn put(table: Table, rows: usize, sql: &mut String) {
    sql.push_str(&insert(table));
    values(table.spec().columns.len(), rows, sql);
    sql.push_str(&or_update(table));
}

/// The beginning of an upsert, up to its values.
pub fn insert(table: Table) -> String {
    let spec = table.spec();
    let names: Vec<&str> = spec.columns.iter().map(|column| column.name).collect();
    format!("INSERT INTO {} ({}) ", spec.name, names.join(","))
}

/// The end of an upsert, behind its values.
pub fn or_update(table: Table) -> String {
    let spec = table.spec();
    let key: Vec<&str> = spec.key.iter().map(|&at| spec.columns[at].name).collect();
    let names = spec.columns.iter().map(|column| column.name);
    let set: Vec<String> = names
        .filter(|name| !key.contains(name))
        .map(|name| format!("{name} = excluded.{name}"))
        .collect();
    format!(" ON CONFLICT ({}) DO UPDATE SET {}", key.join(","), set.join(","))
}

impl Mirror {
    /// Opens the store's file to read, and a closed copy as the store opens its own.
    pub async fn open(source: &Path, copy: &Path) -> Outcome<Self> {
        let copy = SqliteConnectOptions::new()
            .filename(copy)
            .foreign_keys(true)
            .synchronous(sqlx::sqlite::SqliteSynchronous::Full)
            .pragma("secure_delete", "ON")
            .pragma("wal_autocheckpoint", "4096")
            .pragma("cache_size", "-65536")
            .statement_cache_capacity(512)
            .disable_statement_logging()
            .connect()
            .await?;
        Ok(Self { source: reader(source).await?, copy, position: 0, texts: HashMap::new() })
    }

    /// Writes what the store has written since the last call, `batch` appends at a time. Gives the
    /// number of events and the time that the writing took.
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
        let transactions: Vec<Transaction> = events
            .chunks(batch.max(1))
            .map(|events| self.transaction(fold(events, &snapshots, &read_rows, rows_of)))
            .collect();
        let begun = Instant::now();
        for Transaction { text, values } in &transactions {
            let mut arguments = SqliteArguments::default();
            arguments.reserve(values.len(), 0);
            for value in values {
                bind(value, &mut arguments)?;
            }
            let text = AssertSqlSafe(Arc::clone(text));
            sqlx::query_with(text, arguments).execute(&mut self.copy).await?;
        }
        Ok((events.len(), begun.elapsed()))
    }

    async fn new_events(&mut self) -> Outcome<Vec<Event>> {
        let sql = "SELECT j.position, j.stream, j.stream_version, j.event_type, j.event_schema, \
                   j.payload, j.command_id, j.recorded_at, j.hash, s.name, s.kind \
                   FROM connector_journal AS j JOIN connector_stream AS s USING (stream) \
                   WHERE j.position > ? ORDER BY j.position";
        let rows = sqlx::query(sql).bind(self.position).fetch_all(&mut self.source).await?;
        let events: Vec<Event> = rows.iter().map(event).collect::<Outcome<_>>()?;
        if let Some(last) = rows.last() {
            self.position = last.try_get(0)?;
        }
        Ok(events)
    }

    async fn snapshots(&mut self) -> Outcome<HashMap<i64, Vec<Value>>> {
        let sql = "SELECT stream, schema, payload, hash, checksum FROM connector_snapshot";
        let rows = sqlx::query(sql).fetch_all(&mut self.source).await?;
        let columns = |row: &SqliteRow| -> Outcome<(i64, Vec<Value>)> {
            let blob =
                |at| Ok::<_, sqlx::Error>(Value::Blob(row.try_get::<Vec<u8>, _>(at)?.into()));
            let columns = vec![Value::Int(row.try_get(1)?), blob(2)?, blob(3)?, blob(4)?];
            Ok((row.try_get(0)?, columns))
        };
        rows.iter().map(columns).collect()
    }

    fn transaction(&mut self, sections: Vec<Section>) -> Transaction {
        let shape: Vec<(Kind, usize)> =
            sections.iter().map(|section| (section.kind, section.rows)).collect();
        let text = self.texts.entry(shape).or_insert_with_key(|shape| text(shape).into());
        let values = sections.into_iter().flat_map(|section| section.values).collect();
        Transaction { text: Arc::clone(text), values }
    }

    /// Fails unless both files hold the same events and rows.
    pub async fn check(&mut self, tables: &[Table]) -> Outcome<()> {
        let names = tables.iter().map(|table| table.spec().name);
        for name in names.chain(["connector_journal", "connector_stream"]) {
            let sql = Arc::<str>::from(format!("SELECT count(*) FROM {name}"));
            let count = |sql: &Arc<str>| sqlx::query(AssertSqlSafe(Arc::clone(sql)));
            let here: i64 = count(&sql).fetch_one(&mut self.source).await?.try_get(0)?;
            let there: i64 = count(&sql).fetch_one(&mut self.copy).await?.try_get(0)?;
            if here != there {
                return Err(format!("{name} has {here} rows, its copy {there}").into());
            }
        }
        Ok(())
    }

    /// Runs one prepared query with one text argument after the other for a while. Gives how many
    /// and the time.
    pub async fn read(
        &mut self,
        sql: &'static str,
        keys: &[Arc<str>],
        time: Duration,
    ) -> Outcome<(usize, Duration)> {
        let (begun, mut count) = (Instant::now(), 0);
        loop {
            let key = Arc::clone(&keys[count % keys.len()]);
            let rows = sqlx::query(sql).bind(key).fetch_all(&mut self.source).await?;
            if rows.is_empty() {
                return Err("a raw read found nothing".into());
            }
            count += 1;
            if begun.elapsed() >= time {
                break;
            }
        }
        Ok((count, begun.elapsed()))
    }

    /// Closes both connections.
    pub async fn close(self) -> Outcome<()> {
        self.source.close().await?;
        Ok(self.copy.close().await?)
    }
}

/// The rows of one batch, folded as a batch folds them.
pub fn fold(
    events: &[Event],
    snapshots: &HashMap<i64, Vec<Value>>,
    read_rows: &ReadRows,
    rows_of: &RowsOf<'_>,
) -> Vec<Section> {
    let mut heads = BTreeMap::new();
    let mut taken = BTreeMap::new();
    let mut changes: BTreeMap<RowKey, Option<Row>> = BTreeMap::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut push = |kind: Kind, values: &[Value]| match sections
        .iter_mut()
        .find(|section| section.kind == kind)
    {
        Some(section) => {
            section.rows += 1;
            section.values.extend_from_slice(values);
        }
        None => sections.push(Section { kind, rows: 1, values: values.to_vec() }),
    };
    for event in events {
        heads.insert(event.stream, event);
        // A document's first type stands for erased history.
        if event.name.starts_with("document:") && event.event_type == 1 {
            let stream = Value::Int(event.stream);
            push(Kind::EraseEvents, &[stream.clone(), Value::Int(event.version)]);
            push(Kind::EraseSnapshots, &[stream]);
        }
        if event.version % SNAPSHOT_EVERY_EVENTS == 0 {
            taken.insert(event.stream, event.version);
        }
        for change in rows_of(event, read_rows) {
            match change {
                RowChange::Put(row) => changes.insert(row.key(), Some(row)),
                RowChange::Delete(key) | RowChange::Take(key) => changes.insert(key, None),
            };
        }
    }
    for event in heads.values() {
        push(Kind::Streams, &event.head());
    }
    for event in events {
        push(Kind::Journal, &event.columns);
    }
    for (stream, version) in taken {
        if let Some(columns) = snapshots.get(&stream) {
            let mut values = vec![Value::Int(stream), Value::Int(version)];
            values.extend(columns.iter().cloned());
            push(Kind::Snapshots, &values);
        }
    }
    for (key, row) in &changes {
        match row {
            Some(row) => push(Kind::Put(row.table), &row.values),
            None => push(Kind::Delete(key.table), &key.values),
        }
    }
    sections
}

impl Event {
    /// The head that it makes.
    pub fn head(&self) -> [Value; 6] {
        let [_, stream, version, .., command_id, _, hash] = &self.columns;
        [
            stream.clone(),
            Value::Text(Arc::clone(&self.name)),
            Value::Int(self.kind),
            version.clone(),
            command_id.clone(),
            hash.clone(),
        ]
    }
}

/// A bare connection that reads as the store's readers do.
async fn reader(path: &Path) -> Outcome<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .pragma("cache_size", "-16384")
        .disable_statement_logging();
    Ok(options.connect().await?)
}

fn text(shape: &[(Kind, usize)]) -> String {
    let mut sql = String::from("BEGIN IMMEDIATE;");
    for (kind, rows) in shape {
        kind.write(*rows, &mut sql);
        sql.push(';');
    }
    sql.push_str("COMMIT");
    sql
}

fn event(row: &SqliteRow) -> Outcome<Event> {
    let int = |at| Ok::<_, sqlx::Error>(Value::Int(row.try_get(at)?));
    let blob = |at| Ok::<_, sqlx::Error>(Value::Blob(row.try_get::<Vec<u8>, _>(at)?.into()));
    let columns =
        [int(0)?, int(1)?, int(2)?, int(3)?, int(4)?, blob(5)?, blob(6)?, int(7)?, blob(8)?];
    Ok(Event {
        name: row.try_get::<String, _>(9)?.into(),
        event_type: row.try_get(3)?,
        stream: row.try_get(1)?,
        kind: row.try_get(10)?,
        version: row.try_get(2)?,
        columns,
    })
}

async fn all_rows(connection: &mut SqliteConnection, table: Table) -> Outcome<Vec<Row>> {
    let spec = table.spec();
    let names: Vec<&str> = spec.columns.iter().map(|column| column.name).collect();
    let sql = format!("SELECT {} FROM {}", names.join(","), spec.name);
    let stored = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let mut rows = Vec::with_capacity(stored.len());
    for row in &stored {
        let mut values = Vec::with_capacity(names.len());
        for (at, column) in spec.columns.iter().enumerate() {
            values.push(match column.kind {
                _ if row.try_get_raw(at)?.is_null() => Value::Null,
                ColumnType::Text => Value::text(row.try_get::<String, _>(at)?),
                ColumnType::Int => Value::Int(row.try_get(at)?),
                ColumnType::Blob => Value::Blob(row.try_get::<Vec<u8>, _>(at)?.into()),
            });
        }
        rows.push(Row::new(table, values));
    }
    Ok(rows)
}

fn bind(value: &Value, arguments: &mut SqliteArguments) -> Outcome<()> {
    match value {
        Value::Null | Value::Keep | Value::Stamp => arguments.add(None::<i64>)?,
        Value::Int(int) => arguments.add(*int)?,
        Value::Text(text) => arguments.add(Arc::clone(text))?,
        Value::Blob(blob) => arguments.add(blob.as_ref())?,
    }
    Ok(())
}
