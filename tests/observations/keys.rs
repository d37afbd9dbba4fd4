//! Keys that a registry resolves: how often it is asked, and what becomes of copies when keys are
//! rotated, revoked, or can't be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use connector_store::base::RecordFault;
use connector_store::domain::Table;
use connector_store::records::AnySigner;
use connector_store::{Error, MemoryJournal, OwnerDid, ReadWinner, SignerPolicy, StoreBuilder};

use crate::common::{
    Registry, WEB_DID, bounded, code, decided, decision, did, document, folder, host_on, host_with,
    issuers, json, person, put, said, said_for, stamp, web_key,
};

fn registered(registry: &Arc<Registry>) -> impl FnOnce(StoreBuilder) -> StoreBuilder {
    let registry = Arc::clone(registry);
    |builder| {
        builder.accept_foreign_owners().method_registry(registry).signer_policy(Arc::new(AnySigner))
    }
}

#[tokio::test]
async fn a_copy_is_verified_once_when_put_once_when_loaded_and_never_when_read() {
    let registry = Registry::with(&[("k1", 7)]);
    let journal = MemoryJournal::new();
    let host = host_on(&journal, registered(&registry)).await;
    let signer = web_key(7, "k1");
    let (owner, record) = (did(&signer), said(&signer, "d", 1, "v"));
    put(&host.store, &record).await.unwrap();
    assert_eq!(registry.asked(), 1);
    for _ in 0..3 {
        put(&host.store, &record).await.unwrap();
        assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v");
    }
    assert_eq!(registry.asked(), 1, "neither a read nor a repeated put asks");

    let host = host.reopen(&journal, registered(&registry)).await;
    for _ in 0..3 {
        assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v");
        put(&host.store, &record).await.unwrap();
    }
    assert_eq!(registry.asked(), 2, "a new process verifies once");

    registry.move_epoch();
    for _ in 0..3 {
        assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v");
    }
    assert_eq!(registry.asked(), 3, "once under each epoch");
}

/// Readers that come at once to a document that was just loaded share the work.
#[tokio::test]
async fn many_readers_of_one_copy_verify_it_once() {
    let registry = Registry::with(&[("k1", 7)]);
    let journal = MemoryJournal::new();
    let host = host_on(&journal, registered(&registry)).await;
    let signer = web_key(7, "k1");
    put(&host.store, &said(&signer, "d", 1, "v")).await.unwrap();
    let host = host.reopen(&journal, registered(&registry)).await;
    let keys: Vec<_> = (0..50)
        .map(|_| connector_store::RecordKey::observation(&did(&signer), &document("d")))
        .collect();
    assert_eq!(host.store.observation_decisions(&keys).await.unwrap().len(), 50);
    assert_eq!(registry.asked(), 2);
}

#[tokio::test]
async fn a_rotated_key_ends_its_copies_and_an_accepted_write_drops_them() {
    let registry = Registry::with(&[("k1", 7), ("k2", 8)]);
    let host = host_with(registered(&registry)).await;
    let (old, new, ada) = (web_key(7, "k1"), web_key(8, "k2"), person(1));
    let owner = did(&ada);
    for signer in [&old, &new, &ada] {
        put(&host.store, &said_for(signer, &owner, "d", 5, Some("v"))).await.unwrap();
    }
    assert_eq!(host.rows(Table::ObservationRecords).await, 3);
    registry.set(&[("k2", 8)]);
    assert_eq!(
        decision(&host.store, &owner, "d").await.unwrap().copies.len(),
        3,
        "the epoch is the same"
    );
    registry.move_epoch();
    assert_eq!(issuers(&host.store, &owner, "d").await, [ada.issuer(), WEB_DID]);
    assert_eq!(host.rows(Table::ObservationRecords).await, 3, "a read changes nothing");

    // All valid copies but the revoked one's are gone: a lower put of a valid key decides.
    registry.set(&[]);
    registry.move_epoch();
    let bob = person(2);
    put(&host.store, &said_for(&bob, &owner, "d", 5, Some("v"))).await.unwrap();
    let mut expected = vec![ada.issuer(), bob.issuer()];
    expected.sort_unstable();
    assert_eq!(issuers(&host.store, &owner, "d").await, expected);
    assert_eq!(host.rows(Table::ObservationRecords).await, 2, "what is not valid was dropped");
    host.assert_sound().await;
}

#[tokio::test]
async fn without_a_valid_copy_there_is_no_decision_and_a_lower_put_decides() {
    let registry = Registry::with(&[("k1", 7)]);
    let host = host_with(registered(&registry)).await;
    let (web, ada) = (web_key(7, "k1"), person(1));
    let owner = did(&ada);
    put(&host.store, &said_for(&web, &owner, "d", 9, Some("high"))).await.unwrap();
    let handle = host.store.document(&document("d"));
    let winner = handle.read_winner(&owner, &stamp(5)).await.unwrap();
    assert_eq!(winner, ReadWinner::Decision { hlc: stamp(9) });
    registry.set(&[]);
    registry.move_epoch();
    assert_eq!(decided(&host.store, &owner, "d").await, None);
    assert_eq!(handle.read_winner(&owner, &stamp(5)).await.unwrap(), ReadWinner::Source);
    put(&host.store, &said_for(&ada, &owner, "d", 3, Some("low"))).await.unwrap();
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "low");
}

/// Nobody can say whether the copies are valid, so nothing is said of them, and nothing dropped. What
/// does not ask goes on.
#[tokio::test]
async fn an_unresolvable_key_stops_its_copies_alone_and_drops_nothing() {
    let registry = Registry::with(&[("k1", 7)]);
    let journal = MemoryJournal::new();
    let host = host_on(&journal, registered(&registry)).await;
    let (web, ada) = (web_key(7, "k1"), person(1));
    let owner = did(&ada);
    put(&host.store, &said_for(&web, &owner, "d", 5, Some("v"))).await.unwrap();
    let host = host.reopen(&journal, registered(&registry)).await;
    registry.set_offline(true);

    let handle = host.store.document(&document("d"));
    let Err(error) = handle.observation_decision(&owner).await else { panic!("nobody knows") };
    assert!(matches!(&error, Error::KeyUnavailable { issuer } if issuer == WEB_DID), "{error:?}");
    assert!(error.is_retryable());
    let unavailable = "CONNECTOR_KEY_UNAVAILABLE";
    assert_eq!(code(put(&host.store, &said(&ada, "d", 9, "w")).await), unavailable);
    assert_eq!(code(handle.prune_observation_copy(&owner, WEB_DID).await), unavailable);
    assert_eq!(code(handle.read_winner(&owner, &stamp(1)).await), unavailable);
    assert_eq!(code(put(&host.store, &said(&web, "e", 1, "v")).await), unavailable);
    // A fetch that is newer than the decision needs no verdict.
    assert_eq!(handle.read_winner(&owner, &stamp(5)).await.unwrap(), ReadWinner::Source);
    handle.set_entity_trim(&owner, &folder(), json("1")).await.unwrap();
    assert!(handle.entity_trim().await.unwrap().is_some());
    assert_eq!(handle.repair().await.unwrap(), None);

    registry.set_offline(false);
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "v", "nothing was dropped");
    put(&host.store, &said(&ada, "d", 9, "w")).await.unwrap();
    host.assert_sound().await;
}

#[tokio::test]
async fn an_issuer_without_a_registry_or_with_an_unknown_key_is_no_signer() {
    let registry = Registry::with(&[("k1", 7)]);
    let with = host_with(registered(&registry)).await;
    let without = host_with(StoreBuilder::accept_foreign_owners).await;
    let cases = [(&with, web_key(7, "k2"), 1), (&without, web_key(7, "k1"), 1)];
    for (host, signer, asked) in cases {
        let refused = put(&host.store, &said(&signer, "d", 1, "v")).await;
        let reason = RecordFault::UnknownKey;
        assert!(
            matches!(&refused, Err(Error::InvalidObservationRecord { reason: it }) if *it == reason)
        );
        assert_eq!(registry.asked(), asked);
    }
    // Another key than the one of that id.
    let forged = put(&with.store, &said(&web_key(9, "k1"), "d", 1, "v")).await;
    let reason = RecordFault::Signature;
    assert!(
        matches!(&forged, Err(Error::InvalidObservationRecord { reason: it }) if *it == reason)
    );
}

/// Who may not sign makes the store ask nobody.
#[tokio::test]
async fn the_policy_comes_before_the_key() {
    let registry = Registry::with(&[("k1", 7)]);
    let given = Arc::clone(&registry);
    let change = |builder: StoreBuilder| builder.accept_foreign_owners().method_registry(given);
    let host = host_with(change).await;
    let foreign = said_for(&web_key(7, "k1"), &did(&person(1)), "d", 1, Some("v"));
    assert_eq!(code(put(&host.store, &foreign).await), "CONNECTOR_INVALID_OBSERVATION_RECORD");
    assert_eq!(registry.asked(), 0);
}

/// A registry that never answers costs its callers their time and nobody else anything.
#[tokio::test]
async fn a_registry_that_hangs_ends_the_call_and_a_later_one_is_served() {
    let registry = Registry::with(&[("k1", 7)]);
    let host = host_with(registered(&registry)).await;
    let record = said(&web_key(7, "k1"), "d", 1, "v");
    registry.is_stuck.store(true, Ordering::SeqCst);
    let (store, stuck) = (host.store.clone(), record.clone());
    let call = tokio::spawn(async move { put(&store, &stuck).await });
    while registry.asked() == 0 {
        tokio::task::yield_now().await;
    }
    put(&host.store, &said(&person(1), "d", 1, "v")).await.unwrap();
    registry.is_stuck.store(false, Ordering::SeqCst);
    let limit = Duration::from_secs(30);
    host.clock.someone_sleeps_for(limit).await;
    host.clock.advance(limit);
    let timed_out = bounded(call).await.unwrap().unwrap_err();
    assert!(matches!(timed_out, Error::TimedOut) && timed_out.is_retryable(), "{timed_out:?}");
    bounded(put(&host.store, &record)).await.unwrap();
    assert_eq!(registry.asked(), 2);
}

/// The work of a call that was given up is not lost, and nobody waits for it in vain.
#[tokio::test]
async fn a_dropped_put_holds_up_nobody() {
    let registry = Registry::with(&[("k1", 7)]);
    let host = host_with(registered(&registry)).await;
    let record = said(&web_key(7, "k1"), "d", 1, "v");
    for _ in 0..20 {
        // Polled once, so it is on its way, then dropped.
        let mut given_up = Box::pin(put(&host.store, &record));
        let first = std::future::poll_fn(|context| Poll::Ready(given_up.as_mut().poll(context)));
        let _ = first.await;
        drop(given_up);
    }
    bounded(put(&host.store, &record)).await.unwrap();
    assert_eq!(registry.asked(), 1);
}

#[tokio::test]
async fn a_policy_that_panics_ends_the_call_alone() {
    struct Bomb(AtomicBool);
    impl SignerPolicy for Bomb {
        fn allows(&self, _: &str, _: &OwnerDid) -> bool {
            assert!(!self.0.swap(false, Ordering::SeqCst), "it panics as it was told to");
            true
        }
    }
    let bomb = Arc::new(Bomb(AtomicBool::new(true)));
    let change = |builder: StoreBuilder| builder.accept_foreign_owners().signer_policy(bomb);
    let host = host_with(change).await;
    let record = said(&person(1), "d", 1, "v");
    let stopped = bounded(put(&host.store, &record)).await.unwrap_err();
    assert!(matches!(stopped, Error::ActorStopped) && stopped.is_retryable(), "{stopped:?}");
    bounded(put(&host.store, &record)).await.unwrap();
}
