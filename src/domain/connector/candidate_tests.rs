//! The rules of candidates, checkpoints and owed sweeps, row by row.

use super::super::fixture::*;
use super::super::{CheckpointMoved, ConnectorCommand, ReceiptKey};
use super::*;
use crate::base::limits::MAX_ERROR_TEXT_BYTES;
use crate::testing::given::{Given, at};

fn outcome(name: &str, outcome: SweepOutcome) -> ConnectorCommand {
    ConnectorCommand::RecordSweepOutcome { candidate: candidate("a", name), outcome }
}

fn failure(name: &str) -> ConnectorCommand {
    let error = "locked".to_owned();
    ConnectorCommand::RecordSweepApplyFailure { candidate: candidate("a", name), error }
}

fn applied(name: &str) -> ConnectorCommand {
    ConnectorCommand::SweepApplied { candidate: candidate("a", name) }
}

fn dropped(name: &str) -> ConnectorCommand {
    ConnectorCommand::DropDocumentCandidates { document_id: document(format!("d{name}")) }
}

fn now_is(state: CandidateState) -> ConnectorReply {
    ConnectorReply::CandidateNow(Some(state))
}

fn moved_to(key: ReceiptKey, era: i64, millis: i64) -> ConnectorEvent {
    let at = Timestamp::from_millis(millis);
    ConnectorEvent::CheckpointMoved(CheckpointMoved { key, era, at })
}

/// `y` is a pending candidate of receipt 1 of lineage `a`.
fn pending() -> Given<Connector> {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    given
}

fn confirmed() -> Given<Connector> {
    let mut given = pending();
    given.done(&outcome("y", SweepOutcome::Absent), at(2));
    given
}

fn dead() -> Given<Connector> {
    let mut given = confirmed();
    for _ in 0..MAX_SWEEP_APPLY_ATTEMPTS {
        given.done(&failure("y"), at(3));
    }
    given
}

fn only(given: &Given<Connector>) -> SweepCandidate {
    let [candidate] = candidates(given).try_into().unwrap();
    candidate
}

#[test]
fn absent_confirms() {
    let event =
        CandidateConfirmed { candidate: candidate("a", "y"), at: Timestamp::from_millis(7) };
    pending()
        .when(&outcome("y", SweepOutcome::Absent), at(7))
        .then(&[ConnectorEvent::CandidateConfirmed(event)])
        .replies(now_is(CandidateState::Confirmed));
    confirmed()
        .when(&outcome("y", SweepOutcome::Absent), at(7))
        .then_nothing()
        .replies(now_is(CandidateState::Confirmed));
}

#[test]
fn present_withdraws_whatever_the_state() {
    for given in [pending(), confirmed(), dead()] {
        let mut given = given;
        let reply = given.done(&outcome("y", SweepOutcome::Present), at(7));
        assert_eq!(reply, ConnectorReply::CandidateNow(None));
        assert!(states(&given).is_empty());
        given.assert_rows_are_those_of_the_state();
    }
}

#[test]
fn unknown_counts_and_backs_off_and_keeps_the_state() {
    let event = CandidateDeferred {
        candidate: candidate("a", "y"),
        attempts: 1,
        next_attempt_at: Timestamp::from_millis(507),
        at: Timestamp::from_millis(7),
    };
    pending()
        .when(&outcome("y", SweepOutcome::Unknown), at(7))
        .then(&[ConnectorEvent::CandidateDeferred(event)])
        .replies(now_is(CandidateState::Pending));
    let mut given = confirmed();
    let reply = given.done(&outcome("y", SweepOutcome::Unknown), at(7));
    assert_eq!(reply, now_is(CandidateState::Confirmed));
    assert_eq!((only(&given).attempts, only(&given).next_attempt_at.as_millis()), (1, 507));
}

#[test]
fn the_backoff_doubles_to_its_cap_and_chance_takes_a_part_of_it() {
    let delay = |failures, jitter| {
        due_after(failures, &Context { jitter, ..at(1_000) }).as_millis() - 1_000
    };
    let nearly_1 = 0.999_999;
    let cases = [
        (1, 0.0, 0),
        (1, 0.5, 500),
        (2, 0.5, 1_000),
        (3, 0.25, 1_000),
        (12, 0.5, 1_024_000),
        (13, 0.5, 1_800_000),
        (13, nearly_1, 3_599_996),
        (u32::MAX, 0.5, 1_800_000),
        (1, -1.0, 0),
        (1, 7.0, 1_000),
        (1, f64::NAN, 1_000),
    ];
    for (failures, jitter, expected) in cases {
        assert_eq!(delay(failures, jitter), expected, "{failures} {jitter}");
    }
    let late = Context { jitter: nearly_1, ..at(i64::MAX) };
    assert_eq!(due_after(1, &late).as_millis(), i64::MAX);
}

#[test]
fn a_failed_apply_counts_and_the_fifth_kills() {
    let mut given = confirmed();
    for failures in 1..MAX_SWEEP_APPLY_ATTEMPTS {
        assert_eq!(given.done(&failure("y"), at(3)), now_is(CandidateState::Confirmed));
        assert_eq!(only(&given).apply_failures, failures);
        assert_eq!(only(&given).last_error.as_deref(), Some("locked"));
        assert_eq!(only(&given).next_attempt_at.as_millis(), 3 + (500 << (failures - 1)));
    }
    let reply = given.done(&failure("y"), at(3));
    assert_eq!(reply, now_is(CandidateState::Dead));
    assert_eq!(only(&given).state, CandidateState::Dead);
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn a_dead_candidate_stays_dead_and_listed() {
    let commands =
        [outcome("y", SweepOutcome::Absent), outcome("y", SweepOutcome::Unknown), failure("y")];
    for command in commands {
        dead().when(&command, at(9)).then_nothing().replies(now_is(CandidateState::Dead));
    }
}

#[test]
fn an_error_text_has_its_limit() {
    let of = |bytes| ConnectorCommand::RecordSweepApplyFailure {
        candidate: candidate("a", "y"),
        error: "e".repeat(bytes),
    };
    confirmed().when(&of(MAX_ERROR_TEXT_BYTES + 1), at(3)).refused_input("error");
    assert_eq!(confirmed().when(&of(MAX_ERROR_TEXT_BYTES), at(3)).events().len(), 1);
}

#[test]
fn a_candidate_that_is_gone_takes_no_outcome_but_applied_is_fine() {
    let gone = Error::NotFound { what: "sweep candidate" };
    let other = CandidateKey { provenance: provenance("b"), ..candidate("a", "y") };
    let of_other = SweepOutcome::Absent;
    let outcome_of_other =
        ConnectorCommand::RecordSweepOutcome { candidate: other.clone(), outcome: of_other };
    pending().when(&outcome_of_other, at(2)).refused_with(&gone);
    for given in [fresh(), pending()] {
        for what in [SweepOutcome::Absent, SweepOutcome::Present, SweepOutcome::Unknown] {
            given.when(&outcome("z", what), at(2)).refused_with(&gone);
        }
        given.when(&failure("z"), at(2)).refused_with(&gone);
        given.when(&applied("z"), at(2)).then_nothing().replies(ConnectorReply::Done);
        given.when(&dropped("z"), at(2)).then_nothing().replies(ConnectorReply::Done);
    }
    let applied_of_other = ConnectorCommand::SweepApplied { candidate: other };
    pending().when(&applied_of_other, at(2)).then_nothing();
}

/// The document is missing under another entity meanwhile: what was found out of the old one must
/// not delete it.
#[test]
fn what_is_known_of_another_entity_says_nothing_of_a_candidate() {
    let gone = Error::NotFound { what: "sweep candidate" };
    let other = CandidateKey { source_id: source("moved"), ..candidate("a", "y") };
    for what in [SweepOutcome::Absent, SweepOutcome::Present, SweepOutcome::Unknown] {
        let candidate = other.clone();
        let command = ConnectorCommand::RecordSweepOutcome { candidate, outcome: what };
        pending().when(&command, at(2)).refused_with(&gone);
    }
    let (candidate, error) = (other.clone(), "no".to_owned());
    let failed = ConnectorCommand::RecordSweepApplyFailure { candidate, error };
    confirmed().when(&failed, at(2)).refused_with(&gone);
    let applied = ConnectorCommand::SweepApplied { candidate: other };
    confirmed().when(&applied, at(2)).then_nothing().replies(ConnectorReply::Done);
}

#[test]
fn applied_removes_the_candidate_and_moves_the_checkpoint() {
    for given in [pending(), confirmed()] {
        let gone = CandidateGone { candidate: candidate("a", "y") };
        let events = [ConnectorEvent::CandidateApplied(gone), moved_to(receipt("a", 1), 1, 9)];
        given.when(&applied("y"), at(9)).then(&events).replies(ConnectorReply::Done);
    }
    let gone = CandidateGone { candidate: candidate("a", "y") };
    dead().when(&applied("y"), at(9)).then(&[ConnectorEvent::CandidateApplied(gone)]);
}

#[test]
fn the_checkpoint_moves_at_the_commit_when_nothing_is_missing() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x"], &["x"], 1);
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 1)));
    sweep(&mut given, "a", &["x", "y"], &["x"], 2);
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 1)));
}

/// Each way in which a candidate ends moves it; a deferral and a confirmation do not.
#[test]
fn the_checkpoint_moves_at_apply_withdrawal_death_and_document_sweep() {
    let mut nearly_dead = confirmed();
    for _ in 1..MAX_SWEEP_APPLY_ATTEMPTS {
        nearly_dead.done(&failure("y"), at(3));
    }
    let ends = [
        (confirmed(), applied("y")),
        (pending(), outcome("y", SweepOutcome::Present)),
        (nearly_dead, failure("y")),
        (pending(), dropped("y")),
    ];
    for (mut given, command) in ends {
        assert_eq!(checkpoint(&given), None);
        given.done(&command, at(9));
        assert_eq!(checkpoint(&given), Some(("a".to_owned(), 1)));
        given.assert_rows_are_those_of_the_state();
    }
    for command in [outcome("y", SweepOutcome::Unknown), failure("y")] {
        let mut given = confirmed();
        given.done(&command, at(9));
        assert_eq!(checkpoint(&given), None);
    }
}

/// `y` is of receipt 1, `z` of receipt 2, receipt 3 brought none.
fn three_receipts() -> Given<Connector> {
    let mut given = pending();
    sweep(&mut given, "a", &["x", "y", "z"], &["x"], 2);
    sweep(&mut given, "a", &["x", "y", "z"], &["x"], 3);
    given
}

#[test]
fn the_checkpoint_waits_for_the_candidates_of_earlier_receipts() {
    let mut given = three_receipts();
    given.done(&applied("z"), at(9));
    assert_eq!(checkpoint(&given), None);
    given.done(&applied("y"), at(10));
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 3)));

    let mut given = three_receipts();
    given.done(&applied("y"), at(9));
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 1)));
    given.done(&applied("z"), at(10));
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 3)));
}

#[test]
fn a_commit_that_withdraws_the_last_candidate_moves_the_checkpoint_itself() {
    let mut given = three_receipts();
    sweep(&mut given, "a", &["x", "y", "z"], &["x", "y"], 4);
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 1)));
    sweep(&mut given, "a", &["x", "y", "z"], &["x", "y", "z"], 5);
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 5)));
}

#[test]
fn the_checkpoint_of_a_newer_era_takes_the_place_of_the_older() {
    let mut given = three_receipts();
    sweep(&mut given, "b", &["x", "y"], &["x"], 4);
    assert_eq!(checkpoint(&given), None);
    let b = candidate("b", "y");
    given.done(&ConnectorCommand::SweepApplied { candidate: b }, at(5));
    assert_eq!(checkpoint(&given), Some(("b".to_owned(), 1)));
    given.assert_rows_are_those_of_the_state();
}

/// A candidate that never ends must not let the list of waiting receipts grow.
#[test]
fn receipts_that_the_checkpoint_would_pass_over_are_let_go() {
    let mut given = pending();
    for millis in 2..50 {
        sweep(&mut given, "a", &["x", "y"], &["x"], millis);
    }
    let swept = given.state.partitions[&partition()].swept.as_ref().unwrap();
    assert!(swept.awaiting.len() <= 3, "{:?}", swept.awaiting);
    given.done(&applied("y"), at(60));
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 49)));
}

#[test]
fn a_document_sweep_drops_its_candidates_in_every_partition() {
    let mut given = pending();
    let mut other = begin("q");
    other.partition = PartitionId::new("second").unwrap();
    given.done(&ConnectorCommand::BeginReceipt(other.clone()), at(2));
    let key = ReceiptKey {
        partition: other.partition.clone(),
        provenance: other.provenance,
        sequence: 1,
    };
    let end = complete(&key, &[], Some(0));
    given.done(&ConnectorCommand::CompleteReceipt(end), at(2));
    let input = commit(&given, &key, &["y"], &[], lax());
    given.done(&ConnectorCommand::CommitReceipt(input), at(2));
    let events = given.when(&dropped("y"), at(9)).events();
    let moved = [moved_to(receipt("a", 1), 1, 9), moved_to(key, 1, 9)];
    assert_eq!([&events[1], &events[3]], [&moved[0], &moved[1]]);
    given.done(&dropped("y"), at(9));
    given.assert_rows_are_those_of_the_state();
    assert!(
        given
            .state
            .partitions
            .values()
            .all(|known| { known.swept.as_ref().is_some_and(|swept| swept.candidates.is_empty()) })
    );
}

#[test]
fn candidates_are_paged_by_document() {
    let mut given = fresh();
    sweep(&mut given, "a", &["1", "2", "3"], &[], 1);
    let page = |after: Option<&str>, limit| ConnectorCommand::Candidates {
        partition: partition(),
        after: after.map(document),
        limit,
    };
    let names = |given: &Given<Connector>, command| match given.clone().done(&command, at(2)) {
        ConnectorReply::Candidates(page) => {
            page.into_iter().map(|candidate| candidate.document_id.to_string()).collect()
        }
        other => panic!("{other:?}"),
    };
    let cases: [(Option<&str>, u32, &[&str]); 5] = [
        (None, 0, &[]),
        (None, 2, &["d1", "d2"]),
        (Some("d2"), 2, &["d3"]),
        (Some("d3"), 2, &[]),
        (Some("d11"), 9, &["d2", "d3"]),
    ];
    for (after, limit, expected) in cases {
        let got: Vec<String> = names(&given, page(after, limit));
        assert_eq!(got, expected);
    }
    given.when(&page(None, MAX_PAGE_ROWS + 1), at(2)).refused_input("limit");
    let none = ConnectorReply::Candidates(Vec::new());
    fresh().when(&page(None, 1), at(2)).then_nothing().replies(none);
}

fn lost() -> ConnectorCommand {
    ConnectorCommand::CursorLost { partition: partition() }
}

fn owed(given: &Given<Connector>) -> Option<i64> {
    let ConnectorReply::OwedSweeps(owed) =
        given.clone().done(&ConnectorCommand::OwedSweeps, at(99))
    else {
        return None;
    };
    owed.first().map(|owed| owed.owed_since.as_millis())
}

#[test]
fn a_lost_cursor_owes_a_sweep_that_begins_later() {
    let mut given = fresh();
    let event = CursorLost { partition: partition(), version: 1, at: Timestamp::from_millis(5) };
    given.when(&lost(), at(5)).then(&[ConnectorEvent::CursorLost(event)]);
    let key = enumerate(&mut given, "a", &["x"], 3);
    given.done(&lost(), at(5));
    let input = commit(&given, &key, &["x"], &["x"], lax());
    given.done(&ConnectorCommand::CommitReceipt(input), at(6));
    assert_eq!(owed(&given), Some(5), "that receipt began before");
    sweep(&mut given, "a", &["x"], &["x"], 7);
    assert_eq!(owed(&given), None);
    given.assert_rows_are_those_of_the_state();
}

/// The oldest time is shown, but only a receipt that began behind the newest loss settles it.
#[test]
fn a_cursor_lost_again_is_owed_since_the_first_time() {
    let mut given = fresh();
    given.done(&lost(), at(5));
    let key = enumerate(&mut given, "a", &["x"], 6);
    given.done(&lost(), at(7));
    let input = commit(&given, &key, &["x"], &["x"], lax());
    given.done(&ConnectorCommand::CommitReceipt(input), at(8));
    assert_eq!(owed(&given), Some(5));
    sweep(&mut given, "a", &["x"], &["x"], 9);
    assert_eq!(owed(&given), None);
}

#[test]
fn no_checkpoint_is_none() {
    let read = ConnectorCommand::SweepCheckpoint { partition: partition() };
    let none = ConnectorReply::SweepCheckpoint(None);
    fresh().when(&read, at(1)).then_nothing().replies(none.clone());
    pending().when(&read, at(1)).then_nothing().replies(none);
}
