//! Document sweeps and what is unfinished.

use connector_store::{MemoryJournal, Store, WatchIdentity};

use crate::common::*;

fn identity(name: &str) -> WatchIdentity {
    WatchIdentity { owner: owner(), connector: folder(), source_id: source(name) }
}

fn rows(journal: &MemoryJournal) -> usize {
    journal.tamper(|tables| tables.rows.len())
}

#[tokio::test]
async fn an_unfinished_operation_keeps_its_document_from_being_swept() {
    let (store, _clock, journal) = store().await;
    let handle = store.document(&document("doc"));
    for is_reconciled in [false, true] {
        let claimed = attempt(&store, "doc", &format!("op-{is_reconciled}"), "a").await;
        if is_reconciled {
            claimed.record_unknown().await.unwrap();
        }
        let before = journal.tamper(|tables| tables.last_position);
        for result in [handle.begin_document_sweep().await, handle.sweep_document_rows().await] {
            assert_eq!(code(result), "CONNECTOR_SWEEP_UNFINISHED_OPERATION");
        }
        assert_eq!(journal.tamper(|tables| tables.last_position), before);
        assert!(handle.has_document_connector_work().await.unwrap());
        claimed.finalize_dead("given up").await.unwrap();
        assert!(!handle.has_document_connector_work().await.unwrap());
    }
    handle.sweep_document_rows().await.unwrap();
    assert_eq!(rows(&journal), 0, "operations, their ids and leases are gone");
    assert_sound(&store).await;
}

async fn assert_being_swept(store: &Store) {
    let new = claim(store, "doc", &request("new"), "a").await;
    assert_eq!(code(new), "CONNECTOR_DOCUMENT_BEING_SWEPT");
    let handle = store.document(&document("doc"));
    let armed = handle.arm_watch(&identity("doc"), &expectation()).await;
    assert_eq!(code(armed), "CONNECTOR_DOCUMENT_BEING_SWEPT");
    let begun = store.begun_sweeps(None, 10).await.unwrap();
    assert_eq!(begun.iter().map(|sweep| sweep.document_id.as_str()).collect::<Vec<_>>(), ["doc"]);
    // A replay still gets its recorded result.
    let replay = claim(store, "doc", &request("done"), "a").await.unwrap();
    assert!(matches!(replay, connector_store::Claim::Finished(_)), "{replay:?}");
}

#[tokio::test]
async fn nothing_new_begins_on_a_document_whose_sweep_has_begun_also_after_a_restart() {
    let (store, clock, journal) = store().await;
    committed(&store, "doc", "done").await;
    store.document(&document("doc")).begin_document_sweep().await.unwrap();
    assert_being_swept(&store).await;
    store.close().await.unwrap();
    let store = builder(&clock, 2).memory(&journal).open().await.unwrap();
    assert_being_swept(&store).await;
    let handle = store.document(&document("doc"));
    handle.abandon_document_sweep().await.unwrap();
    let claimed = attempt(&store, "doc", "new", "a").await;
    handle.arm_watch(&identity("doc"), &expectation()).await.unwrap();
    assert_eq!(code(handle.begin_document_sweep().await), "CONNECTOR_SWEEP_UNFINISHED_OPERATION");
    claimed.finalize_dead("x").await.unwrap();
    handle.begin_document_sweep().await.unwrap();
    handle.sweep_document_rows().await.unwrap();
    assert_eq!(rows(&journal), 0);
    assert_eq!(store.begun_sweeps(None, 10).await.unwrap(), []);
    assert_sound(&store).await;
    attempt(&store, "doc", "new", "a").await;
}

/// A claim and a begin race on two stores: both never succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_claim_and_the_begin_of_a_sweep_one_is_refused() {
    let (one, other, _clock, _journal) = two_stores().await;
    for round in 0..30 {
        let name = format!("doc-{round}");
        let sweep = {
            let handle = one.document(&document(&name));
            tokio::spawn(async move { handle.begin_document_sweep().await })
        };
        let claim = {
            let (store, name) = (other.clone(), name.clone());
            tokio::spawn(async move { claim(&store, &name, &request(&name), "a").await })
        };
        let swept = code(bounded(sweep).await.unwrap());
        let claimed = code(bounded(claim).await.unwrap());
        let one_won = [
            ("ok", "CONNECTOR_DOCUMENT_BEING_SWEPT"),
            ("CONNECTOR_SWEEP_UNFINISHED_OPERATION", "ok"),
        ];
        assert!(one_won.contains(&(swept, claimed)), "{swept}, {claimed}");
    }
}
