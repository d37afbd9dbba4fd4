//! Backups of a live file, and what a file that was restored from one keeps of that.
//!
//! It knows no commands: what a restore does to operations and leases is the store's.

use std::fs;
use std::path::Path;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::fault::storage_error;
use super::readers::Readers;
use super::writer::Writer;
use crate::base::{Error, Result, Timestamp};
use crate::journal::Lineage;
use crate::journal::file::{Copy, file_error, in_background};

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
        let copy = in_background(move || {
            // The copy holds the same secrets, so nobody else may read it.
            let like = fs::metadata(like)
                .map_err(|error| file_error(error, "finding who may read the store"))?;
            Copy::begin(&wanted, Some(like.permissions()))
        });
        let copy = copy.await?;
        let mut connection = self.connector().reader().await?;
        let written = write(&copy, &mut connection).await;
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

async fn write(copy: &Copy, connection: &mut SqliteConnection) -> Result<()> {
    let name = copy.partial().to_str();
    let name = name.ok_or_else(|| Error::invalid("path", "expected UTF-8"))?;
    let written = sqlx::query("VACUUM INTO ?").bind(name.to_owned()).execute(connection).await;
    written.map(drop).map_err(|error| storage_error(error, "writing a backup"))
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
