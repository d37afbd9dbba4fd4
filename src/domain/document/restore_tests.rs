//! Nothing of a backup is sent on its word.

use super::super::command::{DocumentCommand, OperationOutcome};
use super::super::fixture::*;
use super::*;
use crate::Error;
use crate::testing::given::{Given, at};

/// When the store was restored.
const RESTORED: i64 = 50_000;

/// The context of a decision in a store that was restored at `RESTORED`.
fn restored(now: i64) -> Context {
    Context { generation: 2, restored_at: Some(time(RESTORED)), ..at(now) }
}

/// An operation `a` that was claimed at 1,000 and what these commands made of it.
fn claimed(then: &[(DocumentCommand, i64)]) -> Given<Document> {
    let mut given = fresh();
    given.done(&claim("a", "me"), at(1_000));
    for (command, millis) in then {
        given.done(command, at(*millis));
    }
    given
}

fn restore(given: &mut Given<Document>, now: i64) {
    given.done(&DocumentCommand::RestoreOperations, restored(now));
    given.assert_rows_are_those_of_the_state();
}

fn to_ask(started_at: i64, until: i64) -> OperationPhase {
    let sent = SendMark { started_at: time(started_at), until: time(until) };
    OperationPhase::ReconcileOnly { sent, read_at: None }
}

/// Every unfinished operation, with the mark that it has once it is restored.
fn unfinished() -> Vec<(Given<Document>, OperationPhase)> {
    let (unknown, not_written) = (OperationOutcome::Unknown, OperationOutcome::NotWritten);
    let ends = 1_000 + TTL;
    let read = ends + DELAY + 1;
    let sent = (mark("a", token(1)), 1_001);
    let asked =
        [sent.clone(), (record("a", token(1), unknown), 1_002), (begin_read("a", token(1)), read)];
    let mut not_there = asked.to_vec();
    not_there.push((record("a", token(1), not_written), read + 1));
    let long = DocumentCommand::RenewOperationLease {
        operation_id: op("a"),
        token: token(1),
        ttl_ms: RESTORED + 1,
    };
    vec![
        (claimed(&[]), to_ask(RESTORED, RESTORED)),
        (claimed(&[(release("a", token(1)), 1_001)]), to_ask(RESTORED, RESTORED)),
        (claimed(&[(defer("a", token(1), false), 1_001)]), to_ask(RESTORED, RESTORED)),
        (claimed(&asked[..1]), to_ask(1_001, RESTORED)),
        (claimed(&[(long, 1_000), sent.clone()]), to_ask(1_001, RESTORED + 1_001)),
        (claimed(&asked[..2]), to_ask(1_001, RESTORED)),
        (claimed(&asked), to_ask(1_001, RESTORED)),
        (claimed(&not_there), to_ask(RESTORED, RESTORED)),
    ]
}

#[test]
fn every_unfinished_operation_is_to_be_asked_for_and_nobody_holds_it() {
    for (mut given, phase) in unfinished() {
        restore(&mut given, RESTORED + 7);
        let standing = operation(&given, "a");
        assert_eq!((&standing.phase, &standing.lease), (&phase, &None));
        assert_eq!(standing.updated_at, time(RESTORED + 7));
        let again = given.when(&DocumentCommand::RestoreOperations, restored(RESTORED + 8));
        again.then_nothing();
    }
}

#[test]
fn only_a_read_that_began_after_the_restore_and_the_delay_proves_absence() {
    for (mut given, phase) in unfinished() {
        restore(&mut given, RESTORED);
        let OperationPhase::ReconcileOnly { sent, .. } = phase else { panic!("{phase:?}") };
        let not_before = sent.until.as_millis() + DELAY;
        let of_the_past = begin_read("a", token(1));
        given.when(&of_the_past, restored(not_before)).refused_with(&lost("a"));
        given.done(&claim("a", "me"), restored(RESTORED + 1));
        let token = current(&given, "a");
        given
            .when(&mark("a", token), restored(RESTORED + 2))
            .refused_with(&Error::ReconcileFirst { operation_id: op("a") });
        let absent = record("a", token, OperationOutcome::NotWritten);
        given.done(&begin_read("a", token), restored(not_before));
        given.when(&absent, restored(not_before + 9)).refused_with(&Error::ReconcileTooEarly {
            operation_id: op("a"),
            not_before: time(not_before),
        });
        given.done(&begin_read("a", token), restored(not_before + 1));
        given.done(&absent, restored(not_before + 9));
        assert_eq!(operation(&given, "a").phase, OperationPhase::Attempted { sent: None });
    }
}

#[test]
fn what_is_finished_and_what_was_claimed_since_stay_as_they_are() {
    for outcome in [committed(None), dead()] {
        let given = claimed(&[(finalize("a", token(1), outcome), 1_001)]);
        given.when(&DocumentCommand::RestoreOperations, restored(RESTORED)).then_nothing();
    }
    let mut given = claimed(&[]);
    given.when(&DocumentCommand::RestoreOperations, at(2_000)).then_nothing();
    restore(&mut given, RESTORED);
    given.done(&claim("a", "me"), restored(RESTORED + 1));
    given.when(&DocumentCommand::RestoreOperations, restored(RESTORED + 2)).then_nothing();
}

#[test]
fn each_operation_of_a_document_is_restored() {
    let mut given = claimed(&[]);
    given.done(&claim("b", "me"), at(1_001));
    given.done(&claim("c", "me"), at(1_002));
    let finished = finalize("b", current(&given, "b"), dead());
    given.done(&finished, at(1_003));
    restore(&mut given, RESTORED);
    for (id, phase) in [("a", "reconcile_only"), ("b", "dead"), ("c", "reconcile_only")] {
        assert_eq!(operation(&given, id).phase.as_str(), phase, "{id}");
    }
}

#[test]
fn an_unknown_operation_that_is_not_newer_than_the_restore_is_to_be_asked_for() {
    let cases = [(1, true), (RESTORED, true), (RESTORED + 1, false)];
    for (version, is_lost) in cases {
        let mut given = fresh();
        let mut command = claim_of("a", "me");
        command.version = hlc(version);
        let command = DocumentCommand::ClaimOperation(command);
        given.done(&command, restored(RESTORED + 5));
        given.assert_rows_are_those_of_the_state();
        let standing = operation(&given, "a");
        if is_lost {
            assert_eq!(standing.phase, to_ask(RESTORED, RESTORED), "{version}");
        } else {
            assert_eq!(standing.phase, OperationPhase::Attempted { sent: None }, "{version}");
        }
        assert_eq!(standing.attempts, u32::from(!is_lost));
        assert!(standing.lease.is_some());
        let mut never_restored = fresh();
        never_restored.done(&command, at(RESTORED + 5));
        let phase = &operation(&never_restored, "a").phase;
        assert_eq!(phase, &OperationPhase::Attempted { sent: None });
    }
}
