//! Reads of the journal, of heads and of rows: each is one query on one reading connection.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, AssertSqlSafe, Row as _, SqlSafeStr};
use uuid::Uuid;

use super::query;
use super::read::{
    base_of, blob_digest, blob_uuid, bytes, event_of, head_of, int, row_of, snapshot_of, text,
};
use super::readers::Readers;
use super::statements::{MAX_STATEMENT_ROWS, write_key_match, write_list, write_names};
use crate::base::{Result, StreamName, Timestamp};
use crate::domain::{Row, RowKey};
use crate::journal::{CommandRecord, Expected, Heads, JournalRecord, Loaded, RowQuery, StreamPage};

/// Head, snapshot and tail as one statement, so that they are of one moment. The first column says
/// what a line is, the rest are an event's columns, the last a snapshot's checksum. A head has its
/// base in the columns of the position and the checksum.
const LOAD: &str = "\
SELECT 0 AS part, kind, base_version AS position, version, 0 AS event_type, 0 AS event_schema, \
  x'' AS payload, last_command_id AS command_id, 0 AS recorded_at, hash, base_hash AS checksum \
FROM connector_stream WHERE name = ?1 \
UNION ALL \
SELECT 1, s.kind, 0, n.stream_version, 0, n.schema, n.payload, x'', 0, n.hash, n.checksum \
FROM connector_stream AS s CROSS JOIN connector_snapshot AS n ON n.stream = s.stream \
WHERE s.name = ?1 \
UNION ALL \
SELECT 2, s.kind, j.position, j.stream_version, j.event_type, j.event_schema, j.payload, \
  j.command_id, j.recorded_at, j.hash, x'' \
FROM connector_stream AS s CROSS JOIN connector_journal AS j ON j.stream = s.stream \
WHERE s.name = ?1 AND j.stream_version > coalesce( \
  (SELECT n.stream_version FROM connector_snapshot AS n WHERE n.stream = s.stream), 0) \
ORDER BY part, version";

impl Readers {
    pub(super) async fn all(
        &self,
        sql: impl SqlSafeStr,
        arguments: SqliteArguments,
        context: &str,
    ) -> Result<Vec<SqliteRow>> {
        let mut turn = self.turn().await?;
        let rows = sqlx::query_with(sql, arguments).fetch_all(turn.connection()?).await;
        rows.map_err(|error| turn.failed(error, context))
    }

    /// Snapshot and tail of a stream.
    pub(super) async fn load(&self, stream: &str) -> Result<Loaded> {
        let rows = self.all(LOAD, names(&[stream])?, "loading a stream").await?;
        let name = StreamName::from(stream);
        let mut loaded = Loaded::default();
        for row in &rows {
            match int(row, 0)? {
                0 => {
                    let (version, command_id) = (int(row, 3)?, blob_uuid(row, 7)?);
                    let hash = blob_digest(row, 9)?;
                    loaded.head = Some(crate::journal::Head { version, command_id, hash });
                    loaded.base = base_of(row, 2, 10)?;
                }
                1 => loaded.snapshot = Some(snapshot_of(row, [3, 5, 6, 9, 10])?),
                _ => loaded.events.push(event_of(row, 2, name.clone(), int(row, 1)?)?),
            }
        }
        Ok(loaded)
    }

    /// Heads of streams, and the time.
    pub(super) async fn heads(&self, streams: &[StreamName]) -> Result<Heads> {
        let mut found = std::collections::HashMap::new();
        for part in streams.chunks(MAX_STATEMENT_ROWS) {
            let mut sql = String::from(
                "SELECT name, version, last_command_id, hash FROM connector_stream WHERE name IN ",
            );
            write_list(&mut sql, part.len());
            let part: Vec<&str> = part.iter().map(AsRef::as_ref).collect();
            let rows = self.all(AssertSqlSafe(sql), names(&part)?, "confirming heads").await?;
            for row in &rows {
                let head = head_of(row, 1)?;
                let expected = Expected { version: head.version, command_id: head.command_id };
                found.insert(text(row, 0)?, expected);
            }
        }
        let sql = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";
        let rows = self.all(sql, SqliteArguments::default(), "reading the time").await?;
        let now = rows.first().map(|row| int(row, 0)).transpose()?.unwrap_or_default();
        Ok(Heads {
            now: Timestamp::from_millis(now),
            heads: streams.iter().map(|name| found.get(&**name).copied()).collect(),
        })
    }

    /// The recorded outcome of a command.
    pub(super) async fn command(&self, command_id: Uuid) -> Result<Option<CommandRecord>> {
        let sql = "SELECT digest, answer FROM connector_command WHERE command_id = ?";
        let mut arguments = SqliteArguments::default();
        add(&mut arguments, command_id.as_bytes().as_slice())?;
        let rows = self.all(sql, arguments, "reading a command's outcome").await?;
        let record =
            |row| Ok(CommandRecord { digest: blob_digest(row, 0)?, answer: bytes(row, 1)? });
        rows.first().map(record).transpose()
    }

    /// A page of rows.
    pub(super) async fn rows(&self, query: &RowQuery) -> Result<Vec<Row>> {
        let built = query::build(query)?;
        let rows = self.all(AssertSqlSafe(built.sql), built.arguments, "reading rows").await?;
        rows.iter().map(|row| row_of(row, query.table)).collect()
    }

    /// One row.
    pub(super) async fn row(&self, key: &RowKey) -> Result<Option<Row>> {
        let mut sql = String::from("SELECT ");
        write_names(&mut sql, key.table.spec().columns.iter());
        sql.push_str(" FROM ");
        sql.push_str(key.table.spec().name);
        sql.push_str(" WHERE ");
        write_key_match(&mut sql, key.table, 1);
        let mut arguments = SqliteArguments::default();
        for value in &key.values {
            super::script::add_value(value, &mut arguments)
                .map_err(|error| super::fault::storage_error(error, "binding a value"))?;
        }
        let rows = self.all(AssertSqlSafe(sql), arguments, "reading a row").await?;
        rows.first().map(|row| row_of(row, key.table)).transpose()
    }

    /// Events after a position. One writer gives positions in the order of its commits, so a page
    /// skips none.
    pub(super) async fn events(&self, after: i64, limit: u32) -> Result<Vec<JournalRecord>> {
        let sql = "SELECT s.name, s.kind, j.position, j.stream_version, j.event_type, \
                   j.event_schema, j.payload, j.command_id, j.recorded_at, j.hash \
                   FROM connector_journal AS j CROSS JOIN connector_stream AS s \
                   ON s.stream = j.stream WHERE j.position > ? ORDER BY j.position LIMIT ?";
        let mut arguments = SqliteArguments::default();
        add(&mut arguments, after)?;
        add(&mut arguments, i64::from(limit))?;
        let rows = self.all(sql, arguments, "reading events").await?;
        rows.iter().map(|row| event_of(row, 2, text(row, 0)?.into(), int(row, 1)?)).collect()
    }

    /// All events of one stream.
    pub(super) async fn stream_events(&self, stream: &str) -> Result<Vec<JournalRecord>> {
        let sql = "SELECT s.kind, j.position, j.stream_version, j.event_type, j.event_schema, \
                   j.payload, j.command_id, j.recorded_at, j.hash \
                   FROM connector_stream AS s CROSS JOIN connector_journal AS j \
                   ON j.stream = s.stream WHERE s.name = ? ORDER BY j.stream_version";
        let rows = self.all(sql, names(&[stream])?, "reading a stream's events").await?;
        let name = StreamName::from(stream);
        rows.iter().map(|row| event_of(row, 1, name.clone(), int(row, 0)?)).collect()
    }

    /// Streams after a name.
    pub(super) async fn streams(&self, after: Option<&str>, limit: u32) -> Result<StreamPage> {
        // No stream has an empty name.
        let sql = "SELECT name, kind, version, last_command_id, hash FROM connector_stream \
                   WHERE name > ? ORDER BY name LIMIT ?";
        let mut arguments = names(&[after.unwrap_or("")])?;
        add(&mut arguments, i64::from(limit))?;
        let rows = self.all(sql, arguments, "listing streams").await?;
        let line = |row| Ok((text(row, 0)?.into(), int(row, 1)?, head_of(row, 2)?));
        Ok(StreamPage { streams: rows.iter().map(line).collect::<Result<_>>()? })
    }

    /// A number of `connector_meta`.
    pub(super) async fn meta(&self, key: &'static str) -> Result<i64> {
        let sql = "SELECT value FROM connector_meta WHERE key = ?";
        let rows = self.all(sql, names(&[key])?, "reading the store's numbers").await?;
        let value = rows.first().map(|row| row.try_get(0)).transpose();
        let value =
            value.map_err(|error| super::fault::storage_error(error, "reading a number"))?;
        value.ok_or_else(|| crate::base::Error::damaged(format_args!("the store has no {key}")))
    }
}

fn names(names: &[&str]) -> Result<SqliteArguments> {
    let mut arguments = SqliteArguments::default();
    names.iter().try_for_each(|name| add(&mut arguments, *name))?;
    Ok(arguments)
}

pub(super) fn add<'q, T>(arguments: &mut SqliteArguments, value: T) -> Result<()>
where
    T: sqlx::Encode<'q, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    let added = arguments.add(value);
    added
        .map_err(|error| super::fault::storage_error(sqlx::Error::Encode(error), "binding a value"))
}
