//! Watches and read winners through a store.

use std::collections::BTreeSet;

use connector_store::{
    ArmOutcome, Digest, FetchedRead, ReadWinner, Verification, WatchExpectation, WatchIdentity,
    WatchStatus,
};

use crate::common::*;

fn identity(name: &str) -> WatchIdentity {
    WatchIdentity { owner: owner(), connector: folder(), source_id: source(name) }
}

#[tokio::test]
async fn expired_watches_of_one_deadline_are_paged_each_once() {
    const ROWS: u32 = 1_203;
    let (store, clock, _journal) = store().await;
    for index in 0..ROWS {
        let name = format!("doc-{index}");
        let handle = store.document(&document(&name));
        handle.arm_watch(&identity(&name), &expectation()).await.unwrap();
    }
    clock.advance(SECOND * 60 - MILLI);
    assert_eq!(store.expired_watches(None, 10).await.unwrap(), []);
    clock.advance(MILLI);
    let (mut seen, mut pages, mut last) = (BTreeSet::new(), Vec::new(), None);
    loop {
        let after = last.as_ref().map(|(deadline, document)| (*deadline, document));
        let page = store.expired_watches(after, 500).await.unwrap();
        let Some(end) = page.last() else { break };
        last = Some((end.watch.deadline, end.document_id.clone()));
        pages.push(page.len());
        for watch in page {
            assert!(seen.insert(watch.document_id.clone()), "{} twice", watch.document_id);
        }
    }
    assert_eq!((seen.len(), pages), (ROWS as usize, vec![500, 500, 203]));
}

#[tokio::test]
async fn a_watch_is_found_by_document_and_source_and_verified_after_a_restart() {
    let (store, clock, journal) = store().await;
    let handle = store.document(&document("doc"));
    let armed = handle.arm_watch(&identity("s"), &expectation()).await.unwrap();
    assert_eq!(armed, ArmOutcome::Armed);
    let older = WatchExpectation { written_hlc: stamp(999), ..expectation() };
    assert_eq!(handle.arm_watch(&identity("s"), &older).await.unwrap(), ArmOutcome::Kept);
    let watch = handle.watch().await.unwrap().unwrap();
    let found = store.watch_by_source(&owner(), &folder(), &source("s")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&watch));
    let other = store.watch_by_source(&owner(), &folder(), &source("other")).await.unwrap();
    assert_eq!(other, None);
    store.close().await.unwrap();

    let store = builder(&clock, 2).memory(&journal).open().await.unwrap();
    let handle = store.document(&document("doc"));
    assert_eq!(handle.watch().await.unwrap(), Some(watch));
    let (right, wrong) = (Some(Digest::of(b"the value")), Some(Digest::of(b"another")));
    for (fetched, observed, outcome) in [
        (999, right, Verification::Stale),
        (1_001, wrong, Verification::Mismatched { count: 1 }),
        (1_002, None, Verification::Mismatched { count: 2 }),
    ] {
        let answer = handle.record_verification(&stamp(fetched), observed).await.unwrap();
        assert_eq!(answer, outcome);
    }
    clock.advance(SECOND * 60);
    let answer = handle.record_verification(&stamp(1_003), wrong).await.unwrap();
    assert_eq!(answer, Verification::Expired);
    let expired = store.expired_watches(None, 10).await.unwrap();
    assert_eq!(expired[0].watch.status, WatchStatus::Expired);
    assert!(handle.has_document_connector_work().await.unwrap());
    // Also after the deadline an equal value verifies.
    let answer = handle.record_verification(&stamp(1_004), right).await.unwrap();
    assert_eq!(answer, Verification::Verified);
    let answer = handle.record_verification(&stamp(1_005), right).await.unwrap();
    assert_eq!(answer, Verification::NoWatch);
    assert_eq!(store.watch_by_source(&owner(), &folder(), &source("s")).await.unwrap(), None);
    assert!(!handle.has_document_connector_work().await.unwrap());
    assert_sound(&store).await;
}

#[tokio::test]
async fn a_read_loses_to_what_is_unfinished_and_to_a_newer_write() {
    let (store, _clock, _journal) = store().await;
    let open = attempt(&store, "open", "op", "a").await;
    let done = attempt(&store, "written", "op-2", "a").await;
    done.finalize_committed(&source("s"), None, Some(&expectation())).await.unwrap();
    let read = |document_name: &str, at| FetchedRead {
        owner: owner(),
        document: document(document_name),
        fetch_hlc: stamp(at),
    };
    let by = |id: Option<&str>| ReadWinner::LocalWrite { operation_id: id.map(operation) };
    let mut reads = vec![
        (read("open", 1), by(Some("op"))),
        (read("open", 9_999), by(Some("op"))),
        (read("written", 999), by(None)),
        (read("written", 1_000), ReadWinner::Source),
        (read("untouched", 1), ReadWinner::Source),
    ];
    // More than are asked at once, in the order given.
    for index in 0..200 {
        reads.push((read(&format!("doc-{index}"), 1), ReadWinner::Source));
        reads.push((read("written", 1 + index), by(None)));
    }
    let (asked, winners): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
    assert_eq!(store.read_winners(&asked).await.unwrap(), winners);
    for (read, winner) in asked.iter().zip(&winners).take(5) {
        let handle = store.document(&read.document);
        assert_eq!(&handle.read_winner(&read.owner, &read.fetch_hlc).await.unwrap(), winner);
    }
    open.finalize_dead("given up").await.unwrap();
    let freed = store.document(&document("open")).read_winner(&owner(), &stamp(1)).await.unwrap();
    assert_eq!(freed, ReadWinner::Source);
}
