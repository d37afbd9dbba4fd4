//! What callers hear when a batch fails, loses its acknowledgement or holds a bad append.

use std::sync::Arc;

use connector_store::testing::{Fault, Gate, Stage};
use connector_store::{Error, Secret, StorageFault};

use crate::common::*;

fn full() -> Fault {
    Fault::Fail(Error::storage(StorageFault::Full, "no room"))
}

#[tokio::test]
async fn a_lost_acknowledgement_is_looked_up_and_written_once() {
    // The commit that was not written is decided again, once; the other is found.
    for fault in [Fault::LoseAcknowledgement, Fault::LoseCommit] {
        let host = host().await;
        let handle = connector(&host.store, "o");
        let case = format!("{fault:?}");
        count_up(&handle).await.unwrap();
        host.faults.next_append(fault);
        assert_eq!(count_up(&handle).await.unwrap().version, 1, "{case}");
        assert_eq!(count(&handle).await, 2, "{case}");
        assert_eq!(count_up(&handle).await.unwrap().version, 2, "{case}");
        assert_sound(&host.store).await;
    }
}

#[tokio::test]
async fn a_consumed_authorization_survives_a_lost_acknowledgement() {
    for fault in [Fault::LoseAcknowledgement, Fault::LoseCommit] {
        let host = host().await;
        let record = pending_auth("s", 1);
        host.store.create_pending_auth(record.clone()).await.unwrap();
        host.faults.next_append(fault);
        assert_eq!(host.store.consume_pending_auth(&Secret::new("s")).await.unwrap(), record);
        let again = host.store.consume_pending_auth(&Secret::new("s")).await;
        assert!(matches!(again, Err(Error::AlreadyConsumed)));
    }
}

#[tokio::test]
async fn an_outcome_that_cannot_be_looked_up_is_unknown_until_it_is_repeated() {
    for (fault, was_written) in [(Fault::LoseAcknowledgement, true), (Fault::LoseCommit, false)] {
        let host = host().await;
        let handle = connector(&host.store, "o");
        let id = uuid::Uuid::now_v7();
        let with_id = handle.with_command_id(id);
        let appends = host.journal.tamper(|tables| tables.last_position);
        host.faults.next_append(fault);
        // Once the append is over the database can't be reached any more.
        let gate = Gate::new();
        host.faults.stall_look_ups(gate.clone());
        let call = tokio::spawn(async move { with_id.acquire_lease(&holder("a"), SECOND).await });
        bounded(gate.reached()).await;
        bounded(host.clock.someone_sleeps_for(COMMAND_TIMEOUT)).await;
        host.clock.advance(COMMAND_TIMEOUT);
        let error = bounded(call).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::OutcomeUnknown { command_id } if command_id == id));
        gate.open();
        let written = host.journal.tamper(|tables| tables.last_position) - appends;
        assert_eq!(written, i64::from(was_written));
        let repeat = || handle.with_command_id(id);
        let mut answer = repeat().acquire_lease(&holder("a"), SECOND).await;
        while matches!(answer, Err(Error::InFlight { .. })) {
            settle().await;
            answer = repeat().acquire_lease(&holder("a"), SECOND).await;
        }
        assert_eq!(answer.unwrap().token().version, 1, "the first answer, or the first write");
        assert_eq!(host.journal.tamper(|tables| tables.last_position), appends + 1);
    }
}

#[tokio::test]
async fn a_failed_batch_tells_its_callers_and_leaves_no_phantom() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    count_up(&handle).await.unwrap();
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    host.faults.next_append(full());
    // The first is in the stalled batch; the others gather behind it and fail together.
    let mut writes = Vec::new();
    for index in 0..10 {
        let handle = handle.clone();
        writes.push(tokio::spawn(async move { count_up(&handle).await }));
        if index == 0 {
            bounded(gate.reached()).await;
        }
    }
    let sent = host.store.stats().commands;
    until(|| host.store.stats().commands >= sent.max(11)).await;
    settle().await;
    gate.open();
    let mut answers = Vec::new();
    for write in writes {
        answers.push(bounded(write).await.unwrap());
    }
    let failed = answers.iter().filter(|answer| answer.is_err()).count();
    let is_full = |error: &Error| matches!(error, Error::Storage { fault: StorageFault::Full, .. });
    assert!(failed >= 1 && answers.iter().flat_map(|answer| answer.as_ref().err()).all(is_full));
    let stored = i64::try_from(11 - failed).unwrap();
    assert_eq!(count(&handle).await, stored);
    assert_eq!(count_up(&handle).await.unwrap().version, stored);
    assert_sound(&host.store).await;
}

/// It has to wait for the claims of all hosts, on a database that they share.
#[tokio::test]
async fn a_forgetting_is_begun_in_a_batch_of_its_own() {
    let host = host().await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    host.faults.next_append(full());
    let mut writes = Vec::new();
    for (name, place) in ["first", "before", "behind"].into_iter().zip(0..) {
        if place == 2 {
            let store = host.store.clone();
            let forgets = async move { store.forget_connection(&owner("o"), &folder()).await };
            writes.push(tokio::spawn(forgets));
            settle().await;
        }
        let handle = host.store.document(&document(name));
        writes.push(tokio::spawn(async move { set_trim(&handle, 1).await }));
        if place == 0 {
            bounded(gate.reached()).await;
        }
        settle().await;
    }
    gate.open();
    let mut answers = Vec::new();
    for write in writes {
        answers.push(bounded(write).await.unwrap().is_ok());
    }
    assert_eq!(answers, [true, false, true, true], "the batch that fails has one append");
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn reads_and_refusals_wait_for_what_they_were_decided_on() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let writer = a.clone();
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(gate.reached()).await;
    let reader = a.clone();
    let read = tokio::spawn(async move { trim(&reader).await });
    settle().await;
    assert!(!write.is_finished() && !read.is_finished());
    gate.open();
    bounded(write).await.unwrap().unwrap();
    assert_eq!(bounded(read).await.unwrap(), Some(1));
    // A refusal: the lease that it names must be on disk first.
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let handle = connector(&host.store, "o");
    let (first, second) = (handle.clone(), handle);
    let taken = tokio::spawn(async move { first.acquire_lease(&holder("a"), SECOND).await });
    bounded(gate.reached()).await;
    let refused = tokio::spawn(async move { second.acquire_lease(&holder("b"), SECOND).await });
    settle().await;
    assert!(!refused.is_finished());
    gate.open();
    bounded(taken).await.unwrap().unwrap();
    assert_eq!(code(bounded(refused).await.unwrap()), "CONNECTOR_LEASE_HELD");
}

#[tokio::test]
async fn a_read_behind_a_write_that_failed_sees_no_phantom() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    host.faults.next_append(full());
    let other = host.store.document(&document("b"));
    let stalled = tokio::spawn(async move { set_trim(&other, 1).await });
    bounded(gate.reached()).await;
    let before = host.store.stats().commands;
    let (writer, reader) = (a.clone(), a.clone());
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    until(|| host.store.stats().commands > before).await;
    let read = tokio::spawn(async move { trim(&reader).await });
    until(|| host.store.stats().commands > before + 1).await;
    gate.open();
    bounded(stalled).await.unwrap().unwrap();
    assert_eq!(code(bounded(write).await.unwrap()), "CONNECTOR_STORAGE");
    assert_eq!(bounded(read).await.unwrap(), None);
}

#[tokio::test]
async fn one_bad_append_among_fifty_fails_alone() {
    let host = host().await;
    let lease = connector(&host.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    let lost = lease.session();
    lease.release().await.unwrap();
    let largest = Arc::new(std::sync::Mutex::new(0));
    let seen = Arc::clone(&largest);
    host.faults.observe(move |stage, batch| {
        if stage == Stage::AfterCommit {
            let mut largest = seen.lock().unwrap();
            *largest = batch.len().max(*largest);
        }
    });
    // The machine may be too busy to bring all of a round into one batch.
    for round in 0..20 {
        let gate = Gate::new();
        host.faults.next_append(Fault::StallBefore(gate.clone()));
        let first = host.store.document(&document(format!("first-{round}")));
        let stalled = tokio::spawn(async move { set_trim(&first, 1).await });
        bounded(gate.reached()).await;
        let sent = host.store.stats().commands;
        let writes: Vec<_> = (0..50)
            .map(|index| {
                let name = document(format!("{round}-{index}"));
                let handle =
                    if index == 25 { lost.document(&name) } else { host.store.document(&name) };
                tokio::spawn(async move { set_trim(&handle, index).await })
            })
            .collect();
        until(|| host.store.stats().commands == sent + 50).await;
        settle().await;
        gate.open();
        bounded(stalled).await.unwrap().unwrap();
        for (index, write) in writes.into_iter().enumerate() {
            let expected = if index == 25 { "CONNECTOR_LEASE_LOST" } else { "ok" };
            assert_eq!(code(bounded(write).await.unwrap()), expected, "{index}");
        }
        if *largest.lock().unwrap() >= 40 {
            return assert_sound(&host.store).await;
        }
    }
    panic!("of fifty appends at most {largest:?} came into one batch");
}
