//! Pending authorizations in an SQLite file: consumed once whatever races, over a restart too.

use connector_store::{Error, Secret, Store, Timestamp};

use crate::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_consumers_of_a_file_one_gets_the_authorization_and_a_restart_gives_it_to_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Store::builder().sqlite(&path).open().await.unwrap();
    let record = pending_auth("state-1", 5_000);
    store.create_pending_auth(record.clone()).await.unwrap();
    let consumers: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.consume_pending_auth(&Secret::new("state-1")).await })
        })
        .collect();
    let mut won = Vec::new();
    for consumer in consumers {
        match bounded(consumer).await.unwrap() {
            Ok(record) => won.push(record),
            Err(error) => assert!(matches!(error, Error::AlreadyConsumed), "{error}"),
        }
    }
    assert_eq!(won, [record]);
    store.close().await.unwrap();
    let store = Store::builder().sqlite(&path).open().await.unwrap();
    let again = store.consume_pending_auth(&Secret::new("state-1")).await;
    assert_eq!(code(again), "CONNECTOR_ALREADY_CONSUMED");
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_file_deletes_what_expired_before_the_cutoff_and_keeps_what_expires_at_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::builder().sqlite(directory.path().join("store.db")).open().await.unwrap();
    for (state, expires_at) in [("before", 999), ("at", 1_000), ("behind", 1_001)] {
        store.create_pending_auth(pending_auth(state, expires_at)).await.unwrap();
    }
    let cutoff = Timestamp::from_millis(1_000);
    assert_eq!(store.delete_expired_pending_auths(cutoff).await.unwrap(), 1);
    assert_eq!(store.delete_expired_pending_auths(cutoff).await.unwrap(), 0);
    let expected = [("before", "CONNECTOR_NOT_FOUND"), ("at", "ok"), ("behind", "ok")];
    for (state, answer) in expected {
        assert_eq!(code(store.consume_pending_auth(&Secret::new(state)).await), answer, "{state}");
    }
    assert_sound(&store).await;
    store.close().await.unwrap();
}
