//! Copies over passivations, restarts, prunes and sweeps, in memory and in a file.

use std::sync::Arc;

use connector_store::domain::Table;
use connector_store::records::{AnySigner, RecordSigner};
use connector_store::testing::SimClock;
use connector_store::{MemoryJournal, ObservationRepair, Store, StoreBuilder};

use crate::common::{
    all_sorted, decided, did, document, folder, host_on, issuers, json, person, put, said,
    said_for, stamp,
};

fn open_to_all(builder: StoreBuilder) -> StoreBuilder {
    builder.accept_foreign_owners().signer_policy(Arc::new(AnySigner))
}

#[tokio::test]
async fn copies_and_repairs_outlive_passivations_and_restarts() {
    let journal = MemoryJournal::new();
    let mut host = host_on(&journal, open_to_all).await;
    let (ada, bob) = (person(1), person(2));
    let owner = did(&ada);
    for round in 1..=40 {
        for signer in [&ada, &bob] {
            let record = said_for(signer, &owner, "d", round, Some(&format!("v{round}")));
            put(&host.store, &record).await.unwrap();
        }
        if round % 10 == 0 {
            host.store.passivate_all();
        }
        if round % 15 == 0 {
            host = host.reopen(&journal, open_to_all).await;
        }
        assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), format!("v{round}"));
        assert_eq!(issuers(&host.store, &owner, "d").await, all_sorted(&[&ada, &bob]));
    }
    assert_eq!(host.rows(Table::ObservationRecords).await, 2);
    host.assert_sound().await;
}

/// Each trusts the other's copy, and both prune: one copy stays.
#[tokio::test]
async fn prunes_that_race_never_lose_the_decision() {
    let journal = MemoryJournal::new();
    let host = host_on(&journal, open_to_all).await;
    let people: Vec<RecordSigner> = (1..=4).map(person).collect();
    let owner = did(&people[0]);
    for signer in &people {
        put(&host.store, &said_for(signer, &owner, "d", 1, Some("v"))).await.unwrap();
    }
    let handle = host.store.document(&document("d"));
    let prunes = people.iter().map(|signer| {
        let (handle, owner, issuer) = (handle.clone(), owner.clone(), signer.issuer().to_owned());
        tokio::spawn(async move { handle.prune_observation_copy(&owner, &issuer).await })
    });
    for prune in prunes.collect::<Vec<_>>() {
        prune.await.unwrap().unwrap();
    }
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v");
    assert_eq!(host.rows(Table::ObservationRecords).await, 1);
    let host = host.reopen(&journal, open_to_all).await;
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v");
    host.assert_sound().await;
}

async fn fill(store: &Store, document_name: &str) {
    let ada = person(1);
    put(store, &said(&ada, document_name, 1, "secret value")).await.unwrap();
    put(store, &said(&person(2), document_name, 2, "other value")).await.unwrap();
    let handle = store.document(&document(document_name));
    handle.set_entity_trim(&did(&ada), &folder(), json("1")).await.unwrap();
    let repair = ObservationRepair {
        owner: did(&ada),
        fetch_hlc: stamp(1),
        decision_hlc: stamp(2),
        present: true,
        value_digest: None,
    };
    handle.put_repair(&repair).await.unwrap();
}

#[tokio::test]
async fn a_sweep_removes_every_owners_copies_and_the_repair() {
    let journal = MemoryJournal::new();
    let host = host_on(&journal, open_to_all).await;
    fill(&host.store, "d").await;
    fill(&host.store, "kept").await;
    host.store.document(&document("d")).sweep_document_rows().await.unwrap();
    for owner in [did(&person(1)), did(&person(2))] {
        assert_eq!(decided(&host.store, &owner, "d").await, None);
        assert!(decided(&host.store, &owner, "kept").await.is_some());
    }
    assert_eq!(host.rows(Table::ObservationRecords).await, 2);
    assert_eq!(host.rows(Table::ObservationRepair).await, 1);
    assert_eq!(host.store.document(&document("d")).repair().await.unwrap(), None);
    let host = host.reopen(&journal, open_to_all).await;
    // A lower version than the swept one decides anew.
    put(&host.store, &said(&person(2), "d", 1, "again")).await.unwrap();
    assert_eq!(decided(&host.store, &did(&person(2)), "d").await.unwrap(), "again");
    host.assert_sound().await;
}

/// What was swept or replaced is in no file once the log was truncated at the close.
#[tokio::test]
async fn erased_content_is_in_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let open = || async {
        let clock = Arc::new(SimClock::default());
        let builder = open_to_all(Store::builder().sqlite(&path).clock(clock));
        builder.open().await.unwrap()
    };
    let store = open().await;
    fill(&store, "d").await;
    let swept = said(&person(1), "d", 1, "secret value");
    let replaced = said(&person(3), "e", 1, "replaced value");
    put(&store, &replaced).await.unwrap();
    put(&store, &said(&person(3), "e", 2, "new value")).await.unwrap();
    store.document(&document("d")).sweep_document_rows().await.unwrap();
    store.close().await.unwrap();
    let all: Vec<u8> = std::fs::read_dir(directory.path())
        .unwrap()
        .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    let holds = |bytes: &[u8]| all.windows(bytes.len()).any(|window| window == bytes);
    assert!(holds(b"new value"), "what stands is there");
    for gone in [&swept, &replaced] {
        let token = gone.op_jwt.as_bytes();
        assert!(!holds(&token[token.len() - 40..]), "a token");
        assert!(!holds(gone.payload.as_deref().unwrap()), "a payload");
    }
    let store = open().await;
    assert!(store.verify().await.unwrap().is_sound());
    assert_eq!(decided(&store, &did(&person(3)), "e").await.unwrap(), "new value");
    store.close().await.unwrap();
}

/// The read tables written anew from the journal hold the same copies.
#[tokio::test]
async fn a_rebuild_keeps_copies_and_repairs() {
    let journal = MemoryJournal::new();
    let host = host_on(&journal, open_to_all).await;
    fill(&host.store, "d").await;
    let report = host.store.rebuild().await.unwrap();
    assert!(report.lost.is_empty(), "{report:?}");
    assert_eq!(decided(&host.store, &did(&person(1)), "d").await.unwrap(), "secret value");
    assert_eq!(host.store.repairs(&[document("d")]).await.unwrap().len(), 1);
    host.assert_sound().await;
}

/// A token that is no text any more is a damaged copy like any other: it is named, it counts for
/// nothing, and the document goes on.
#[tokio::test]
async fn a_token_that_is_no_text_any_more_is_a_damaged_copy_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let open = || async {
        let clock = Arc::new(SimClock::default());
        open_to_all(Store::builder().sqlite(&path).clock(clock)).open().await.unwrap()
    };
    let (ada, bob) = (person(1), person(2));
    let owner = did(&ada);
    let copies = [&ada, &bob].map(|signer| said_for(signer, &owner, "d", 1, Some("v")));
    let store = open().await;
    for copy in &copies {
        put(&store, copy).await.unwrap();
    }
    store.close().await.unwrap();
    let mut file = std::fs::read(&path).unwrap();
    let token = copies[0].op_jwt.as_bytes();
    let place = file.windows(token.len()).position(|window| window == token).unwrap();
    file[place + 9] |= 0x80;
    std::fs::write(&path, file).unwrap();

    let store = open().await;
    assert_eq!(store.verify().await.unwrap().damages.len(), 1);
    assert_eq!(issuers(&store, &owner, "d").await, [bob.issuer()]);
    put(&store, &copies[0]).await.unwrap();
    assert_eq!(issuers(&store, &owner, "d").await, all_sorted(&[&ada, &bob]));
    assert!(store.verify().await.unwrap().is_sound());
    store.close().await.unwrap();
}
