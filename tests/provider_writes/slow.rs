//! Reads that prove nothing, and providers that show writes late.

use std::time::Duration;

use connector_store::Error;

use crate::common::*;
use crate::host::{HIDES_FOR, Host, Task, manners};
use crate::provider::{Condition, Mode, Provider};

/// The answer of a read that begins at `offset_ms` from the end of the permit, and comes later.
#[tokio::test]
async fn a_read_that_began_too_early_does_not_lead_to_another_send() {
    for (offset_ms, delay, is_early) in
        [(-9_000_i64, 0, true), (0, 0, true), (1, 0, false), (5_000, 5, true), (5_001, 5, false)]
    {
        let (store, clock, _journal) = store().await;
        let request =
            connector_store::OperationRequest { visibility_delay: SECOND * delay, ..request("op") };
        let claim = claim(&store, "doc", &request, "a").await.unwrap();
        let connector_store::Claim::Attempt(claimed) = claim else { panic!("{claim:?}") };
        let permit = claimed.mark_send_started().await.unwrap();
        assert_eq!(permit.send_within, TTL);
        claimed.record_unknown().await.unwrap();
        let begins = i64::try_from(TTL.as_millis()).unwrap() + offset_ms;
        clock.advance(MILLI * u32::try_from(begins).unwrap());
        claimed.begin_reconcile_read().await.unwrap();
        // The answer takes its time: when it comes, everything has long passed.
        clock.advance(SECOND * 60);
        let result = claimed.record_not_written().await;
        match result {
            Err(Error::ReconcileTooEarly { not_before, .. }) => {
                assert!(is_early, "{offset_ms} ms, {delay} s");
                let delay_ms = i64::try_from((SECOND * delay).as_millis()).unwrap();
                assert_eq!(not_before, permit.send_until.plus_millis(delay_ms));
            }
            result => {
                assert_eq!((code(result), is_early), ("ok", false), "{offset_ms} ms, {delay} s");
            }
        }
    }
}

#[tokio::test]
async fn a_read_under_an_earlier_claim_counts_for_nothing() {
    let (store, clock, _journal) = store().await;
    let first = attempt(&store, "doc", "op", "a").await;
    first.mark_send_started().await.unwrap();
    clock.advance(TTL + SECOND);
    let second = reconcile(&store, "doc", "op", "b").await;
    second.begin_reconcile_read().await.unwrap();
    let third = reconcile(&store, "doc", "op", "b").await;
    let result = third.record_not_written().await;
    assert_eq!(code(result), "CONNECTOR_RECONCILE_TOO_EARLY");
}

/// Without the delay the host believes a provider that does not show the write yet.
#[tokio::test]
async fn a_provider_that_shows_writes_late_needs_its_delay_told() {
    let hides = manners(Condition::None)[1];
    for (delay, writes) in [(Duration::ZERO, 2), (HIDES_FOR * 3, 1)] {
        let (store, clock, _journal) = store().await;
        // Hidden for longer than the permit lasts.
        let provider =
            Provider::new(&clock, crate::provider::Manner { hides_for: HIDES_FOR * 3, ..hides });
        let task = Task::new("doc", delay);
        let id = &task.request.operation_id;
        provider.set_mode(id, Mode::AnswerLost);
        Host::new(&store, &clock, &provider, "a", &task).finish().await;
        assert_eq!(provider.writes(id), writes, "delay {delay:?}");
    }
}

/// Five restarts under one name, each killed where the answer would come.
#[tokio::test]
async fn the_same_name_after_a_restart_asks_before_it_sends() {
    let (store, clock, _journal) = store().await;
    let provider = Provider::new(&clock, manners(Condition::None)[0]);
    let task = Task::new("doc", Duration::ZERO);
    let id = &task.request.operation_id;
    provider.set_mode(id, Mode::AnswerLost);
    // Claim, mark, look at the permit, send.
    assert!(Host::new(&store, &clock, &provider, "a", &task).make(4).await);
    assert_eq!(provider.requests(id), 1);
    for _ in 0..5 {
        store.passivate_all();
        reconcile(&store, "doc", "op-doc", "a").await;
    }
    Host::new(&store, &clock, &provider, "a", &task).finish().await;
    assert_eq!((provider.writes(id), provider.requests(id)), (1, 1));
    let record = store.operation(id).await.unwrap().unwrap();
    assert_eq!(record.operation.attempts, 1, "only what may be sent is an attempt");
}
