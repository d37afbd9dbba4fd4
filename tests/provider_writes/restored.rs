//! A store that is restored from a backup is in the past: what it had sent since must not be sent again.

use std::path::Path;

use connector_store::testing::SimClock;
use connector_store::{Claim, OperationPhase, Store, Synchronous};

use crate::common::*;
use crate::host::*;
use crate::provider::*;

/// Steps that a host makes before the backup, and after it in the future that is lost; the last is
/// more than any path has.
const BEFORE: [u32; 6] = [0, 1, 2, 3, 4, 6];
const AFTER: [u32; 3] = [0, 2, 80];
/// What may become of a request, one of each kind.
const MODES: [Mode; 4] = [Mode::Good, Mode::AnswerLost, Mode::AnswerLate, Mode::DroppedThenOffline];

fn at(path: &Path, clock: &SimClock, seed: u64) -> connector_store::StoreBuilder {
    // Nothing here cuts the power.
    builder(clock, seed).sqlite(path).synchronous(Synchronous::Normal)
}

/// The backup is taken at every step of every path, and the store is lost some steps later; without a
/// step before, the operation is unknown to the backup.
#[tokio::test]
async fn a_restored_store_sends_nothing_twice() {
    let mut schedules = tokio::task::JoinSet::new();
    for mode in MODES {
        schedules.spawn(async move {
            for (before, after) in BEFORE.into_iter().flat_map(|at| AFTER.map(|after| (at, after)))
            {
                lose_and_restore(mode, before, after).await;
            }
        });
    }
    bounded(schedules.join_all()).await;
}

async fn lose_and_restore(mode: Mode, before: u32, after: u32) {
    let directory = tempfile::tempdir().unwrap();
    let (lost, copy) = (directory.path().join("lost.db"), directory.path().join("copy.db"));
    let clock = SimClock::default();
    let provider = Provider::new(&clock, Manner { hides_for: HIDES_FOR, ..Manner::default() });
    let task = Task::new(format!("{mode:?}-{before}-{after}"), HIDES_FOR);
    let id = &task.request.operation_id;
    provider.set_mode(id, mode);
    let store = at(&lost, &clock, 1).open().await.unwrap();
    let mut host = Host::new(&store, &clock, &provider, "host-1", &task);
    host.make(before).await;
    store.backup(&copy).await.unwrap();
    host.make(after).await;
    store.close().await.unwrap();

    let store = at(&copy, &clock, 2).open_restored().await.unwrap();
    let mut host = Host::new(&store, &clock, &provider, "host-2", &task);
    let record = host.finish().await;
    assert_eq!(provider.writes(id), mode.writes(), "{task:?}");
    assert_finished(&host, mode, &record).await;
    assert_sound(&store).await;
    store.close().await.unwrap();
}

/// What the schedule above can't show, since its provider would take a second write as well: the
/// claim itself says that nothing may be sent.
#[tokio::test]
async fn what_may_have_been_sent_is_claimed_to_be_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (lost, copy) = (directory.path().join("lost.db"), directory.path().join("copy.db"));
    let clock = SimClock::default();
    let store = at(&lost, &clock, 1).open().await.unwrap();
    attempt(&store, "unsent", "unsent", "host-1").await;
    let sent = attempt(&store, "sent", "sent", "host-1").await;
    sent.mark_send_started().await.unwrap();
    committed(&store, "finished", "finished").await;
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();

    let store = at(&copy, &clock, 2).open_restored().await.unwrap();
    for name in ["unsent", "sent", "unknown"] {
        // At once, and by whoever had it: the claims of the past are void.
        let claimed = reconcile(&store, name, name, "host-1").await;
        assert_eq!(code(claimed.mark_send_started().await), "CONNECTOR_RECONCILE_FIRST");
        claimed.begin_reconcile_read().await.unwrap();
        assert_eq!(code(claimed.record_not_written().await), "CONNECTOR_RECONCILE_TOO_EARLY");
    }
    let finished = claim(&store, "finished", &request("finished"), "host-1").await.unwrap();
    let Claim::Finished(record) = finished else { panic!("{finished:?}") };
    assert!(matches!(record.operation.phase, OperationPhase::Committed { .. }));
    let mut newer = request("newer");
    newer.version = stamp(connector_store::Clock::wall(&clock).as_millis() + 1);
    let newer = claim(&store, "newer", &newer, "host-1").await.unwrap();
    assert!(matches!(newer, Claim::Attempt(_)), "{newer:?}");
    store.close().await.unwrap();
}

/// A change that was made after the backup was taken and before the store is restored by another
/// process, whose clock is behind: the time of the backup holds it up.
#[tokio::test]
async fn a_clock_that_was_set_back_makes_no_change_of_the_past_new() {
    let directory = tempfile::tempdir().unwrap();
    let (lost, copy) = (directory.path().join("lost.db"), directory.path().join("copy.db"));
    let clock = SimClock::default();
    let store: Store = at(&lost, &clock, 1).open().await.unwrap();
    attempt(&store, "unsent", "unsent", "host-1").await;
    let of_the_backup = connector_store::Clock::wall(&clock);
    store.backup(&copy).await.unwrap();
    store.close().await.unwrap();

    let behind = SimClock::new(of_the_backup.plus_millis(-3_600_000));
    let store = at(&copy, &behind, 2).open_restored().await.unwrap();
    let mut request = request("unknown");
    request.version = stamp(of_the_backup.as_millis());
    let claimed = claim(&store, "unknown", &request, "host-1").await.unwrap();
    assert!(matches!(claimed, Claim::Reconcile(_)), "{claimed:?}");
    store.close().await.unwrap();
}
