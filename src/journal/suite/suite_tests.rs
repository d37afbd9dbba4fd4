//! Every backend keeps the rules.

use std::sync::Arc;

use crate::base::Timestamp;
use crate::journal::memory::MemoryJournal;

#[tokio::test]
async fn a_journal_in_memory_keeps_the_rules() {
    super::run(async || MemoryJournal::new().open().unwrap()).await;
}

#[tokio::test]
async fn a_shared_journal_in_memory_keeps_the_rules() {
    let now = || Timestamp::from_millis(super::build::NOW);
    super::run(async || MemoryJournal::shared(Arc::new(now)).open().unwrap()).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_sqlite_file_keeps_the_rules() {
    use crate::journal::sqlite::{SqliteOptions, SqliteStorage};

    let directory = tempfile::tempdir().unwrap();
    let opened = std::cell::Cell::new(0);
    let open = async || {
        opened.set(opened.get() + 1);
        let path = directory.path().join(format!("{}.db", opened.get()));
        let now = Timestamp::from_millis(super::build::NOW);
        SqliteStorage::open(SqliteOptions::new(path, now)).await.unwrap()
    };
    super::run(open).await;
}

#[cfg(all(unix, feature = "postgres"))]
#[tokio::test]
async fn a_postgres_database_keeps_the_rules() {
    use crate::journal::postgres::{PostgresOptions, PostgresStorage};
    use crate::testing::TestPostgres;

    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let database = server.create_database().unwrap();
    let opened = std::cell::Cell::new(0);
    let open = async || {
        opened.set(opened.get() + 1);
        // A schema for each rule: it takes less time than a database.
        let schema = format!("rule_{}", opened.get());
        server.sql(&database, &format!("CREATE SCHEMA {schema}")).unwrap();
        let url = format!("{}?options[search_path]={schema}", server.url(&database));
        PostgresStorage::open(PostgresOptions::new(url)).await.unwrap()
    };
    super::run(open).await;
}

/// It takes no settings from a client, so each rule has a database of its own.
#[cfg(all(unix, feature = "postgres"))]
#[tokio::test]
async fn a_postgres_database_behind_a_pooler_keeps_the_rules() {
    use crate::journal::postgres::{PostgresOptions, PostgresStorage};
    use crate::testing::{TestPgBouncer, TestPostgres};

    let Some(server) = TestPostgres::start(&[]).unwrap() else { return };
    let Some(pooler) = TestPgBouncer::start(&server, 2).unwrap() else { return };
    let open = async || {
        let database = server.create_database().unwrap();
        PostgresStorage::open(PostgresOptions::new(pooler.url(&database))).await.unwrap()
    };
    super::run(open).await;
}
