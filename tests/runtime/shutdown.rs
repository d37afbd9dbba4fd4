//! The end of a store: what was answered is durable, everybody else hears an error.

use std::sync::Arc;

use connector_store::testing::{Fault, Gate};
use connector_store::{Error, EventFilter, FeedCursor, StorageFault};

use crate::common::*;

#[tokio::test]
async fn queued_commands_drain_before_a_store_closes() {
    let host = host().await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let writes: Vec<_> = (0..1_000)
        .map(|value| {
            let handle = host.store.document(&document(value % 50));
            tokio::spawn(async move { set_trim(&handle, value).await })
        })
        .collect();
    bounded(until(|| host.store.stats().commands == 1_000)).await;
    let store = host.store.clone();
    let close = tokio::spawn(async move { store.close().await });
    settle().await;
    assert!(!close.is_finished());
    let late = set_trim(&host.store.document(&document("late")), 1).await;
    assert!(matches!(late, Err(Error::Closed)));
    gate.open();
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
    bounded(close).await.unwrap().unwrap();
    let events = host.journal.tamper(|tables| tables.journal.len());
    assert_eq!(events, 1_000);
}

#[tokio::test]
async fn every_call_after_close_is_closed() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    set_trim(&a, 1).await.unwrap();
    let unit = host.store.unit_of_work([document_key("b")]).await.unwrap();
    drop(unit);
    host.store.close().await.unwrap();
    let store = &host.store;
    let closed = "CONNECTOR_CLOSED";
    assert_eq!(code(set_trim(&a, 2).await), closed);
    assert_eq!(code(a.entity_trim().await), closed);
    assert_eq!(code(store.unit_of_work([document_key("a")]).await), closed);
    assert_eq!(code(store.sync_states(&folder(), None, 1).await), closed);
    assert_eq!(code(store.begun_sweeps(None, 1).await), closed);
    assert_eq!(code(store.verify().await), closed);
    assert_eq!(code(store.rebuild().await), closed);
    assert_eq!(code(store.apply_retention(SECOND).await), closed);
    assert_eq!(code(store.events(FeedCursor::START, EventFilter::default()).next().await), closed);
    assert_eq!(code(store.close().await), closed);
}

#[tokio::test]
async fn a_failing_disk_at_the_end_is_told_to_callers_and_nothing_hangs() {
    let host = host().await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let full = Error::storage(StorageFault::Full, "no room");
    host.faults.next_append(Fault::Fail(full));
    let first = host.store.document(&document("first"));
    let first = tokio::spawn(async move { set_trim(&first, 1).await });
    bounded(gate.reached()).await;
    let second = host.store.document(&document("second"));
    let sent = host.store.stats().commands;
    let second = tokio::spawn(async move { set_trim(&second, 1).await });
    until(|| host.store.stats().commands > sent).await;
    let store = host.store.clone();
    let close = tokio::spawn(async move { store.close().await });
    settle().await;
    gate.open();
    bounded(first).await.unwrap().unwrap();
    assert_eq!(code(bounded(second).await.unwrap()), "CONNECTOR_STORAGE");
    let _ = bounded(close).await.unwrap();
    assert_eq!(host.journal.tamper(|tables| tables.journal.len()), 1);
}

#[tokio::test]
async fn a_storage_that_hangs_at_the_end_is_reported_within_the_deadline() {
    let host = host().await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallAfter(gate.clone()));
    let a = host.store.document(&document("a"));
    let write = tokio::spawn(async move { set_trim(&a, 1).await });
    bounded(gate.reached()).await;
    let store = host.store.clone();
    let close = tokio::spawn(async move { store.close().await });
    while !close.is_finished() {
        host.clock.advance(COMMAND_TIMEOUT);
        settle().await;
    }
    let error = close.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Storage { fault: StorageFault::Unavailable, .. }), "{error}");
    // It was written, so nobody may hear that nothing happened.
    let answer = bounded(write).await.unwrap();
    assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_reader_of_the_feed_ends_with_the_store() {
    let host = host().await;
    let mut feed = host.store.events(FeedCursor::START, EventFilter::default());
    let next = tokio::spawn(async move { feed.next().await });
    settle().await;
    host.store.close().await.unwrap();
    assert!(matches!(bounded(next).await.unwrap(), Err(Error::Closed)));
}

#[tokio::test]
async fn dropping_the_last_handle_frees_the_storage_and_loses_nothing_answered() {
    let host = host().await;
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    let Host { store, faults, journal, .. } = host;
    drop(store);
    let alone = || Arc::strong_count(&faults) == 1;
    bounded(until(alone)).await;
    drop(faults);
    let reopened = host_on(&journal, 2, |builder| builder).await;
    assert_eq!(trim(&reopened.store.document(&document("a"))).await, Some(1));
    assert_sound(&reopened.store).await;
}
