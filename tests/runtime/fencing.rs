//! A lease that was taken over lets its old holder write nothing more, on any key.

use std::sync::Arc;

use connector_store::testing::SimClock;
use connector_store::{Clock, Error, MemoryJournal, Session, Store, StreamKey, Timestamp};

use crate::common::*;

async fn unit_of(session: &Session) -> Result<(), Error> {
    let key = StreamKey::Connector(owner("o"), folder());
    let unit = session.unit_of_work([key, document_key("in-unit")]).await?;
    set_trim(&unit.document(&document("in-unit")), 1).await?;
    unit.commit().await
}

/// Every way of a session to write is refused, and nothing of it is there afterwards.
async fn assert_cannot_write(session: &Session, other: &Store) {
    let lost = "CONNECTOR_LEASE_LOST";
    assert_eq!(code(set_trim(&session.document(&document("a")), 666).await), lost);
    assert_eq!(code(session.document(&document("a")).clear_entity_trim().await), lost);
    assert_eq!(code(session.document(&document("a")).sweep_document_rows().await), lost);
    assert_eq!(code(session.document(&document("new")).begin_document_sweep().await), lost);
    // Also what would change nothing, and what only reads.
    let untouched = session.document(&document("untouched"));
    assert_eq!(code(untouched.clear_entity_trim().await), lost);
    assert_eq!(code(untouched.abandon_document_sweep().await), lost);
    assert_eq!(code(untouched.entity_trim().await), lost);
    assert_eq!(code(count_up(&session.connector()).await), lost);
    assert_eq!(code(session.connector().delete_sync_state().await), lost);
    assert_eq!(code(unit_of(session).await), lost);
    assert_eq!(trim(&other.document(&document("a"))).await, Some(1));
    assert_eq!(trim(&other.document(&document("in-unit"))).await, None);
    assert!(other.begun_sweeps(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_paused_holder_cannot_write_one_more_row_after_its_lease_was_taken() {
    let (a, b, time) = two_hosts().await;
    let paused = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    set_trim(&paused.session().document(&document("a")), 1).await.unwrap();
    count_up(&paused.session().connector()).await.unwrap();
    let held = connector(&b.store, "o").acquire_lease(&holder("b"), SECOND).await;
    assert!(matches!(held, Err(Error::LeaseHeld { .. })), "{held:?}");
    time.advance(3 * SECOND);
    let taken = connector(&b.store, "o").acquire_lease(&holder("b"), SECOND).await.unwrap();
    assert!(taken.token() > paused.token());
    assert_cannot_write(&paused.session(), &b.store).await;
    assert_eq!(code(paused.renew(SECOND).await), "CONNECTOR_LEASE_LOST");
    assert_eq!(code(paused.release().await), "CONNECTOR_LEASE_LOST");
    set_trim(&taken.session().document(&document("b")), 2).await.unwrap();
    unit_of(&taken.session()).await.unwrap();
    assert_sound(&a.store).await;
}

#[tokio::test]
async fn a_holder_past_its_expiry_may_finish_while_nobody_took_the_lease() {
    let (a, b, time) = two_hosts().await;
    let lease = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    time.advance(60 * SECOND);
    set_trim(&lease.session().document(&document("a")), 1).await.unwrap();
    unit_of(&lease.session()).await.unwrap();
    lease.renew(SECOND).await.unwrap();
    let held = connector(&b.store, "o").acquire_lease(&holder("b"), SECOND).await;
    assert!(matches!(held, Err(Error::LeaseHeld { .. })), "{held:?}");
}

#[tokio::test]
async fn a_missing_lease_row_is_a_lost_lease() {
    let (a, b, _) = two_hosts().await;
    let lease = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    set_trim(&b.store.document(&document("a")), 1).await.unwrap();
    lease.release().await.unwrap();
    assert_cannot_write(&lease.session(), &b.store).await;
}

#[tokio::test]
async fn the_same_holder_acquiring_again_loses_its_old_token() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    set_trim(&host.store.document(&document("a")), 1).await.unwrap();
    let old = handle.acquire_lease(&holder("a"), SECOND).await.unwrap();
    let new = handle.acquire_lease(&holder("a"), SECOND).await.unwrap();
    assert_cannot_write(&old.session(), &host.store).await;
    set_trim(&new.session().document(&document("a")), 2).await.unwrap();
}

#[tokio::test]
async fn a_unit_that_began_under_a_lease_cannot_commit_after_it_was_taken() {
    let (a, b, time) = two_hosts().await;
    let lease = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    let unit = lease.session().unit_of_work([document_key("a")]).await.unwrap();
    set_trim(&unit.document(&document("a")), 1).await.unwrap();
    time.advance(2 * SECOND);
    connector(&b.store, "o").acquire_lease(&holder("b"), SECOND).await.unwrap();
    assert_eq!(code(unit.commit().await), "CONNECTOR_LEASE_LOST");
    assert_eq!(trim(&b.store.document(&document("a"))).await, None);
}

#[tokio::test]
async fn steps_of_a_host_clock_change_no_lease() {
    let host = host().await;
    let handle = connector(&host.store, "o");
    let lease = handle.acquire_lease(&holder("a"), 10 * SECOND).await.unwrap();
    let opened_at = lease.expires_at().plus_millis(-10_000);
    for wall in [Timestamp::from_millis(0), opened_at.plus_millis(10 * 86_400_000)] {
        host.clock.set_wall(wall);
        let held = handle.acquire_lease(&holder("b"), SECOND).await;
        assert!(matches!(held, Err(Error::LeaseHeld { .. })), "{held:?}");
    }
    host.clock.advance(10 * SECOND);
    let taken = handle.acquire_lease(&holder("b"), SECOND).await.unwrap();
    assert_eq!(taken.expires_at(), opened_at.plus_millis(11_000));
}

#[tokio::test]
async fn on_a_shared_database_its_clock_decides_and_not_the_hosts() {
    let (a, b, time) = two_hosts().await;
    a.clock.set_wall(Timestamp::from_millis(5));
    b.clock.advance(3_600 * SECOND);
    let lease = connector(&a.store, "o").acquire_lease(&holder("a"), SECOND).await.unwrap();
    assert_eq!(lease.expires_at(), time.wall().plus_millis(1_000));
    let handle = connector(&b.store, "o");
    assert_eq!(code(handle.acquire_lease(&holder("b"), SECOND).await), "CONNECTOR_LEASE_HELD");
    time.advance(SECOND);
    handle.acquire_lease(&holder("b"), SECOND).await.unwrap();
}

/// What waits would wait longer by as much as the wall clock was set back between two runs.
#[tokio::test]
async fn time_does_not_step_back_over_a_restart() {
    let journal = MemoryJournal::new();
    let at = |millis| Arc::new(SimClock::new(Timestamp::from_millis(millis)));
    let run = async |clock| {
        let store = Store::builder().memory(&journal).clock(clock).open().await.unwrap();
        set_trim(&store.document(&document("a")), 1).await.unwrap();
        let trim = store.document(&document("a")).entity_trim().await.unwrap().unwrap();
        store.close().await.unwrap();
        trim.updated_at.as_millis()
    };
    assert_eq!(run(at(5_000)).await, 5_000);
    assert_eq!(run(at(1_000)).await, 5_000);
    assert_eq!(run(at(9_000)).await, 9_000);
}
