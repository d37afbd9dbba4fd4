//! The rules of forgetting a connection, row by row.

use super::super::fixture::*;
use super::super::{CandidateState, SyncStatus};
use super::*;
use crate::base::Timestamp;
use crate::domain::{Fence, FencingToken, StoredEvent, Table};
use crate::testing::given::{Given, at};

/// A connection that has everything: state, lease, two partitions' worth of receipts, candidates in
/// every state, a checkpoint, an owed sweep, an open receipt.
fn connected() -> Given<Connector> {
    let mut given = fresh();
    let acquire = ConnectorCommand::AcquireLease { holder: holder("a"), ttl_ms: 1_000 };
    given.done(&acquire, at(1));
    given.done(&ConnectorCommand::SetSyncState(state_input(1, SyncStatus::Syncing)), at(2));
    sweep(&mut given, "a", &["x"], &["x"], 3);
    sweep(&mut given, "a", &["x", "y", "z", "w"], &["x"], 4);
    let candidate = candidate("a", "y");
    for millis in 5..10 {
        let (candidate, error) = (candidate.clone(), "locked".to_owned());
        given.done(&ConnectorCommand::RecordSweepApplyFailure { candidate, error }, at(millis));
    }
    given.done(&ConnectorCommand::CursorLost { partition: partition() }, at(10));
    let reply = given.done(&ConnectorCommand::BeginReceipt(begin("b")), at(11));
    let ConnectorReply::ReceiptBegun { sequence } = reply else { panic!("{reply:?}") };
    for page in 0..3 {
        let input = extend(&receipt("b", sequence), page, &["x"]);
        given.done(&ConnectorCommand::ExtendReceipt(input), at(12));
    }
    assert!(states(&given).iter().any(|(_, state)| *state == CandidateState::Dead));
    given.assert_rows_are_those_of_the_state();
    given
}

/// Begins, and gives the mark.
fn forgetting(given: &mut Given<Connector>) -> i64 {
    match given.done(&ConnectorCommand::BeginForget, at(20)) {
        ConnectorReply::Forgetting(Some(forgetting)) => forgetting.mark,
        other => panic!("{other:?}"),
    }
}

/// Removes everything in pages of a size; gives how many pages it took.
fn pages(given: &mut Given<Connector>, mark: i64, limit: u32) -> usize {
    for count in 1..100 {
        let before = given.written_rows().count();
        let reply = given.done(&ConnectorCommand::ForgetPage { mark, limit }, at(21));
        let gone = before - given.written_rows().count();
        assert!(gone <= usize::try_from(limit).unwrap(), "{gone} rows of at most {limit}");
        given.assert_rows_are_those_of_the_state();
        if reply == (ConnectorReply::PageForgotten { is_done: true }) {
            return count;
        }
    }
    panic!("it does not end");
}

fn refusal() -> Error {
    Error::ConnectionForgotten { owner: owner(), connector: connector() }
}

#[test]
fn the_mark_drops_the_lease_and_stands_in_its_row() {
    let mut given = connected();
    let mark = given.version + 1;
    let forgetting = Forgetting { mark, begun_at: Timestamp::from_millis(20) };
    given
        .when(&ConnectorCommand::BeginForget, at(20))
        .then(&[ConnectorEvent::ConnectionForgetBegun(ConnectionForgetBegun { forgetting })])
        .replies(ConnectorReply::Forgetting(Some(forgetting)));
    given.done(&ConnectorCommand::BeginForget, at(20));
    given.assert_rows_are_those_of_the_state();
    let tables: Vec<Table> = given.written_rows().map(|row| row.table).collect();
    assert!(tables.contains(&Table::Forgetting) && !tables.contains(&Table::Lease));
    let standing = ConnectorReply::Forgetting(Some(forgetting));
    given.when(&ConnectorCommand::BeginForget, at(99)).then_nothing().replies(standing.clone());
    given.when(&ConnectorCommand::Forgetting, at(99)).replies(standing);
    fresh().when(&ConnectorCommand::Forgetting, at(1)).replies(ConnectorReply::Forgetting(None));
}

#[test]
fn behind_the_mark_every_other_command_is_refused_and_every_session_lost() {
    let mut given = connected();
    forgetting(&mut given);
    let key = receipt("a", 2);
    let refused = [
        ConnectorCommand::SyncState,
        ConnectorCommand::SetSyncState(state_input(1, SyncStatus::Idle)),
        ConnectorCommand::UpdateSyncProgress { update: progress(1), guard: None },
        ConnectorCommand::DeleteSyncState,
        ConnectorCommand::AcquireLease { holder: holder("b"), ttl_ms: 5 },
        ConnectorCommand::Lease,
        ConnectorCommand::BeginReceipt(begin("a")),
        ConnectorCommand::ExtendReceipt(extend(&key, 0, &["x"])),
        ConnectorCommand::CompleteReceipt(complete(&key, &[&["x"]], None)),
        ConnectorCommand::CommitReceipt(commit(&given, &key, &["x"], &["x"], lax())),
        ConnectorCommand::PlanReceipt(commit(&given, &key, &["x"], &["x"], lax())),
        ConnectorCommand::Receipt { partition: partition(), provenance: provenance("a") },
        ConnectorCommand::SweepCheckpoint { partition: partition() },
        ConnectorCommand::Candidates { partition: partition(), after: None, limit: 1 },
        ConnectorCommand::SweepApplied { candidate: candidate("a", "z") },
        ConnectorCommand::CursorLost { partition: partition() },
        ConnectorCommand::OwedSweeps,
    ];
    let token = FencingToken { generation: 1, version: 1 };
    let fence = Some(Fence { scope: scope(), token });
    for command in refused {
        given.when(&command, at(30)).refused_with(&refusal());
        given
            .when(&command, Context { fence: fence.clone(), ..at(30) })
            .refused_with(&scope().lost());
    }
    given
        .when(&ConnectorCommand::RenewLease { token, ttl_ms: 5 }, at(30))
        .refused_with(&scope().lost());
    given.when(&ConnectorCommand::ReleaseLease { token }, at(30)).refused_with(&scope().lost());
    given.when(&ConnectorCommand::VoidLease, at(30)).then_nothing();
    let drop = ConnectorCommand::DropDocumentCandidates { document_id: document("dz") };
    given.done(&drop, at(30));
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn an_abandoned_forgetting_leaves_all_but_the_lease() {
    let mut given = connected();
    let before = given.state.clone();
    let mark = forgetting(&mut given);
    given.done(&ConnectorCommand::AbandonForget { mark }, at(21));
    assert_eq!(given.state, Connector { lease: None, ..before });
    given.assert_rows_are_those_of_the_state();
    let over = ConnectorReply::ForgetOver { is_forgotten: false };
    for command in [
        ConnectorCommand::AbandonForget { mark },
        ConnectorCommand::ForgetPage { mark, limit: 10 },
        ConnectorCommand::FinishForget { mark },
    ] {
        given.when(&command, at(22)).then_nothing().replies(over.clone());
    }
    given.done(&ConnectorCommand::AcquireLease { holder: holder("b"), ttl_ms: 5 }, at(23));
}

/// A call that was paused must not go on with a forgetting that another began.
#[test]
fn a_mark_is_good_for_its_own_forgetting_alone() {
    let mut given = connected();
    let first = forgetting(&mut given);
    given.done(&ConnectorCommand::AbandonForget { mark: first }, at(21));
    let second = forgetting(&mut given);
    assert!(second > first);
    let over = |is_forgotten| ConnectorReply::ForgetOver { is_forgotten };
    let stale = ConnectorCommand::AbandonForget { mark: first };
    given.when(&stale, at(22)).then_nothing().replies(over(false));
    pages(&mut given, second, 100);
    given.done(&ConnectorCommand::FinishForget { mark: second }, at(23));
    let page = ConnectorCommand::ForgetPage { mark: second, limit: 10 };
    given.when(&page, at(24)).then_nothing().replies(over(true));
    given.when(&stale, at(24)).then_nothing().replies(over(true));
    given.done(&ConnectorCommand::SetSyncState(state_input(1, SyncStatus::Idle)), at(25));
    given.when(&page, at(26)).then_nothing().replies(over(true));
}

#[test]
fn everything_goes_by_pages_and_the_rows_are_right_at_every_page() {
    let mut counts = Vec::new();
    for limit in [MIN_FORGET_PAGE_ROWS, 3, 5, MAX_FORGET_PAGE_ROWS] {
        let mut given = connected();
        let mark = forgetting(&mut given);
        given.when(&ConnectorCommand::FinishForget { mark }, at(21)).refused_input("mark");
        counts.push(pages(&mut given, mark, limit));
        let left: Vec<Table> = given.written_rows().map(|row| row.table).collect();
        assert_eq!(left, [Table::Forgetting]);
        let again = given.when(&ConnectorCommand::ForgetPage { mark, limit }, at(22));
        again.then_nothing().replies(ConnectorReply::PageForgotten { is_done: true });
    }
    assert!(counts.is_sorted_by(|one, other| one >= other) && counts[0] > 4, "{counts:?}");
    assert_eq!(counts[3], 1);
}

#[test]
fn a_page_outside_its_limits_is_refused() {
    let mut given = connected();
    let mark = forgetting(&mut given);
    for limit in [0, MIN_FORGET_PAGE_ROWS - 1, MAX_FORGET_PAGE_ROWS + 1, u32::MAX] {
        given.when(&ConnectorCommand::ForgetPage { mark, limit }, at(21)).refused_input("limit");
    }
}

#[test]
fn the_last_event_erases_the_stream_and_a_reconnection_starts_anew() {
    let mut given = connected();
    let mark = forgetting(&mut given);
    pages(&mut given, mark, 100);
    let finish = ConnectorCommand::FinishForget { mark };
    let decision = given.state.decide_at(&finish, given.version);
    let [event] = &decision.events[..] else { panic!("{:?}", decision.events) };
    assert!(decision.erase && event.is_swept());
    given.done(&finish, at(22));
    assert_eq!(given.state, Connector { forgotten: mark, ..Connector::default() });
    assert_eq!(given.written_rows().count(), 0);
    let acquire = ConnectorCommand::AcquireLease { holder: holder("a"), ttl_ms: 5 };
    let reply = given.done(&acquire, at(23));
    let ConnectorReply::Lease(lease) = reply else { panic!("{reply:?}") };
    assert_eq!(lease.token.version, given.version, "versions go on, so tokens grow");
    given.done(&ConnectorCommand::SetSyncState(state_input(1, SyncStatus::Idle)), at(24));
    assert_eq!(given.state.sync_state().unwrap().version, 0);
    let reply = given.done(&ConnectorCommand::BeginReceipt(begin("a")), at(25));
    assert_eq!(reply, ConnectorReply::ReceiptBegun { sequence: 1 });
}

impl Connector {
    fn decide_at(&self, command: &ConnectorCommand, version: i64) -> Decision<Self> {
        use crate::domain::Aggregate;
        let context = Context { next_version: version + 1, ..at(22) };
        self.decide(&key(), command, &context).unwrap()
    }
}
