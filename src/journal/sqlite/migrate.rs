//! Bringing a file to this program's schema: forward only, one transaction for each step, run
//! under the store's lock.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::fault::storage_error;
use crate::base::{Error, Result, Timestamp};

/// The steps, in order; step `n` leads to schema `n`.
const STEPS: [&str; 1] = [include_str!("../../../migrations/sqlite/0001_initial.sql")];

/// The newest schema that this program knows.
const SUPPORTED: i64 = 1;

const META: &str = "CREATE TABLE connector_meta (
  key TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO connector_meta (key, value)
VALUES ('schema_version', 0), ('generation', ?), ('restored_at', 0), ('restoring', 0),
  ('trimmed_up_to', 0), ('settled', 0), ('stamped_at', 0)";

/// Refuses a file that this program must not touch; nothing is written.
pub(super) async fn check(connection: &mut SqliteConnection) -> Result<Option<i64>> {
    let found = schema_version(connection).await?;
    match found {
        Some(found) if found > SUPPORTED => {
            Err(Error::NewerDatabase { found, supported: SUPPORTED })
        }
        Some(found) => Ok(Some(found)),
        None => Ok(None),
    }
}

/// Runs the steps that are missing.
pub(super) async fn run(connection: &mut SqliteConnection, now: Timestamp) -> Result<()> {
    let mut version = check(connection).await?;
    while version != Some(SUPPORTED) {
        let result = step(connection, version, now).await;
        if let Err(error) = result {
            // The error is what the caller must see; a failed transaction rolls back at any rate.
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
            return Err(storage_error(error, "migrating the store"));
        }
        version = Some(version.unwrap_or(0) + 1);
    }
    Ok(())
}

/// Creates this program's tables, within a transaction.
pub(super) async fn create(connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<()> {
    let mut version = None;
    while version != Some(SUPPORTED) {
        apply(connection, version, now).await?;
        version = Some(version.unwrap_or(0) + 1);
    }
    Ok(())
}

async fn step(
    connection: &mut SqliteConnection,
    version: Option<i64>,
    now: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    apply(connection, version, now).await?;
    sqlx::query("COMMIT").execute(&mut *connection).await?;
    Ok(())
}

async fn apply(
    connection: &mut SqliteConnection,
    version: Option<i64>,
    now: Timestamp,
) -> sqlx::Result<()> {
    if version.is_none() {
        sqlx::query(META).bind(now.as_millis().max(1)).execute(&mut *connection).await?;
    }
    let from = version.unwrap_or(0);
    if let Some(step) = usize::try_from(from).ok().and_then(|from| STEPS.get(from)) {
        sqlx::raw_sql(*step).execute(&mut *connection).await?;
    }
    sqlx::query("UPDATE connector_meta SET value = ? WHERE key = 'schema_version'")
        .bind(from + 1)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

async fn schema_version(connection: &mut SqliteConnection) -> Result<Option<i64>> {
    let failed = |error| storage_error(error, "reading the store's schema version");
    let table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'connector_meta'";
    if sqlx::query(table).fetch_optional(&mut *connection).await.map_err(failed)?.is_none() {
        return Ok(None);
    }
    let row = sqlx::query("SELECT value FROM connector_meta WHERE key = 'schema_version'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed)?
        .ok_or_else(|| Error::damaged("the store has no schema version"))?;
    row.try_get(0).map(Some).map_err(failed)
}

#[cfg(test)]
#[path = "migrate_tests.rs"]
mod tests;
