//! Reads of the journal, of heads and of rows: each is one statement on one reading connection.

use std::collections::HashMap;
use std::time::Duration;

use metrics::gauge;
use tokio::time::interval;
use uuid::Uuid;

use super::query::{self, bound};
use super::read::{
    base_of, blob_digest, blob_uuid, event_of, get, head_of, int, row_of, snapshot_of, text,
};
use super::readers::Readers;
use super::statement::Statement;
use crate::base::{Error, Result, StreamName, Timestamp};
use crate::domain::{Row, RowKey};
use crate::journal::{
    CommandRecord, Expected, Head, Heads, JournalRecord, Loaded, RowQuery, StreamPage,
};

/// How often the end of the feed is looked at while a transaction that may write before it is under
/// way: for as long as one of another host's batches takes.
const EDGE_LOOKS: u32 = 25;
/// Pause between two of these looks.
const EDGE_PAUSE: Duration = Duration::from_millis(10);
/// Positions behind the end of the feed that were read and are held back.
const HELD_BACK: &str = "connector_store_feed_held_back_positions";

/// Head, snapshot and tail of streams as one statement, so that they are of one moment. The first
/// column says what a line is, the next are an event's columns, then come a snapshot's checksum and
/// the stream's name. A head has its base in the columns of the position and the checksum.
const LOAD: &str = "\
SELECT 0::bigint AS part, kind, base_version AS position, version, 0::bigint AS event_type, \
  0::bigint AS event_schema, ''::bytea AS payload, last_command_id AS command_id, \
  0::bigint AS recorded_at, hash, base_hash AS checksum, name \
FROM connector_stream WHERE name = ANY ($1) AND version > 0 \
UNION ALL \
SELECT 1, s.kind, 0, n.stream_version, 0, n.schema, n.payload, ''::bytea, 0, n.hash, n.checksum, \
  s.name \
FROM connector_stream AS s JOIN connector_snapshot AS n ON n.stream = s.stream \
WHERE s.name = ANY ($1) \
UNION ALL \
SELECT 2, s.kind, j.position, j.stream_version, j.event_type, j.event_schema, j.payload, \
  j.command_id, j.recorded_at, j.hash, ''::bytea, s.name \
FROM connector_stream AS s JOIN connector_journal AS j ON j.stream = s.stream \
WHERE s.name = ANY ($1) AND j.stream_version > coalesce( \
  (SELECT n.stream_version FROM connector_snapshot AS n WHERE n.stream = s.stream), 0) \
ORDER BY part, version";

/// A page of the feed. An event at a position that was drawn before one of these, and is not there
/// yet, comes from a transaction that was under way when that one was written: its id is below the
/// horizon. So the page is final up to its last row whose horizon no running transaction is below.
/// A horizon beyond what this server has given was copied from another one.
const EVENTS: &str = "\
SELECT s.name, s.kind, j.position, j.stream_version, j.event_type, j.event_schema, j.payload, \
  j.command_id, j.recorded_at, j.hash, \
  j.horizon <= pg_snapshot_xmin(pg_current_snapshot()) \
  OR j.horizon >= pg_snapshot_xmax(pg_current_snapshot()) AS is_final \
FROM (SELECT * FROM connector_journal WHERE position > $1 ORDER BY position LIMIT $2) AS j \
JOIN connector_stream AS s ON s.stream = j.stream ORDER BY j.position";

impl Readers {
    /// Snapshot and tail of a stream.
    pub(super) async fn load(&self, stream: &str) -> Result<Loaded> {
        let loaded = self.load_all(&[StreamName::from(stream)]).await?;
        Ok(loaded.into_iter().next().unwrap_or_default())
    }

    /// Snapshots and tails of streams, in their order.
    pub(super) async fn load_all(&self, streams: &[StreamName]) -> Result<Vec<Loaded>> {
        let mut statement = Statement::new(LOAD);
        bound(statement.add(streams.iter().map(AsRef::as_ref).collect::<Vec<&str>>()))?;
        let rows = self.all(statement, "loading streams").await?;
        let mut found: HashMap<&str, Loaded> = HashMap::new();
        for row in &rows {
            let name = text(row, 11)?;
            let loaded = found.entry(name).or_default();
            match int(row, 0)? {
                0 => {
                    let (version, command_id) = (int(row, 3)?, blob_uuid(row, 7)?);
                    loaded.head = Some(Head { version, command_id, hash: blob_digest(row, 9)? });
                    loaded.base = base_of(row, 2, 10)?;
                }
                1 => loaded.snapshot = Some(snapshot_of(row, [3, 5, 6, 9, 10])?),
                _ => loaded.events.push(event_of(row, 2, name.into(), int(row, 1)?)?),
            }
        }
        Ok(streams.iter().map(|name| found.remove(&**name).unwrap_or_default()).collect())
    }

    /// Heads of streams, and the time.
    pub(super) async fn heads(&self, streams: &[StreamName]) -> Result<Heads> {
        let mut statement = Statement::new(
            "SELECT t.now, s.name, s.version, s.last_command_id FROM (SELECT \
             floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS t \
             LEFT JOIN connector_stream AS s ON s.version > 0 AND s.name = ANY (",
        );
        let names: Vec<&str> = streams.iter().map(AsRef::as_ref).collect();
        bound(statement.bind(names))?;
        statement.push(")");
        let rows = self.all(statement, "confirming heads").await?;
        let mut now = Timestamp::default();
        let mut found = HashMap::new();
        for row in &rows {
            now = Timestamp::from_millis(int(row, 0)?);
            if let Some(name) = get::<Option<&str>>(row, 1)? {
                let (version, command_id) = (int(row, 2)?, blob_uuid(row, 3)?);
                found.insert(name, Expected { version, command_id });
            }
        }
        Ok(Heads { now, heads: streams.iter().map(|name| found.get(&**name).copied()).collect() })
    }

    /// The recorded outcome of a command.
    pub(super) async fn command(&self, command_id: Uuid) -> Result<Option<CommandRecord>> {
        let mut statement =
            Statement::new("SELECT digest, answer FROM connector_command WHERE command_id = ");
        bound(statement.bind(command_id.as_bytes().as_slice()))?;
        let rows = self.all(statement, "reading a command's outcome").await?;
        let record = |row| Ok(CommandRecord { digest: blob_digest(row, 0)?, answer: get(row, 1)? });
        rows.first().map(record).transpose()
    }

    /// A page of rows.
    pub(super) async fn rows(&self, query: &RowQuery) -> Result<Vec<Row>> {
        let rows = self.all(query::build(query)?, "reading rows").await?;
        rows.iter().map(|row| row_of(row, query.table)).collect()
    }

    /// One row.
    pub(super) async fn row(&self, key: &RowKey) -> Result<Option<Row>> {
        let mut statement = Statement::new("");
        bound(statement.push_rows(key.table, &[key], ""))?;
        let rows = self.all(statement, "reading a row").await?;
        rows.first().map(|row| row_of(row, key.table)).transpose()
    }

    /// Events after a position, as far as no transaction can write one before them any more.
    pub(super) async fn events(&self, after: i64, limit: u32) -> Result<Vec<JournalRecord>> {
        let mut turns = interval(EDGE_PAUSE);
        let mut looks_left = EDGE_LOOKS;
        loop {
            turns.tick().await;
            let mut statement = Statement::new(EVENTS);
            bound(statement.add(after))?;
            bound(statement.add(i64::from(limit)))?;
            let rows = self.all(statement, "reading events").await?;
            let mut events = Vec::with_capacity(rows.len());
            let mut last_final = 0;
            for row in &rows {
                events.push(event_of(row, 2, text(row, 0)?.into(), int(row, 1)?)?);
                if get(row, 10)? {
                    last_final = events.len();
                }
            }
            let held = events.len() - last_final;
            gauge!(HELD_BACK).set(f64::from(u32::try_from(held).unwrap_or(u32::MAX)));
            looks_left -= 1;
            if last_final > 0 || held == 0 || looks_left == 0 {
                events.truncate(last_final);
                return Ok(events);
            }
        }
    }

    /// All events of one stream.
    pub(super) async fn stream_events(&self, stream: &str) -> Result<Vec<JournalRecord>> {
        let sql = "SELECT s.kind, j.position, j.stream_version, j.event_type, j.event_schema, \
                   j.payload, j.command_id, j.recorded_at, j.hash \
                   FROM connector_stream AS s JOIN connector_journal AS j \
                   ON j.stream = s.stream WHERE s.name = $1 ORDER BY j.stream_version";
        let rows = self.all(named(sql, stream)?, "reading a stream's events").await?;
        let name = StreamName::from(stream);
        rows.iter().map(|row| event_of(row, 1, name.clone(), int(row, 0)?)).collect()
    }

    /// Streams after a name.
    pub(super) async fn streams(&self, after: Option<&str>, limit: u32) -> Result<StreamPage> {
        // No stream has an empty name.
        let sql = "SELECT name, kind, version, last_command_id, hash FROM connector_stream \
                   WHERE name > $1 AND version > 0 ORDER BY name LIMIT $2";
        let mut statement = named(sql, after.unwrap_or(""))?;
        bound(statement.add(i64::from(limit)))?;
        let rows = self.all(statement, "listing streams").await?;
        let line = |row| Ok((text(row, 0)?.into(), int(row, 1)?, head_of(row, 2)?));
        Ok(StreamPage { streams: rows.iter().map(line).collect::<Result<_>>()? })
    }

    /// A number of `connector_meta`.
    pub(super) async fn meta(&self, key: &'static str) -> Result<i64> {
        let sql = "SELECT value FROM connector_meta WHERE key = $1";
        let rows = self.all(named(sql, key)?, "reading the store's numbers").await?;
        let value = rows.first().map(|row| int(row, 0)).transpose()?;
        value.ok_or_else(|| Error::damaged(format_args!("the store has no {key}")))
    }

    /// The newest position that was given.
    pub(super) async fn last_position(&self) -> Result<i64> {
        let sql = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END \
                   FROM connector_journal_position";
        let rows = self.all(Statement::new(sql), "reading the newest position").await?;
        rows.first().map_or(Ok(0), |row| int(row, 0))
    }
}

/// A statement whose first value is a name.
fn named(sql: &str, name: &str) -> Result<Statement> {
    let mut statement = Statement::new(sql);
    bound(statement.add(name))?;
    Ok(statement)
}
