//! Copies in units of work: all or nothing.

use std::sync::Arc;

use connector_store::domain::Table;
use connector_store::records::AnySigner;
use connector_store::testing::Fault;
use connector_store::{Error, MemoryJournal, ReadWinner, StorageFault, StoreBuilder, StreamKey};

use crate::common::{
    Registry, code, decided, did, document, host, host_on, person, put, said, said_for, stamp,
    web_key,
};

fn keys(names: &[&str]) -> Vec<StreamKey> {
    names.iter().map(|name| StreamKey::Document(document(name))).collect()
}

#[tokio::test]
async fn what_a_unit_puts_is_there_as_a_whole_or_not_at_all() {
    let (host, ada) = (host().await, person(1));
    let owner = did(&ada);
    for commits in [false, true] {
        let unit = host.store.unit_of_work(keys(&["a", "b"])).await.unwrap();
        for name in ["a", "b"] {
            let handle = unit.document(&document(name));
            handle.put_observation_copy(&said(&ada, name, 1, "v")).await.unwrap();
            let decision = handle.observation_decision(&owner).await.unwrap().unwrap();
            assert_eq!(decision.payload.as_deref(), Some(&b"v"[..]), "the unit reads what it did");
        }
        let winner = unit.document(&document("a")).read_winner(&owner, &stamp(0)).await.unwrap();
        assert_eq!(winner, ReadWinner::Decision { hlc: stamp(1) });
        let outside = unit.document(&document("c"));
        let refused = outside.put_observation_copy(&said(&ada, "c", 1, "v")).await;
        assert_eq!(code(refused), "CONNECTOR_NOT_HELD");
        if commits {
            unit.commit().await.unwrap();
        } else {
            host.faults.next_append(Fault::Fail(Error::storage(StorageFault::Io, "scripted")));
            assert_eq!(code(unit.commit().await), "CONNECTOR_STORAGE");
        }
        for name in ["a", "b"] {
            assert_eq!(decided(&host.store, &owner, name).await.is_some(), commits);
        }
    }
    assert_eq!(host.rows(Table::ObservationRecords).await, 2);
    host.assert_sound().await;
}

#[tokio::test]
async fn a_refused_put_leaves_nothing_in_its_unit() {
    let (host, ada, bob) = (host().await, person(1), person(2));
    let unit = host.store.unit_of_work(keys(&["a"])).await.unwrap();
    let handle = unit.document(&document("a"));
    let foreign = said_for(&bob, &did(&ada), "a", 2, Some("w"));
    let refused = handle.put_observation_copy(&foreign).await;
    assert_eq!(code(refused), "CONNECTOR_INVALID_OBSERVATION_RECORD");
    handle.put_observation_copy(&said(&ada, "a", 1, "v")).await.unwrap();
    unit.commit().await.unwrap();
    assert_eq!(decided(&host.store, &did(&ada), "a").await.unwrap(), "v");
}

/// A unit's reads have standing copies verified like those outside.
#[tokio::test]
async fn a_unit_verifies_what_was_loaded() {
    let registry = Registry::with(&[("k1", 7)]);
    let journal = MemoryJournal::new();
    let change = |builder: StoreBuilder| {
        let registry = Arc::clone(&registry);
        builder.accept_foreign_owners().method_registry(registry).signer_policy(Arc::new(AnySigner))
    };
    let host = host_on(&journal, change).await;
    let signer = web_key(7, "k1");
    let owner = did(&signer);
    put(&host.store, &said(&signer, "a", 1, "v")).await.unwrap();
    let host = host.reopen(&journal, change).await;
    registry.set_offline(true);
    let unit = host.store.unit_of_work(keys(&["a"])).await.unwrap();
    let handle = unit.document(&document("a"));
    assert_eq!(code(handle.observation_decision(&owner).await), "CONNECTOR_KEY_UNAVAILABLE");
    registry.set_offline(false);
    assert!(handle.observation_decision(&owner).await.unwrap().is_some());
    assert!(handle.observation_decision(&owner).await.unwrap().is_some());
    handle.put_observation_copy(&said(&person(1), "a", 2, "w")).await.unwrap();
    unit.commit().await.unwrap();
    // The verdict is kept with the copy.
    assert_eq!(decided(&host.store, &owner, "a").await.unwrap(), "v");
    assert_eq!(registry.asked(), 3, "at the put, in vain, and once at the load");
}
