//! A put of a copy that stands asks nobody; one that may not stand any more always does.

use std::sync::Arc;
use std::time::Duration;

use connector_store::base::RecordFault;
use connector_store::domain::Table;
use connector_store::records::AnySigner;
use connector_store::testing::{Fault, Gate, SimClock};
use connector_store::{
    Clock as _, Error, Holder, MemoryJournal, OwnerDid, SignedRecord, StorageFault, StoreBuilder,
    StreamKey,
};

use crate::common::{
    Host, Registry, bounded, code, decided, did, document, folder, host, host_on, host_with,
    issuers, json, person, put, said, said_for, web_key,
};

/// Puts and says whether the document was asked.
async fn asks(host: &Host, record: &SignedRecord) -> bool {
    let asked = host.commands_of(async { put(&host.store, record).await.unwrap() }).await;
    // A document that was just loaded has its copies verified first, and is asked again.
    assert!(asked <= 2, "{asked} commands");
    asked > 0
}

#[tokio::test]
async fn a_repeated_put_asks_nobody_whether_it_stands_or_was_overtaken() {
    let (host, ada) = (host().await, person(1));
    let (first, second) = (said(&ada, "d", 1, "a"), said(&ada, "d", 2, "b"));
    assert!(asks(&host, &first).await);
    assert!(!asks(&host, &first).await);
    assert!(asks(&host, &second).await);
    assert!(!asks(&host, &first).await, "it was overtaken: putting it would do nothing");
    assert!(!asks(&host, &second).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "b");
    // Another writer to the same document changes nothing of that.
    host.store
        .document(&document("d"))
        .set_entity_trim(&did(&ada), &folder(), json("1"))
        .await
        .unwrap();
    assert!(!asks(&host, &second).await);
}

#[tokio::test]
async fn a_pruned_copy_is_put_again() {
    let change =
        |builder: StoreBuilder| builder.accept_foreign_owners().signer_policy(Arc::new(AnySigner));
    let (host, ada, bob) = (host_with(change).await, person(1), person(2));
    let owner = did(&ada);
    let copies = [&ada, &bob].map(|signer| said_for(signer, &owner, "d", 1, Some("v")));
    for copy in &copies {
        asks(&host, copy).await;
    }
    host.store.document(&document("d")).prune_observation_copy(&owner, bob.issuer()).await.unwrap();
    assert_eq!(issuers(&host.store, &owner, "d").await, [ada.issuer()]);
    assert!(asks(&host, &copies[1]).await);
    assert_eq!(issuers(&host.store, &owner, "d").await.len(), 2, "it was really put");
    assert!(!asks(&host, &copies[1]).await);
    // A prune that drops nothing takes nothing back.
    host.store
        .document(&document("d"))
        .prune_observation_copy(&owner, "did:web:nobody")
        .await
        .unwrap();
    assert!(!asks(&host, &copies[1]).await);
    host.assert_sound().await;
}

/// The copy of a prune that was handed over while its put was on its way to the disk.
#[tokio::test]
async fn a_prune_right_behind_the_put_is_not_overlooked() {
    let change =
        |builder: StoreBuilder| builder.accept_foreign_owners().signer_policy(Arc::new(AnySigner));
    let (host, ada, bob) = (host_with(change).await, person(1), person(2));
    let owner = did(&ada);
    put(&host.store, &said_for(&ada, &owner, "d", 1, Some("v"))).await.unwrap();
    let copy = said_for(&bob, &owner, "d", 1, Some("v"));
    let handle = host.store.document(&document("d"));
    for _ in 0..20 {
        let (put, pruned) = bounded(async {
            tokio::join!(
                handle.put_observation_copy(&copy),
                handle.prune_observation_copy(&owner, bob.issuer()),
            )
        })
        .await;
        put.unwrap();
        pruned.unwrap();
        handle.put_observation_copy(&copy).await.unwrap();
        assert_eq!(issuers(&host.store, &owner, "d").await.len(), 2, "the last put stands");
        handle.prune_observation_copy(&owner, bob.issuer()).await.unwrap();
    }
}

#[tokio::test]
async fn a_swept_copy_is_put_again() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    host.store.document(&document("d")).sweep_document_rows().await.unwrap();
    assert_eq!(decided(&host.store, &did(&ada), "d").await, None);
    assert_eq!(host.rows(Table::ObservationRecords).await, 0);
    assert!(asks(&host, &record).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");
    host.assert_sound().await;
}

/// Its rows are gone for everybody who reads them, and it is not acknowledged yet.
#[tokio::test]
async fn a_copy_whose_sweep_is_on_its_way_is_put_again() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    let (gate, handle) = (Gate::new(), host.store.document(&document("d")));
    host.faults.next_append(Fault::StallAfter(gate.clone()));
    let swept = tokio::spawn(async move { handle.sweep_document_rows().await });
    bounded(gate.reached()).await;
    assert_eq!(host.rows(Table::ObservationRecords).await, 0);
    let opens = async {
        tokio::task::yield_now().await;
        gate.open();
    };
    let (put, ()) = bounded(async { tokio::join!(put(&host.store, &record), opens) }).await;
    put.unwrap();
    swept.await.unwrap().unwrap();
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v", "it was answered");
    host.assert_sound().await;
}

/// Until then the old life of a document answers.
async fn passivate(host: &Host) {
    host.store.passivate_all();
    while host.store.stats().active_keys > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn after_a_passivation_the_document_is_asked_once_more() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    passivate(&host).await;
    assert!(asks(&host, &record).await);
    assert!(!asks(&host, &record).await);
    // Nor is what the next life of the document takes back overlooked.
    passivate(&host).await;
    host.store.document(&document("d")).sweep_document_rows().await.unwrap();
    assert!(asks(&host, &record).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");
}

/// The sweep was written, and nobody could say so: the state is loaded anew.
#[tokio::test]
async fn after_an_append_with_an_unknown_outcome_the_document_is_asked() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    host.faults.next_append(Fault::LoseAcknowledgement);
    host.store.document(&document("d")).sweep_document_rows().await.unwrap();
    assert!(asks(&host, &record).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");

    assert!(!asks(&host, &record).await);
    host.faults.next_append(Fault::Fail(Error::storage(StorageFault::Io, "scripted")));
    let trim = host.store.document(&document("d"));
    let failed = trim.set_entity_trim(&did(&ada), &folder(), json("1")).await;
    assert_eq!(code(failed), "CONNECTOR_STORAGE");
    assert!(asks(&host, &record).await, "after any failure");
    assert!(!asks(&host, &record).await);
}

#[tokio::test]
async fn a_put_that_failed_is_not_remembered() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    host.faults.next_append(Fault::Fail(Error::storage(StorageFault::Io, "scripted")));
    assert_eq!(code(put(&host.store, &record).await), "CONNECTOR_STORAGE");
    assert!(asks(&host, &record).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");
}

#[tokio::test]
async fn what_a_unit_takes_back_is_put_again_and_what_it_drops_was_never_done() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    let keys = || [StreamKey::Document(document("d"))];
    assert!(asks(&host, &record).await);
    let unit = host.store.unit_of_work(keys()).await.unwrap();
    unit.document(&document("d")).sweep_document_rows().await.unwrap();
    drop(unit);
    put(&host.store, &record).await.unwrap();
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v", "nothing was swept");
    let unit = host.store.unit_of_work(keys()).await.unwrap();
    unit.document(&document("d")).sweep_document_rows().await.unwrap();
    unit.commit().await.unwrap();
    assert!(asks(&host, &record).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");

    // In a unit nothing is remembered: it may be dropped.
    let other = said(&ada, "d", 2, "w");
    let unit = host.store.unit_of_work(keys()).await.unwrap();
    unit.document(&document("d")).put_observation_copy(&other).await.unwrap();
    drop(unit);
    assert!(asks(&host, &other).await);
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "w");
}

#[tokio::test]
async fn when_the_epoch_moves_the_record_is_verified_and_the_document_asked_again() {
    let registry = Registry::with(&[("k1", 7)]);
    let given = Arc::clone(&registry);
    let change = |builder: StoreBuilder| builder.accept_foreign_owners().method_registry(given);
    let (host, signer) = (host_with(change).await, web_key(7, "k1"));
    let record = said(&signer, "d", 1, "v");
    assert!(asks(&host, &record).await);
    assert!(!asks(&host, &record).await);
    registry.move_epoch();
    assert!(asks(&host, &record).await);
    assert!(!asks(&host, &record).await);
    registry.set(&[]);
    registry.move_epoch();
    let Err(Error::InvalidObservationRecord { reason }) = put(&host.store, &record).await else {
        panic!("a key that is gone signs nothing");
    };
    assert_eq!(reason, RecordFault::UnknownKey);
}

/// A session's put is judged by its lease and a caller's id by its record, also of a copy that
/// stands.
#[tokio::test]
async fn a_fenced_put_and_one_with_an_id_are_always_decided() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    let account = host.store.connector(&did(&ada), &folder());
    let holder = Holder::new("h").unwrap();
    let minute = Duration::from_secs(60);
    let lost = account.acquire_lease(&holder, minute).await.unwrap();
    let held = account.acquire_lease(&holder, minute).await.unwrap();
    let fenced = lost.session().document(&document("d"));
    assert_eq!(code(fenced.put_observation_copy(&record).await), "CONNECTOR_LEASE_LOST");
    held.session().document(&document("d")).put_observation_copy(&record).await.unwrap();
    let newer = said(&ada, "d", 2, "w");
    assert_eq!(code(fenced.put_observation_copy(&newer).await), "CONNECTOR_LEASE_LOST");
    assert_eq!(code(fenced.prune_observation_copy(&did(&ada), "x").await), "CONNECTOR_LEASE_LOST");
    assert_eq!(code(fenced.observation_decision(&did(&ada)).await), "CONNECTOR_LEASE_LOST");
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");

    let id = uuid::Uuid::from_u128(7);
    let with_id = || host.store.document(&document("d")).with_command_id(id);
    with_id().put_observation_copy(&record).await.unwrap();
    with_id().put_observation_copy(&record).await.unwrap();
    put(&host.store, &newer).await.unwrap();
    let mismatch = with_id().put_observation_copy(&newer).await;
    assert_eq!(code(mismatch), "CONNECTOR_COMMAND_MISMATCH");
}

#[tokio::test]
async fn on_a_shared_storage_the_document_is_always_asked() {
    let time = SimClock::default();
    let journal = MemoryJournal::shared(Arc::new(move || time.wall()));
    let host = host_on(&journal, StoreBuilder::accept_foreign_owners).await;
    let record = said(&person(1), "d", 1, "v");
    for _ in 0..3 {
        assert!(asks(&host, &record).await, "another host may have pruned it");
    }
}

#[tokio::test]
async fn a_put_is_held_to_the_owner_also_when_its_copy_stands() {
    struct Fickle(std::sync::Mutex<OwnerDid>);
    impl connector_store::DocumentOwners for Fickle {
        fn document_owner<'a>(
            &'a self,
            _: &'a connector_store::DocumentId,
        ) -> connector_store::journal::BoxFuture<'a, connector_store::Result<Option<OwnerDid>>>
        {
            Box::pin(async { Ok(Some(self.0.lock().unwrap().clone())) })
        }
    }
    let (ada, bob) = (person(1), person(2));
    let owners = Arc::new(Fickle(did(&ada).into()));
    let given = Arc::clone(&owners);
    let host = host_with(|builder| builder.document_owners(given)).await;
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    *owners.0.lock().unwrap() = did(&bob);
    assert_eq!(code(put(&host.store, &record).await), "CONNECTOR_NOT_DOCUMENT_OWNER");
}

#[tokio::test]
async fn a_closed_store_takes_no_copy_that_stands() {
    let (host, ada) = (host().await, person(1));
    let record = said(&ada, "d", 1, "v");
    assert!(asks(&host, &record).await);
    host.store.close().await.unwrap();
    assert_eq!(code(put(&host.store, &record).await), "CONNECTOR_CLOSED");
}

#[tokio::test]
async fn a_store_that_remembers_nothing_verifies_each_time() {
    let change = |builder: StoreBuilder| builder.accept_foreign_owners().verified_tokens(0);
    let (host, ada) = (host_with(change).await, person(1));
    let record = said(&ada, "d", 1, "v");
    for _ in 0..3 {
        assert!(asks(&host, &record).await);
    }
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");
}
