//! One store's connection to a database in memory.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use uuid::Uuid;

use super::Inner;
use super::tables::Tables;
use crate::base::{DocumentId, Error, OwnerDid, Result, StreamName, Timestamp};
use crate::domain::{DueRow, DueSource, Row, RowChange, RowKey};
use crate::journal::chain::snapshot_checksum;
use crate::journal::port::{
    Append, AppendOutcome, BatchError, BoxFuture, CommandRecord, DueCandidates, DuePage, Expected,
    Heads, HistoryCut, JournalRecord, Loaded, NewSnapshot, RowQuery, SnapshotRecord, Storage,
    StreamPage,
};

/// A [`super::MemoryJournal`] as one store has it open.
pub struct MemoryStorage {
    inner: Arc<Inner>,
    closed: AtomicBool,
}

impl MemoryStorage {
    pub(super) const fn new(inner: Arc<Inner>) -> Self {
        Self { inner, closed: AtomicBool::new(false) }
    }

    /// One transaction, at the first poll and whole within it, so no caller can cancel it.
    fn with<'a, T: Send + 'a>(
        &'a self,
        run: impl FnOnce(&mut Tables) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        Box::pin(async move { self.run(run) })
    }

    fn run<T>(&self, run: impl FnOnce(&mut Tables) -> T) -> Result<T> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(run(&mut self.inner.lock()))
    }

    fn end(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.inner.lock().open -= 1;
        }
    }
}

impl Drop for MemoryStorage {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for MemoryStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStorage").field("closed", &self.closed).finish_non_exhaustive()
    }
}

fn load(tables: &Tables, name: &str) -> Loaded {
    let Some(stream) = tables.streams.get(name) else { return Loaded::default() };
    let from = stream.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
    Loaded {
        head: Some(stream.head),
        base: stream.base,
        snapshot: stream.snapshot.clone(),
        events: tables.events_behind(stream, from),
    }
}

fn write_snapshot(tables: &mut Tables, name: &str, expected: Expected, snapshot: NewSnapshot) {
    let standing = tables.streams.get_mut(name).filter(|stream| stream.expected() == expected);
    let Some(stream) = standing else { return };
    let (version, hash) = (stream.head.version, stream.head.hash);
    let NewSnapshot { schema, payload } = snapshot;
    let checksum = snapshot_checksum(name, version, schema, &payload, &hash);
    stream.snapshot = Some(SnapshotRecord { version, schema, payload, hash, checksum });
}

impl Storage for MemoryStorage {
    fn is_shared(&self) -> bool {
        self.inner.clock.is_some()
    }

    fn generation(&self) -> i64 {
        self.inner.lock().lineage.generation
    }

    fn restored_at(&self) -> Option<Timestamp> {
        self.inner.lock().lineage.restored_at
    }

    fn is_restoring(&self) -> bool {
        self.inner.lock().lineage.is_restoring
    }

    fn begin_restore(&self, now: Timestamp) -> BoxFuture<'_, Result<()>> {
        self.with(move |tables| {
            let now = self.inner.clock.as_ref().map_or(now, |clock| clock());
            tables.lineage = tables.lineage.restored(now);
        })
    }

    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>> {
        self.with(move |tables| {
            let is_newer = tables.lineage.generation != generation;
            tables.lineage.is_restoring &= is_newer;
        })
    }

    fn backup<'a>(&'a self, _path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(Error::invalid("place", "expected a store that is kept in a file")) })
    }

    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>> {
        self.with(move |tables| load(tables, stream))
    }

    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>> {
        let transaction = self.with(move |tables| {
            let now = self.inner.clock.as_ref().map_or(now, |clock| clock());
            let before = tables.last_position;
            let outcomes = tables.append(batch, now);
            let newest = tables.last_position;
            // Told under the lock, so that the positions that readers hear of only grow.
            if newest > before {
                self.inner.committed.send_replace(newest);
            }
            outcomes
        });
        Box::pin(async move { transaction.await.map_err(BatchError::Failed) })
    }

    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>> {
        self.with(move |tables| Heads {
            now: self.inner.clock.as_ref().map_or(tables.newest_time, |clock| clock()),
            heads: streams.iter().map(|name| tables.expected(name)).collect(),
        })
    }

    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>> {
        Box::pin(async move { self.run(|tables| tables.look_up(append))? })
    }

    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>> {
        self.with(move |tables| tables.commands.get(&command_id).map(|(record, _)| record.clone()))
    }

    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>> {
        self.with(move |tables| write_snapshot(tables, stream, expected, snapshot))
    }

    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>> {
        self.with(move |tables| tables.query(query))
    }

    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>> {
        self.with(move |tables| tables.rows.get(key).cloned())
    }

    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>> {
        self.with(move |tables| tables.due(page))
    }

    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        self.with(move |tables| {
            let rows = tables.of_sources(sources).filter(|row| row.due_at <= until);
            u64::try_from(rows.count()).unwrap_or(u64::MAX)
        })
    }

    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.with(move |tables| {
            let times = tables.of_sources(DueSource::WAITING).map(|row| row.due_at);
            times.filter(|at| after.is_none_or(|after| *at > after)).min()
        })
    }

    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>> {
        self.with(move |tables| tables.due_candidates(page))
    }

    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>> {
        Box::pin(async move { self.run(|tables| tables.observed(after, limit))? })
    }

    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.with(move |tables| match after.checked_add(1) {
            Some(first) => {
                tables.journal.range(first..).take(limit).map(|(_, event)| event.clone()).collect()
            }
            None => Vec::new(),
        })
    }

    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        self.with(move |tables| {
            let found = tables.streams.get(stream);
            found.map_or_else(Vec::new, |stream| tables.events_behind(stream, 0))
        })
    }

    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.with(move |tables| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let page = tables.streams.range::<str, _>((from, Bound::Unbounded)).take(limit);
            StreamPage {
                streams: page
                    .map(|(name, stream)| (name.clone(), stream.kind, stream.head))
                    .collect(),
            }
        })
    }

    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>> {
        self.with(move |tables| tables.trimmed_up_to)
    }

    fn last_position(&self) -> BoxFuture<'_, Result<i64>> {
        self.with(move |tables| tables.last_position)
    }

    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>> {
        self.with(move |tables| tables.cut_history(cut))
    }

    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>> {
        self.with(move |tables| tables.drop_streams(streams))
    }

    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>> {
        self.with(move |tables| {
            let before = tables.commands.len();
            tables.commands.retain(|_, (_, recorded_at)| *recorded_at >= recorded_before);
            u64::try_from(before - tables.commands.len()).unwrap_or(u64::MAX)
        })
    }

    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>> {
        self.with(move |tables| {
            let head = |name| tables.expected(name).unwrap_or(Expected::NONE);
            let is_standing = expected.iter().all(|(name, expected)| head(name) == *expected);
            if is_standing {
                tables.replace_rows(changes);
            }
            is_standing
        })
    }

    fn committed(&self) -> watch::Receiver<i64> {
        self.inner.committed.subscribe()
    }

    fn idle(&self) -> BoxFuture<'_, Result<bool>> {
        self.with(|_| true)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.end();
            Ok(())
        })
    }
}
