//! Migrations: forward whole or not at all, and files of others left as they are.

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::super::tests::{NOW, commit, number, open, outsider, place, trim_append};
use super::super::{SqliteOptions, SqliteStorage};
use crate::base::Error;
use crate::journal::{Expected, Storage as _};

#[tokio::test]
async fn a_newer_database_is_refused_and_left_as_it_is() {
    let (_directory, path) = place();
    open(&path).await.close().await.unwrap();
    let mut tool = outsider(&path, false).await;
    let sql = "UPDATE connector_meta SET value = 99 WHERE key = 'schema_version'";
    sqlx::query(sql).execute(&mut tool).await.unwrap();
    tool.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = SqliteStorage::open(SqliteOptions::new(&path, NOW)).await;
    assert!(
        matches!(refused, Err(Error::NewerDatabase { found: 99, supported: 1 })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_can_not_be_adopted_is_left_as_it_is() {
    let (_directory, path) = place();
    let mut tool = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap();
    sqlx::query("CREATE TABLE kubun_connector_entity_trim (x)").execute(&mut tool).await.unwrap();
    tool.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = SqliteStorage::open(SqliteOptions::new(&path, NOW)).await;
    let Err(Error::AdoptionRefused { column, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(column.as_deref(), Some("x"));
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn the_way_down_leaves_nothing_of_a_step() {
    let (_directory, path) = place();
    open(&path).await.close().await.unwrap();
    let mut tool = outsider(&path, false).await;
    let down = include_str!("../../../migrations/sqlite/0001_initial.down.sql");
    sqlx::raw_sql(down).execute(&mut tool).await.unwrap();
    sqlx::query("UPDATE connector_meta SET value = 0 WHERE key = 'schema_version'")
        .execute(&mut tool)
        .await
        .unwrap();
    let sql = "SELECT count(*) FROM sqlite_schema \
               WHERE name NOT LIKE 'sqlite_%' AND name != 'connector_meta'";
    assert_eq!(number(&mut tool, sql).await, 0);
    tool.close().await.unwrap();
    commit(&open(&path).await, trim_append("a", 1, Expected::NONE, b"x")).await;
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_half_applied() {
    let (_directory, path) = place();
    open(&path).await.close().await.unwrap();
    let mut tool = outsider(&path, false).await;
    // The step meets a table of its last statement and fails there.
    sqlx::raw_sql(
        "DROP TABLE connector_stream; DROP TABLE connector_journal;
         UPDATE connector_meta SET value = 0 WHERE key = 'schema_version'",
    )
    .execute(&mut tool)
    .await
    .unwrap();
    let failed = SqliteStorage::open(SqliteOptions::new(&path, NOW)).await;
    assert!(matches!(failed, Err(Error::Storage { .. })), "{failed:?}");
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'connector_stream'";
    assert_eq!(number(&mut tool, sql).await, 0);
    let sql = "SELECT value FROM connector_meta WHERE key = 'schema_version'";
    assert_eq!(number(&mut tool, sql).await, 0);
}
