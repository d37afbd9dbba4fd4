//! Backups, and what a copy that was restored from one must do before anybody uses it.
//!
//! The copy is in the past, and sends of its future have happened. So every unfinished operation must
//! ask the provider first, and every lease is void.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Store;
use super::due::{Work, work};
use crate::base::{Error, Result, Timestamp};
use crate::domain::DueSource;
use crate::domain::connector::ConnectorCommand;
use crate::domain::document::DocumentCommand;
use crate::journal::DuePage;

/// What a lease of another generation stands on.
const CLAIMED: &[DueSource] = &[DueSource::Operation, DueSource::SyncLease];
/// Rows that are read at once.
const ROWS_PER_READ: u32 = 500;

impl Store {
    /// Copies the store into a new file at `path`, while commands go on. Everything that was answered
    /// before the call is in the copy, and nothing that was erased. It is on the medium when the call
    /// answers. Of a store in SQLite it is a store again, opened with
    /// [`crate::StoreBuilder::open_restored`]; while it is written the write-ahead log grows with what is
    /// committed meanwhile. Of one in PostgreSQL it has what all hosts have written, and an empty
    /// database is filled from it with `StoreBuilder::restore_backup`; while it is written the server
    /// keeps the old versions of changed rows.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `path` when something is there already, which stays as it
    /// is, and for the field `place` when the store is in memory; storage errors, which leave
    /// no file.
    ///
    /// # Cancel safety
    /// After a dropped call the copy is written all the same. A process that is killed meanwhile leaves
    /// an empty file at `path`, and a part beside it.
    pub async fn backup(&self, path: impl Into<PathBuf>) -> Result<()> {
        self.env().check_open()?;
        let (storage, path) = (Arc::clone(&self.env().storage), path.into());
        let (done, answer) = oneshot::channel();
        // On a thread of the store, because the caller's executor may have none for blocking work.
        self.runtime.spawn(async move {
            let _ = done.send(storage.backup(&path).await);
        });
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Begins a restore if the store `is_restored`, and finishes the one that has begun, from wherever
    /// a crash has left it. Nobody else has the store yet.
    pub(super) async fn restore(&self, is_restored: bool) -> Result<()> {
        let storage = self.storage();
        if is_restored {
            storage.begin_restore(self.now().await?).await?;
        }
        if !storage.is_restoring() {
            return Ok(());
        }
        let generation = storage.generation();
        let mut page = DuePage {
            sources: CLAIMED,
            until: Timestamp::from_millis(i64::MAX),
            after: None,
            limit: ROWS_PER_READ,
        };
        loop {
            let rows = self.due_page(&page).await?;
            for row in &rows {
                self.void_claims(&work(row)?).await?;
            }
            // A row that was treated moves to the restore's time, and may be met again there.
            page.after = rows.last().cloned();
            if page.after.is_none() {
                return storage.end_restore(generation).await;
            }
        }
    }

    async fn void_claims(&self, work: &Work) -> Result<()> {
        match work {
            Work::Operation { document_id, .. } => {
                let command = DocumentCommand::RestoreOperations;
                self.document(document_id).send(command).await.map(drop)
            }
            Work::SyncLease { owner, connector } => {
                let command = ConnectorCommand::VoidLease;
                self.connector(owner, connector).send(command).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}
