//! What a database that was restored from a backup keeps of that.
//!
//! It knows no commands: what a restore does to operations and leases is the store's.

use sqlx::postgres::PgRow;

use super::connect::Session;
use super::opening::decode;
use super::read::{int, text};
use super::readers::Readers;
use super::statement::Statement;
use super::transaction::End;
use super::writer::Writer;
use crate::base::{Error, Result, Timestamp};
use crate::journal::Lineage;

const LINEAGE: &str = "SELECT key, value FROM connector_meta \
                       WHERE key IN ('generation', 'restored_at', 'restoring') ORDER BY key";

impl Readers {
    /// Which life of the store the database is in.
    pub(super) async fn lineage(&self) -> Result<Lineage> {
        let rows = self.all(Statement::new(LINEAGE), "reading the store's generation").await?;
        lineage_of(&rows)
    }
}

impl Writer {
    /// A new life begins.
    pub(super) async fn begin_restore(&mut self) -> Result<Lineage> {
        let begun = self.transact("beginning a restore", async |session| {
            // Every append has locked heads, or their table, so those of the life that ends have ended.
            session.run("LOCK TABLE connector_stream IN EXCLUSIVE MODE".to_owned()).await?;
            begin(session).await.map(End::Commit)
        });
        let begun = begun.await.map_err(|failure| failure.error)?;
        self.generation = begun.generation;
        Ok(begun)
    }

    /// Whoever opens the database from now on has nothing of this restore left to do. `false`:
    /// another one was begun since.
    pub(super) async fn end_restore(&mut self, generation: i64) -> Result<bool> {
        let ended = self.transact("ending a restore", async |session| {
            if lock_lineage(session).await?.generation != generation {
                return Ok(End::RollBack(false));
            }
            let sql = "UPDATE connector_meta SET value = 0 WHERE key = 'restoring'";
            session.run(sql.to_owned()).await?;
            Ok(End::Commit(true))
        });
        ended.await.map_err(|failure| failure.error)
    }
}

/// Begins a life in a transaction that has begun, at the database's time.
pub(super) async fn begin(session: &mut Session) -> sqlx::Result<Lineage> {
    let found = lock_lineage(session).await?;
    let sql = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let rows = session.run(sql.to_owned()).await?;
    let now = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let begun = found.restored(int(now, 0).map(Timestamp::from_millis).map_err(decode)?);
    let mut statement = Statement::new(
        "UPDATE connector_meta SET value = CASE key \
         WHEN 'generation' THEN $1 WHEN 'restored_at' THEN $2 ELSE 1 END \
         WHERE key IN ('generation', 'restored_at', 'restoring')",
    );
    statement.add(begun.generation)?;
    statement.add(begun.restored_at.map_or(0, Timestamp::as_millis))?;
    session.all(statement).await?;
    Ok(begun)
}

async fn lock_lineage(session: &mut Session) -> sqlx::Result<Lineage> {
    let rows = session.all(Statement::new(&format!("{LINEAGE} FOR UPDATE"))).await?;
    lineage_of(&rows).map_err(decode)
}

fn lineage_of(rows: &[PgRow]) -> Result<Lineage> {
    let value = |key: &str| {
        for row in rows {
            if text(row, 0)? == key {
                return int(row, 1);
            }
        }
        Err(Error::damaged(format_args!("the store has no {key}")))
    };
    let restored_at = value("restored_at")?;
    Ok(Lineage {
        generation: value("generation")?,
        restored_at: (restored_at != 0).then(|| Timestamp::from_millis(restored_at)),
        is_restoring: value("restoring")? != 0,
    })
}

#[cfg(test)]
#[cfg(unix)]
#[path = "restore_tests.rs"]
mod tests;
