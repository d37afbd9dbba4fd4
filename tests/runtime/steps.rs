//! Batches that are committed in a step of their own, as on a server: the next one is begun meanwhile,
//! and is nothing if the one before comes to nothing.

use std::sync::Arc;

use connector_store::testing::{Chances, Fault, FaultyStorage, Gate, SimClock};
use connector_store::{Error, MemoryJournal, StorageFault, Store, Timestamp};

use crate::common::*;

fn journal() -> MemoryJournal {
    MemoryJournal::shared(Arc::new(|| Timestamp::from_millis(1)))
}

async fn host_over(faults: FaultyStorage) -> (Store, Arc<FaultyStorage>, SimClock) {
    let (faults, clock) = (Arc::new(faults), SimClock::default());
    let builder = Store::builder().storage(Arc::clone(&faults) as _);
    let store = builder.clock(Arc::new(clock.clone())).arbiters(2).open().await.unwrap();
    (store, faults, clock)
}

/// A host whose first commit waits at the gate, and which has begun the next transaction behind it.
async fn begun_behind(
    gate: &Gate,
) -> (Store, Arc<FaultyStorage>, [tokio::task::JoinHandle<Result<(), Error>>; 2]) {
    let journal = journal();
    let faults = FaultyStorage::new(Arc::new(journal.open().unwrap()));
    let (store, faults, _) = host_over(faults.in_two_steps(&journal, false)).await;
    faults.next_append(Fault::StallBefore(gate.clone()));
    let write = |name: &'static str| {
        let handle = store.document(&document(name));
        tokio::spawn(async move { set_trim(&handle, 1).await })
    };
    let first = write("first");
    bounded(gate.reached()).await;
    let next = write("next");
    while faults.begun() < 2 {
        tokio::task::yield_now().await;
    }
    (store, faults, [first, next])
}

#[tokio::test]
async fn what_is_begun_beside_a_commit_is_committed_behind_it() {
    let gate = Gate::new();
    let (store, faults, [first, next]) = begun_behind(&gate).await;
    assert!(!first.is_finished() && !next.is_finished());
    gate.open();
    bounded(first).await.unwrap().unwrap();
    bounded(next).await.unwrap().unwrap();
    assert_eq!(faults.begun(), 2, "nothing was written twice");
    assert_sound(&store).await;
}

#[tokio::test]
async fn what_is_begun_beside_a_commit_that_fails_is_begun_anew_once_all_is_known_of_that() {
    let gate = Gate::new();
    let (store, faults, [first, next]) = begun_behind(&gate).await;
    faults.set_full(true);
    gate.open();
    let error = bounded(first).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Storage { fault: StorageFault::Full, .. }), "{error}");
    // The storage would have panicked at its commit. It was begun anew, and found the disk full, too.
    let error = bounded(next).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Storage { fault: StorageFault::Full, .. }), "{error}");
    assert_eq!(faults.begun(), 3);
    for name in ["first", "next"] {
        assert_eq!(store.document(&document(name)).entity_trim().await.unwrap(), None);
    }
    faults.set_full(false);
    set_trim(&store.document(&document("next")), 2).await.unwrap();
    assert_sound(&store).await;
}

/// Nothing of an answer leaves before what is before it in the mailbox is durable.
#[tokio::test]
async fn a_read_behind_a_write_waits_for_its_commit() {
    let gate = Gate::new();
    let (store, _faults, writes) = begun_behind(&gate).await;
    let handle = store.document(&document("first"));
    let read = tokio::spawn(async move { trim(&handle).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!read.is_finished());
    gate.open();
    assert_eq!(bounded(read).await.unwrap(), Some(1));
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_close_waits_for_the_commit_and_for_what_was_begun_behind_it() {
    let gate = Gate::new();
    let (store, _faults, writes) = begun_behind(&gate).await;
    let closing = tokio::spawn(async move { store.close().await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished());
    gate.open();
    bounded(closing).await.unwrap().unwrap();
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
}

/// The first of two writes of a key loses to another host, in a batch that is committed for another
/// key. The second one waits in the queue meanwhile.
#[tokio::test]
async fn what_stands_on_a_refused_append_goes_back_behind_it() {
    let (a, b, _) = two_hosts().await;
    let (mine, theirs) = (a.store.document(&document("a")), b.store.document(&document("a")));
    set_trim(&mine, 0).await.unwrap();
    for round in 0..50 {
        let gate = Gate::new();
        a.faults.next_append(Fault::StallBefore(gate.clone()));
        let other = a.store.document(&document("other"));
        let stalled = tokio::spawn(async move { set_trim(&other, round).await });
        bounded(gate.reached()).await;
        set_trim(&theirs, 1_000 + round).await.unwrap();
        // They gather behind the stalled batch, in this order.
        let writes = [("a", 2_000), ("other", 3_000), ("a", 4_000)].map(|(name, value)| {
            let handle = a.store.document(&document(name));
            tokio::spawn(async move { set_trim(&handle, value + round).await })
        });
        settle().await;
        gate.open();
        bounded(stalled).await.unwrap().unwrap();
        for write in writes {
            bounded(write).await.unwrap().unwrap();
        }
        assert_eq!(trim(&theirs).await, Some(4_000 + round), "in the order they were sent");
    }
    assert_sound(&a.store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_fail_in_a_storm_lose_and_double_nothing() {
    const KEYS: usize = 4;
    const EACH: usize = 40;
    const FAULTS: u64 = 50;
    let (mut faults_done, mut seed) = (0, 0);
    // How many batches there are, and so how many faults, is up to the scheduler.
    while seed < 20 || faults_done <= FAULTS {
        assert!(seed < 1_000, "{faults_done} faults");
        let journal = journal();
        let chances = Chances {
            fail: 30,
            passing: 100,
            lose_acknowledgement: 100,
            lose_commit: 100,
            stall: 200,
            rival: 50,
            ..Chances::NONE
        };
        let inner = Arc::new(journal.open().unwrap());
        let faults = FaultyStorage::random(inner, seed, chances).in_two_steps(&journal, true);
        let (store, faults, clock) = host_over(faults).await;
        let writes = (0..KEYS * EACH).map(|n| {
            let handle = connector(&store, &format!("o{}", n % KEYS));
            tokio::spawn(async move { (n % KEYS, count_up(&handle).await) })
        });
        let mut versions = vec![Vec::new(); KEYS];
        for write in writes.collect::<Vec<_>>() {
            let (key, result) = bounded(ticking(&clock, write)).await.unwrap();
            match result {
                Ok(progress) => versions[key].push(progress.version),
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
        faults.heal();
        for (key, versions) in versions.iter_mut().enumerate() {
            versions.sort_unstable();
            let counted = count(&connector(&store, &format!("o{key}"))).await;
            let expected: Vec<i64> = (0..counted).collect();
            assert_eq!(*versions, expected, "seed {seed}: each answer is of one write");
        }
        faults_done += faults.faults_done();
        assert_sound(&store).await;
        seed += 1;
    }
}
