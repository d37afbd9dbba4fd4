//! A process that is killed while it adopts leaves the old file or a store, and nothing between.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use connector_store::Store;

use crate::seed::{change, dump, newest, number, place};

const CHILD: &str = "STORE_TEST_ADOPT_FILE";

/// The child: opens the file, and waits to be killed.
#[tokio::test]
async fn child_that_adopts() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Store::builder().sqlite(Path::new(&path)).open().await;
    std::future::pending::<()>().await;
    drop(store);
}

fn spawn(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child_that_adopts", "--nocapture"])
        .env(CHILD, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The bytes of the rollback journal: how far the adoption is.
fn journalled(path: &Path) -> u64 {
    path.with_extension("db-journal").metadata().map_or(0, |found| found.len())
}

#[tokio::test]
async fn a_killed_adoption_is_undone_or_done() {
    let many = "INSERT INTO kubun_connector_entity_trim \
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 3000) \
        SELECT 'many-' || n, 'did:web:owner', 'c', '[\"' || hex(zeroblob(200)) || '\"]', n FROM n";
    let mut undone = 0;
    for more_bytes in [0, 1 << 12, 1 << 16, 1 << 18, u64::MAX] {
        let (_directory, path) = place();
        newest(&path).await;
        change(&path, many).await;
        let before = dump(&path).await;
        let mut child = spawn(&path);
        // It is a store once it is switched to a write-ahead log.
        while journalled(&path) <= more_bytes && !path.with_extension("db-wal").exists() {
            assert!(child.try_wait().unwrap().is_none(), "the child ended");
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let meta = "SELECT count(*) FROM sqlite_schema WHERE name = 'connector_meta'";
        if number(&path, meta).await == 0 {
            undone += 1;
            assert_eq!(dump(&path).await, before);
            let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'connector%'";
            assert_eq!(number(&path, tables).await, 0);
        }
        let store = Store::builder().sqlite(&path).open().await.unwrap();
        let report = store.verify().await.unwrap();
        assert!(report.is_sound(), "{:?}", report.damages);
        store.close().await.unwrap();
        let events = number(&path, "SELECT count(*) FROM connector_journal").await;
        assert_eq!(events, i64::try_from(before.len()).unwrap());
    }
    assert!((1..5).contains(&undone), "killed in the middle {undone} times of 5");
}
