//! The journal and the read tables in one PostgreSQL database that many hosts share.
//!
//! Beside `sqlite/`, the only folder that names the SQL library. It knows neither commands nor states.
//!
//! Correct at READ COMMITTED: a batch locks what it is judged on, in one order for all hosts, and
//! reads it by statements begun after that; or it presumes what it is, and what it writes confirms that.
//! Nothing outlives a transaction but what it wrote, so a pooler may stand between. Readers have their
//! own connections and see what is committed.

mod adopt;
mod archive;
mod backup;
mod commit;
mod connect;
mod context;
mod due;
mod fault;
mod follow;
mod history;
mod known;
mod maintenance;
mod migrate;
mod opening;
mod options;
mod query;
mod read;
mod readers;
mod restore;
mod script;
mod statement;
mod transaction;
mod writer;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, watch};
use uuid::Uuid;

pub use options::PostgresOptions;

use self::connect::Connector;
use self::context::Within;
use self::follow::Follower;
use self::readers::Readers;
use self::writer::{Writer, in_the_way};
use super::port::{
    Append, AppendOutcome, BatchError, BegunAppend, BoxFuture, CommandRecord, DueCandidates,
    DuePage, Expected, Heads, HistoryCut, JournalRecord, Lineage, Loaded, NewSnapshot, RowQuery,
    Storage, StreamPage,
};
use crate::base::{DocumentId, Error, OwnerDid, Result, StorageFault, StreamName, Timestamp};
use crate::domain::{DueRow, DueSource, Row, RowChange, RowKey};

/// A store's journal and read tables in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStorage {
    connector: Arc<Connector>,
    readers: Arc<Readers>,
    writer: Mutex<Writer>,
    follower: Arc<Follower>,
    lineage: RwLock<Lineage>,
    handle: Handle,
}

impl PostgresStorage {
    /// Opens the store in a database, creating or migrating it. Its connections live on the tokio
    /// runtime that this is called on; later calls may come from anywhere.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a URL that is none, a server older than PostgreSQL 14, a database
    /// that is not in UTF-8, or one without a store where one must be; [`Error::NewerDatabase`] for a
    /// database of a newer program, and [`Error::AdoptionRefused`] for one with tables of another
    /// program's store that can't be adopted, both of which are left as they are; else a storage error.
    ///
    /// # Cancel safety
    /// A dropped call opens nothing; a migration happens whole or not at all.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        let handle = Handle::try_current().map_err(|_| {
            Error::storage(StorageFault::Unavailable, "expected to be called on a tokio runtime")
        })?;
        let must_exist = options.must_exist;
        let connector = Arc::new(Connector::new(options).await?);
        let mut session = connector.open().await?;
        if must_exist && migrate::check(&mut session).await?.is_none() {
            return Err(Error::invalid("database", "expected the database of a store"));
        }
        let session = migrate::run(session).await?;
        let readers = Arc::new(Readers::new(Arc::clone(&connector)));
        let lineage = readers.lineage().await?;
        let follower = Follower::start(&handle, &connector, &readers).await?;
        Ok(Self {
            follower: Arc::new(follower),
            writer: Mutex::new(Writer::new(Arc::clone(&connector), session, lineage.generation)),
            connector,
            readers,
            lineage: RwLock::new(lineage),
            handle,
        })
    }

    /// Fills a database without a store from a file that [`Storage::backup`] has written, all or
    /// nothing. The restore of it has begun then, and [`Self::open`] opens it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `path` where no backup is, and for the field `database`
    /// where a store is; [`Error::NewerDatabase`] for the backup of a newer program; a damaged
    /// backup is a storage error, as is everything else. Nothing was written then.
    ///
    /// # Cancel safety
    /// A dropped call has filled the database, or has left it as it was.
    pub async fn restore(options: PostgresOptions, path: impl Into<PathBuf>) -> Result<()> {
        backup::fill(&Connector::new(options).await?, path.into()).await
    }

    fn on_handle<'a, T>(&self, future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T>
    where
        T: 'a,
    {
        Box::pin(Within::new(&self.handle, future))
    }

    async fn begin_batch(&self, batch: &[Append]) -> Result<BegunAppend, BatchError> {
        let begun = self.writer.lock().await.begin_append(batch).await?;
        let (follower, handle) = (Arc::clone(&self.follower), self.handle.clone());
        let commit = begun.commit.map(|commit| -> BoxFuture<'static, _> {
            Box::pin(Within::new(&handle, async move {
                let newest = commit.run().await?;
                let newest = newest.ok_or_else(|| BatchError::Passing(in_the_way()))?;
                follower.announce(newest);
                Ok(())
            }))
        });
        Ok(BegunAppend { outcomes: begun.outcomes, commit })
    }

    async fn append_batch(&self, batch: &[Append]) -> Result<Vec<AppendOutcome>, BatchError> {
        let (outcomes, newest) = self.writer.lock().await.append(batch).await?;
        if let Some(newest) = newest {
            self.follower.announce(newest);
        }
        Ok(outcomes)
    }

    fn lineage(&self) -> Lineage {
        *self.lineage.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_lineage(&self, lineage: Lineage) {
        *self.lineage.write().unwrap_or_else(PoisonError::into_inner) = lineage;
    }

    async fn close_all(&self) -> Result<()> {
        self.follower.stop();
        self.readers.close().await;
        self.writer.lock().await.close().await;
        Ok(())
    }
}

impl Storage for PostgresStorage {
    fn is_shared(&self) -> bool {
        true
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

    fn begin_restore(&self, _now: Timestamp) -> BoxFuture<'_, Result<()>> {
        self.on_handle(async move {
            let mut writer = self.writer.lock().await;
            self.set_lineage(writer.begin_restore().await?);
            Ok(())
        })
    }

    fn end_restore(&self, generation: i64) -> BoxFuture<'_, Result<()>> {
        self.on_handle(async move {
            let mut writer = self.writer.lock().await;
            if writer.end_restore(generation).await? {
                self.set_lineage(Lineage { is_restoring: false, ..self.lineage() });
            }
            Ok(())
        })
    }

    fn backup<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<()>> {
        self.on_handle(backup::back_up(&self.connector, path))
    }

    fn load<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Loaded>> {
        self.on_handle(self.readers.load(stream))
    }

    fn load_all<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Vec<Loaded>>> {
        self.on_handle(self.readers.load_all(streams))
    }

    fn append<'a>(
        &'a self,
        batch: &'a [Append],
        _now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<AppendOutcome>, BatchError>> {
        self.on_handle(self.append_batch(batch))
    }

    fn begin_append<'a>(
        &'a self,
        batch: &'a [Append],
        _now: Timestamp,
    ) -> BoxFuture<'a, Result<BegunAppend, BatchError>> {
        self.on_handle(self.begin_batch(batch))
    }

    fn confirm_heads<'a>(&'a self, streams: &'a [StreamName]) -> BoxFuture<'a, Result<Heads>> {
        self.on_handle(self.readers.heads(streams))
    }

    fn look_up<'a>(&'a self, append: &'a Append) -> BoxFuture<'a, Result<Option<AppendOutcome>>> {
        self.on_handle(async move {
            let found = self.writer.lock().await.look_up(append).await?;
            if found.is_some() {
                self.follower.announce(self.readers.last_position().await?);
            }
            Ok(found)
        })
    }

    fn command<'a>(&'a self, command_id: Uuid) -> BoxFuture<'a, Result<Option<CommandRecord>>> {
        self.on_handle(self.readers.command(command_id))
    }

    fn write_snapshot<'a>(
        &'a self,
        stream: &'a str,
        expected: Expected,
        snapshot: NewSnapshot,
    ) -> BoxFuture<'a, Result<()>> {
        self.on_handle(async move {
            self.writer.lock().await.write_snapshot(stream, expected, snapshot).await
        })
    }

    fn rows<'a>(&'a self, query: &'a RowQuery) -> BoxFuture<'a, Result<Vec<Row>>> {
        self.on_handle(self.readers.rows(query))
    }

    fn row<'a>(&'a self, key: &'a RowKey) -> BoxFuture<'a, Result<Option<Row>>> {
        self.on_handle(self.readers.row(key))
    }

    fn due<'a>(&'a self, page: &'a DuePage) -> BoxFuture<'a, Result<Vec<DueRow>>> {
        self.on_handle(self.readers.due(page))
    }

    fn count_due<'a>(
        &'a self,
        sources: &'a [DueSource],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        self.on_handle(self.readers.count_due(sources, until))
    }

    fn next_due(&self, after: Option<Timestamp>) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.on_handle(self.readers.next_due(after))
    }

    fn due_candidates<'a>(&'a self, page: &'a DueCandidates) -> BoxFuture<'a, Result<Vec<Row>>> {
        self.on_handle(self.readers.due_candidates(page))
    }

    fn observed<'a>(
        &'a self,
        after: Option<&'a (OwnerDid, DocumentId)>,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(OwnerDid, DocumentId)>>> {
        self.on_handle(self.readers.observed(after, limit))
    }

    fn events<'a>(&'a self, after: i64, limit: u32) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        self.on_handle(self.readers.events(after, limit))
    }

    fn stream_events<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<Vec<JournalRecord>>> {
        self.on_handle(self.readers.stream_events(stream))
    }

    fn streams<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> BoxFuture<'a, Result<StreamPage>> {
        self.on_handle(self.readers.streams(after, limit))
    }

    fn trimmed_up_to(&self) -> BoxFuture<'_, Result<i64>> {
        self.on_handle(self.readers.meta("trimmed_up_to"))
    }

    fn last_position(&self) -> BoxFuture<'_, Result<i64>> {
        self.on_handle(self.readers.last_position())
    }

    fn cut_history(&self, cut: HistoryCut) -> BoxFuture<'_, Result<u64>> {
        self.on_handle(async move {
            let streams = self.readers.find_cuts(cut).await?;
            self.writer.lock().await.cut_history(&streams, cut.recorded_before).await
        })
    }

    fn drop_streams<'a>(
        &'a self,
        streams: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<u64>> {
        self.on_handle(async move { self.writer.lock().await.drop_streams(streams).await })
    }

    fn drop_commands(&self, recorded_before: Timestamp) -> BoxFuture<'_, Result<u64>> {
        self.on_handle(async move { self.writer.lock().await.drop_commands(recorded_before).await })
    }

    fn replace_rows<'a>(
        &'a self,
        changes: &'a [RowChange],
        expected: &'a [(StreamName, Expected)],
    ) -> BoxFuture<'a, Result<bool>> {
        self.on_handle(
            async move { self.writer.lock().await.replace_rows(changes, expected).await },
        )
    }

    fn committed(&self) -> watch::Receiver<i64> {
        self.follower.committed()
    }

    fn idle(&self) -> BoxFuture<'_, Result<bool>> {
        self.on_handle(async { self.writer.lock().await.check_open().map(|()| true) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.on_handle(self.close_all())
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "postgres_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(unix)]
mod fault_tests;
