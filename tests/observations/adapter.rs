//! The adapter of a layer that replicates.

use std::time::Duration;

use connector_store::{Error, RecordKey, StoreBuilder};

use crate::common::{bounded, code, decided, did, document, host, host_with, person, put, said};

const TYPES: [&str; 1] = ["connector.observation"];

fn key(seed: u8, name: &str) -> RecordKey {
    RecordKey::observation(&did(&person(seed)), &document(name))
}

#[tokio::test]
async fn it_puts_gets_lists_and_prunes_by_key() {
    let (host, ada) = (host().await, person(1));
    let records = host.store.records();
    assert!(!records.is_transaction());
    records.put_copy(&said(&ada, "a", 1, "v")).await.unwrap();
    records.put_copy(&said(&ada, "b", 1, "w")).await.unwrap();
    let got = records.get(&key(1, "a")).await.unwrap().unwrap();
    assert_eq!((got.key, got.payload.as_deref()), (key(1, "a"), Some(&b"v"[..])));
    let many = records.get_many(&[key(1, "b"), key(1, "none"), key(1, "a")]).await.unwrap();
    let keys: Vec<RecordKey> = many.into_iter().map(|decision| decision.key).collect();
    assert_eq!(keys, [key(1, "b"), key(1, "a")]);
    let page = records.list(&TYPES, None, 1).await.unwrap();
    assert_eq!((page.decisions.len(), page.next), (1, Some((did(&ada), document("a")))));
    records.prune_copy(&key(1, "a"), ada.issuer()).await.unwrap();
    assert!(records.get(&key(1, "a")).await.unwrap().is_some(), "the last copy is never pruned");
    assert_eq!(code(records.document_owner(&document("a")).await), "CONNECTOR_NO_DOCUMENT_OWNERS");

    let mut other = key(1, "a");
    other.record_type = "other".into();
    let unsupported = "CONNECTOR_UNSUPPORTED_RECORD_TYPE";
    assert_eq!(code(records.get(&other).await), unsupported);
    assert_eq!(code(records.get_many(std::slice::from_ref(&other)).await), unsupported);
    assert_eq!(code(records.prune_copy(&other, "x").await), unsupported);
    assert_eq!(code(records.lock(std::slice::from_ref(&other)).await), unsupported);
    assert_eq!(code(records.list(&["other"], None, 1).await), unsupported);
    assert_eq!(code(records.commit().await), "CONNECTOR_NOT_HELD");
}

#[tokio::test]
async fn a_transaction_commits_what_it_did_if_it_answers_well() {
    let (host, ada) = (host().await, person(1));
    let keys = [key(1, "b"), key(1, "a")];
    let records = host.store.records();
    let failed = records.transaction(&keys, async |records| {
        records.put_copy(&said(&ada, "a", 1, "v")).await?;
        Err::<(), _>(Error::Contention)
    });
    assert_eq!(code(failed.await), "CONNECTOR_CONTENTION");
    assert_eq!(decided(&host.store, &did(&ada), "a").await, None);

    let seen = records.transaction(&keys, async |records| {
        assert!(records.is_transaction());
        records.put_copy(&said(&ada, "a", 1, "v")).await?;
        records.put_copy(&said(&ada, "b", 1, "w")).await?;
        let outside = records.put_copy(&said(&ada, "c", 1, "x")).await;
        assert_eq!(code(outside), "CONNECTOR_NOT_HELD");
        assert_eq!(code(records.lock(&[key(1, "c")]).await), "CONNECTOR_NOT_HELD");
        records.get(&key(1, "b")).await
    });
    assert_eq!(seen.await.unwrap().unwrap().payload.as_deref(), Some(&b"w"[..]));
    assert_eq!(decided(&host.store, &did(&ada), "a").await.unwrap(), "v");
    host.assert_sound().await;
}

#[tokio::test]
async fn a_lock_holds_its_documents_until_it_commits_and_lists_without_waiting_for_itself() {
    let (host, ada) = (host().await, person(1));
    for name in ["a", "b"] {
        put(&host.store, &said(&ada, name, 1, "old")).await.unwrap();
    }
    let locked = host.store.records().lock(&[key(1, "a"), key(1, "a")]).await.unwrap();
    locked.put_copy(&said(&ada, "a", 2, "new")).await.unwrap();
    let page = bounded(locked.list(&TYPES, None, 10)).await.unwrap();
    let values: Vec<&[u8]> =
        page.decisions.iter().map(|decision| decision.payload.as_deref().unwrap()).collect();
    assert_eq!(values, [&b"new"[..], b"old"], "its own as it left it, others as they are");

    let store = host.store.clone();
    let other = tokio::spawn(async move {
        put(&store, &said(&person(1), "a", 3, "newest")).await.unwrap();
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!other.is_finished(), "the document is held");
    locked.commit().await.unwrap();
    bounded(other).await.unwrap();
    assert_eq!(decided(&host.store, &did(&ada), "a").await.unwrap(), "newest");
    assert_eq!(code(locked.commit().await), "CONNECTOR_NOT_HELD", "it is over");
    assert_eq!(code(locked.get(&key(1, "a")).await), "CONNECTOR_NOT_HELD");
}

/// A layer that keeps the adapter of a transaction that is over takes no room in the store with it.
#[tokio::test]
async fn an_adapter_that_is_kept_after_its_commit_holds_nothing() {
    let change = |builder: StoreBuilder| builder.accept_foreign_owners().in_flight_commands(2);
    let (host, ada) = (host_with(change).await, person(1));
    let mut kept = Vec::new();
    for at in 1..=5 {
        let records = bounded(host.store.records().lock(&[key(1, "a")])).await.unwrap();
        records.put_copy(&said(&ada, "a", at, "v")).await.unwrap();
        records.commit().await.unwrap();
        kept.push(records);
    }
    bounded(host.store.close()).await.unwrap();
}

/// Transactions over the same documents in any order never wait for each other for ever, and each
/// sees what the one before it left.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_over_the_same_documents_take_turns() {
    let host = host().await;
    let tasks: Vec<_> = (1..=20)
        .map(|at| {
            let records = host.store.records();
            tokio::spawn(async move {
                let mut keys = [key(1, "a"), key(1, "b")];
                if at % 2 == 0 {
                    keys.reverse();
                }
                records
                    .transaction(&keys, async move |records| {
                        let read = records.get(&key(1, "a")).await?;
                        let next = read.map_or(1, |it| it.decision_hlc.wall_ms() - start() + 1);
                        for name in ["a", "b"] {
                            records.put_copy(&said(&person(1), name, next, "v")).await?;
                        }
                        Ok(())
                    })
                    .await
            })
        })
        .collect();
    for task in tasks {
        bounded(task).await.unwrap().unwrap();
    }
    for name in ["a", "b"] {
        let decision = host.store.records().get(&key(1, name)).await.unwrap().unwrap();
        assert_eq!(decision.decision_hlc.wall_ms() - start(), 20, "none was lost");
    }
    host.store.close().await.unwrap();
    host.clock.advance(Duration::from_secs(1));
}

fn start() -> i64 {
    crate::common::stamp(0).wall_ms()
}
