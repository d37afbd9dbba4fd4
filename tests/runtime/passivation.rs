//! Keys leave memory and come back; no message is lost, doubled or reordered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use connector_store::testing::{Fault, Gate};

use crate::common::*;

const SENDERS: u32 = 8;
const KEYS: u32 = 100;
const ROUNDS: u32 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_passivations_loses_doubles_and_reorders_nothing() {
    let host = host_with(|builder| builder.idle_time(Duration::from_millis(1))).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (store, clock, over) = (host.store.clone(), host.clock.clone(), Arc::clone(&is_over));
    let storm = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            store.passivate_all();
            clock.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    });
    let senders = (0..SENDERS).map(|sender| {
        let store = host.store.clone();
        tokio::spawn(async move {
            let mut newest = vec![-1; KEYS as usize];
            for round in 0..ROUNDS {
                for step in 0..KEYS {
                    let key = ((step + sender * 13 + round) % KEYS) as usize;
                    let handle = connector(&store, &format!("o{key}"));
                    let version = count_up(&handle).await.unwrap().version;
                    assert!(version > newest[key], "a sender's writes come in its order");
                    newest[key] = version;
                }
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        bounded(sender).await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    storm.await.unwrap();
    for key in 0..KEYS {
        let handle = connector(&host.store, &format!("o{key}"));
        let state = handle.sync_state().await.unwrap().unwrap();
        let writes = i64::from(SENDERS * ROUNDS);
        assert_eq!((state.entity_count, state.version), (writes, writes - 1));
    }
    assert_eq!(host.store.stats().appends, u64::from(SENDERS * ROUNDS * KEYS));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_stop_that_hangs_at_its_snapshot_is_broken_by_the_deadline() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    for value in 0..40 {
        set_trim(&a, value).await.unwrap();
    }
    let gate = Gate::new();
    host.faults.stall_snapshots(gate.clone());
    host.store.passivate_all();
    bounded(gate.reached()).await;
    let reader = a.clone();
    let read = tokio::spawn(async move { trim(&reader).await });
    bounded(host.clock.someone_sleeps_for(5 * SECOND)).await;
    assert!(!read.is_finished());
    host.clock.advance(5 * SECOND);
    assert_eq!(bounded(read).await.unwrap(), Some(39));
    set_trim(&a, 40).await.unwrap();
    gate.open();
    assert_eq!(trim(&a).await, Some(40));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_stop_behind_commands_that_came_back_decides_them_first() {
    let host = host().await;
    let (a, b) = (host.store.document(&document("a")), host.store.document(&document("b")));
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    host.faults.next_append(Fault::LoseCommit);
    let first = tokio::spawn(async move { set_trim(&b, 1).await });
    bounded(gate.reached()).await;
    let before = host.store.stats().commands;
    let writer = a.clone();
    let second = tokio::spawn(async move { set_trim(&writer, 2).await });
    until(|| host.store.stats().commands > before).await;
    host.store.passivate_all();
    settle().await;
    gate.open();
    bounded(first).await.unwrap().unwrap();
    bounded(second).await.unwrap().unwrap();
    assert_eq!(bounded(trim(&a)).await, Some(2));
    bounded(until(|| host.store.stats().active_keys <= 1)).await;
}

#[tokio::test]
async fn a_new_life_of_a_key_sees_what_the_last_one_wrote_last() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let (writer, reader) = (a.clone(), a.clone());
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(gate.reached()).await;
    host.store.passivate_all();
    let read = tokio::spawn(async move { trim(&reader).await });
    settle().await;
    assert!(!read.is_finished(), "the last life has not ended");
    gate.open();
    bounded(write).await.unwrap().unwrap();
    assert_eq!(bounded(read).await.unwrap(), Some(1));
    assert_eq!(trim(&a).await, Some(1));
}

#[tokio::test]
async fn keys_that_were_touched_once_leave_memory() {
    let host = host().await;
    for name in 0..2_000 {
        assert_eq!(trim(&host.store.document(&document(name))).await, None);
    }
    assert_eq!(host.store.stats().active_keys, 2_000);
    host.store.passivate_all();
    bounded(until(|| host.store.stats().active_keys == 0)).await;
}

#[tokio::test]
async fn a_key_leaves_after_its_idle_time_and_not_before() {
    let host = host_with(|builder| builder.idle_time(40 * SECOND)).await;
    let a = host.store.document(&document("a"));
    set_trim(&a, 1).await.unwrap();
    for quarter in 1..=4 {
        assert_eq!(host.store.stats().active_keys, 1, "quarter {quarter}");
        bounded(host.clock.someone_sleeps_for(10 * SECOND)).await;
        host.clock.advance(10 * SECOND);
    }
    bounded(until(|| host.store.stats().active_keys == 0)).await;
    assert_eq!(trim(&a).await, Some(1));
}

#[tokio::test]
async fn the_least_recently_used_leave_when_too_many_are_in_memory() {
    let host = host_with(|builder| builder.max_active_keys(128)).await;
    for name in 0..1_000 {
        set_trim(&host.store.document(&document(name)), name).await.unwrap();
    }
    // The bound is kept shard by shard, of which there are 64.
    bounded(until(|| host.store.stats().active_keys <= 128 + 64)).await;
    assert_eq!(trim(&host.store.document(&document(0))).await, Some(0));
    assert_sound(&host.store).await;
}
