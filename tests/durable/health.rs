//! Health is what is left undone, not what a status says.

use std::time::Duration;

use connector_store::{CandidateState, StuckReason, SyncStateInput, SyncStatus, Work};

use super::world::{SECOND, account, document, on_every_storage, state};

const GRACE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_green_status_is_no_health_while_nothing_moves() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let connector = world.store.connector(&account.owner, &account.connector);
        let idle = SyncStateInput { status: SyncStatus::Idle, ..state("[1]") };
        connector.set_sync_state(idle).await.unwrap();
        let start = world.now();
        world.lease(&account, 10 * SECOND).await;
        world.clock.advance(69 * SECOND);
        assert!(world.store.health(GRACE).await.unwrap().is_healthy(), "within the grace");
        world.clock.advance(SECOND);
        let health = world.store.health(GRACE).await.unwrap();
        assert!(!health.is_healthy());
        assert_eq!((health.overdue.count, health.at), (1, world.now()));
        assert_eq!(health.overdue.oldest[0].due_at, start.plus(10 * SECOND));
        assert!(matches!(health.overdue.oldest[0].work, Work::SyncLease { .. }));
    })
    .await;
}

/// An error in the status that is being worked on is no ill health.
#[tokio::test]
async fn a_red_status_is_health_while_all_is_in_time() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let connector = world.store.connector(&account.owner, &account.connector);
        let failed = SyncStateInput { status: SyncStatus::Error, ..state("[1]") };
        connector.set_sync_state(failed).await.unwrap();
        world.clock.advance(1_000 * SECOND);
        assert!(world.store.health(GRACE).await.unwrap().is_healthy());
    })
    .await;
}

#[tokio::test]
async fn what_is_stuck_is_named_with_its_reason_and_since_when() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let connector = world.store.connector(&account.owner, &account.connector);
        let start = world.now();
        // A dead candidate.
        world.candidates(&account, &["gone"]).await;
        let candidate = connector.due_candidates(1).await.unwrap().remove(0).key();
        let mut died = start;
        for _ in 0..5 {
            world.clock.advance(SECOND);
            died = world.now();
            let state = connector.record_sweep_apply_failure(&candidate, "locked").await.unwrap();
            assert!(state.is_some());
        }
        let standing = connector.candidates(&candidate.partition, None, 1).await.unwrap();
        assert_eq!(standing[0].state, CandidateState::Dead);
        // An operation whose outcome is unknown, and that is put off again and again.
        let sent = world.now();
        let claimed = world.claim(&account, "unknown", "d").await;
        claimed.mark_send_started().await.unwrap();
        claimed.record_unknown().await.unwrap();
        // A receipt that nobody ends.
        let begun = world.now();
        world.enumerate(&account, &["x"]).await;
        // A write that will never be made.
        world.claim(&account, "dead", "e").await.finalize_dead("refused").await.unwrap();

        let health = world.store.health(GRACE).await.unwrap();
        let found = |health: &connector_store::Health| -> Vec<_> {
            health.stuck.oldest.iter().map(|stuck| (stuck.since, stuck.reason)).collect()
        };
        assert_eq!(found(&health), [(died, StuckReason::DeadCandidate)], "the rest is in time");
        assert!(!health.is_healthy());
        assert_eq!(health.dead_operations.count, 1);
        world.clock.advance(GRACE);
        let health = world.store.health(GRACE).await.unwrap();
        let expected = [
            (died, StuckReason::DeadCandidate),
            (sent, StuckReason::UnknownOutcome),
            (begun, StuckReason::OpenReceipt),
        ];
        assert_eq!((found(&health), health.stuck.count), (expected.to_vec(), 3));
        let Work::Candidate { candidate: dead, .. } = &health.stuck.oldest[0].work else {
            panic!("{:?}", health.stuck.oldest)
        };
        assert_eq!(*dead, candidate);
    })
    .await;
}

/// It can't be committed any more, so nobody could ever do anything about it.
#[tokio::test]
async fn a_receipt_of_a_lineage_that_was_left_is_no_ill_health() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let connector = world.store.connector(&account.owner, &account.connector);
        world.enumerate_under(&account, "before", &["kept"]).await;
        world.clock.advance(SECOND);
        let key = world.enumerate_under(&account, "after", &["kept"]).await;
        world.clock.advance(2 * GRACE);
        let health = world.store.health(GRACE).await.unwrap();
        assert_eq!(health.stuck.count, 1, "the newer one, which is open: {health:?}");
        connector.complete_receipt(&key, 1, None, "f").await.unwrap();
        connector.commit_receipt(&key, Vec::new(), Default::default()).await.unwrap();
        assert!(world.store.health(GRACE).await.unwrap().is_healthy());
    })
    .await;
}

#[tokio::test]
async fn dead_operations_are_listed_and_no_ill_health() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        world.claim(&account, "dead", "e").await.finalize_dead("refused").await.unwrap();
        world.clock.advance(1_000 * SECOND);
        let health = world.store.health(GRACE).await.unwrap();
        assert!(health.is_healthy());
        assert_eq!(health.dead_operations.oldest[0].reason, StuckReason::DeadOperation);
        world.store.document(&document("e")).sweep_document_rows().await.unwrap();
        assert_eq!(world.store.health(GRACE).await.unwrap().dead_operations.count, 0);
    })
    .await;
}

#[tokio::test]
async fn lists_are_bounded_and_counts_are_not() {
    on_every_storage(async |world| {
        let account = account("o", "folder");
        let names: Vec<String> = (0..250).map(|at| format!("d{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        world.candidates(&account, &names).await;
        world.clock.advance(GRACE);
        let overdue = world.store.health(GRACE).await.unwrap().overdue;
        assert_eq!((overdue.count, overdue.oldest.len()), (250, 100));
    })
    .await;
}
