//! The journal and the read tables in one SQLite file that one process owns.
//!
//! The only folder, beside another backend's, that names the SQL library. It knows neither
//! commands nor states.
//!
//! The file belongs to one store at a time (a lock on a file beside it), so what the writer has
//! written it need not read again: heads and lease tokens are kept in memory, and a small batch is
//! one text of statements. Readers have their own connections and see what is committed.

mod adopt;
mod connect;
mod due;
mod fault;
mod heads;
mod history;
mod lock;
mod maintenance;
mod migrate;
mod options;
mod query;
mod read;
mod readers;
mod restore;
mod script;
mod statements;
mod view;
mod writer;

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Mutex, watch};
use uuid::Uuid;

pub use options::{SqliteOptions, Synchronous};

use self::connect::Connector;
use self::lock::StoreLock;
use self::readers::Readers;
use self::writer::Writer;
use super::file::resolve;
use super::port::{
    Append, AppendOutcome, BatchError, BoxFuture, CommandRecord, DueCandidates, DuePage, Expected,
    Heads, HistoryCut, JournalRecord, Lineage, Loaded, NewSnapshot, RowQuery, Storage, StreamPage,
};
use crate::base::{DocumentId, Error, OwnerDid, Result, StorageFault, StreamName, Timestamp};
use crate::domain::{DueRow, DueSource, Row, RowChange, RowKey};

/// A store's journal and read tables in a SQLite file.
#[derive(Debug)]
pub struct SqliteStorage {
    readers: Readers,
    writer: Mutex<Writer>,
    committed: watch::Sender<i64>,
    lineage: RwLock<Lineage>,
    lock: std::sync::Mutex<Option<StoreLock>>,
}

impl SqliteStorage {
    /// Opens the store in a file, creating or migrating it.
    ///
    /// # Errors
    /// [`Error::StoreInUse`] while another store has the file open, in this process or another;
    /// [`Error::NewerDatabase`] for a file of a newer program, which is left as it is;
    /// [`Error::AdoptionRefused`] for a file with tables of another program's store that can't be
    /// adopted, which is left as it is too; [`Error::InvalidInput`] where no store is and one must be;
    /// else a storage error.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        let (wanted, must_exist) = (options.path.clone(), options.must_exist);
        let no_store = || Error::invalid("path", "expected the file of a store");
        let locked = tokio::task::spawn_blocking(move || {
            let path = resolve(&wanted)?;
            if must_exist && !path.is_file() {
                return Err(no_store());
            }
            let lock = lock::take(&path)?;
            Ok::<_, Error>((path, lock))
        });
        let (path, lock) = locked
            .await
            .map_err(|_| Error::storage(StorageFault::Unavailable, "locking the store's file"))??;
        let now = options.now;
        let connector = Arc::new(Connector::new(path, options));
        let mut connection = connector.writer().await?;
        connect::check_engine(&mut connection).await?;
        if migrate::check(&mut connection).await?.is_none() {
            if must_exist {
                return Err(no_store());
            }
            let names = adopt::foreign_names(&mut connection).await?;
            if !names.is_empty() {
                adopt::run(&mut connection, &names, now).await?;
            }
        }
        connect::begin_writing(&mut connection).await?;
        migrate::run(&mut connection, now).await?;
        let writer = Writer::new(Arc::clone(&connector), connection).await?;
        let readers = Readers::new(connector);
        let lineage = RwLock::new(readers.lineage().await?);
        Ok(Self {
            readers,
            committed: watch::Sender::new(writer.last_position()),
            writer: Mutex::new(writer),
            lineage,
            lock: std::sync::Mutex::new(Some(lock)),
        })
    }

    async fn append_batch(
        &self,
        batch: &[Append],
        now: Timestamp,
    ) -> Result<Vec<AppendOutcome>, BatchError> {
        let mut writer = self.writer.lock().await;
        let outcomes = writer.append(batch, now).await?;
        self.announce(&writer);
        Ok(outcomes)
    }

    fn announce(&self, writer: &Writer) {
        let position = writer.last_position();
        self.committed.send_if_modified(|last| {
            let has_grown = position > *last;
            *last = position.max(*last);
            has_grown
        });
    }

    fn lineage(&self) -> Lineage {
        *self.lineage.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_lineage(&self, lineage: Lineage) {
        *self.lineage.write().unwrap_or_else(PoisonError::into_inner) = lineage;
    }

    async fn close_all(&self) -> Result<()> {
        self.readers.close().await;
        let flushed = self.writer.lock().await.close().await;
        // Only now may another store take the file.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        flushed
    }
}

impl Storage for SqliteStorage {
    fn is_shared(&self) -> bool {
        false
    }

    fn generation(&self) -> i64 {
        self.lineage().generation
    }

    fn restored_at(&self) -> Option<Timestamp> {
        self.lineage().restored_at
    }

    fn is_restoring(&self) -> bool {
        self.lineage().is_restoring
    }

    fn begin_restore(&self, now: Timestamp) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut writer = self.writer.lock().await;
            let begun = self.lineage().restored(now);
            writer.begin_restore(begun).await?;
            self.set_lineage(begun);
            Ok(())
        })
    }

    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut writer = self.writer.lock().await;
            let begun = self.lineage();
            if begun.generation == generation {
                writer.end_restore().await?;
                self.set_lineage(Lineage { is_restoring: false, ..begun });
            }
            Ok(())
        })
    }

    fn backup<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.readers.backup(path))
    }

    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(self.readers.load(stream))
    }

    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>> {
        Box::pin(self.append_batch(batch, now))
    }

    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>> {
        Box::pin(self.readers.heads(streams))
    }

    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>> {
        Box::pin(async move {
            let mut writer = self.writer.lock().await;
            let found = writer.look_up(append).await?;
            self.announce(&writer);
            Ok(found)
        })
    }

    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>> {
        Box::pin(self.readers.command(command_id))
    }

    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.writer.lock().await.write_snapshot(stream, expected, snapshot).await
        })
    }

    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>> {
        Box::pin(self.readers.rows(query))
    }

    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>> {
        Box::pin(self.readers.row(key))
    }

    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>> {
        Box::pin(self.readers.due(page))
    }

    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.readers.count_due(sources, until))
    }

    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        Box::pin(self.readers.next_due(after))
    }

    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>> {
        Box::pin(self.readers.due_candidates(page))
    }

    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>> {
        Box::pin(self.readers.observed(after, limit))
    }

    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        Box::pin(self.readers.events(after, limit))
    }

    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        Box::pin(self.readers.stream_events(stream))
    }

    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>> {
        Box::pin(self.readers.streams(after, limit))
    }

    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(self.readers.meta("trimmed_up_to"))
    }

    fn last_position(&self) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async { Ok(*self.committed.borrow()) })
    }

    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let streams = self.readers.find_cuts(cut).await?;
            self.writer.lock().await.cut_history(&streams, cut.recorded_before).await
        })
    }

    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { self.writer.lock().await.drop_streams(streams).await })
    }

    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move { self.writer.lock().await.drop_commands(recorded_before).await })
    }

    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.writer.lock().await.replace_rows(changes, expected).await })
    }

    fn committed(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    fn idle(&self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.writer.lock().await.idle().await })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.close_all())
    }
}

#[cfg(test)]
#[path = "sqlite_tests.rs"]
mod tests;

#[cfg(test)]
mod fault_tests;

#[cfg(test)]
mod record_tests;
