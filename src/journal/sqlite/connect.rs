//! Connections to the file: their settings, and the gate on the engine's version.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Row as _};

use super::fault::storage_error;
use super::options::{SqliteOptions, Synchronous};
use crate::base::{Error, Result};

/// The oldest engine without the defect that could corrupt a file when two connections reset the
/// write-ahead log at once.
const OLDEST_ENGINE: [u32; 3] = [3, 51, 3];
/// Pages in the write-ahead log at which a commit moves them to the file: 16 MiB. A longer log
/// makes large batches faster (each page is moved less often) and lone writers slower (the log
/// grows instead of being written over).
const CHECKPOINT_PAGES: u32 = 4_096;
/// A log that a reader made longer than this is cut to it once the reader has gone: twice what it
/// has between two checkpoints.
pub(super) const MAX_KEPT_LOG_BYTES: u32 = 2 * CHECKPOINT_PAGES * 4_120;
/// The writer's page cache, in KiB.
const WRITER_CACHE_KIB: u32 = 65_536;
/// A reader's page cache, in KiB.
const READER_CACHE_KIB: u32 = 16_384;
/// Prepared statements that the writer keeps.
const WRITER_STATEMENTS: usize = 512;
/// Prepared statements that a reader keeps.
const READER_STATEMENTS: usize = 128;

/// How the connections of one store are made.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    path: PathBuf,
    options: SqliteOptions,
}

impl Connector {
    pub(super) fn new(path: PathBuf, options: SqliteOptions) -> Self {
        Self { path, options }
    }

    pub(super) const fn options(&self) -> &SqliteOptions {
        &self.options
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How long a statement waits for a lock. The library panics on a time that the engine's 32-bit
    /// integer can't hold.
    pub(super) fn busy_timeout(&self) -> Duration {
        let longest = Duration::from_millis(i32::MAX.unsigned_abs().into());
        self.options.busy_timeout.min(longest)
    }

    fn base(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .busy_timeout(self.busy_timeout())
            .foreign_keys(true)
            .disable_statement_logging()
    }

    /// The writing connection. It leaves the file as it is until [`begin_writing`].
    pub(super) async fn writer(&self) -> Result<SqliteConnection> {
        let synchronous = match self.options.synchronous {
            Synchronous::Full => SqliteSynchronous::Full,
            Synchronous::Normal => SqliteSynchronous::Normal,
        };
        let options = self
            .base()
            .create_if_missing(!self.options.must_exist)
            .synchronous(synchronous)
            .pragma("secure_delete", "ON")
            .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
            .pragma("journal_size_limit", MAX_KEPT_LOG_BYTES.to_string())
            .pragma("cache_size", format!("-{WRITER_CACHE_KIB}"))
            .statement_cache_capacity(WRITER_STATEMENTS)
            .thread_name(|id| format!("store-writer-{id}"));
        options.connect().await.map_err(|error| storage_error(error, "opening the store's file"))
    }

    /// A reading connection.
    pub(super) async fn reader(&self) -> Result<SqliteConnection> {
        let options = self
            .base()
            .read_only(true)
            .pragma("cache_size", format!("-{READER_CACHE_KIB}"))
            .statement_cache_capacity(READER_STATEMENTS)
            .thread_name(|id| format!("store-reader-{id}"));
        options.connect().await.map_err(|error| storage_error(error, "opening the store to read"))
    }
}

/// Switches the file to the write-ahead log, in which it then stays.
pub(super) async fn begin_writing(connection: &mut SqliteConnection) -> Result<()> {
    let failed = |error| storage_error(error, "switching the store's file to a write-ahead log");
    let row =
        sqlx::query("PRAGMA journal_mode = WAL").fetch_one(connection).await.map_err(failed)?;
    let mode: String = row.try_get(0).map_err(failed)?;
    if mode.eq_ignore_ascii_case("wal") {
        Ok(())
    } else {
        Err(Error::invalid(
            "path",
            format!("expected a file that takes a write-ahead log, got {mode}"),
        ))
    }
}

/// Refuses an engine that can corrupt the file.
pub(super) async fn check_engine(connection: &mut SqliteConnection) -> Result<()> {
    let failed = |error| storage_error(error, "reading the engine's version");
    let row = sqlx::query("SELECT sqlite_version()").fetch_one(connection).await.map_err(failed)?;
    let version: String = row.try_get(0).map_err(failed)?;
    check_version(&version)
}

fn check_version(version: &str) -> Result<()> {
    let mut found = [0; 3];
    for (part, text) in found.iter_mut().zip(version.split('.')) {
        *part = text.parse().unwrap_or(0);
    }
    if found >= OLDEST_ENGINE {
        return Ok(());
    }
    let [major, minor, patch] = OLDEST_ENGINE;
    let reason = format!("expected SQLite {major}.{minor}.{patch} or newer, got {version}");
    Err(Error::invalid("engine", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_with_the_log_reset_defect_is_refused() {
        for bad in ["3.51.2", "3.40.1", "3.7.0", "2.99.99", ""] {
            let refused = check_version(bad);
            assert!(matches!(refused, Err(Error::InvalidInput { field: "engine", .. })), "{bad}");
        }
        for good in ["3.51.3", "3.52.0", "3.51.10", "4.0.0"] {
            assert!(check_version(good).is_ok(), "{good}");
        }
    }

    #[tokio::test]
    async fn the_bundled_engine_passes() -> Result<()> {
        let mut connection = SqliteConnectOptions::new()
            .connect()
            .await
            .map_err(|error| storage_error(error, "opening"))?;
        check_engine(&mut connection).await
    }
}
