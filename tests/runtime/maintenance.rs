//! Snapshots bound what a load reads; retention, verify and rebuild leave everything right.

use connector_store::{MemoryJournal, Secret, Store, StreamKey, Timestamp};

use crate::common::*;

fn tail(journal: &MemoryJournal, key: &StreamKey) -> usize {
    journal.tamper(|tables| {
        let stream = &tables.streams[&key.stream_name()];
        let from = stream.snapshot.as_ref().map_or(0, |snapshot| snapshot.version);
        tables.events_behind(stream, from).len()
    })
}

#[tokio::test]
async fn snapshots_bound_the_tail_that_a_load_reads() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    let key = StreamKey::Connector(owner("o"), folder());
    for written in 1..=1_000 {
        count_up(&handle).await.unwrap();
        if written % 50 == 0 {
            assert!(tail(&host.journal, &key) < 128, "after {written}");
        }
    }
    let before = tail(&host.journal, &key);
    assert!(before >= 32, "{before}");
    host.store.passivate_all();
    bounded(until(|| host.store.stats().active_keys == 0)).await;
    assert_eq!(tail(&host.journal, &key), 0, "a long tail gets a snapshot at passivation");
    assert_eq!(count(&handle).await, 1_000);
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn retention_removes_old_events_and_nothing_else() {
    let host = host_with(|builder| builder.snapshot_every_events(10)).await;
    let handle = connector(&host.store, "o");
    for _ in 0..25 {
        count_up(&handle).await.unwrap();
    }
    set_trim(&host.store.document(&document("short")), 1).await.unwrap();
    let before = handle.sync_state().await.unwrap();
    assert_eq!(host.store.apply_retention(SECOND).await.unwrap().events, 0, "too young");
    host.clock.advance(SECOND * 60);
    let report = host.store.apply_retention(SECOND).await.unwrap();
    assert_eq!((report.events, report.authorizations), (20, 0));
    assert_sound(&host.store).await;
    host.store.passivate_all();
    assert_eq!(handle.sync_state().await.unwrap(), before);
    assert_eq!(count_up(&handle).await.unwrap().version, 25);
    let rows = host.journal.tamper(|tables| tables.rows.clone());
    host.store.rebuild().await.unwrap();
    assert_eq!(host.journal.tamper(|tables| tables.rows.clone()), rows);
    assert_sound(&host.store).await;
}

/// A consumed authorization is known until retention takes its stream, whether or not its actor is
/// in memory.
async fn consumed_then_forgotten(store: &Store, pass: impl Fn()) {
    store.create_pending_auth(pending_auth("s", 1)).await.unwrap();
    store.create_pending_auth(pending_auth("open", 1)).await.unwrap();
    store.consume_pending_auth(&Secret::new("s")).await.unwrap();
    let consume = async || code(store.consume_pending_auth(&Secret::new("s")).await);
    assert_eq!(consume().await, "CONNECTOR_ALREADY_CONSUMED");
    let again = store.create_pending_auth(pending_auth("s", 1)).await;
    assert_eq!(code(again), "CONNECTOR_ALREADY_EXISTS");
    pass();
    assert_eq!(store.apply_retention(SECOND).await.unwrap().authorizations, 1);
    assert_eq!(consume().await, "CONNECTOR_NOT_FOUND");
    store.create_pending_auth(pending_auth("s", 2)).await.unwrap();
    store.consume_pending_auth(&Secret::new("s")).await.unwrap();
    store.consume_pending_auth(&Secret::new("open")).await.unwrap();
    assert_sound(store).await;
}

#[tokio::test]
async fn a_consumed_authorization_is_not_found_once_retention_took_it() {
    let host = host().await;
    consumed_then_forgotten(&host.store, || host.clock.advance(SECOND * 60)).await;
    let clock = connector_store::testing::SimClock::default();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::builder().sqlite(directory.path().join("store.db"));
    let store = store.clock(std::sync::Arc::new(clock.clone())).open().await.unwrap();
    consumed_then_forgotten(&store, || clock.advance(SECOND * 60)).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn rebuild_writes_every_row_as_it_was() {
    let host = host().await;
    for name in ["x", "y"] {
        crate::sweeps::lose(&connector(&host.store, name), "d").await;
        count_up(&connector(&host.store, name)).await.unwrap();
    }
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    host.store.document(&document("b")).begin_document_sweep().await.unwrap();
    host.store.create_pending_auth(pending_auth("s", 1)).await.unwrap();
    let rows = host.journal.tamper(|tables| tables.rows.clone());
    assert!(rows.len() > 8);
    host.journal.tamper(|tables| {
        let trims = |table| table == connector_store::domain::Table::EntityTrim;
        tables.rows.retain(|key, _| !trims(key.table));
    });
    assert!(!host.store.verify().await.unwrap().is_sound());
    host.store.rebuild().await.unwrap();
    assert_eq!(host.journal.tamper(|tables| tables.rows.clone()), rows);
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn housekeeping_forgets_old_command_ids_by_itself() {
    let host = host_with(|builder| builder.retention(SECOND).snapshot_every_events(1)).await;
    let a = host.store.document(&document("a"));
    for value in 0..3 {
        set_trim(&a.with_command_id(uuid::Uuid::now_v7()), value).await.unwrap();
    }
    let left = || host.journal.tamper(|tables| (tables.commands.len(), tables.journal.len()));
    assert_eq!(left(), (3, 3));
    for _ in 0..26 {
        bounded(host.clock.someone_sleeps_for(3_600 * SECOND)).await;
        host.clock.advance(3_600 * SECOND);
    }
    bounded(until(|| left() == (0, 0))).await;
    assert_eq!(trim(&a).await, Some(2));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn the_secrets_of_an_authorization_are_in_no_file_ten_seconds_after_it_is_gone() {
    let clock = connector_store::testing::SimClock::default();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::builder().sqlite(directory.path().join("store.db"));
    let store = store.clock(std::sync::Arc::new(clock.clone())).open().await.unwrap();
    let holds = || {
        let files = std::fs::read_dir(directory.path()).unwrap();
        let mut bytes = files.map(|file| std::fs::read(file.unwrap().path()).unwrap());
        bytes.any(|bytes| bytes.windows(11).any(|window| window == b"verifier-of"))
    };
    for is_consumed in [true, false] {
        store.create_pending_auth(pending_auth(&format!("s{is_consumed}"), 1)).await.unwrap();
        assert!(holds());
        if is_consumed {
            store.consume_pending_auth(&Secret::new("strue")).await.unwrap();
        } else {
            store.delete_expired_pending_auths(Timestamp::from_millis(2)).await.unwrap();
        }
        bounded(clock.someone_sleeps_for(SECOND * 5)).await;
        clock.advance(SECOND * 10);
        bounded(until(|| !holds())).await;
    }
    store.close().await.unwrap();
}
