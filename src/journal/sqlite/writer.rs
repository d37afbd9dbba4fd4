//! The one writing connection: batches, snapshots and doubtful commits.
//!
//! Its states: *settled* (no transaction open, caches true), *unsettled* (a transaction was begun
//! and its end not seen: it is rolled back before anything else), *doubtful* (a commit failed in a
//! way that may have left it in the log: a later commit is written over or behind it before anybody
//! is told what became of it).

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::connect::Connector;
use super::fault::{Cause, storage_error};
use super::heads::{Known, KnownHead};
use super::script::{Failure, Script};
use super::statements::Texts;
use super::view::{self, StreamIds};
use crate::base::{Error, Result, StreamName, Timestamp};
use crate::domain::{Row, RowChange, Table};
use crate::journal::batch::{LEASE_TOKEN_COLUMN, Plan, judge, stamps};
use crate::journal::chain::snapshot_checksum;
use crate::journal::{Append, AppendOutcome, BatchError, Expected, NewSnapshot};

/// How often the log's size is looked at: seldom enough to cost nothing.
const BATCHES_PER_MEASUREMENT: u64 = 256;

/// What the writer needs to know of the file before it writes.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    last_position: i64,
    last_stream: i64,
    /// The newest time that a row was stamped with.
    stamped_at: i64,
}

impl Counters {
    /// A time for rows that are stamped: greater than every one before.
    fn next_stamp(self, now: Timestamp) -> Timestamp {
        now.max(Timestamp::from_millis(self.stamped_at.saturating_add(1)))
    }
}

/// The writing side of a store.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connector: Arc<Connector>,
    connection: Option<SqliteConnection>,
    counters: Counters,
    known: Known,
    texts: Texts,
    is_unsettled: bool,
    is_doubtful: bool,
    is_closed: bool,
    /// The rows that the appends of the doubtful batch took: nobody can read them any more if the
    /// batch did commit.
    taken_in_doubt: HashMap<Uuid, Vec<Row>>,
    /// Events were erased since the log was last truncated.
    pub(super) has_erased: bool,
    batches: u64,
}

impl Writer {
    /// A writer on a connection whose file has this program's schema.
    pub(super) async fn new(
        connector: Arc<Connector>,
        mut connection: SqliteConnection,
    ) -> Result<Self> {
        let counters = read_counters(&mut connection).await?;
        Ok(Self {
            connector,
            connection: Some(connection),
            counters,
            known: Known::new(),
            texts: Texts::default(),
            is_unsettled: false,
            is_doubtful: false,
            is_closed: false,
            taken_in_doubt: HashMap::new(),
            // The last run may have ended before it could.
            has_erased: true,
            batches: 0,
        })
    }

    /// The newest position that was given.
    pub(super) const fn last_position(&self) -> i64 {
        self.counters.last_position
    }

    /// The connection, settled and without doubt.
    pub(super) async fn ready(&mut self) -> Result<&mut SqliteConnection> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        if self.is_unsettled {
            self.roll_back().await;
            // Its end was not seen, so it may have committed: the counters are read again.
            self.disconnect().await;
        }
        if self.is_doubtful {
            self.disconnect().await;
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut connection = self.connector.writer().await?;
                self.counters = read_counters(&mut connection).await?;
                connection
            }
        };
        if self.is_doubtful {
            settle(&mut connection).await?;
            self.is_doubtful = false;
        }
        Ok(self.connection.insert(connection))
    }

    /// Judges and writes a batch.
    pub(super) async fn append(
        &mut self,
        batch: &[Append],
        now: Timestamp,
    ) -> Result<Vec<AppendOutcome>, BatchError> {
        self.ready().await.map_err(BatchError::Failed)?;
        let Some(connection) = self.connection.as_mut() else {
            return Err(BatchError::Failed(Error::Closed));
        };
        let (view, mut streams) = match view::load(connection, &mut self.known, batch).await {
            Ok(loaded) => loaded,
            Err(error) => return Err(self.failed_read(error).await),
        };
        let stamp = stamps(batch).then(|| self.counters.next_stamp(now));
        let now = stamp.unwrap_or(now);
        let judged = judge(batch, &view, now);
        if judged.plan.is_empty() {
            return Ok(judged.outcomes);
        }
        let mut last_stream = self.counters.last_stream;
        for write in judged.plan.streams.values().filter(|write| !write.existed) {
            last_stream += 1;
            streams.insert(StreamName::clone(write.name), last_stream);
        }
        let mut script = Script::of_plan(&judged.plan, &streams, self.counters.last_position, now);
        script.note_stamp(stamp);
        self.is_unsettled = true;
        if let Err(failure) = script.run(connection, &mut self.texts).await {
            return Err(self.failed_write(failure, batch, judged.outcomes).await);
        }
        self.is_unsettled = false;
        self.counters.last_stream = last_stream;
        self.counters.stamped_at = stamp.map_or(self.counters.stamped_at, Timestamp::as_millis);
        self.remember(&judged.plan, &streams);
        self.batches += 1;
        if self.batches.is_multiple_of(BATCHES_PER_MEASUREMENT) {
            self.connector.measure_log();
        }
        Ok(judged.outcomes)
    }

    fn remember(&mut self, plan: &Plan<'_>, streams: &StreamIds) {
        let written = i64::try_from(plan.journal.len()).unwrap_or(i64::MAX);
        self.counters.last_position = self.counters.last_position.saturating_add(written);
        for write in plan.streams.values() {
            if let Some(&stream) = streams.get(write.name) {
                let head = KnownHead { stream, head: write.head };
                self.known.set_head(StreamName::clone(write.name), head);
            }
            self.has_erased |= write.erase_through.is_some() || write.trim_through.is_some();
        }
        for (key, row) in &plan.rows {
            // A secret dies with its row, in the log too. A copy of a record that was superseded or
            // pruned is none: it may stay in the log for as long as its document stands, and the
            // sweep of the document, which erases its history, has the log truncated.
            self.has_erased |= key.table == Table::PendingAuth && row.is_none();
            if key.table == Table::Lease {
                let token = row.as_ref().and_then(|row| row.values.get(LEASE_TOKEN_COLUMN));
                self.known.set_lease(key.clone(), token.cloned());
            }
        }
    }

    /// Nothing was begun when the reading of the view failed.
    async fn failed_read(&mut self, error: sqlx::Error) -> BatchError {
        let cause = Cause::of(&error);
        if cause == Cause::Io {
            self.disconnect().await;
        }
        let error = storage_error(error, "reading what a batch is judged on");
        if cause == Cause::Busy { BatchError::Passing(error) } else { BatchError::Failed(error) }
    }

    async fn failed_write(
        &mut self,
        failure: Failure,
        batch: &[Append],
        outcomes: Vec<AppendOutcome>,
    ) -> BatchError {
        let cause = Cause::of(&failure.error);
        self.roll_back().await;
        let error = storage_error(failure.error, "writing a batch");
        match cause {
            Cause::Busy => BatchError::Passing(error),
            // A write that found no room has not written its commit record whole.
            Cause::Full | Cause::Damaged => BatchError::Failed(error),
            Cause::ReadOnly => {
                // A connection that was made while the file could not be written stays so.
                self.disconnect().await;
                BatchError::Failed(error)
            }
            Cause::Io if failure.at_commit => {
                let taken =
                    batch.iter().zip(outcomes).filter_map(|(append, outcome)| match outcome {
                        AppendOutcome::Committed { taken } => Some((append.command_id, taken)),
                        _ => None,
                    });
                self.doubt(taken.collect());
                BatchError::Unknown(error)
            }
            Cause::Io => {
                self.disconnect().await;
                BatchError::Failed(error)
            }
        }
    }

    /// A commit may have happened; `taken` is what its appends took.
    pub(super) fn doubt(&mut self, taken: HashMap<Uuid, Vec<Row>>) {
        self.is_doubtful = true;
        self.taken_in_doubt = taken;
    }

    /// Leaves the transaction, whether the engine has left it already or not.
    async fn roll_back(&mut self) {
        self.known.clear();
        if let Some(mut connection) = self.connection.take() {
            let rolled_back = sqlx::query("ROLLBACK").execute(&mut connection).await;
            // It fails when the engine has rolled back by itself.
            let is_out = rolled_back.is_ok()
                || matches!(is_in_transaction(&mut connection).await, Ok(false));
            if is_out {
                self.connection = Some(connection);
            } else {
                let _ = sqlx::Connection::close(connection).await;
            }
        }
        self.is_unsettled = false;
    }

    async fn disconnect(&mut self) {
        self.known.clear();
        if let Some(connection) = self.connection.take() {
            // Its error is of no use: the connection is gone either way.
            let _ = sqlx::Connection::close(connection).await;
        }
    }

    /// Closes the connection for good, moving the log to the file.
    pub(super) async fn close(&mut self) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let flushed = self.truncate_log().await.map(drop);
        self.is_closed = true;
        self.disconnect().await;
        flushed
    }

    /// Whether an append whose commit was in doubt is there.
    pub(super) async fn look_up(&mut self, append: &Append) -> Result<Option<AppendOutcome>> {
        let failed = |error| storage_error(error, "looking up a doubtful commit");
        let connection = self.ready().await?;
        let (mut found, mut is_unknown) = (None, false);
        if let Some(part) = append.parts.iter().find(|part| !part.events.is_empty()) {
            let sql = "SELECT coalesce(j.command_id, x'') FROM connector_stream AS s \
                       LEFT JOIN connector_journal AS j \
                       ON j.stream = s.stream AND j.stream_version = ?2 \
                       WHERE s.name = ?1 AND s.version >= ?2";
            let row = sqlx::query(sql)
                .bind(StreamName::clone(&part.stream))
                .bind(part.expected.version.saturating_add(1))
                .fetch_optional(&mut *connection)
                .await
                .map_err(failed)?;
            let stored = row.map(|row| row.try_get::<Vec<u8>, _>(0)).transpose().map_err(failed)?;
            // Where there is none, an append behind it has erased or trimmed the event.
            found = match stored {
                Some(stored) if stored.is_empty() => None,
                stored => Some(stored.is_some_and(|at| at == append.command_id.as_bytes())),
            };
            is_unknown = found.is_none() && append.record.is_none();
        }
        if is_unknown {
            return Err(Error::OutcomeUnknown { command_id: append.command_id });
        }
        let is_there = match found {
            Some(is_there) => is_there,
            None => {
                let sql = "SELECT command_id FROM connector_command WHERE command_id = ?";
                let command_id = append.command_id.as_bytes().to_vec();
                let row = sqlx::query(sql).bind(command_id).fetch_optional(connection).await;
                row.map_err(failed)?.is_some()
            }
        };
        let taken = self.taken_in_doubt.remove(&append.command_id).unwrap_or_default();
        Ok(is_there.then_some(AppendOutcome::Committed { taken }))
    }

    /// The ids and heads of the streams that have one, from the file.
    pub(super) async fn stored_heads(
        &mut self,
        names: &[&StreamName],
    ) -> Result<Vec<(StreamName, KnownHead)>> {
        let heads = view::stored_heads(self.ready().await?, names).await;
        heads.map_err(|error| storage_error(error, "reading heads"))
    }

    /// Writes a snapshot if the stream's head is still the expected one.
    pub(super) async fn write_snapshot(
        &mut self,
        stream: &str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> Result<()> {
        let name = StreamName::from(stream);
        self.ready().await?;
        let known = match self.known.head(&name) {
            Some(known) => Some(known),
            None => self.stored_heads(&[&name]).await?.pop().map(|(_, known)| known),
        };
        let Some(KnownHead { stream: id, head }) = known else { return Ok(()) };
        if head.version != expected.version || head.command_id != expected.command_id {
            return Ok(());
        }
        let NewSnapshot { schema, payload } = snapshot;
        let checksum = snapshot_checksum(stream, head.version, schema, &payload, &head.hash);
        let sql = "INSERT INTO connector_snapshot \
                   (stream, stream_version, schema, payload, hash, checksum) \
                   VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (stream) DO UPDATE SET \
                   stream_version = excluded.stream_version, schema = excluded.schema, \
                   payload = excluded.payload, hash = excluded.hash, checksum = excluded.checksum";
        let connection = self.ready().await?;
        let written = sqlx::query(sql)
            .bind(id)
            .bind(head.version)
            .bind(i64::from(schema))
            .bind(payload)
            .bind(head.hash.as_bytes().to_vec())
            .bind(checksum.as_bytes().to_vec())
            .execute(connection)
            .await;
        written.map(drop).map_err(|error| storage_error(error, "writing a snapshot"))
    }

    /// Writes and removes rows without events, in one transaction, if these heads are standing. Nobody
    /// else can move them meanwhile.
    pub(super) async fn replace_rows(
        &mut self,
        changes: &[RowChange],
        expected: &[(StreamName, Expected)],
    ) -> Result<bool> {
        let names: Vec<&StreamName> = expected.iter().map(|(name, _)| name).collect();
        let heads: HashMap<StreamName, KnownHead> =
            self.stored_heads(&names).await?.into_iter().collect();
        for (name, expected) in expected {
            let found = heads.get(name).map_or(Expected::NONE, |known| known.head.expected());
            if found != *expected {
                return Ok(false);
            }
        }
        // No event says when, so it is the first time that no reader of stamps has passed.
        let stamp = changes.iter().any(RowChange::stamps);
        let stamp = stamp.then(|| self.counters.next_stamp(Timestamp::from_millis(0)));
        let rows = changes
            .iter()
            .map(|change| match change {
                RowChange::Put(row) => {
                    (row.key(), Some(stamp.map_or_else(|| row.clone(), |at| row.stamped(at))))
                }
                RowChange::Delete(key) | RowChange::Take(key) => (key.clone(), None),
            })
            .collect();
        let mut script = Script::default();
        script.push_rows(&rows);
        if script.is_empty() {
            return Ok(true);
        }
        script.note_stamp(stamp);
        self.known.clear();
        let Some(connection) = self.connection.as_mut() else { return Err(Error::Closed) };
        self.is_unsettled = true;
        let result = script.run(connection, &mut self.texts).await;
        if let Err(failure) = result {
            self.roll_back().await;
            // Rows that may have been stamped after all: their time is not given again.
            self.is_doubtful |= failure.at_commit;
            return Err(storage_error(failure.error, "replacing rows"));
        }
        self.is_unsettled = false;
        self.counters.stamped_at = stamp.map_or(self.counters.stamped_at, Timestamp::as_millis);
        Ok(true)
    }

    /// Runs statements of maintenance in one transaction, and forgets what they may have changed.
    pub(super) async fn in_transaction<T>(
        &mut self,
        context: &str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> sqlx::Result<T>,
    ) -> Result<T> {
        self.ready().await?;
        let Some(connection) = self.connection.as_mut() else { return Err(Error::Closed) };
        self.is_unsettled = true;
        let result = async {
            sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
            let done = work(connection).await?;
            sqlx::query("COMMIT").execute(&mut *connection).await?;
            Ok(done)
        }
        .await;
        match result {
            Ok(done) => {
                self.is_unsettled = false;
                Ok(done)
            }
            Err(error) => {
                self.roll_back().await;
                Err(storage_error(error, context))
            }
        }
    }

    pub(super) fn forget_head(&mut self, stream: &StreamName) {
        self.known.forget_head(stream);
    }
}

async fn is_in_transaction(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    // Only outside of a transaction can one be begun; a deferred one takes no lock.
    if sqlx::query("BEGIN").execute(&mut *connection).await.is_err() {
        return Ok(true);
    }
    sqlx::query("ROLLBACK").execute(connection).await.map(|_| false)
}

/// Commits something, so that what a failed commit may have left in the log is written over, or is
/// known to stand before it. Until then a crash could bring the failed batch back.
async fn settle(connection: &mut SqliteConnection) -> Result<()> {
    let sql = "UPDATE connector_meta SET value = value + 1 WHERE key = 'settled'";
    let settled = sqlx::query(sql).execute(connection).await;
    settled.map(drop).map_err(|error| storage_error(error, "settling a doubtful commit"))
}

/// The newest position and stream id, read under the write lock: a commit that another connection
/// of a store that was just dropped had begun is waited for.
async fn read_counters(connection: &mut SqliteConnection) -> Result<Counters> {
    let failed = |error| storage_error(error, "reading the newest position");
    let sql = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'connector_journal'), 0), \
               coalesce((SELECT max(stream) FROM connector_stream), 0), \
               coalesce((SELECT value FROM connector_meta WHERE key = 'stamped_at'), 0)";
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(failed)?;
    let row = sqlx::query(sql).fetch_one(&mut *connection).await;
    sqlx::query("COMMIT").execute(&mut *connection).await.map_err(failed)?;
    let row = row.map_err(failed)?;
    Ok(Counters {
        last_position: row.try_get_unchecked(0).map_err(failed)?,
        last_stream: row.try_get_unchecked(1).map_err(failed)?,
        stamped_at: row.try_get_unchecked(2).map_err(failed)?,
    })
}
