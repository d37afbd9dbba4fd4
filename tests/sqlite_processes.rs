//! Several processes and one SQLite file: exactly one opens it, also at the first start, and a
//! process that dies gives it back.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use connector_store::base::{Error, Timestamp};
use connector_store::journal::Storage as _;
use connector_store::journal::sqlite::{SqliteOptions, SqliteStorage};

const CHILD: &str = "STORE_TEST_OPEN_FILE";

async fn open(path: &Path) -> Result<SqliteStorage, Error> {
    SqliteStorage::open(SqliteOptions::new(path, Timestamp::from_millis(5))).await
}

/// The child: opens the file, says what came of it, and holds it until its input ends.
#[tokio::test]
async fn child_that_opens() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&path)).await;
    match &store {
        Ok(_) => println!("\nOUTCOME opened"),
        Err(Error::StoreInUse { .. }) => println!("\nOUTCOME in use"),
        Err(other) => println!("\nOUTCOME {other:?}"),
    }
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    if let Ok(store) = store {
        store.close().await.unwrap();
    }
}

fn spawn(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_opens", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn outcome(child: &mut Child) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let outcome = lines
        .map(|line| line.unwrap())
        .find_map(|line| line.split_once("OUTCOME ").map(|(_, outcome)| outcome.to_owned()));
    outcome.unwrap()
}

#[tokio::test]
async fn of_processes_that_start_at_once_exactly_one_opens() {
    for round in 0..12 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let mut children: Vec<Child> = (0..2 + round % 4).map(|_| spawn(&path)).collect();
        let mut outcomes: Vec<String> = children.iter_mut().map(outcome).collect();
        outcomes.sort();
        let mut wanted = vec!["in use"; outcomes.len() - 1];
        wanted.push("opened");
        assert_eq!(outcomes, wanted);
        assert!(matches!(open(&path).await, Err(Error::StoreInUse { .. })));
        for mut child in children {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        let store = open(&path).await.unwrap();
        assert_eq!(store.last_position().await.unwrap(), 0);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_gives_the_file_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut child = spawn(&path);
    assert_eq!(outcome(&mut child), "opened");
    child.kill().unwrap();
    child.wait().unwrap();
    open(&path).await.unwrap().close().await.unwrap();
}
