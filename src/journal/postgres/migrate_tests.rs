//! Migrations: forward whole or not at all, by several hosts at once, and databases of others left
//! as they are.

use super::super::tests::{commit, number, open, outsider, place, run, trim_append};
use super::super::{PostgresOptions, PostgresStorage};
use crate::base::Error;
use crate::journal::Expected;

const TABLES: &str = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace \
                      AND relkind IN ('r', 'S') AND relname != 'connector_meta'";

#[tokio::test]
async fn hosts_that_start_at_once_on_a_new_database_all_open_it() {
    for _ in 0..5 {
        let Some((_server, url)) = place() else { return };
        let hosts: Vec<_> = (0..5)
            .map(|_| {
                let options = PostgresOptions::new(&url);
                tokio::spawn(async move { PostgresStorage::open(options).await })
            })
            .collect();
        let mut generations = std::collections::BTreeSet::new();
        for host in hosts {
            let store = host.await.unwrap().unwrap();
            generations.insert(crate::journal::Storage::generation(&store));
        }
        assert_eq!(generations.len(), 1);
    }
}

#[tokio::test]
async fn a_newer_database_is_refused_and_left_as_it_is() {
    let Some((_server, url)) = place() else { return };
    let mut tool = outsider(&url).await;
    run(
        &mut tool,
        "CREATE TABLE connector_meta (key TEXT PRIMARY KEY, value BIGINT); \
         INSERT INTO connector_meta VALUES ('schema_version', 99)",
    )
    .await;
    let refused = PostgresStorage::open(PostgresOptions::new(&url)).await;
    assert!(
        matches!(refused, Err(Error::NewerDatabase { found: 99, supported: 1 })),
        "{refused:?}"
    );
    assert_eq!(number(&mut tool, TABLES).await, 0);
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_meta").await, 1);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_as_it_is() {
    let Some((_server, url)) = place() else { return };
    let mut tool = outsider(&url).await;
    run(&mut tool, "CREATE TABLE kubun_connector_entity_trim (x TEXT)").await;
    let refused = PostgresStorage::open(PostgresOptions::new(&url)).await;
    assert!(matches!(refused, Err(Error::InvalidInput { field: "database", .. })), "{refused:?}");
    assert_eq!(number(&mut tool, TABLES).await, 1);
    let sql = "SELECT count(*) FROM pg_class WHERE relname = 'connector_meta'";
    assert_eq!(number(&mut tool, sql).await, 0);
}

#[tokio::test]
async fn the_way_down_leaves_nothing_of_a_step() {
    let Some((_server, url)) = place() else { return };
    open(&url).await;
    let mut tool = outsider(&url).await;
    run(&mut tool, include_str!("../../../migrations/postgres/0001_initial.down.sql")).await;
    run(&mut tool, "UPDATE connector_meta SET value = 0 WHERE key = 'schema_version'").await;
    assert_eq!(number(&mut tool, TABLES).await, 0);
    commit(&*open(&url).await, trim_append("a", 1, Expected::NONE)).await;
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_half_applied_and_no_lock() {
    let Some((_server, url)) = place() else { return };
    let mut tool = outsider(&url).await;
    // The step meets an index of one of its last statements and fails there.
    run(&mut tool, "CREATE SEQUENCE connector_watch_deadline_idx").await;
    let failed = PostgresStorage::open(PostgresOptions::new(&url)).await;
    assert!(matches!(failed, Err(Error::Storage { .. })), "{failed:?}");
    assert_eq!(number(&mut tool, TABLES).await, 1);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' OR \
                 (relation IS NOT NULL AND mode LIKE '%Exclusive%')";
    assert_eq!(number(&mut tool, locks).await, 0);
    run(&mut tool, "DROP SEQUENCE connector_watch_deadline_idx").await;
    commit(&*open(&url).await, trim_append("a", 1, Expected::NONE)).await;
}
