//! A backup is a whole store in a new file, or nothing; and a restore that was begun is found again.

use super::super::tests::{NOW, commit, expected, open, place, trim_append, trim_key};
use super::super::{SqliteOptions, SqliteStorage};
use super::*;
use crate::journal::{Append, Expected, NewEvent, Storage};

/// Bytes that no page of a file holds by chance.
const SECRET: &[u8] = b"the secret that was erased";

async fn reopen(path: &Path) -> SqliteStorage {
    SqliteStorage::open(SqliteOptions::new(path, NOW)).await.unwrap()
}

fn refused_field<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::InvalidInput { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn erasure() -> Append {
    let mut swept = trim_append("gone", 3, expected(1, 2), b"");
    swept.parts[0].events =
        vec![NewEvent { event_type: 1, schema: 1, payload: vec![0], is_swept: true }];
    swept.parts[0].rows.clear();
    swept.parts[0].erase = true;
    swept
}

#[tokio::test]
async fn a_restore_that_was_begun_is_found_again_until_it_ends() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let first = store.generation();
    store.begin_restore(NOW.plus_millis(50)).await.unwrap();
    let begun = store.lineage();
    assert_eq!(begun.restored_at, Some(NOW.plus_millis(50)));
    assert!(begun.is_restoring && begun.generation > first);
    store.close().await.unwrap();
    let store = reopen(&path).await;
    assert_eq!(store.lineage(), begun);
    store.end_restore(begun.generation).await.unwrap();
    store.close().await.unwrap();
    let store = reopen(&path).await;
    assert_eq!(store.lineage(), Lineage { is_restoring: false, ..begun });
    store.begin_restore(Timestamp::from_millis(i64::MIN)).await.unwrap();
    let second = store.lineage();
    assert_eq!(second.generation, begun.generation + 1, "whatever the clock says");
    store.close().await.unwrap();
    assert_eq!(reopen(&path).await.lineage(), second);
}

#[tokio::test]
async fn a_copy_holds_what_stands_and_nothing_that_was_erased() {
    let (directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"first")).await;
    commit(&store, trim_append("gone", 2, Expected::NONE, SECRET)).await;
    commit(&store, erasure()).await;
    let copy = directory.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    commit(&store, trim_append("a", 4, expected(1, 1), b"later")).await;
    let bytes = fs::read(&copy).unwrap();
    let holds = |wanted: &[u8]| bytes.windows(wanted.len()).any(|found| found == wanted);
    assert!(holds(b"first") && !holds(SECRET) && !holds(b"later"));

    let restored = reopen(&copy).await;
    assert_eq!(restored.lineage(), store.lineage());
    assert_eq!(restored.last_position().await.unwrap(), 3);
    assert_eq!(restored.load("document:a").await.unwrap().events.len(), 1);
    assert!(restored.row(&trim_key("a")).await.unwrap().is_some());
    restored.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_position_is_not_given_again_by_a_copy_whose_newest_event_is_gone() {
    let (directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("gone", 2, Expected::NONE, b"1")).await;
    commit(&store, erasure()).await;
    let streams = [("document:gone".into(), expected(2, 3))];
    assert_eq!(store.drop_streams(&streams).await.unwrap(), 1);
    let copy = directory.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    let restored = reopen(&copy).await;
    commit(&restored, trim_append("a", 4, Expected::NONE, b"2")).await;
    assert_eq!(restored.events(0, 9).await.unwrap()[0].position, 3);
}

#[tokio::test]
async fn a_copy_never_takes_the_place_of_something() {
    let (directory, path) = place();
    let store = open(&path).await;
    let taken = directory.path().join("taken");
    fs::write(&taken, "what is there").unwrap();
    let inside = directory.path().join("inside");
    fs::create_dir(&inside).unwrap();
    for there in [&taken, &inside, &path] {
        assert_eq!(refused_field(store.backup(there).await), "path");
    }
    assert_eq!(refused_field(store.backup(Path::new("/")).await), "path");
    assert_eq!(fs::read(&taken).unwrap(), b"what is there");
    commit(&store, trim_append("a", 1, Expected::NONE, b"1")).await;
}

#[tokio::test]
async fn a_copy_that_fails_leaves_no_file() {
    let (directory, path) = place();
    let store = open(&path).await;
    let copies = directory.path().join("copies");
    fs::create_dir(&copies).unwrap();
    let copy = copies.join("copy.db");
    // What is in the way of the part can't be removed as a file.
    fs::create_dir(copies.join("copy.db.partial")).unwrap();
    assert!(matches!(store.backup(&copy).await, Err(Error::Storage { .. })));
    assert_eq!(files_in(&copies), ["copy.db.partial"]);
    fs::remove_dir(copies.join("copy.db.partial")).unwrap();
    // What a killed copy has left is not.
    fs::write(copies.join("copy.db.partial"), "a part").unwrap();
    store.backup(&copy).await.unwrap();
    assert_eq!(files_in(&copies), ["copy.db"]);
    let nowhere = directory.path().join("none").join("copy.db");
    assert!(matches!(store.backup(&nowhere).await, Err(Error::Storage { .. })));
}

#[cfg(unix)]
#[tokio::test]
async fn whoever_must_not_read_the_store_must_not_read_its_copy() {
    use std::os::unix::fs::PermissionsExt as _;
    let (directory, path) = place();
    let store = open(&path).await;
    for mode in [0o600, 0o640] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let copy = directory.path().join(format!("{mode:o}"));
        store.backup(&copy).await.unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[tokio::test]
async fn a_store_that_must_exist_is_not_made() {
    let (directory, path) = place();
    let open =
        async || SqliteStorage::open(SqliteOptions::new(&path, NOW).must_exist()).await.map(drop);
    assert_eq!(refused_field(open().await), "path");
    assert_eq!(files_in(directory.path()), [""; 0]);
    fs::write(&path, "").unwrap();
    assert_eq!(refused_field(open().await), "path");
    assert_eq!(fs::read(&path).unwrap(), b"");
}
