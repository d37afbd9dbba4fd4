//! Decisions of many records, and who wins a read.

use connector_store::records::Hlc;
use connector_store::{
    Claim, Clock as _, Digest, FetchedRead, Holder, OperationId, OperationKind, OperationRequest,
    ReadWinner, RecordKey,
};
use std::time::Duration;

use crate::common::{code, did, document, folder, host, person, put, said, stamp};

#[tokio::test]
async fn decisions_come_in_the_order_of_their_keys_and_without_gaps() {
    let (host, ada) = (host().await, person(1));
    let owner = did(&ada);
    for name in (0..130).step_by(2) {
        put(&host.store, &said(&ada, &format!("d{name:03}"), 1, "v")).await.unwrap();
    }
    let keys: Vec<RecordKey> = (0..130)
        .rev()
        .map(|name| RecordKey::observation(&owner, &document(format!("d{name:03}"))))
        .collect();
    let found = host.store.observation_decisions(&keys).await.unwrap();
    let expected: Vec<&RecordKey> = keys.iter().skip(1).step_by(2).collect();
    assert_eq!(found.iter().map(|decision| &decision.key).collect::<Vec<_>>(), expected);
    let mut wrong = keys.clone();
    wrong[77].record_type = "other".into();
    let refused = host.store.observation_decisions(&wrong).await;
    assert_eq!(code(refused), "CONNECTOR_UNSUPPORTED_RECORD_TYPE");
}

#[tokio::test]
async fn a_list_goes_over_all_owners_by_owner_and_document_each_once() {
    let host = host().await;
    let people = [person(1), person(2), person(3)];
    let mut expected = Vec::new();
    for ada in &people {
        for name in ["b", "a", "c"] {
            put(&host.store, &said(ada, name, 1, "v")).await.unwrap();
            expected.push((did(ada), document(name)));
        }
    }
    expected.sort();
    let types = ["connector.observation"];
    for limit in [1, 2, 4, 9, 100] {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let from = after.as_ref().map(|(owner, id)| (owner, id));
            let page = host.store.list_observation_decisions(&types, from, limit).await.unwrap();
            let keys = page.decisions.into_iter().map(|decision| decision.key);
            found.extend(keys.map(|key| (key.owner, key.id)));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {limit}");
        assert_eq!(pages, 9 / limit as usize + 1, "pages of {limit}");
    }
    let none = host.store.list_observation_decisions(&[], None, 10).await.unwrap();
    assert_eq!((none.decisions.len(), none.next), (0, None), "no types: nothing");
    let other =
        host.store.list_observation_decisions(&["connector.observation", "x"], None, 10).await;
    assert_eq!(code(other), "CONNECTOR_UNSUPPORTED_RECORD_TYPE");
}

#[tokio::test]
async fn a_page_of_large_decisions_ends_early_and_none_is_lost() {
    let (host, ada) = (host().await, person(1));
    let value = "x".repeat(300_000);
    for name in 0..70 {
        put(&host.store, &said(&ada, &format!("d{name:03}"), 1, &value)).await.unwrap();
    }
    let types = ["connector.observation"];
    let first = host.store.list_observation_decisions(&types, None, 10_000).await.unwrap();
    assert_eq!(first.decisions.len(), 64, "19 MB are enough for a page");
    let (owner, id) = first.next.unwrap();
    assert_eq!(id, document("d063"));
    let second =
        host.store.list_observation_decisions(&types, Some((&owner, &id)), 10_000).await.unwrap();
    assert_eq!((second.decisions.len(), second.next), (6, None));
}

#[tokio::test]
async fn a_newer_decision_of_the_same_owner_wins_and_local_intent_comes_first() {
    let (host, ada, bob) = (host().await, person(1), person(2));
    put(&host.store, &said(&ada, "d", 5, "v")).await.unwrap();
    let handle = host.store.document(&document("d"));
    let decided = ReadWinner::Decision { hlc: stamp(5) };
    assert_eq!(handle.read_winner(&did(&ada), &stamp(4)).await.unwrap(), decided);
    assert_eq!(handle.read_winner(&did(&ada), &stamp(5)).await.unwrap(), ReadWinner::Source);
    let other = handle.read_winner(&did(&bob), &stamp(4)).await.unwrap();
    assert_eq!(other, ReadWinner::Source, "another owner's decision says nothing");
    let reads = [(&ada, 4), (&bob, 4), (&ada, 6)].map(|(owner, at)| FetchedRead {
        owner: did(owner),
        document: document("d"),
        fetch_hlc: stamp(at),
    });
    let winners = host.store.read_winners(&reads).await.unwrap();
    assert_eq!(winners, [decided, ReadWinner::Source, ReadWinner::Source]);

    let request = OperationRequest {
        operation_id: OperationId::new("op").unwrap(),
        owner: did(&ada),
        connector: folder(),
        op: OperationKind::Update,
        version: stamp(4),
        request_digest: Digest::of(b"request"),
        visibility_delay: Duration::ZERO,
    };
    let holder = Holder::new("h").unwrap();
    let claim = handle.claim_operation(&request, &holder, Duration::from_secs(9)).await.unwrap();
    assert!(matches!(claim, Claim::Attempt(_)));
    let local = handle.read_winner(&did(&ada), &stamp(4)).await.unwrap();
    assert!(matches!(local, ReadWinner::LocalWrite { operation_id: Some(_) }), "{local:?}");
}

/// After a restart nothing that the host stamps may be below what it stamped before.
#[tokio::test]
async fn a_clock_of_the_store_starts_above_every_stamp_in_it() {
    let (host, ada) = (host().await, person(1));
    let wall = host.clock.wall().as_millis();
    let next = |clock: &mut connector_store::HlcClock| clock.now(wall).unwrap();
    let mut clock = host.store.hlc_clock("n", Duration::from_secs(60)).await.unwrap();
    assert_eq!(next(&mut clock).wall_ms(), wall, "an empty store says nothing");
    // More than one read of them, ahead of the wall clock.
    let mut greatest = stamp(0);
    for ahead in 0..40 {
        let record = said(&ada, &format!("d{ahead}"), ahead * 100, "v");
        put(&host.store, &record).await.unwrap();
        greatest = greatest.max(record.hlc);
        let mut clock = host.store.hlc_clock("n", Duration::from_secs(60)).await.unwrap();
        let next = next(&mut clock);
        assert!(next > greatest, "{next} is not above {greatest}");
    }
    let far: Hlc = stamp(50_000);
    let repair = connector_store::ObservationRepair {
        owner: did(&ada),
        fetch_hlc: stamp(1),
        decision_hlc: far.clone(),
        present: true,
        value_digest: None,
    };
    host.store.document(&document("e")).put_repair(&repair).await.unwrap();
    let mut clock = host.store.hlc_clock("n", Duration::from_secs(60)).await.unwrap();
    assert!(next(&mut clock) > far);
    assert_eq!(
        code(host.store.hlc_clock("no node", Duration::ZERO).await),
        "CONNECTOR_INVALID_INPUT"
    );
}
