//! The rules of the sync lease, row by row.

use super::super::fixture::*;
use super::super::{ConnectorCommand, ConnectorEvent};
use super::*;
use crate::base::Timestamp;
use crate::domain::Fence;
use crate::testing::given::{Given, at};

fn acquire(name: &str, ttl_ms: i64) -> ConnectorCommand {
    ConnectorCommand::AcquireLease { holder: holder(name), ttl_ms }
}

fn lease(name: &str, version: i64, expires_at: i64) -> Lease {
    Lease {
        holder: holder(name),
        token: FencingToken { generation: 1, version },
        expires_at: Timestamp::from_millis(expires_at),
    }
}

/// Holder `a` has it until 110.
fn held() -> Given<Connector> {
    let mut given = fresh();
    given.done(&acquire("a", 100), at(10));
    given
}

fn token(version: i64) -> FencingToken {
    FencingToken { generation: 1, version }
}

#[test]
fn a_free_lease_is_acquired_with_the_version_of_its_event_as_token() {
    let mut given = fresh();
    given.done(&ConnectorCommand::CursorLost { partition: partition() }, at(1));
    let expected = lease("a", 2, 110);
    given
        .when(&acquire("a", 100), at(10))
        .then(&[ConnectorEvent::LeaseAcquired(expected.clone())])
        .replies(ConnectorReply::Lease(expected));
}

#[test]
fn a_live_lease_of_another_holder_is_refused_until_the_millisecond_it_expires() {
    let held_error =
        Error::LeaseHeld { holder: holder("a"), expires_at: Timestamp::from_millis(110) };
    held().when(&acquire("b", 50), at(109)).refused_with(&held_error);
    let taken = ConnectorEvent::LeaseAcquired(lease("b", 2, 160));
    held().when(&acquire("b", 50), at(110)).then(&[taken]);
}

#[test]
fn the_same_holder_gets_a_new_token_and_loses_the_old_one() {
    let mut given = held();
    let again = given.done(&acquire("a", 100), at(20));
    assert_eq!(again, ConnectorReply::Lease(lease("a", 2, 120)));
    let old = ConnectorCommand::RenewLease { token: token(1), ttl_ms: 5 };
    given.when(&old, at(21)).refused_with(&scope().lost());
}

#[test]
fn only_the_current_token_renews_and_releases() {
    let wrong = [token(2), FencingToken { generation: 2, version: 1 }];
    for token in wrong {
        let renew = ConnectorCommand::RenewLease { token, ttl_ms: 5 };
        held().when(&renew, at(11)).refused_with(&scope().lost());
        let release = ConnectorCommand::ReleaseLease { token };
        held().when(&release, at(11)).refused_with(&scope().lost());
    }
    let renew = ConnectorCommand::RenewLease { token: token(1), ttl_ms: 500 };
    let renewed = LeaseRenewed { expires_at: Timestamp::from_millis(511) };
    held()
        .when(&renew, at(11))
        .then(&[ConnectorEvent::LeaseRenewed(renewed)])
        .replies(ConnectorReply::Lease(lease("a", 1, 511)));
    let release = ConnectorCommand::ReleaseLease { token: token(1) };
    held().when(&release, at(11)).then(&[ConnectorEvent::LeaseReleased]);
    fresh().when(&release, at(11)).refused_with(&scope().lost());
}

/// Fencing decides, not the clock.
#[test]
fn the_token_of_an_expired_lease_stays_good_until_somebody_takes_it() {
    let mut given = held();
    let renew = ConnectorCommand::RenewLease { token: token(1), ttl_ms: 5 };
    assert_eq!(given.when(&renew, at(10_000)).events().len(), 1);
    given.done(&acquire("b", 5), at(10_000));
    given.when(&renew, at(10_001)).refused_with(&scope().lost());
}

#[test]
fn a_released_lease_is_free_and_gives_a_larger_token() {
    let mut given = held();
    given.done(&ConnectorCommand::ReleaseLease { token: token(1) }, at(11));
    let reply = given.done(&acquire("b", 5), at(12));
    assert_eq!(reply, ConnectorReply::Lease(lease("b", 3, 17)));
}

/// A restored store starts a new generation; what it was restored from may hold newer leases.
#[test]
fn a_lease_of_another_generation_is_void() {
    let restored = |millis| Context { generation: 2, ..at(millis) };
    let renew = ConnectorCommand::RenewLease { token: token(1), ttl_ms: 5 };
    held().when(&renew, restored(11)).refused_with(&scope().lost());
    held()
        .when(&ConnectorCommand::Lease, restored(11))
        .replies(ConnectorReply::StandingLease(None));
    let taken = Lease { token: FencingToken { generation: 2, version: 2 }, ..lease("b", 0, 16) };
    held().when(&acquire("b", 5), restored(11)).then(&[ConnectorEvent::LeaseAcquired(taken)]);
}

#[test]
fn a_lease_of_another_generation_alone_is_voided() {
    let restored = Context { generation: 2, ..at(11) };
    held().when(&ConnectorCommand::VoidLease, at(11)).then_nothing();
    held()
        .when(&ConnectorCommand::VoidLease, restored.clone())
        .then(&[ConnectorEvent::LeaseReleased]);
    fresh().when(&ConnectorCommand::VoidLease, restored).then_nothing();
}

#[test]
fn a_time_to_live_outside_the_limits_is_refused() {
    for ttl_ms in [i64::MIN, 0, MAX_LEASE_MS + 1, i64::MAX] {
        held().when(&acquire("a", ttl_ms), at(11)).refused_input("ttl");
        let renew = ConnectorCommand::RenewLease { token: token(1), ttl_ms };
        held().when(&renew, at(11)).refused_input("ttl");
    }
    for ttl_ms in [MIN_LEASE_MS, MAX_LEASE_MS] {
        assert_eq!(held().when(&acquire("a", ttl_ms), at(11)).events().len(), 1);
    }
}

#[test]
fn the_lease_can_be_read_also_past_its_expiry() {
    let none = ConnectorReply::StandingLease(None);
    fresh().when(&ConnectorCommand::Lease, at(1)).then_nothing().replies(none);
    let standing = ConnectorReply::StandingLease(Some(lease("a", 1, 110)));
    held().when(&ConnectorCommand::Lease, at(999)).replies(standing);
}

#[test]
fn a_fenced_command_is_refused_once_the_lease_is_lost_reads_too() {
    let fenced = |version| Context {
        fence: Some(Fence { scope: scope(), token: token(version) }),
        ..at(11)
    };
    let commands = [
        ConnectorCommand::SyncState,
        ConnectorCommand::SetSyncState(state_input(1, super::super::SyncStatus::Idle)),
        ConnectorCommand::BeginReceipt(begin("a")),
        ConnectorCommand::CursorLost { partition: partition() },
        ConnectorCommand::DropDocumentCandidates { document_id: document("d") },
        ConnectorCommand::OwedSweeps,
    ];
    for command in commands {
        held().when(&command, fenced(1)).events();
        held().when(&command, fenced(2)).refused_with(&scope().lost());
        fresh().when(&command, fenced(1)).refused_with(&scope().lost());
    }
}

#[test]
fn a_fence_of_another_scope_is_left_to_the_storage() {
    let owner = crate::base::OwnerDid::new("did:web:other").unwrap();
    let other = LeaseScope::Sync { owner, connector: connector() };
    let context = Context { fence: Some(Fence { scope: other, token: token(1) }), ..at(11) };
    fresh().when(&ConnectorCommand::SyncState, context).then_nothing();
}

#[test]
fn the_sync_state_mirrors_the_expiry() {
    let mut given = held();
    let expiry = |given: &Given<Connector>| {
        let state = given.state.sync_state().unwrap();
        state.lease_expires_at.map(Timestamp::as_millis)
    };
    let idle = state_input(1, super::super::SyncStatus::Idle);
    given.done(&ConnectorCommand::SetSyncState(idle), at(11));
    assert_eq!(expiry(&given), Some(110));
    given.done(&ConnectorCommand::RenewLease { token: token(1), ttl_ms: 500 }, at(11));
    assert_eq!(expiry(&given), Some(511));
    given.assert_rows_are_those_of_the_state();
    given.done(&ConnectorCommand::ReleaseLease { token: token(1) }, at(12));
    assert_eq!(expiry(&given), None);
    given.assert_rows_are_those_of_the_state();
}
