//! Which records are taken, and what a put does to those that stand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use connector_store::base::RecordFault;
use connector_store::domain::Table;
use connector_store::records::{AllowList, AnySigner, RecordSigner, SigningKey};
use connector_store::testing::{Fault, Gate, Stage};
use connector_store::{
    Clock as _, Digest, Error, MemoryJournal, SignedRecord, StoreBuilder, StreamKey,
};

use crate::common::{
    Owners, all_sorted, code, decided, did, document, host, host_on, host_with, issuers, person,
    put, said, said_for, stamp,
};

#[tokio::test]
async fn what_was_put_is_decided_and_a_higher_version_takes_its_place() {
    let (host, ada) = (host().await, person(1));
    let owner = did(&ada);
    put(&host.store, &said(&ada, "d", 5, "five")).await.unwrap();
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "five");
    put(&host.store, &said(&ada, "d", 3, "three")).await.unwrap();
    assert_eq!(
        decided(&host.store, &owner, "d").await.unwrap(),
        "five",
        "a lower one does nothing"
    );
    put(&host.store, &said_for(&ada, &owner, "d", 7, None)).await.unwrap();
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "", "it was decided to be absent");
    assert_eq!(decided(&host.store, &owner, "other").await, None);
    assert_eq!(host.rows(Table::ObservationRecords).await, 1);
    host.assert_sound().await;
}

#[tokio::test]
async fn equal_copies_of_several_signers_stand_side_by_side() {
    let host =
        host_with(|builder| builder.accept_foreign_owners().signer_policy(Arc::new(AnySigner)))
            .await;
    let people = [person(1), person(2), person(3)];
    let owner = did(&people[0]);
    for signer in &people {
        put(&host.store, &said_for(signer, &owner, "d", 1, Some("v"))).await.unwrap();
    }
    let all: Vec<&RecordSigner> = people.iter().collect();
    assert_eq!(issuers(&host.store, &owner, "d").await, all_sorted(&all));
    host.assert_sound().await;
}

#[tokio::test]
async fn a_record_of_another_type_or_of_another_document_is_refused() {
    let (host, ada) = (host().await, person(1));
    let mut record = said(&ada, "d", 1, "v");
    let other = host.store.document(&document("e")).put_observation_copy(&record).await;
    assert!(matches!(other, Err(Error::InvalidInput { field: "id", .. })), "{other:?}");
    record.key.record_type = "é".repeat(1_000).into();
    let refused = put(&host.store, &record).await;
    let Err(Error::UnsupportedRecordType { record_type }) = refused else { panic!("{refused:?}") };
    assert_eq!(record_type, "é".repeat(64), "a long type is cut off");
}

#[tokio::test]
async fn a_put_is_held_to_the_owner_of_the_document() {
    let (ada, bob) = (person(1), person(2));
    let owners = || Arc::new(Owners(vec![("a-", did(&person(1)))]));
    let host = host_with(|builder| builder.document_owners(owners())).await;
    put(&host.store, &said(&ada, "a-1", 1, "v")).await.unwrap();
    assert_eq!(
        code(put(&host.store, &said(&bob, "a-1", 1, "v")).await),
        "CONNECTOR_NOT_DOCUMENT_OWNER"
    );
    let nobody = put(&host.store, &said(&ada, "b-1", 1, "v")).await;
    assert_eq!(code(nobody), "CONNECTOR_NOT_DOCUMENT_OWNER", "nobody's document");
    let owner = host.store.observation_document_owner(&document("a-9")).await.unwrap();
    assert_eq!(owner, Some(did(&ada)));
    assert_eq!(host.store.observation_document_owner(&document("b")).await.unwrap(), None);

    let untold = host_with(|builder| builder).await;
    assert_eq!(
        code(put(&untold.store, &said(&ada, "a-1", 1, "v")).await),
        "CONNECTOR_NO_DOCUMENT_OWNERS"
    );
    let asked = untold.store.observation_document_owner(&document("a-1")).await;
    assert_eq!(code(asked), "CONNECTOR_NO_DOCUMENT_OWNERS");

    let open = host_with(|builder| builder.document_owners(owners()).accept_foreign_owners()).await;
    put(&open.store, &said(&ada, "a-1", 1, "of ada")).await.unwrap();
    put(&open.store, &said(&bob, "a-1", 2, "of bob")).await.unwrap();
    assert_eq!(decided(&open.store, &did(&ada), "a-1").await.unwrap(), "of ada");
    assert_eq!(decided(&open.store, &did(&bob), "a-1").await.unwrap(), "of bob");
    open.assert_sound().await;
}

fn fault(result: Result<(), Error>) -> RecordFault {
    match result {
        Err(Error::InvalidObservationRecord { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn with_bad_signature(mut record: SignedRecord) -> SignedRecord {
    // The last character but one, so that the form stays canonical.
    let mut token = record.op_jwt.as_bytes().to_vec();
    let at = token.len() - 2;
    token[at] = if token[at] == b'A' { b'B' } else { b'A' };
    record.op_jwt = String::from_utf8(token).unwrap().into();
    record.op_hash = Digest::of(record.op_jwt.as_bytes());
    record
}

#[tokio::test]
async fn what_does_not_verify_is_refused_and_leaves_nothing() {
    let change = |builder: StoreBuilder| {
        builder.accept_foreign_owners().max_token_bytes(2_000).max_payload_bytes(100)
    };
    let host = host_with(change).await;
    let (ada, bob) = (person(1), person(2));
    let good = said(&ada, "d", 1, "v");
    let signature = fault(put(&host.store, &with_bad_signature(good.clone())).await);
    assert_eq!(signature, RecordFault::Signature);
    let foreign = said_for(&bob, &did(&ada), "d", 1, Some("v"));
    assert_eq!(fault(put(&host.store, &foreign).await), RecordFault::SignerNotAllowed);
    let large = said(&ada, "d", 1, &"x".repeat(101));
    let payload = RecordFault::TooLarge { what: "payload", max_bytes: 100 };
    assert_eq!(fault(put(&host.store, &large).await), payload);
    let mut long = good.clone();
    long.op_jwt = "x".repeat(2_001).into();
    let token = RecordFault::TooLarge { what: "token", max_bytes: 2_000 };
    assert_eq!(fault(put(&host.store, &long).await), token);
    let mut other_hash = good.clone();
    other_hash.op_hash = Digest::of(b"another");
    assert_eq!(
        fault(put(&host.store, &other_hash).await),
        RecordFault::Mismatch { field: "op_hash" }
    );
    assert_eq!(host.rows(Table::ObservationRecords).await, 0);
    assert_eq!(host.store.stats().commands, 0, "no document was asked");
    put(&host.store, &good).await.unwrap();
}

/// What is remembered is the token. What lies beside it is compared each time.
#[tokio::test]
async fn a_payload_of_another_record_beside_a_known_token_is_refused() {
    let (host, ada) = (host().await, person(1));
    let (good, other) = (said(&ada, "d", 1, "v"), said(&ada, "e", 1, "w"));
    put(&host.store, &good).await.unwrap();
    put(&host.store, &other).await.unwrap();
    type Swap = fn(&mut SignedRecord, &SignedRecord);
    let swaps: [(&str, Swap); 5] = [
        ("payload", |record, other| record.payload = other.payload.clone()),
        ("payload", |record, _| record.payload = None),
        ("hlc", |record, _| record.hlc = stamp(2)),
        ("owner", |record, _| record.key.owner = did(&person(2))),
        ("op_hash", |record, other| record.op_jwt = Arc::clone(&other.op_jwt)),
    ];
    for (field, swap) in swaps {
        let mut record = good.clone();
        swap(&mut record, &other);
        assert_eq!(fault(put(&host.store, &record).await), RecordFault::Mismatch { field });
    }
    let mut moved = good.clone();
    moved.key.id = document("e");
    assert_eq!(fault(put(&host.store, &moved).await), RecordFault::Mismatch { field: "id" });
    // The same with a payload that is too large for the caller's thread.
    let large = said(&ada, "f", 1, &"x".repeat(100_000));
    put(&host.store, &large).await.unwrap();
    let mut changed = large.clone();
    changed.payload = Some(Arc::from("y".repeat(100_000).into_bytes()));
    assert_eq!(fault(put(&host.store, &changed).await), RecordFault::Mismatch { field: "payload" });
}

/// A stamp of a year ahead would win for ever.
#[tokio::test]
async fn a_stamp_too_far_ahead_is_refused_and_an_honest_writer_wins() {
    let (host, ada) = (host().await, person(1));
    let owner = did(&ada);
    let year = 366 * 24 * 3_600_000;
    for ahead in [60_001, year] {
        let far = said(&ada, "d", ahead, "far");
        let Err(Error::HlcDrift { ahead_ms, max_drift_ms: 60_000 }) = put(&host.store, &far).await
        else {
            panic!("{ahead} ms ahead was taken");
        };
        assert_eq!(ahead_ms, ahead);
        // Its signature is not even looked at.
        let unsigned = put(&host.store, &with_bad_signature(far)).await;
        assert_eq!(code(unsigned), "CONNECTOR_HLC_DRIFT");
        // The version alone decides, so it is held to the same.
        let version = ada.sign(&owner, &document("d"), &stamp(0), &stamp(ahead), Some(b"far"));
        assert_eq!(code(put(&host.store, &version.unwrap()).await), "CONNECTOR_HLC_DRIFT");
    }
    put(&host.store, &said(&ada, "d", 60_000, "just so")).await.unwrap();
    put(&host.store, &said(&ada, "d", 60_000 - 1, "honest")).await.unwrap();
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "just so");
    host.clock.advance(Duration::from_secs(61));
    put(&host.store, &said(&ada, "d", 61_000, "honest")).await.unwrap();
    assert_eq!(decided(&host.store, &owner, "d").await.unwrap(), "honest");
    // The host's own clock is not dragged forward by what was refused.
    let mut clock = host.store.hlc_clock("node", Duration::from_secs(60)).await.unwrap();
    let now = host.clock.wall().as_millis();
    assert_eq!(clock.now(now).unwrap().wall_ms(), now);
}

/// A machine that slept: the time that the store counts stood still, and others' did not.
#[tokio::test]
async fn after_a_suspension_honest_stamps_are_taken() {
    let (host, ada) = (host().await, person(1));
    let hour = 3_600_000;
    let record = said(&ada, "d", hour, "v");
    let with_nbf = not_before(&said(&ada, "e", hour, "v"), stamp(hour).wall_ms() / 1_000, 1);
    assert_eq!(code(put(&host.store, &record).await), "CONNECTOR_HLC_DRIFT");
    host.clock.set_wall(host.clock.wall().plus_millis(hour));
    put(&host.store, &record).await.unwrap();
    put(&host.store, &with_nbf).await.unwrap();
    let far = said(&ada, "d", hour + 60_001, "far");
    assert_eq!(code(put(&host.store, &far).await), "CONNECTOR_HLC_DRIFT");
    // A wall clock that was set back does not refuse what was taken a moment ago.
    host.clock.set_wall(host.clock.wall().plus_millis(-2 * hour));
    put(&host.store, &said(&ada, "f", 60_000, "v")).await.unwrap();
}

#[tokio::test]
async fn the_drift_that_is_taken_can_be_set() {
    let change = |builder: StoreBuilder| {
        builder.accept_foreign_owners().max_hlc_drift(Duration::from_millis(5))
    };
    let (host, ada) = (host_with(change).await, person(1));
    assert_eq!(code(put(&host.store, &said(&ada, "d", 6, "v")).await), "CONNECTOR_HLC_DRIFT");
    put(&host.store, &said(&ada, "d", 5, "v")).await.unwrap();
}

#[tokio::test]
async fn the_policy_says_who_signs_for_whom() {
    let (ada, device, bob) = (person(1), person(2), person(3));
    let list = AllowList::default().allow(&did(&ada), device.issuer());
    let change =
        |builder: StoreBuilder| builder.accept_foreign_owners().signer_policy(Arc::new(list));
    let host = host_with(change).await;
    put(&host.store, &said_for(&device, &did(&ada), "d", 1, Some("v"))).await.unwrap();
    put(&host.store, &said(&ada, "d", 1, "v")).await.unwrap();
    let refused = put(&host.store, &said_for(&bob, &did(&ada), "d", 2, Some("w"))).await;
    assert_eq!(fault(refused), RecordFault::SignerNotAllowed);
    let other = put(&host.store, &said_for(&device, &did(&bob), "d", 1, Some("v"))).await;
    assert_eq!(fault(other), RecordFault::SignerNotAllowed, "the list is per owner");
    assert_eq!(issuers(&host.store, &did(&ada), "d").await, all_sorted(&[&ada, &device]));
}

/// The record of a token whose claims have `nbf`, signed anew.
fn not_before(record: &SignedRecord, seconds: i64, seed: u8) -> SignedRecord {
    let mut parts = record.op_jwt.split('.');
    let (header, payload) = (parts.next().unwrap(), parts.next().unwrap());
    let claims = Base64UrlUnpadded::decode_vec(payload).unwrap();
    let claims = String::from_utf8(claims).unwrap();
    let claims = format!("{},\"nbf\":{seconds}}}", claims.strip_suffix('}').unwrap());
    let signed = format!("{header}.{}", Base64UrlUnpadded::encode_string(claims.as_bytes()));
    let signature = SigningKey::ed25519_from_seed([seed; 32]).sign(signed.as_bytes());
    let token = format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signature));
    let op_hash = Digest::of(token.as_bytes());
    SignedRecord { op_jwt: token.into(), op_hash, ..record.clone() }
}

#[tokio::test]
async fn a_token_is_taken_from_its_time_on_and_times_are_judged_at_the_put_alone() {
    let journal = MemoryJournal::new();
    let (host, ada) = (host_on(&journal, StoreBuilder::accept_foreign_owners).await, person(1));
    let now = host.clock.wall().as_millis();
    let record = not_before(&said(&ada, "d", 50_000, "v"), now / 1_000 + 10, 1);
    let not_before_ms = now + 10_000;
    let early = fault(put(&host.store, &record).await);
    assert_eq!(early, RecordFault::NotYetValid { not_before_ms });
    host.clock.advance(Duration::from_secs(10));
    put(&host.store, &record).await.unwrap();
    // The next process begins with the time of the start: what stands, stands.
    let host = host
        .reopen(&journal, |builder| builder.accept_foreign_owners().max_hlc_drift(Duration::ZERO));
    let host = host.await;
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "v");
}

/// A store that is opened with lower limits keeps what it took before.
#[tokio::test]
async fn limits_are_held_at_the_put_alone() {
    let journal = MemoryJournal::new();
    let (host, ada) = (host_on(&journal, StoreBuilder::accept_foreign_owners).await, person(1));
    let record = said(&ada, "d", 1, "a long value");
    put(&host.store, &record).await.unwrap();
    let low = |builder: StoreBuilder| builder.accept_foreign_owners().max_payload_bytes(3);
    let host = host.reopen(&journal, low).await;
    assert_eq!(decided(&host.store, &did(&ada), "d").await.unwrap(), "a long value");
    let again = fault(put(&host.store, &record).await);
    assert_eq!(again, RecordFault::TooLarge { what: "payload", max_bytes: 3 });
}

/// Payloads are in rows, not in events, and bound a batch all the same.
#[tokio::test]
async fn a_batch_is_bounded_by_its_payloads() {
    let (host, ada) = (host().await, person(1));
    let (gate, sizes) = (Gate::new(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&sizes);
    host.faults.observe(move |stage, batch| {
        if matches!(stage, Stage::BeforeCommit) {
            seen.lock().unwrap().push(batch.len());
        }
    });
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let value = "x".repeat(1 << 20);
    let puts: Vec<_> = (0..20)
        .map(|name| {
            let (store, record) = (host.store.clone(), said(&ada, &format!("d{name}"), 1, &value));
            tokio::spawn(async move { put(&store, &record).await })
        })
        .collect();
    while host.store.stats().commands < 20 {
        tokio::task::yield_now().await;
    }
    // Keys are held behind what came before, so by then all puts have been handed over.
    let keys = (0..20).map(|name| StreamKey::Document(document(format!("d{name}"))));
    drop(host.store.unit_of_work(keys).await.unwrap());
    gate.open();
    for put in puts {
        put.await.unwrap().unwrap();
    }
    let sizes = sizes.lock().unwrap();
    assert_eq!(sizes.iter().sum::<usize>(), 20);
    assert_eq!(sizes.iter().max(), Some(&8), "{sizes:?}");
}
