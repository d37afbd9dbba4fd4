//! What is done besides commands: retention, dropping of streams and outcomes, checkpoints.

use std::collections::HashMap;
use std::time::Duration;

use metrics::gauge;
use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments as _, AssertSqlSafe, Row as _};

use super::connect::Connector;
use super::fault::storage_error;
use super::heads::KnownHead;
use super::readers::Readers;
use super::statements::{MAX_STATEMENT_ROWS, write_list};
use super::writer::Writer;
use crate::base::{Result, StreamName, Timestamp};
use crate::journal::file::beside;
use crate::journal::{Expected, HistoryCut};

/// How long a truncation waits for a reader before it gives way to the next batch.
const TRUNCATE_WAIT: Duration = Duration::from_millis(50);
/// 1 while a reader keeps the write-ahead log, with content that was erased, from being truncated.
const TRUNCATE_BLOCKED: &str = "connector_store_wal_truncate_blocked";
/// Bytes that the write-ahead log takes on the medium, to the KiB.
const WAL_BYTES: &str = "connector_store_wal_bytes";

/// Streams whose oldest events can go: they are old, and a snapshot stands behind them.
const FIND_CUTS: &str = "\
SELECT n.stream FROM connector_snapshot AS n \
WHERE (SELECT j.recorded_at FROM connector_journal AS j \
       WHERE j.stream = n.stream AND j.stream_version <= n.stream_version \
       ORDER BY j.stream_version LIMIT 1) < ? \
ORDER BY n.stream LIMIT ?";

/// What a cut removes of streams whose list goes behind it. The first event that is not old ends the
/// cut, whatever the clock did behind it.
const CUT: &str = "\
FROM connector_snapshot AS n CROSS JOIN connector_journal AS j ON j.stream = n.stream \
WHERE j.stream_version <= n.stream_version AND j.stream_version < coalesce( \
  (SELECT min(k.stream_version) FROM connector_journal AS k \
   WHERE k.stream = n.stream AND k.recorded_at >= ?), 9223372036854775807) \
AND n.stream IN ";

impl Readers {
    /// The streams that a cut will shorten. A reader looks for them, so that the writer need not.
    pub(super) async fn find_cuts(&self, cut: HistoryCut) -> Result<Vec<i64>> {
        let mut turn = self.turn().await?;
        let rows = sqlx::query(FIND_CUTS)
            .bind(cut.recorded_before.as_millis())
            .bind(i64::from(cut.limit))
            .fetch_all(turn.connection()?)
            .await
            .map_err(|error| turn.failed(error, "looking for events to cut"))?;
        rows.iter().map(|row| super::read::int(row, 0)).collect()
    }
}

impl Writer {
    /// Deletes the old events of these streams: always a prefix, at most up to the snapshot.
    pub(super) async fn cut_history(
        &mut self,
        streams: &[i64],
        recorded_before: Timestamp,
    ) -> Result<u64> {
        if streams.is_empty() {
            return Ok(0);
        }
        let removed = self
            .in_transaction("cutting history", async |connection| {
                let mut removed = Removed::default();
                for streams in streams.chunks(MAX_STATEMENT_ROWS) {
                    removed.add(&cut_streams(connection, streams, recorded_before).await?)?;
                }
                removed.note(connection).await?;
                Ok(removed)
            })
            .await?;
        self.has_erased |= removed.events > 0;
        Ok(removed.events)
    }

    /// Removes whole streams whose heads are the expected ones.
    pub(super) async fn drop_streams(&mut self, streams: &[(StreamName, Expected)]) -> Result<u64> {
        let names: Vec<&StreamName> = streams.iter().map(|(name, _)| name).collect();
        let stored = self.stored_heads(&names).await?;
        let expected: HashMap<&StreamName, &Expected> =
            streams.iter().map(|(name, expected)| (name, expected)).collect();
        let mut ids = Vec::new();
        for (name, KnownHead { stream, head }) in stored {
            let found = Expected { version: head.version, command_id: head.command_id };
            if expected.get(&name) == Some(&&found) {
                ids.push(stream);
                self.forget_head(&name);
            }
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let ids = ids.as_slice();
        self.in_transaction("dropping streams", async |connection| {
            let mut removed = Removed::default();
            for ids in ids.chunks(MAX_STATEMENT_ROWS) {
                let rows = run_list(
                    connection,
                    "DELETE FROM connector_journal WHERE stream IN ",
                    " RETURNING position",
                    ids,
                )
                .await?;
                removed.add(&rows)?;
                let tables = [
                    "DELETE FROM connector_snapshot WHERE stream IN ",
                    "DELETE FROM connector_stream WHERE stream IN ",
                ];
                for sql in tables {
                    run_list(connection, sql, "", ids).await?;
                }
            }
            removed.note(connection).await
        })
        .await?;
        self.has_erased = true;
        Ok(ids.len() as u64)
    }

    /// Forgets outcomes of callers' commands.
    pub(super) async fn drop_commands(&mut self, recorded_before: Timestamp) -> Result<u64> {
        let connection = self.ready().await?;
        let done = sqlx::query("DELETE FROM connector_command WHERE at < ?")
            .bind(recorded_before.as_millis())
            .execute(connection)
            .await
            .map_err(|error| storage_error(error, "forgetting outcomes of commands"))?;
        Ok(done.rows_affected())
    }

    /// Moves the log to the file; after an erasure the log is truncated too, or the erased bytes
    /// would stay in it.
    pub(super) async fn idle(&mut self) -> Result<bool> {
        if self.has_erased {
            let is_blocked = self.truncate_log().await?;
            gauge!(TRUNCATE_BLOCKED).set(if is_blocked { 1.0 } else { 0.0 });
            self.has_erased = is_blocked;
        } else {
            checkpoint(self.ready().await?, "PRAGMA wal_checkpoint(PASSIVE)").await?;
        }
        self.connector.measure_log();
        Ok(!self.has_erased)
    }

    /// Moves the log to the file and truncates it. `true`: a reader is in the way.
    pub(super) async fn truncate_log(&mut self) -> Result<bool> {
        let usual = self.connector.busy_timeout();
        let connection = self.ready().await?;
        set_timeout(connection, TRUNCATE_WAIT).await?;
        let blocked = checkpoint(connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
        set_timeout(connection, usual).await?;
        blocked
    }
}

impl Connector {
    /// Tells how much room the log takes.
    pub(super) fn measure_log(&self) {
        let log = std::fs::metadata(beside(self.path(), "-wal")).map_or(0, |log| log.len());
        gauge!(WAL_BYTES).set(f64::from(u32::try_from(log / 1_024).unwrap_or(u32::MAX)) * 1_024.0);
    }
}

async fn set_timeout(connection: &mut SqliteConnection, timeout: Duration) -> Result<()> {
    let sql = format!("PRAGMA busy_timeout = {}", timeout.as_millis());
    let set = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    set.map(drop).map_err(|error| storage_error(error, "setting the busy time-out"))
}

async fn checkpoint(connection: &mut SqliteConnection, pragma: &'static str) -> Result<bool> {
    let failed = |error| storage_error(error, "moving the write-ahead log to the file");
    let row = sqlx::query(pragma).fetch_one(connection).await.map_err(failed)?;
    let is_blocked: i64 = row.try_get_unchecked(0).map_err(failed)?;
    Ok(is_blocked != 0)
}

/// What a maintenance transaction removed from the journal.
#[derive(Debug, Default)]
struct Removed {
    events: u64,
    up_to: i64,
}

impl Removed {
    fn add(&mut self, rows: &[sqlx::sqlite::SqliteRow]) -> sqlx::Result<()> {
        for row in rows {
            self.events += 1;
            self.up_to = self.up_to.max(row.try_get_unchecked(0)?);
        }
        Ok(())
    }

    /// Notes the newest removed position, so that a reader of the feed learns of the gap.
    async fn note(&self, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let sql = "UPDATE connector_meta SET value = max(value, ?) WHERE key = 'trimmed_up_to'";
        sqlx::query(sql).bind(self.up_to).execute(connection).await.map(drop)
    }
}

async fn cut_streams(
    connection: &mut SqliteConnection,
    streams: &[i64],
    recorded_before: Timestamp,
) -> sqlx::Result<Vec<sqlx::sqlite::SqliteRow>> {
    // With a lone max(), the other columns are those of its row.
    let rebase = "UPDATE connector_stream SET base_version = v.version, base_hash = v.hash FROM ( \
                  SELECT j.stream AS stream, max(j.stream_version) AS version, j.hash AS hash";
    let rebased = " GROUP BY j.stream) AS v WHERE connector_stream.stream = v.stream";
    let delete = "DELETE FROM connector_journal WHERE position IN (SELECT j.position";
    let mut removed = Vec::new();
    for (before, behind) in [(rebase, rebased), (delete, ") RETURNING position")] {
        let mut sql = format!("{before} {CUT}");
        write_list(&mut sql, streams.len());
        sql.push_str(behind);
        let mut arguments = SqliteArguments::default();
        arguments.add(recorded_before.as_millis()).map_err(sqlx::Error::Encode)?;
        for stream in streams {
            arguments.add(*stream).map_err(sqlx::Error::Encode)?;
        }
        removed =
            sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(&mut *connection).await?;
    }
    Ok(removed)
}

async fn run_list(
    connection: &mut SqliteConnection,
    before: &str,
    behind: &str,
    ids: &[i64],
) -> sqlx::Result<Vec<sqlx::sqlite::SqliteRow>> {
    let mut sql = String::from(before);
    write_list(&mut sql, ids.len());
    sql.push_str(behind);
    let mut arguments = SqliteArguments::default();
    for id in ids {
        arguments.add(*id).map_err(sqlx::Error::Encode)?;
    }
    sqlx::query_with(AssertSqlSafe(sql), arguments).fetch_all(connection).await
}
