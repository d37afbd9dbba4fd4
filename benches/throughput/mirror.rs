//! The bare connection of a case, on whichever backend the case runs.

use std::sync::Arc;
use std::time::Duration;

use connector_store::domain::Table;

use crate::Outcome;
#[cfg(all(unix, feature = "postgres"))]
use crate::postgres;
use crate::raw::{self, RowsOf};

/// Writes what the store wrote, and reads what it read.
pub enum Mirror {
    Sqlite(raw::Mirror),
    #[cfg(all(unix, feature = "postgres"))]
    Postgres(postgres::Mirror),
}

impl Mirror {
    /// The name of the backend.
    pub const fn backend(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(_) => "postgres",
        }
    }

    /// Writes what the store has written since the last call, `batch` appends at a time. Gives the
    /// number of events and the time that the writing took.
    pub async fn follow(
        &mut self,
        tables: &[Table],
        batch: usize,
        rows_of: &RowsOf<'_>,
    ) -> Outcome<(usize, Duration)> {
        match self {
            Self::Sqlite(mirror) => mirror.follow(tables, batch, rows_of).await,
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(mirror) => mirror.follow(tables, batch, rows_of).await,
        }
    }

    /// Writes the same once more, row by row, where that is measured. Gives how often in a second.
    #[cfg_attr(
        not(all(unix, feature = "postgres")),
        expect(clippy::unused_async, reason = "only a server is written to by many at once")
    )]
    pub async fn follow_by_row(&mut self, callers: usize, time: Duration) -> Outcome<Option<f64>> {
        match self {
            Self::Sqlite(_) => {
                let _ = (callers, time);
                Ok(None)
            }
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(mirror) => mirror.follow_by_row(callers, time).await,
        }
    }

    /// Runs one prepared query with one text argument after the other for a while. Gives how many
    /// and the time.
    pub async fn read(
        &mut self,
        sql: &'static str,
        keys: &[Arc<str>],
        time: Duration,
    ) -> Outcome<(usize, Duration)> {
        match self {
            Self::Sqlite(mirror) => mirror.read(sql, keys, time).await,
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(mirror) => mirror.read(sql, keys, time).await,
        }
    }

    /// Fails unless store and copy hold the same events and rows.
    pub async fn check(&mut self, tables: &[Table]) -> Outcome<()> {
        match self {
            Self::Sqlite(mirror) => mirror.check(tables).await,
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(mirror) => mirror.check(tables).await,
        }
    }

    /// Closes its connections.
    pub async fn close(self) -> Outcome<()> {
        match self {
            Self::Sqlite(mirror) => mirror.close().await,
            #[cfg(all(unix, feature = "postgres"))]
            Self::Postgres(mirror) => mirror.close().await,
        }
    }
}
