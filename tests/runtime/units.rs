//! Units of work: all or nothing over several keys, and no two can hold each other for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use connector_store::testing::{Fault, Stage};
use connector_store::{
    Digest, Error, Hlc, OperationId, OperationKind, OperationRequest, StorageFault, StreamKey,
    SyncProgress,
};

use crate::common::*;

fn two() -> [StreamKey; 2] {
    [document_key("b"), document_key("a")]
}

#[tokio::test]
async fn a_unit_writes_all_its_keys_in_one_append_or_none() {
    let host = host().await;
    let (a, b) = (host.store.document(&document("a")), host.store.document(&document("b")));
    let full = || Error::storage(StorageFault::Full, "no room");
    for (fault, value, stored) in [(Fault::Fail(full()), 1, None), (Fault::None, 2, Some(2))] {
        host.faults.next_append(fault);
        let appends = host.store.stats().appends;
        let unit = host.store.unit_of_work(two()).await.unwrap();
        set_trim(&unit.document(&document("a")), value).await.unwrap();
        set_trim(&unit.document(&document("b")), value).await.unwrap();
        assert_eq!(trim(&unit.document(&document("a"))).await, Some(value), "it sees its own");
        assert_eq!(unit.commit().await.is_ok(), stored.is_some());
        assert_eq!((trim(&a).await, trim(&b).await), (stored, stored));
        assert_eq!(host.store.stats().appends - appends, u64::from(stored.is_some()));
    }
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_dropped_unit_changes_nothing_and_gives_its_keys_back() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    set_trim(&a, 1).await.unwrap();
    let unit = host.store.unit_of_work(two()).await.unwrap();
    set_trim(&unit.document(&document("a")), 2).await.unwrap();
    drop(unit);
    assert_eq!(trim(&a).await, Some(1));
    set_trim(&a, 3).await.unwrap();
    assert_eq!(trim(&a).await, Some(3));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_unit_past_its_hold_limit_loses_its_keys_and_its_commit() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let unit = host.store.unit_of_work([document_key("a")]).await.unwrap();
    set_trim(&unit.document(&document("a")), 1).await.unwrap();
    let other = a.clone();
    let write = tokio::spawn(async move { set_trim(&other, 2).await });
    settle().await;
    assert!(!write.is_finished(), "the key is held");
    host.clock.advance(HOLD_LIMIT);
    bounded(write).await.unwrap().unwrap();
    assert_eq!(code(unit.commit().await), "CONNECTOR_CONTENTION");
    assert_eq!(trim(&a).await, Some(2));
}

#[tokio::test]
async fn a_key_that_a_unit_does_not_hold_is_refused() {
    let host = host().await;
    let unit = host.store.unit_of_work([document_key("a")]).await.unwrap();
    let other = unit.document(&document("b"));
    assert_eq!(code(set_trim(&other, 1).await), "CONNECTOR_NOT_HELD");
    let handle = unit.document(&document("a"));
    unit.commit().await.unwrap();
    assert_eq!(code(set_trim(&handle, 1).await), "CONNECTOR_NOT_HELD", "it has ended");
}

#[tokio::test]
async fn a_unit_inside_a_unit_on_the_same_key_ends_within_the_hold_limit() {
    let host = host().await;
    let outer = host.store.unit_of_work([document_key("a")]).await.unwrap();
    let store = host.store.clone();
    let begin = tokio::spawn(async move { store.unit_of_work([document_key("a")]).await });
    settle().await;
    host.clock.advance(HOLD_LIMIT);
    let inner = bounded(begin).await.unwrap().unwrap();
    set_trim(&inner.document(&document("a")), 1).await.unwrap();
    inner.commit().await.unwrap();
    assert_eq!(code(outer.commit().await), "CONNECTOR_CONTENTION");
    assert_eq!(trim(&host.store.document(&document("a"))).await, Some(1));
}

#[tokio::test]
async fn units_that_wait_for_each_other_both_end_and_both_keys_stay_usable() {
    let host = host().await;
    let first = host.store.unit_of_work([document_key("a")]).await.unwrap();
    let second = host.store.unit_of_work([document_key("b")]).await.unwrap();
    let mut waits = Vec::new();
    for key in ["b", "a"] {
        let store = host.store.clone();
        waits.push(tokio::spawn(async move { store.unit_of_work([document_key(key)]).await }));
    }
    settle().await;
    host.clock.advance(HOLD_LIMIT);
    for wait in waits {
        drop(bounded(wait).await.unwrap().unwrap());
    }
    assert_eq!(code(first.commit().await), "CONNECTOR_CONTENTION");
    assert_eq!(code(second.commit().await), "CONNECTOR_CONTENTION");
    for name in ["a", "b"] {
        set_trim(&host.store.document(&document(name)), 1).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_over_the_same_keys_in_any_order_never_deadlock_and_lose_no_update() {
    let host = host().await;
    let units = (0..8_usize).map(|task| {
        let store = host.store.clone();
        tokio::spawn(async move {
            for round in 0..10 {
                let names = ["a", "b", "c"].map(|name| format!("{name}{}", (task + round) % 2));
                let keys = names.iter().map(|name| StreamKey::Connector(owner(name), folder()));
                let mut keys: Vec<StreamKey> = keys.collect();
                keys.rotate_left(task % 3);
                let unit = store.unit_of_work(keys).await.unwrap();
                for name in &names {
                    count_up(&unit.connector(&owner(name), &folder())).await.unwrap();
                }
                unit.commit().await.unwrap();
            }
        })
    });
    for unit in units.collect::<Vec<_>>() {
        bounded(unit).await.unwrap();
    }
    for name in ["a0", "b0", "c0", "a1", "b1", "c1"] {
        assert_eq!(count(&connector(&host.store, name)).await, 40, "{name}");
    }
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn what_a_unit_wrote_before_a_sweep_uses_up_no_version() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let judged = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&judged);
    host.faults.observe(move |stage, batch| {
        if stage == Stage::AfterCommit {
            counter.fetch_add(batch.len(), Ordering::SeqCst);
        }
    });
    let unit = host.store.unit_of_work([document_key("a")]).await.unwrap();
    let held = unit.document(&document("a"));
    set_trim(&held, 1).await.unwrap();
    held.sweep_document_rows().await.unwrap();
    unit.commit().await.unwrap();
    set_trim(&a, 2).await.unwrap();
    assert_eq!(trim(&a).await, Some(2));
    assert_eq!(judged.load(Ordering::SeqCst), 2, "nothing was decided twice");
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_unit_that_waits_for_room_does_not_wait_behind_the_commands_it_would_block() {
    let host = host_with(|builder| builder.in_flight_commands(4)).await;
    let unit = host.store.unit_of_work([document_key("a")]).await.unwrap();
    let blocked = (0..3).map(|value| {
        let a = host.store.document(&document("a"));
        tokio::spawn(async move { set_trim(&a, value).await })
    });
    let blocked: Vec<_> = blocked.collect();
    settle().await;
    set_trim(&unit.document(&document("a")), 9).await.unwrap();
    bounded(unit.commit()).await.unwrap();
    for write in blocked {
        bounded(write).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn content_that_a_later_command_of_a_unit_leaves_out_is_not_written() {
    let host = host().await;
    let key = StreamKey::Connector(owner("x"), folder());
    let unit = host.store.unit_of_work([key]).await.unwrap();
    let held = unit.connector(&owner("x"), &folder());
    let with = SyncProgress { recovery: Some(json("[1]")), ..counted(None) };
    held.update_sync_progress(move |_| with.clone()).await.unwrap();
    held.update_sync_progress(counted).await.unwrap();
    unit.commit().await.unwrap();
    let state = connector(&host.store, "x").sync_state().await.unwrap().unwrap();
    let row = host.store.sync_states(&folder(), None, 1).await.unwrap().remove(0);
    assert_eq!((state.recovery, row.state.recovery), (None, None));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_closure_that_panics_in_a_unit_changes_nothing() {
    let host = host().await;
    let key = StreamKey::Connector(owner("x"), folder());
    let unit = host.store.unit_of_work([key]).await.unwrap();
    let held = unit.connector(&owner("x"), &folder());
    count_up(&held).await.unwrap();
    let refused = held.update_sync_progress(|_| panic!("the closure panics")).await;
    assert_eq!(code(refused), "CONNECTOR_CLOSURE_PANICKED");
    count_up(&held).await.unwrap();
    unit.commit().await.unwrap();
    assert_eq!(count(&connector(&host.store, "x")).await, 2);
}

/// The permission to send must be on disk before it is given, and in a unit it would not be.
#[tokio::test]
async fn a_unit_claims_no_operation() {
    let host = host().await;
    let request = OperationRequest {
        operation_id: OperationId::new("op").unwrap(),
        owner: owner("o"),
        connector: folder(),
        op: OperationKind::Update,
        version: Hlc::parse("001767225600000-00000000-host").unwrap(),
        request_digest: Digest::of(b"request"),
        visibility_delay: SECOND,
    };
    let unit = host.store.unit_of_work(two()).await.unwrap();
    let held = unit.document(&document("a"));
    let claim = held.claim_operation(&request, &holder("h"), SECOND).await;
    assert_eq!(code(claim), "CONNECTOR_NOT_HELD");
    unit.commit().await.unwrap();
    assert!(host.store.operation(&request.operation_id).await.unwrap().is_none());
}
