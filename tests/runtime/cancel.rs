//! Callers that go away at any await: a command happens whole or not at all.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use connector_store::StreamKey;
use connector_store::testing::{Chances, FaultyStorage};

use crate::common::*;

/// Drops its future after so many polls.
struct Dropped<F> {
    future: Option<Pin<Box<F>>>,
    polls_left: u32,
}

impl<F: Future> Future for Dropped<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls_left == 0 {
            self.future = None;
            return Poll::Ready(None);
        }
        self.polls_left -= 1;
        match self.future.as_mut().map(|future| future.as_mut().poll(context)) {
            Some(Poll::Ready(output)) => Poll::Ready(Some(output)),
            Some(Poll::Pending) if self.polls_left == 0 => {
                self.future = None;
                Poll::Ready(None)
            }
            _ => Poll::Pending,
        }
    }
}

/// Drops the call after so many polls; time passes slowly meanwhile.
async fn drop_after<F: Future>(host: &Host, polls: u32, future: F) -> Option<F::Output> {
    ticking(&host.clock, Dropped { future: Some(Box::pin(future)), polls_left: polls }).await
}

async fn unit(host: &Host, value: i64) -> connector_store::Result<()> {
    let keys = [document_key("u1"), document_key("u2")];
    let unit = host.store.unit_of_work(keys).await?;
    set_trim(&unit.document(&document("u1")), value).await?;
    set_trim(&unit.document(&document("u2")), value).await?;
    unit.commit().await
}

/// Callers go away at random; everything that was answered is there, units are whole.
async fn run(seed: u64, chances: Chances) {
    let journal = connector_store::MemoryJournal::new();
    let (builder, clock, _) = setup(&connector_store::MemoryJournal::new(), seed);
    let storage =
        FaultyStorage::random(std::sync::Arc::new(journal.open().unwrap()), seed, chances);
    let faults = std::sync::Arc::new(storage);
    let builder = builder.storage(std::sync::Arc::clone(&faults) as _);
    let store = builder.open().await.unwrap();
    let host = Host { store, clock, faults, journal };
    let mut random = seed;
    let mut answered = 0;
    for step in 0..120_i64 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let polls = u32::try_from(random >> 61).unwrap() + 1;
        match (random >> 40) % 4 {
            0 => drop(drop_after(&host, polls, unit(&host, step)).await),
            1 => drop(
                drop_after(&host, polls, host.store.document(&document("s")).sweep_document_rows())
                    .await,
            ),
            2 => drop(
                drop_after(&host, polls, set_trim(&host.store.document(&document("s")), step))
                    .await,
            ),
            _ => {
                let result = drop_after(&host, polls, count_up(&connector(&host.store, "o"))).await;
                answered += i64::from(matches!(result, Some(Ok(_))));
            }
        }
        if (random >> 30).is_multiple_of(7) {
            host.store.passivate_all();
        }
        host.clock.advance(SECOND / 10);
        tokio::task::yield_now().await;
    }
    host.faults.heal();
    let clock = host.clock.clone();
    ticking(&clock, check(&host, seed, answered)).await;
}

async fn check(host: &Host, seed: u64, answered: i64) {
    let counted = count(&connector(&host.store, "o")).await;
    assert!(counted >= answered, "seed {seed}: {counted} of {answered} answered");
    let (first, second) = (document("u1"), document("u2"));
    let values =
        (trim(&host.store.document(&first)).await, trim(&host.store.document(&second)).await);
    assert_eq!(values.0, values.1, "seed {seed}: a unit was torn");
    assert_sound(&host.store).await;
    // Readers in memory agree with the log.
    let key = StreamKey::Connector(owner("o"), folder());
    let events = host.journal.tamper(|tables| {
        tables.journal.values().filter(|event| event.stream == key.stream_name()).count()
    });
    assert_eq!(i64::try_from(events).unwrap(), counted, "seed {seed}");
    host.store.passivate_all();
    assert_eq!(count(&connector(&host.store, "o")).await, counted, "seed {seed}");
}

#[tokio::test]
async fn callers_that_are_dropped_at_any_await_tear_nothing() {
    for seed in 0..60 {
        bounded(run(seed, Chances::default())).await;
    }
}

#[tokio::test]
async fn nor_do_they_over_a_storage_that_fails() {
    let chances = Chances {
        fail: 50,
        passing: 50,
        lose_acknowledgement: 50,
        lose_commit: 50,
        stall: 200,
        ..Chances::default()
    };
    for seed in 1_000..1_060 {
        bounded(run(seed, chances)).await;
    }
}
