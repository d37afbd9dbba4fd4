//! Several hosts: on one database, and with one each, exchanging what they have.

use std::sync::Arc;

use connector_store::records::AnySigner;
use connector_store::testing::SimClock;
use connector_store::{Clock as _, MemoryJournal, SignedRecord, Store, StoreBuilder};

use crate::common::{
    all_sorted, bounded, decided, did, document, host_on, issuers, person, put, said, said_for,
};

fn open_to_all(builder: StoreBuilder) -> StoreBuilder {
    builder.accept_foreign_owners().signer_policy(Arc::new(AnySigner))
}

#[tokio::test]
async fn hosts_on_one_database_see_each_others_copies_at_once() {
    let time = SimClock::default();
    let journal = MemoryJournal::shared(Arc::new(move || time.wall()));
    let (one, two) = (host_on(&journal, open_to_all).await, host_on(&journal, open_to_all).await);
    let (ada, bob) = (person(1), person(2));
    let owner = did(&ada);
    for round in 1..=10 {
        let value = format!("v{round}");
        put(&one.store, &said_for(&ada, &owner, "d", round, Some(&value))).await.unwrap();
        assert_eq!(decided(&two.store, &owner, "d").await.unwrap(), value);
        put(&two.store, &said_for(&bob, &owner, "d", round, Some(&value))).await.unwrap();
        assert_eq!(issuers(&one.store, &owner, "d").await, all_sorted(&[&ada, &bob]));
        let handle = one.store.document(&document("d"));
        handle.prune_observation_copy(&owner, bob.issuer()).await.unwrap();
        assert_eq!(issuers(&two.store, &owner, "d").await, [ada.issuer()]);
        // What the other host pruned is put again.
        put(&two.store, &said_for(&bob, &owner, "d", round, Some(&value))).await.unwrap();
        assert_eq!(issuers(&one.store, &owner, "d").await.len(), 2);
    }
    one.assert_sound().await;
}

#[tokio::test]
async fn of_puts_that_race_on_two_hosts_the_highest_decides() {
    let time = SimClock::default();
    let journal = MemoryJournal::shared(Arc::new(move || time.wall()));
    let (one, two) = (host_on(&journal, open_to_all).await, host_on(&journal, open_to_all).await);
    let ada = person(1);
    let puts = (1..=40).map(|at| {
        let store = if at % 2 == 0 { one.store.clone() } else { two.store.clone() };
        let record = said(&ada, "d", at, &format!("v{at}"));
        tokio::spawn(async move { put(&store, &record).await })
    });
    for put in puts.collect::<Vec<_>>() {
        bounded(put).await.unwrap().unwrap();
    }
    for host in [&one, &two] {
        assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v40");
    }
    one.assert_sound().await;
}

async fn copies(store: &Store) -> Vec<SignedRecord> {
    let types = ["connector.observation"];
    let page = store.list_observation_decisions(&types, None, 1_000).await.unwrap();
    assert_eq!(page.next, None);
    page.decisions.into_iter().flat_map(|decision| decision.copies).collect()
}

/// Whatever each had, after the exchange of all copies both have the same.
#[tokio::test]
async fn two_stores_that_exchange_all_copies_end_with_equal_ones() {
    let (one, two) = (
        host_on(&MemoryJournal::new(), open_to_all).await,
        host_on(&MemoryJournal::new(), open_to_all).await,
    );
    let people: Vec<_> = (1..=5).map(person).collect();
    let mut turn = 0_usize;
    for owner in &people[..2] {
        for name in ["a", "b", "c"] {
            for (signer, at) in people.iter().zip([3, 1, 3, 2, 3]) {
                turn += 1;
                let value = format!("v{}", at + i64::from(turn.is_multiple_of(7)));
                let record = said_for(signer, &did(owner), name, at, Some(&value));
                let hosts = [&one, &two];
                put(&hosts[turn * turn / 3 % 2].store, &record).await.unwrap();
            }
        }
    }
    assert_ne!(
        copies(&one.store).await,
        copies(&two.store).await,
        "there is something to exchange"
    );
    let (of_one, of_two) = (copies(&one.store).await, copies(&two.store).await);
    for record in &of_two {
        put(&one.store, record).await.unwrap();
    }
    for record in &of_one {
        put(&two.store, record).await.unwrap();
    }
    let both = (copies(&one.store).await, copies(&two.store).await);
    assert_eq!(both.0, both.1);
    assert!(!both.0.is_empty());
    one.assert_sound().await;
    two.assert_sound().await;
}
