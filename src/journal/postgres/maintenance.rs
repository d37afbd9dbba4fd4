//! What is done besides commands: retention, dropping of streams and outcomes.

use std::collections::HashMap;

use sqlx::postgres::PgRow;

use super::commit::note_trimmed;
use super::connect::Session;
use super::opening::{Opening, decode};
use super::query::bound;
use super::read::int;
use super::readers::Readers;
use super::statement::Statement;
use super::transaction::End;
use super::writer::Writer;
use crate::base::{Result, StreamName, Timestamp};
use crate::journal::{Expected, HistoryCut};

/// Streams whose oldest events can go: they are old, and a snapshot stands behind them.
const FIND_CUTS: &str = "\
SELECT n.stream FROM connector_snapshot AS n \
WHERE (SELECT j.recorded_at FROM connector_journal AS j \
       WHERE j.stream = n.stream AND j.stream_version <= n.stream_version \
       ORDER BY j.stream_version LIMIT 1) < $1 \
ORDER BY n.stream LIMIT $2";

/// The first event that is not old ends the cut, whatever the clock did behind it.
const CUT: &str = "\
WITH gone AS (DELETE FROM connector_journal WHERE position IN ( \
 SELECT j.position FROM connector_snapshot AS n \
 JOIN connector_journal AS j ON j.stream = n.stream \
 WHERE j.stream_version <= n.stream_version AND j.stream_version < coalesce( \
   (SELECT min(k.stream_version) FROM connector_journal AS k \
    WHERE k.stream = n.stream AND k.recorded_at >= $1), 9223372036854775807) \
 AND n.stream = ANY ($2)) RETURNING position, stream, stream_version, hash), \
rebased AS (UPDATE connector_stream AS s SET base_version = v.stream_version, base_hash = v.hash \
 FROM (SELECT DISTINCT ON (stream) * FROM gone ORDER BY stream, stream_version DESC) AS v \
 WHERE s.stream = v.stream) \
SELECT position FROM gone";

impl Readers {
    /// The streams that a cut will shorten. A reader looks for them, so that the writer need not.
    pub(super) async fn find_cuts(&self, cut: HistoryCut) -> Result<Vec<i64>> {
        let mut statement = Statement::new(FIND_CUTS);
        bound(statement.add(cut.recorded_before.as_millis()))?;
        bound(statement.add(i64::from(cut.limit)))?;
        let rows = self.all(statement, "looking for events to cut").await?;
        rows.iter().map(|row| int(row, 0)).collect()
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
        self.no_batch_is_under_way().await?;
        let cut = self.transact("cutting history", async |session| {
            let mut lock = Statement::new(
                "SELECT 1 FROM connector_stream WHERE stream = ANY ($1) ORDER BY stream FOR UPDATE",
            );
            lock.add(streams)?;
            session.all(lock).await?;
            let mut statement = Statement::new(CUT);
            statement.add(recorded_before.as_millis())?;
            statement.add(streams)?;
            let removed = session.all(statement).await?;
            note_removed(session, &removed).await?;
            Ok(End::Commit(removed.len() as u64))
        });
        cut.await.map_err(|failure| failure.error)
    }

    /// Removes whole streams whose heads are the expected ones.
    pub(super) async fn drop_streams(&mut self, streams: &[(StreamName, Expected)]) -> Result<u64> {
        let expected: HashMap<&StreamName, &Expected> =
            streams.iter().map(|(name, expected)| (name, expected)).collect();
        self.no_batch_is_under_way().await?;
        self.known.remove(streams.iter().map(|(name, _)| name));
        let context = "dropping streams";
        let opening = bound(Opening::of_standing(streams.iter().map(|(name, _)| name)))?;
        let dropped = self.transact_on(context, opening.text(), async |session, rows| {
            let locked = opening.read(&rows)?.unwrap_or_default();
            let found = locked.view.heads.iter().filter(|(name, head)| {
                let found = Expected { version: head.version, command_id: head.command_id };
                expected.get(name) == Some(&&found)
            });
            let ids: Vec<i64> =
                found.filter_map(|(name, _)| locked.ids.get(name)).copied().collect();
            if ids.is_empty() {
                return Ok(End::RollBack(0));
            }
            let mut statement = Statement::new(
                "WITH n AS (DELETE FROM connector_snapshot WHERE stream = ANY ($1)), \
                 s AS (DELETE FROM connector_stream WHERE stream = ANY ($1)) \
                 DELETE FROM connector_journal WHERE stream = ANY ($1) RETURNING position",
            );
            statement.add(ids.as_slice())?;
            let removed = session.all(statement).await?;
            note_removed(session, &removed).await?;
            Ok(End::Commit(ids.len() as u64))
        });
        dropped.await.map_err(|failure| failure.error)
    }

    /// Forgets outcomes of callers' commands.
    pub(super) async fn drop_commands(&mut self, recorded_before: Timestamp) -> Result<u64> {
        let dropped = self.transact("forgetting outcomes of commands", async |session| {
            let mut statement = Statement::new(
                "WITH gone AS (DELETE FROM connector_command WHERE at < $1 RETURNING 1) \
                 SELECT count(*) FROM gone",
            );
            statement.add(recorded_before.as_millis())?;
            let rows = session.all(statement).await?;
            let count = rows.first().map_or(Ok(0), |row| int(row, 0)).map_err(decode)?;
            Ok(End::Commit(count.unsigned_abs()))
        });
        dropped.await.map_err(|failure| failure.error)
    }
}

/// Notes the newest removed position, so that a reader of the feed learns of the gap.
async fn note_removed(session: &mut Session, removed: &[PgRow]) -> sqlx::Result<()> {
    let positions: Result<Vec<i64>> = removed.iter().map(|row| int(row, 0)).collect();
    match positions.map_err(decode)?.into_iter().max() {
        Some(newest) => note_trimmed(session, newest).await,
        None => Ok(()),
    }
}
