//! Backups of a live file, and what a file that was restored from one keeps of that.
//!
//! It knows no commands: what a restore does to operations and leases is the store's.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::fault::{file_error, storage_error};
use super::lock::{beside, resolve};
use super::readers::Readers;
use super::writer::Writer;
use crate::base::{Error, Result, StorageFault, Timestamp};
use crate::journal::Lineage;

impl Readers {
    /// Which life of the store the file is in.
    pub(super) async fn lineage(&self) -> Result<Lineage> {
        let restored_at = self.meta("restored_at").await?;
        Ok(Lineage {
            generation: self.meta("generation").await?,
            restored_at: (restored_at != 0).then(|| Timestamp::from_millis(restored_at)),
            is_restoring: self.meta("restoring").await? != 0,
        })
    }

    /// Copies what is committed into a new file. The copy holds what the file holds and nothing of
    /// what was deleted from it. The one long read of a store: meanwhile the log only grows.
    pub(super) async fn backup(&self, path: &Path) -> Result<()> {
        let (wanted, like) = (path.to_owned(), self.connector().path().to_owned());
        let copy = in_background(move || Copy::begin(&wanted, &like)).await?;
        let mut connection = self.connector().reader().await?;
        let written = copy.write(&mut connection).await;
        // Its error is of no use: nothing was written to the store through it.
        let _ = connection.close().await;
        written?;
        in_background(move || copy.keep()).await
    }
}

impl Writer {
    /// A new life begins.
    pub(super) async fn begin_restore(&mut self, begun: Lineage) -> Result<()> {
        let sql = "UPDATE connector_meta SET value = CASE key \
                   WHEN 'generation' THEN ? WHEN 'restored_at' THEN ? ELSE 1 END \
                   WHERE key IN ('generation', 'restored_at', 'restoring')";
        self.in_transaction("beginning a restore", async |connection| {
            sqlx::query(sql)
                .bind(begun.generation)
                .bind(begun.restored_at.map_or(0, Timestamp::as_millis))
                .execute(connection)
                .await
                .map(drop)
        })
        .await
    }

    /// Whoever opens the file from now on has nothing of the restore left to do.
    pub(super) async fn end_restore(&mut self) -> Result<()> {
        let sql = "UPDATE connector_meta SET value = 0 WHERE key = 'restoring'";
        self.in_transaction("ending a restore", async |connection| {
            sqlx::query(sql).execute(connection).await.map(drop)
        })
        .await
    }
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let stopped = |_| Error::storage(StorageFault::Unavailable, "working on the backup's file");
    tokio::task::spawn_blocking(work).await.map_err(stopped)?
}

/// A copy that is being written. Its path is taken by an empty file from the beginning, so that two
/// copies never meet, and holds nothing but the whole copy at the end. Dropped before, it leaves no
/// file.
#[derive(Debug)]
struct Copy {
    path: PathBuf,
    partial: PathBuf,
    is_whole: bool,
}

impl Copy {
    fn begin(path: &Path, like: &Path) -> Result<Self> {
        let failed = |error| file_error(error, "making the backup's file");
        let path = resolve(path)?;
        File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Error::invalid("path", "expected one where nothing is"),
            _ => failed(error),
        })?;
        let copy = Self { partial: beside(&path, ".partial"), path, is_whole: false };
        // One that was killed may have left it; nobody else writes to it, since the path is ours.
        match fs::remove_file(&copy.partial) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let partial = File::create_new(&copy.partial).map_err(failed)?;
        // The copy holds the same secrets, so nobody else may read it.
        let permissions = fs::metadata(like).map_err(failed)?.permissions();
        partial.set_permissions(permissions).map_err(failed)?;
        Ok(copy)
    }

    async fn write(&self, connection: &mut SqliteConnection) -> Result<()> {
        let name = self.partial.to_str();
        let name = name.ok_or_else(|| Error::invalid("path", "expected UTF-8"))?;
        let written = sqlx::query("VACUUM INTO ?").bind(name.to_owned()).execute(connection).await;
        written.map(drop).map_err(|error| storage_error(error, "writing a backup"))
    }

    fn keep(mut self) -> Result<()> {
        let failed = |error| file_error(error, "moving the backup to the medium");
        let partial = File::options().write(true).open(&self.partial).map_err(failed)?;
        partial.sync_all().map_err(failed)?;
        drop(partial);
        fs::rename(&self.partial, &self.path).map_err(failed)?;
        // Elsewhere a directory can't be opened, and its entries are on the medium with the file.
        #[cfg(unix)]
        if let Some(directory) = self.path.parent() {
            File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        }
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_whole {
            // What can't be removed stays as it is: an empty file, or a part beside it.
            let _ = fs::remove_file(&self.partial);
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
