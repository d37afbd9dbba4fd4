//! Group commit, bounds and back-pressure: much at once is neither slow nor unbounded.

use connector_store::Error;
use connector_store::testing::{Fault, Gate};

use crate::common::*;

#[tokio::test]
async fn a_thousand_writes_to_a_hot_key_go_in_few_batches() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let writes: Vec<_> = (0..1_000)
        .map(|_| {
            let handle = handle.clone();
            tokio::spawn(async move { count_up(&handle).await })
        })
        .collect();
    bounded(gate.reached()).await;
    bounded(until(|| host.store.stats().commands == 1_000)).await;
    settle().await;
    assert!(writes.iter().all(|write| !write.is_finished()), "no reply before it is durable");
    gate.open();
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
    let stats = host.store.stats();
    assert_eq!((stats.appends, stats.events), (1_000, 1_000));
    assert!(stats.batches <= 100, "{stats:?}");
    assert_eq!(count(&handle).await, 1_000);
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_stalled_storage_meets_bounds_and_everything_goes_on_afterwards() {
    let host = host_with(|builder| builder.mailbox_commands(8).in_flight_commands(32)).await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let hot = host.store.document(&document("hot"));
    let mut writes: Vec<_> = (0..100)
        .map(|value| {
            let hot = hot.clone();
            tokio::spawn(async move { set_trim(&hot, value).await })
        })
        .collect();
    bounded(gate.reached()).await;
    bounded(until(|| host.store.stats().commands == 8)).await;
    settle().await;
    assert_eq!(host.store.stats().commands, 8, "the mailbox takes no more");
    let refused = set_trim(&hot.without_waiting(), 0).await.unwrap_err();
    assert!(matches!(refused, Error::MailboxFull) && refused.is_retryable());
    writes.extend((0..100).map(|value| {
        let other = host.store.document(&document(format!("d{value}")));
        tokio::spawn(async move { set_trim(&other, value).await })
    }));
    bounded(until(|| host.store.stats().commands == 32)).await;
    settle().await;
    assert_eq!(host.store.stats().commands, 32, "the store takes no more");
    let cold = host.store.document(&document("cold")).without_waiting();
    assert_eq!(code(set_trim(&cold, 0).await), "CONNECTOR_MAILBOX_FULL");
    gate.open();
    for write in writes {
        bounded(write).await.unwrap().unwrap();
    }
    set_trim(&cold, 1).await.unwrap();
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn while_others_wait_one_owner_takes_its_share_and_no_more() {
    let host = host_with(|builder| builder.in_flight_commands(8)).await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let greedy: Vec<_> = (0..40)
        .map(|index| {
            let handle = host.store.connector(
                &owner("greedy"),
                &connector_store::ConnectorName::new(format!("c{index}")).unwrap(),
            );
            tokio::spawn(async move { count_up(&handle).await })
        })
        .collect();
    bounded(until(|| host.store.stats().commands == 8)).await;
    let modest = connector(&host.store, "modest");
    let modest = tokio::spawn(async move { count_up(&modest).await });
    settle().await;
    gate.open();
    bounded(modest).await.unwrap().unwrap();
    for write in greedy {
        bounded(write).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_call_that_finds_no_turn_ends_with_its_time() {
    let host = host_with(|builder| builder.mailbox_commands(1)).await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let a = host.store.document(&document("a"));
    let (first, second) = (a.clone(), a.clone());
    let taken = tokio::spawn(async move { set_trim(&first, 1).await });
    bounded(gate.reached()).await;
    let outside = tokio::spawn(async move { set_trim(&second, 2).await });
    settle().await;
    host.clock.advance(COMMAND_TIMEOUT);
    assert!(matches!(bounded(outside).await.unwrap(), Err(Error::TimedOut)), "nothing happened");
    assert!(matches!(bounded(taken).await.unwrap(), Err(Error::OutcomeUnknown { .. })));
    gate.open();
    assert_eq!(bounded(trim(&a)).await, Some(1));
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_and_nobody_hears_of_it() {
    let host = host().await;
    host.faults.next_append(Fault::Passing);
    let a = host.store.document(&document("a"));
    let writer = a.clone();
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(until(|| host.faults.faults_done() == 1)).await;
    bounded(host.clock.someone_sleeps_for(std::time::Duration::from_millis(2))).await;
    host.clock.advance(SECOND);
    bounded(write).await.unwrap().unwrap();
    assert_eq!(trim(&a).await, Some(1));
}
