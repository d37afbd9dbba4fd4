//! Media that fail: full, read-only, torn, and commits whose outcome is not known. Mounting needs
//! root; without it those tests say so and do nothing, or fail where the environment variable
//! `CONNECTOR_STORE_REQUIRE_SERVICES` is 1.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tests::{NOW, commit, expected, number, open, outsider, place, trim_append, trim_key};
use super::*;
use crate::domain::Value;

/// A small file system of its own.
struct Mount {
    directory: tempfile::TempDir,
}

impl Mount {
    fn new(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let arguments = ["-t", "tmpfs", "-o", &options, "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(directory.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { directory }),
            failed => {
                let required = std::env::var("CONNECTOR_STORE_REQUIRE_SERVICES");
                assert!(
                    required.as_deref() != Ok("1"),
                    "no file system of its own can be mounted: {failed:?}"
                );
                eprintln!("SKIPPED: no file system of its own can be mounted: {failed:?}");
                None
            }
        }
    }

    fn remount(&self, mode: &str) {
        let mode = format!("remount,{mode}");
        let done = Command::new("mount").args(["-o", &mode]).arg(self.directory.path()).status();
        assert!(done.unwrap().success());
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.directory.path()).status();
    }
}

fn fault_of(error: &Error) -> Option<StorageFault> {
    match error {
        Error::Storage { fault, .. } => Some(*fault),
        _ => None,
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_the_store_goes_on_once_there_is_room() {
    let Some(mount) = Mount::new("4m") else { return };
    let ballast = mount.directory.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let store = open(&mount.path()).await;
    let mut head = Expected::NONE;
    let mut command = 0;
    let mut refused = 0;
    while refused < 3 {
        command += 1;
        let batch = [
            trim_append("a", command, head, &[7; 30_000]),
            trim_append(&format!("n{command}"), command, Expected::NONE, &[7; 30_000]),
        ];
        match store.append(&batch, NOW).await {
            Ok(_) => head = expected(head.version + 1, command),
            Err(BatchError::Failed(error)) => {
                assert_eq!(fault_of(&error), Some(StorageFault::Full), "{error:?}");
                assert!(error.is_retryable());
                refused += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let acknowledged = head.version;
    assert!(acknowledged > 10);
    let loaded = store.load("document:a").await.unwrap();
    assert_eq!(loaded.head.map(|head| head.version), Some(acknowledged), "reads are served");
    std::fs::remove_file(&ballast).unwrap();
    commit(&store, trim_append("a", 9_999, head, &[8; 30_000])).await;
    let events = store.stream_events("document:a").await.unwrap();
    assert_eq!(events.last().map(|event| event.version), Some(acknowledged + 1));
    let row = store.row(&trim_key("a")).await.unwrap().unwrap();
    assert_eq!(row.values[4], Value::Int(9_999));
    let mut tool = outsider(&mount.path(), true).await;
    let sql = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'";
    assert_eq!(number(&mut tool, sql).await, 1);
    let sql = "SELECT count(*) FROM connector_stream";
    assert_eq!(number(&mut tool, sql).await, acknowledged + 1);
}

#[tokio::test]
async fn read_only_media_are_named_and_the_store_opens_once_they_are_not() {
    let Some(mount) = Mount::new("16m") else { return };
    let store = open(&mount.path()).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    store.close().await.unwrap();
    drop(store);
    mount.remount("ro");
    let refused = SqliteStorage::open(SqliteOptions::new(mount.path(), NOW)).await;
    let error = refused.err().unwrap();
    assert_eq!(fault_of(&error), Some(StorageFault::ReadOnly), "{error:?}");
    assert!(error.to_string().contains("-wal") && error.to_string().contains("-shm"), "{error}");
    mount.remount("rw");
    let store = open(&mount.path()).await;
    commit(&store, trim_append("a", 2, expected(1, 1), b"x")).await;
}

/// The store of a copied file and log, as after a loss of power: events, and rows that fit them.
async fn recovered(database: &[u8], log: &[u8]) -> Vec<i64> {
    let (_directory, path) = place();
    std::fs::write(&path, database).unwrap();
    std::fs::write(crate::journal::file::beside(&path, "-wal"), log).unwrap();
    let store = open(&path).await;
    let events = store.events(0, 1_000).await.unwrap();
    let mut tool = outsider(&path, true).await;
    let sql = "SELECT count(*) FROM kubun_connector_entity_trim";
    assert_eq!(number(&mut tool, sql).await, i64::try_from(events.len()).unwrap());
    let sql = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'";
    assert_eq!(number(&mut tool, sql).await, 1);
    for event in &events {
        let document = event.stream.strip_prefix("document:").unwrap();
        assert!(store.row(&trim_key(document)).await.unwrap().is_some());
        let head = store.load(&event.stream).await.unwrap().head.unwrap();
        assert_eq!((head.version, head.hash), (event.version, event.hash));
    }
    commit(&store, trim_append("after", 1, Expected::NONE, b"x")).await;
    events.iter().map(|event| event.position).collect()
}

/// The first `count` batches, and the file and log as the medium has them then.
async fn written(batches: &[Vec<Append>]) -> (Vec<u8>, Vec<u8>) {
    let (_directory, path) = place();
    let store = open(&path).await;
    for batch in batches {
        store.append(batch, NOW).await.unwrap();
    }
    let log = std::fs::read(crate::journal::file::beside(&path, "-wal")).unwrap();
    (std::fs::read(&path).unwrap(), log)
}

#[tokio::test]
async fn power_lost_at_any_byte_of_a_commit_loses_that_batch_whole_or_not_at_all() {
    let batches: Vec<Vec<Append>> = (0..4_u128)
        .map(|batch| {
            let append = |at: u128| {
                let name = format!("{batch}-{at}");
                trim_append(&name, batch * 10 + at + 1, Expected::NONE, &[9; 600])
            };
            (0..5).map(append).collect()
        })
        .collect();
    let (_, acknowledged) = written(&batches[..3]).await;
    let (database, log) = written(&batches).await;
    let kept = acknowledged.len();
    assert!(log.len() > kept + 4_096);
    let whole: Vec<i64> = (1..=20).collect();
    for cut in (kept..log.len()).step_by(512) {
        assert_eq!(recovered(&database, &log[..cut]).await, whole[..15], "cut at {cut}");
    }
    assert_eq!(recovered(&database, &log).await, whole);
    for at in (kept..log.len()).step_by(2_003) {
        let mut torn = log.clone();
        torn[at] ^= 0x10;
        let found = recovered(&database, &torn).await;
        assert!(found == whole[..15] || found == whole, "byte {at}: {found:?}");
    }
    // Damage before the last commit, as no loss of power makes it, still loses whole batches only.
    for cut in (kept / 2..kept).step_by(4_096 * 3 + 700) {
        let found = recovered(&database, &log[..cut]).await;
        assert!(found.len() % 5 == 0 && found == whole[..found.len()], "cut at {cut}");
    }
}

/// After a doubtful commit the outcome is looked up, with the rows that it took.
#[tokio::test]
async fn a_doubtful_commit_is_settled_before_its_outcome_is_told() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let committed = trim_append("a", 1, Expected::NONE, b"x");
    let lost = trim_append("b", 2, Expected::NONE, b"x");
    commit(&store, committed.clone()).await;
    let row = store.row(&trim_key("a")).await.unwrap().unwrap();
    store.writer.lock().await.doubt([(committed.command_id, vec![row.clone()])].into());
    let found = store.look_up(&committed).await.unwrap();
    assert_eq!(found, Some(AppendOutcome::Committed { taken: vec![row] }));
    assert_eq!(store.look_up(&lost).await.unwrap(), None);
    let mut tool = outsider(&path, true).await;
    let sql = "SELECT value FROM connector_meta WHERE key = 'settled'";
    assert_eq!(number(&mut tool, sql).await, 1);
    commit(&store, trim_append("a", 3, expected(1, 1), b"x")).await;
    assert_eq!(store.last_position().await.unwrap(), 2);
}

const CHILD: &str = "STORE_TEST_LIMITED_FILE";

/// The child of the test below: its files can't grow past a limit, which is an I/O error in the
/// middle of a commit.
#[tokio::test]
async fn child_with_a_limit() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = open(Path::new(&path)).await;
    let mut head = Expected::NONE;
    let mut command = 0;
    let lost = loop {
        command += 1;
        let append = trim_append("a", command, head, &[5; 200_000]);
        match store.append(std::slice::from_ref(&append), NOW).await {
            Ok(_) => head = expected(head.version + 1, command),
            Err(BatchError::Unknown(error)) => {
                assert_eq!(fault_of(&error), Some(StorageFault::Io), "{error:?}");
                break append;
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(store.look_up(&lost).await.unwrap(), None);
    let loaded = store.load("document:a").await.unwrap();
    assert_eq!(loaded.head.map(|head| head.version), Some(head.version));
    commit(&store, trim_append("a", 9_999, head, b"small")).await;
    println!("acknowledged {}", head.version + 1);
    // Killed without a close: the log stays as it is.
    std::process::abort();
}

#[tokio::test]
async fn an_io_error_inside_a_commit_is_doubtful_and_the_batch_never_comes_back() {
    let (_directory, path) = place();
    let test = "journal::sqlite::fault_tests::child_with_a_limit";
    let script = "trap '' XFSZ; ulimit -f 8192; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(CHILD, &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once("acknowledged "));
    let Some((_, acknowledged)) = line else {
        panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr))
    };
    let acknowledged: i64 = acknowledged.trim().parse().unwrap();
    assert!(acknowledged > 5);
    let store = open(&path).await;
    let events = store.stream_events("document:a").await.unwrap();
    assert_eq!(i64::try_from(events.len()).unwrap(), acknowledged);
    assert_eq!(events.last().map(|event| event.command_id), Some(Uuid::from_u128(9_999)));
}
