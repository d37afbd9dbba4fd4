//! Bringing a database to this program's schema: forward only, all in one transaction, under a lock
//! on the table of the store's numbers. Several hosts may start at once.

use super::adopt;
use super::connect::Session;
use super::fault::{Cause, storage_error};
use super::read::{get, int};
use crate::base::{Error, Result};

/// The steps, in order; step `n` leads to schema `n`.
const STEPS: [&str; 1] = [include_str!("../../../migrations/postgres/0001_initial.sql")];

/// The newest schema that this program knows.
const SUPPORTED: i64 = 1;

/// How often it begins anew because another host created the table of the store's numbers first.
const MAX_TRIES: u32 = 32;

const META: &str = "\
CREATE TABLE IF NOT EXISTS connector_meta (
  key TEXT COLLATE \"C\" NOT NULL PRIMARY KEY,
  value BIGINT NOT NULL
);
LOCK TABLE connector_meta IN ACCESS EXCLUSIVE MODE;
INSERT INTO connector_meta (key, value)
VALUES ('schema_version', 0), ('trimmed_up_to', 0), ('stamped_at', 0), ('restored_at', 0), ('restoring', 0),
  ('generation', greatest(1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
ON CONFLICT (key) DO NOTHING";

/// Refuses a database that this program must not touch, and runs the steps that are missing.
pub(super) async fn run(mut session: Session) -> Result<Session> {
    let mut tries_left = MAX_TRIES;
    loop {
        if check(&mut session).await? == Some(SUPPORTED) {
            return Ok(session);
        }
        let error = match step(&mut session).await {
            Ok(Ok(())) => continue,
            Ok(Err(refused)) => {
                // What was refused is what the caller must see; it rolls back at any rate.
                let _ = session.rolled_back().await;
                return Err(refused);
            }
            Err(error) => error,
        };
        let is_passing = lost_race(&error) && tries_left > 0;
        tries_left = tries_left.saturating_sub(1);
        let failed = storage_error(error, "migrating the store");
        session = match session.rolled_back().await {
            Some(session) if is_passing => session,
            _ => return Err(failed),
        };
    }
}

/// Another host created the same table at the same moment: its transaction has ended by now.
fn lost_race(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // unique_violation (in the catalog), duplicate_table, duplicate_object
    let has_met = code.is_some_and(|code| ["23505", "42P07", "42710"].contains(&&*code));
    has_met || Cause::of(error) == Cause::Busy
}

/// The schema's version; none for a database without a store.
pub(super) async fn check(session: &mut Session) -> Result<Option<i64>> {
    let found = schema_version(session).await?;
    found.map(check_supported).transpose()?;
    Ok(found)
}

/// Refuses the schema of a newer program.
pub(super) fn check_supported(found: i64) -> Result<()> {
    if found > SUPPORTED {
        return Err(Error::NewerDatabase { found, supported: SUPPORTED });
    }
    Ok(())
}

/// What is missing, seen under the lock: another host may have brought it meanwhile. The inner result
/// is that of an adoption, whose refusal leaves the transaction to be rolled back.
async fn step(session: &mut Session) -> sqlx::Result<Result<()>> {
    session.begin("").await?;
    let from = lock(session).await?;
    let moved = if from == 0 { adopt::move_aside(session).await } else { Ok(Vec::new()) };
    let moved = match moved {
        Ok(moved) => moved,
        Err(error) => return Ok(Err(error)),
    };
    let to = from.max(SUPPORTED);
    steps(session, from, to).await?;
    if let Err(error) = adopt::fill(session, &moved).await {
        return Ok(Err(error));
    }
    let sql = format!("UPDATE connector_meta SET value = {to} WHERE key = 'schema_version'");
    session.run(sql).await?;
    session.commit().await.map(Ok)
}

/// Locks the store's numbers, which are created if they are not there, and gives the schema's
/// version; 0 without a schema.
pub(super) async fn lock(session: &mut Session) -> sqlx::Result<i64> {
    session.run(META.to_owned()).await?;
    let sql = "SELECT value FROM connector_meta WHERE key = 'schema_version'";
    let rows = session.run(sql.to_owned()).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    sqlx::Row::try_get(row, 0)
}

/// Runs the steps behind one schema up to another.
pub(super) async fn steps(session: &mut Session, from: i64, to: i64) -> sqlx::Result<()> {
    for (to_schema, step) in (1..=to).zip(STEPS) {
        if to_schema > from {
            session.run(step.to_owned()).await?;
        }
    }
    Ok(())
}

async fn schema_version(session: &mut Session) -> Result<Option<i64>> {
    let failed = |error| storage_error(error, "reading the store's schema version");
    let sql = "SELECT to_regclass('connector_meta') IS NOT NULL".to_owned();
    let rows = session.run(sql).await.map_err(failed)?;
    if !rows.first().map_or(Ok(false), |row| get(row, 0))? {
        return Ok(None);
    }
    let sql = "SELECT value FROM connector_meta WHERE key = 'schema_version'".to_owned();
    let rows = session.run(sql).await.map_err(failed)?;
    let row = rows.first().ok_or_else(|| Error::damaged("the store has no schema version"))?;
    int(row, 0).map(Some)
}

#[cfg(test)]
#[cfg(unix)]
#[path = "migrate_tests.rs"]
mod tests;
