//! The rules of the sync state, row by row.

use super::super::fixture::*;
use super::super::{
    ConnectorCommand, ConnectorEvent, ConnectorReply, ProgressGuard, SyncProgress, SyncStateInput,
    SyncStatus,
};
use super::*;
use crate::testing::given::at;

fn update(update: SyncProgress, guard: Option<ProgressGuard>) -> ConnectorCommand {
    ConnectorCommand::UpdateSyncProgress { update, guard }
}

fn set(input: SyncStateInput) -> ConnectorCommand {
    ConnectorCommand::SetSyncState(input)
}

fn record(entity_count: i64, status: SyncStatus, version: i64, incarnation: u128) -> SyncRecord {
    SyncRecord {
        checkpoint: progress(0).checkpoint,
        recovery: Some(content("[1]")),
        last_synced_at: progress(0).last_synced_at,
        entity_count,
        status,
        error: None,
        version,
        incarnation: Uuid::from_u128(incarnation),
    }
}

#[test]
fn no_state_is_none() {
    let reply = ConnectorReply::SyncState(None);
    fresh().when(&ConnectorCommand::SyncState, at(1)).then_nothing().replies(reply);
}

#[test]
fn set_creates_version_0_of_a_new_incarnation() {
    let event = ConnectorEvent::SyncStateSet(record(7, SyncStatus::Syncing, 0, 5));
    fresh()
        .when(&set(state_input(7, SyncStatus::Syncing)), at(5))
        .then(&[event])
        .replies(ConnectorReply::Done);
}

#[test]
fn set_keeps_version_incarnation_and_lease_of_a_standing_state() {
    let mut given = fresh();
    given.done(&set(state_input(1, SyncStatus::Idle)), at(5));
    given.done(&update(progress(2), None), at(6));
    given.done(&ConnectorCommand::AcquireLease { holder: holder("h"), ttl_ms: 100 }, at(6));
    let event = ConnectorEvent::SyncStateSet(record(3, SyncStatus::Error, 1, 5));
    given.when(&set(state_input(3, SyncStatus::Error)), at(7)).then(&[event]);
    given.done(&set(state_input(3, SyncStatus::Error)), at(7));
    let expires = given.state.sync_state().and_then(|state| state.lease_expires_at);
    assert_eq!(expires.map(|at| at.as_millis()), Some(106));
}

#[test]
fn progress_creates_an_idle_state() {
    let event = ConnectorEvent::SyncProgressUpdated(record(4, SyncStatus::Idle, 0, 9));
    let reply = ConnectorReply::Progress { version: 0, incarnation: Uuid::from_u128(9) };
    fresh().when(&update(progress(4), None), at(9)).then(&[event]).replies(reply);
}

#[test]
fn progress_adds_1_to_the_version_and_leaves_the_status() {
    let mut given = fresh();
    given.done(&set(state_input(1, SyncStatus::Syncing)), at(5));
    let event = ConnectorEvent::SyncProgressUpdated(record(4, SyncStatus::Syncing, 1, 5));
    given.when(&update(progress(4), None), at(9)).then(&[event]);
}

#[test]
fn a_guarded_update_is_written_on_the_state_it_was_computed_from_alone() {
    let id = Uuid::from_u128(5);
    let here = ProgressGuard::At { version: 0, incarnation: id };
    let cases = [
        (false, ProgressGuard::Absent, true),
        (false, here, false),
        (true, ProgressGuard::Absent, false),
        (true, here, true),
        (true, ProgressGuard::At { version: 1, incarnation: id }, false),
        (true, ProgressGuard::At { version: 0, incarnation: Uuid::nil() }, false),
    ];
    for (exists, guard, passes) in cases {
        let mut given = fresh();
        if exists {
            given.done(&set(state_input(1, SyncStatus::Idle)), at(5));
        }
        let decided = given.when(&update(progress(2), Some(guard)), at(6));
        if passes {
            assert_eq!(decided.events().len(), 1, "{guard:?}");
        } else {
            decided.then_nothing().replies(ConnectorReply::ProgressConflict);
        }
    }
}

/// The state is deleted and re-created up to the same version between the read and the write.
#[test]
fn a_recreated_state_of_the_same_version_is_not_overwritten() {
    let mut given = fresh();
    given.done(&set(state_input(1, SyncStatus::Idle)), at(5));
    let read = given.state.sync_state().unwrap();
    given.done(&ConnectorCommand::DeleteSyncState, at(6));
    given.done(&set(state_input(2, SyncStatus::Idle)), at(7));
    assert_eq!(given.state.sync_state().unwrap().version, read.version);
    let guard = ProgressGuard::At { version: read.version, incarnation: read.incarnation };
    let stale = given.when(&update(progress(3), Some(guard)), at(8));
    stale.then_nothing().replies(ConnectorReply::ProgressConflict);
}

#[test]
fn delete_removes_the_state_and_leaves_the_lease() {
    let mut given = fresh();
    given.when(&ConnectorCommand::DeleteSyncState, at(1)).then_nothing();
    given.done(&set(state_input(1, SyncStatus::Idle)), at(5));
    given.done(&ConnectorCommand::AcquireLease { holder: holder("h"), ttl_ms: 100 }, at(6));
    let delete = ConnectorCommand::DeleteSyncState;
    given.when(&delete, at(7)).then(&[ConnectorEvent::SyncStateDeleted]);
    given.done(&delete, at(7));
    assert!(given.state.sync_state().is_none());
    assert!(given.state.lease.is_some());
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn recovery_is_read_back_but_is_in_no_event() {
    let mut given = fresh();
    let secret = SyncProgress { recovery: Some(json("[\"secret\"]")), ..progress(1) };
    let events = given.when(&update(secret.clone(), None), at(1)).events();
    assert!(!format!("{events:?}").contains("secret"));
    given.done(&update(secret, None), at(1));
    assert_eq!(given.state.sync_state().unwrap().recovery, Some(json("[\"secret\"]")));
    assert!(!serde_json::to_string(&given.state).unwrap().contains("secret"));
    given.done(&update(SyncProgress { recovery: None, ..progress(2) }, None), at(2));
    assert_eq!(given.state.sync_state().unwrap().recovery, None);
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn an_input_that_does_not_fit_is_refused_by_its_field() {
    let long = "e".repeat(MAX_ERROR_TEXT_BYTES + 1);
    let fits = Some("e".repeat(MAX_ERROR_TEXT_BYTES));
    let given = fresh();
    let state = state_input(0, SyncStatus::Idle);
    let refused = [
        (set(SyncStateInput { entity_count: -1, ..state.clone() }), "entity_count"),
        (set(SyncStateInput { error: Some(long.clone()), ..state.clone() }), "error"),
        (update(SyncProgress { entity_count: -1, ..progress(0) }, None), "entity_count"),
        (update(SyncProgress { error: Some(long), ..progress(0) }, None), "error"),
    ];
    for (command, field) in refused {
        given.when(&command, at(1)).refused_input(field);
    }
    let largest = SyncStateInput { error: fits, entity_count: i64::MAX, ..state };
    assert_eq!(given.when(&set(largest), at(1)).events().len(), 1);
}

#[test]
fn a_version_above_2_to_the_53_counts_on() {
    let event = ConnectorEvent::SyncStateSet(record(1, SyncStatus::Idle, (1 << 53) + 1, 5));
    let given = crate::testing::given::given::<Connector>(key(), &[event]);
    let reply =
        ConnectorReply::Progress { version: (1 << 53) + 2, incarnation: Uuid::from_u128(5) };
    given.when(&update(progress(1), None), at(6)).replies(reply);
}

#[test]
fn an_error_text_with_nul_is_refused() {
    let input =
        SyncStateInput { error: Some("a\0b".to_owned()), ..state_input(1, SyncStatus::Error) };
    let refused = Error::invalid("error", "expected no NUL character");
    fresh().when(&set(input), at(1)).refused_with(&refused);
    let progress = SyncProgress { error: Some("\0".to_owned()), ..progress(1) };
    fresh().when(&update(progress, None), at(1)).refused_with(&refused);
}
