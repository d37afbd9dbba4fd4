//! A panic ends one actor and one message; everything else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use connector_store::testing::{Fault, Gate};
use connector_store::{Error, Jitter};

use crate::common::*;

/// Chance that panics as often as it is told to. It is asked in an actor's turn alone.
#[derive(Default)]
struct Bomb(AtomicU32);

impl Bomb {
    fn arm(&self, times: u32) {
        self.0.store(times, Ordering::SeqCst);
    }
}

impl Jitter for Bomb {
    fn unit(&self) -> f64 {
        let left = self.0.load(Ordering::SeqCst);
        if left > 0 {
            self.0.store(left - 1, Ordering::SeqCst);
            panic!("the handler panics as it was told to");
        }
        0.5
    }
}

async fn bombed() -> (Host, Arc<Bomb>) {
    let bomb = Arc::new(Bomb::default());
    let jitter = Arc::clone(&bomb);
    (host_with(|builder| builder.jitter(jitter)).await, bomb)
}

#[tokio::test]
async fn a_panic_fails_its_message_alone_and_the_key_is_loaded_anew() {
    let (host, bomb) = bombed().await;
    let (a, b) = (host.store.document(&document("a")), host.store.document(&document("b")));
    set_trim(&a, 1).await.unwrap();
    bomb.arm(1);
    let error = set_trim(&a, 2).await.unwrap_err();
    assert!(matches!(error, Error::ActorStopped) && error.is_retryable());
    set_trim(&b, 7).await.unwrap();
    assert_eq!((trim(&a).await, trim(&b).await), (Some(1), Some(7)));
    set_trim(&a, 3).await.unwrap();
    assert_eq!(trim(&a).await, Some(3));
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn what_an_actor_handed_over_before_its_panic_is_seen_by_the_next_one() {
    let (host, bomb) = bombed().await;
    let gate = Gate::new();
    host.faults.next_append(Fault::StallBefore(gate.clone()));
    let a = host.store.document(&document("a"));
    let writer = a.clone();
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(gate.reached()).await;
    bomb.arm(1);
    assert_eq!(code(set_trim(&a, 2).await), "CONNECTOR_ACTOR_STOPPED");
    let reader = a.clone();
    let early_read = tokio::spawn(async move { trim(&reader).await });
    settle().await;
    gate.open();
    bounded(write).await.unwrap().unwrap();
    bounded(early_read).await.unwrap();
    assert_eq!(trim(&a).await, Some(1), "a state without an answered write is stale");
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_panicking_closure_leaves_the_state_untouched() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    count_up(&handle).await.unwrap();
    let before = handle.sync_state().await.unwrap();
    let result = handle.update_sync_progress(|_| panic!("the closure panics")).await;
    assert!(matches!(result, Err(Error::ClosurePanicked)));
    assert_eq!(handle.sync_state().await.unwrap(), before);
    assert_eq!(count_up(&handle).await.unwrap().version, 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_during_the_commit_tears_nothing() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    let gate = Gate::new();
    host.faults.next_append(Fault::StallAfter(gate.clone()));
    let writer = a.clone();
    let write = tokio::spawn(async move { set_trim(&writer, 1).await });
    bounded(gate.reached()).await;
    write.abort();
    assert!(write.await.unwrap_err().is_cancelled());
    gate.open();
    assert_eq!(trim(&a).await, Some(1));
    set_trim(&a, 2).await.unwrap();
    assert_sound(&host.store).await;
}

#[tokio::test]
async fn a_key_that_panics_again_and_again_backs_off_and_comes_back() {
    let (host, bomb) = bombed().await;
    let (a, b) = (host.store.document(&document("a")), host.store.document(&document("b")));
    for _ in 0..3 {
        bomb.arm(1);
        assert_eq!(code(set_trim(&a, 1).await), "CONNECTOR_ACTOR_STOPPED");
    }
    // The actor's end is noted after its caller is answered.
    let refused = || async { code(set_trim(&a, 1).await) == "CONNECTOR_ACTOR_STOPPED" };
    assert!(refused().await, "it is not loaded for a while");
    set_trim(&b, 1).await.unwrap();
    host.clock.advance(SECOND);
    set_trim(&a, 2).await.unwrap();
    assert_eq!(trim(&a).await, Some(2));
}

#[tokio::test]
async fn a_panic_in_the_storage_ends_the_batch_and_not_the_writer() {
    let host = host().await;
    let a = host.store.document(&document("a"));
    host.faults.next_append(Fault::Panic);
    assert!(matches!(set_trim(&a, 1).await, Err(Error::OutcomeUnknown { .. })));
    set_trim(&a, 2).await.unwrap();
    assert_eq!(trim(&a).await, Some(2));
    assert_sound(&host.store).await;
}
