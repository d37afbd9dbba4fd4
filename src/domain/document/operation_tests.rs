//! The rules of operations one by one: given what happened, when a command comes, then what it comes to.
//! The whole table of states, commands and tokens is in the test of the machine.

use super::super::fixture::*;
use super::super::{
    ArmOutcome, ClaimOperation, DeferReason, Deferral, Document, DocumentCommand, DocumentReply,
    FinalOutcome, OperationKind, OperationOutcome, OperationPhase, SendPermit,
};
use super::*;
use crate::domain::Aggregate;
use crate::domain::{RowKey, Table, Value};
use crate::testing::given::{Given, at};

fn phase(given: &Given<Document>, id: &str) -> &'static str {
    operation(given, id).phase.as_str()
}

/// A document with one operation that "me" has claimed at 1,000.
fn claimed() -> Given<Document> {
    let mut given = fresh();
    given.done(&claim("a", "me"), at(1_000));
    given
}

/// The same, and its request has left.
fn sent() -> Given<Document> {
    let mut given = claimed();
    given.done(&mark("a", token(1)), at(1_100));
    given
}

#[test]
fn an_unknown_operation_is_created_attempted_and_leased() {
    let mut given = fresh();
    let reply = given.done(&claim("a", "me"), at(1_000));
    let DocumentReply::Claimed { operation: record, lease } = reply else { panic!("{reply:?}") };
    assert_eq!((&lease.holder, lease.token), (&holder("me"), token(1)));
    assert_eq!(lease.expires_at, time(1_000 + TTL));
    let created = &record.operation;
    assert_eq!(created, operation(&given, "a"));
    assert_eq!(created.phase, OperationPhase::Attempted { sent: None });
    assert_eq!((created.attempts, created.sequence), (1, 1));
    assert_eq!((created.created_at, created.updated_at), (time(1_000), time(1_000)));
    assert_eq!(created.lease, Some(lease));
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn a_new_id_must_be_known_nowhere_and_its_connection_not_be_forgotten() {
    let decide = |given: &Given<Document>, command: &DocumentCommand| {
        given.state.decide(&key(), command, &at(5_000)).unwrap().absent
    };
    let id_row = RowKey::new(Table::OperationId, vec![Value::text("a")]);
    let forgetting = forgetting_key(&owner(), &connector());
    assert_eq!(decide(&fresh(), &claim("a", "me")), [id_row, forgetting.clone()]);
    assert_eq!(decide(&claimed(), &claim("a", "other")), std::slice::from_ref(&forgetting));
    assert_eq!(decide(&fresh(), &arm(1)), [forgetting]);
    let mut finished = claimed();
    finished.done(&finalize("a", token(1), dead()), at(1_100));
    assert_eq!(decide(&finished, &claim("a", "me")), [], "a replay asks nothing");
}

#[test]
fn sequences_of_a_document_grow_by_one_from_one() {
    let mut given = fresh();
    for (id, sequence) in [("b", 1), ("a", 2), ("c", 3)] {
        given.done(&claim(id, "me"), at(1));
        assert_eq!(operation(&given, id).sequence, sequence);
    }
}

#[test]
fn a_newer_operation_counts_unless_it_is_dead() {
    let mut given = fresh();
    for id in ["z", "m", "a"] {
        given.done(&claim(id, "me"), at(1));
    }
    let newer = |given: &Given<Document>, id| {
        let command = DocumentCommand::HasNewerOperation { operation_id: op(id) };
        given.when(&command, at(2)).then_nothing().reply() == DocumentReply::HasNewer(true)
    };
    assert_eq!(["z", "m", "a"].map(|id| newer(&given, id)), [true, true, false]);
    let token_of = current(&given, "a");
    given.done(&finalize("a", token_of, dead()), at(3));
    assert_eq!(["z", "m", "a"].map(|id| newer(&given, id)), [true, false, false]);
    let token_of = current(&given, "m");
    given.done(&finalize("m", token_of, committed(None)), at(3));
    assert_eq!(["z", "m", "a"].map(|id| newer(&given, id)), [true, false, false]);
    let unknown = DocumentCommand::HasNewerOperation { operation_id: op("none") };
    given.when(&unknown, at(2)).refused_with(&Error::NotFound { what: "operation" });
}

#[test]
fn an_operation_is_read_by_its_id() {
    let read = |id| DocumentCommand::Operation { operation_id: op(id) };
    let given = claimed();
    let record = operation(&given, "a").view(&document(), &op("a"));
    given.when(&read("a"), at(1)).replies(DocumentReply::Operation(Some(Box::new(record))));
    given.when(&read("b"), at(1)).replies(DocumentReply::Operation(None));
}

#[test]
fn times_out_of_bounds_are_refused_by_their_name() {
    let claim_with = |change: fn(&mut ClaimOperation)| {
        let mut claim = claim_of("a", "me");
        change(&mut claim);
        DocumentCommand::ClaimOperation(claim)
    };
    let deferred = |delay_ms| {
        let reason = DeferReason::Offline;
        let deferral = Deferral { reason, delay_ms, definite_refusal: false };
        DocumentCommand::DeferOperation { operation_id: op("a"), token: token(1), deferral }
    };
    let renewed = |ttl_ms| DocumentCommand::RenewOperationLease {
        operation_id: op("a"),
        token: token(1),
        ttl_ms,
    };
    let cases = [
        (claim_with(|claim| claim.ttl_ms = 0), "ttl"),
        (claim_with(|claim| claim.ttl_ms = MAX_LEASE_MS + 1), "ttl"),
        (claim_with(|claim| claim.visibility_delay_ms = -1), "visibility_delay"),
        (claim_with(|claim| claim.visibility_delay_ms = MAX_DELAY_MS + 1), "visibility_delay"),
        (deferred(-1), "delay"),
        (deferred(MAX_DELAY_MS + 1), "delay"),
        (renewed(-1), "ttl"),
        (renewed(i64::MAX), "ttl"),
    ];
    for (command, field) in cases {
        claimed().when(&command, at(1_001)).refused_input(field);
    }
    let longest = claim_with(|claim| claim.visibility_delay_ms = MAX_DELAY_MS);
    assert_eq!(fresh().when(&longest, at(i64::MAX)).events().len(), 1, "and nothing overflows");
}

#[test]
fn texts_of_the_provider_are_capped_and_a_version_holds_no_control_character() {
    let with = |outcome| claimed().tried(&finalize("a", token(1), outcome), at(1_001));
    let version = |text: String| FinalOutcome::Committed {
        source_id: source("s"),
        source_version: Some(text),
        watch: None,
    };
    let error = |bytes| FinalOutcome::Dead { error: "ä".repeat(bytes / 2) };
    assert!(with(version("v".repeat(MAX_SOURCE_VERSION_BYTES))).is_ok());
    assert!(with(version(String::new())).is_ok());
    assert!(with(error(MAX_ERROR_TEXT_BYTES)).is_ok());
    let cases = [
        (version("v".repeat(MAX_SOURCE_VERSION_BYTES + 1)), "source_version"),
        (version("a\0b".to_owned()), "source_version"),
        (version("a\u{85}".to_owned()), "source_version"),
        (error(MAX_ERROR_TEXT_BYTES + 2), "error"),
        (FinalOutcome::Dead { error: "a\0b".to_owned() }, "error"),
    ];
    for (outcome, named) in cases {
        let refused = with(outcome);
        assert!(
            matches!(refused, Err(Error::InvalidInput { field, .. }) if field == named),
            "{named}: {refused:?}"
        );
    }
}

/// The facts are told apart before anything else is: a wrong replay never gets a result.
#[test]
fn a_claim_is_judged_on_facts_then_end_then_sweep_then_holder_then_time() {
    let mut other = claim_of("a", "other");
    other.op = OperationKind::Create;
    let other = DocumentCommand::ClaimOperation(other);
    let mismatch = Error::OperationMismatch { operation_id: op("a") };
    let mut given = claimed();
    given.when(&other, at(1_001)).refused_with(&mismatch);
    given.done(&finalize("a", token(1), committed(None)), at(1_100));
    given.when(&other, at(1_101)).refused_with(&mismatch);
    given.done(&DocumentCommand::BeginDocumentSweep, at(1_200));
    given.when(&other, at(1_201)).refused_with(&mismatch);
    let record = operation(&given, "a").view(&document(), &op("a"));
    given
        .when(&claim("a", "other"), at(1_201))
        .then_nothing()
        .replies(DocumentReply::Finished(Box::new(record)));
    let swept = Error::DocumentBeingSwept { document_id: document() };
    given.when(&claim("b", "me"), at(1_201)).refused_with(&swept);
    given.done(&DocumentCommand::AbandonDocumentSweep, at(1_202));
    assert_eq!(given.when(&claim("b", "me"), at(1_203)).events().len(), 1);
}

#[test]
fn an_operation_whose_row_went_with_a_sweep_is_a_new_one() {
    let mut given = claimed();
    given.done(&finalize("a", token(1), committed(Some(options(1)))), at(1_100));
    given.done(&DocumentCommand::SweepDocumentRows, at(1_200));
    given.assert_rows_are_those_of_the_state();
    assert_eq!(given.written_rows().count(), 0, "rows of finished operations go with a sweep");
    given.done(&claim("a", "me"), at(1_300));
    assert_eq!((operation(&given, "a").attempts, operation(&given, "a").sequence), (1, 1));
}

#[test]
fn an_unfinished_operation_keeps_its_document_from_being_swept() {
    let refusal = Error::SweepUnfinishedOperation { document_id: document() };
    assert_eq!(refusal.code(), "CONNECTOR_SWEEP_UNFINISHED_OPERATION");
    let mut deferred = claimed();
    deferred.done(&defer("a", token(1), false), at(1_100));
    let mut unknown = sent();
    unknown.done(&record("a", token(1), OperationOutcome::Unknown), at(1_200));
    let mut second = claimed();
    second.done(&finalize("a", token(1), dead()), at(1_100));
    second.done(&claim("b", "me"), at(1_200));
    for given in [claimed(), sent(), deferred, unknown, second] {
        given.when(&DocumentCommand::BeginDocumentSweep, at(9_000)).refused_with(&refusal);
        given.when(&DocumentCommand::SweepDocumentRows, at(9_000)).refused_with(&refusal);
    }
    for outcome in [dead(), committed(None)] {
        let mut given = claimed();
        given.done(&finalize("a", token(1), outcome), at(1_100));
        given.done(&DocumentCommand::BeginDocumentSweep, at(9_000));
        given.done(&DocumentCommand::SweepDocumentRows, at(9_001));
        assert_eq!(given.state, Document::default());
    }
}

#[test]
fn the_same_holder_again_gets_a_new_token_and_loses_its_old_one() {
    let mut given = claimed();
    given.done(&claim("a", "me"), at(1_001));
    assert_eq!(operation(&given, "a").attempts, 2);
    given.when(&mark("a", token(1)), at(1_002)).refused_with(&lost("a"));
    given.done(&mark("a", token(2)), at(1_002));
}

#[test]
fn who_holds_it_longer_than_its_lease_finishes_until_somebody_takes_it() {
    let late = 1_000 + TTL + 5_000;
    let mut given = sent();
    given.done(&finalize("a", token(1), committed(None)), at(late));
    assert_eq!(phase(&given, "a"), "committed");
    let mut taken = sent();
    taken.done(&claim("a", "other"), at(1_000 + TTL));
    taken.when(&finalize("a", token(1), committed(None)), at(late)).refused_with(&lost("a"));
    assert_eq!(phase(&taken, "a"), "reconcile_only");
}

#[test]
fn a_permit_to_send_ends_with_the_lease_and_is_not_longer_after_a_renewal() {
    let mut given = claimed();
    given.done(&renew("a", token(1)), at(1_500));
    let reply = given.done(&mark("a", token(1)), at(1_900));
    let permit = SendPermit { send_within_ms: 600, send_until: time(2_500) };
    assert_eq!(reply, DocumentReply::SendPermit(permit));
    given.done(&renew("a", token(1)), at(2_400));
    let OperationPhase::Attempted { sent: Some(mark) } = &operation(&given, "a").phase else {
        panic!("sent")
    };
    assert_eq!((mark.started_at, mark.until), (time(1_900), time(2_500)));
}

#[test]
fn an_expired_lease_gives_no_permit_until_it_is_renewed() {
    let mut given = claimed();
    let expired = Error::LeaseExpired { scope: super::scope(&document(), &op("a")).to_string() };
    given.when(&mark("a", token(1)), at(1_000 + TTL)).refused_with(&expired);
    given.done(&renew("a", token(1)), at(1_000 + TTL));
    given.done(&mark("a", token(1)), at(1_000 + TTL));
}

#[test]
fn whoever_claims_what_was_sent_must_reconcile() {
    for by in ["me", "other"] {
        for released in [false, true] {
            let mut given = sent();
            if released {
                given.done(&release("a", token(1)), at(1_200));
            }
            given.done(&claim("a", by), at(1_000 + TTL));
            assert_eq!(phase(&given, "a"), "reconcile_only", "{by} {released}");
            assert_eq!(operation(&given, "a").attempts, 1, "a question is no attempt");
            let token = current(&given, "a");
            let refusal = Error::ReconcileFirst { operation_id: op("a") };
            given.when(&mark("a", token), at(2_001)).refused_with(&refusal);
        }
    }
}

#[test]
fn a_read_proves_nothing_under_the_next_claim() {
    let mut given = sent();
    given.done(&record("a", token(1), OperationOutcome::Unknown), at(1_200));
    given.done(&begin_read("a", token(1)), at(9_000));
    given.done(&claim("a", "other"), at(9_001));
    let token = current(&given, "a");
    let not_before = time(1_000 + TTL + DELAY);
    let early = Error::ReconcileTooEarly { operation_id: op("a"), not_before };
    given.when(&record("a", token, OperationOutcome::NotWritten), at(9_002)).refused_with(&early);
    given.done(&begin_read("a", token), at(9_003));
    given.done(&record("a", token, OperationOutcome::NotWritten), at(9_003));
    assert_eq!(operation(&given, "a").phase, OperationPhase::Attempted { sent: None });
    given.done(&mark("a", token), at(9_004));
}

#[test]
fn an_outcome_without_a_mark_waits_for_the_later_of_lease_and_now() {
    for (now, until) in [(1_100, 2_000), (7_000, 7_000)] {
        let mut given = claimed();
        given.done(&record("a", token(1), OperationOutcome::Unknown), at(now));
        let OperationPhase::ReconcileOnly { sent, .. } = &operation(&given, "a").phase else {
            panic!("reconcile_only")
        };
        assert_eq!((sent.started_at, sent.until), (time(now), time(until)));
    }
}

#[test]
fn a_definite_refusal_lets_it_be_sent_again_and_a_deferral_without_one_does_not() {
    let mut given = sent();
    let first = Error::ReconcileFirst { operation_id: op("a") };
    given.when(&defer("a", token(1), false), at(1_200)).refused_with(&first);
    given.done(&defer("a", token(1), true), at(1_200));
    let waits =
        Error::Deferred { operation_id: op("a"), not_before: time(1_500), reason: "rate_limited" };
    given.when(&claim("a", "me"), at(1_499)).refused_with(&waits);
    given.done(&claim("a", "other"), at(1_500));
    assert_eq!((phase(&given, "a"), operation(&given, "a").attempts), ("attempted", 2));
    let token = current(&given, "a");
    given.done(&mark("a", token), at(1_501));
}

#[test]
fn a_deferral_while_reconciling_sets_the_time_alone() {
    for definite in [false, true] {
        let mut given = sent();
        given.done(&record("a", token(1), OperationOutcome::Unknown), at(1_200));
        let before = operation(&given, "a").phase.clone();
        given.done(&defer("a", token(1), definite), at(1_300));
        assert_eq!(operation(&given, "a").phase, before);
        given.done(&claim("a", "me"), at(1_600));
        assert_eq!(phase(&given, "a"), "reconcile_only");
    }
}

#[test]
fn a_committed_operation_arms_its_watch_in_the_same_append() {
    let mut given = claimed();
    let watched = finalize("a", token(1), committed(Some(options(9))));
    assert_eq!(given.when(&watched, at(1_100)).events().len(), 2);
    assert_eq!(given.done(&watched, at(1_100)), DocumentReply::Finalized(Some(ArmOutcome::Armed)));
    let watch = given.state.watch.as_ref().unwrap();
    assert_eq!((&watch.identity, watch.deadline), (&identity(), time(1_200)));
    given.assert_rows_are_those_of_the_state();
    for (written, outcome) in [(8, ArmOutcome::Kept), (9, ArmOutcome::Replaced)] {
        let mut given = given.clone();
        given.done(&claim("b", "me"), at(1_200));
        let token = current(&given, "b");
        let watched = finalize("b", token, committed(Some(options(written))));
        assert_eq!(given.done(&watched, at(1_300)), DocumentReply::Finalized(Some(outcome)));
        assert_eq!(phase(&given, "b"), "committed");
    }
    let mut far = options(9);
    far.deadline_ms = -1;
    claimed().when(&finalize("a", token(1), committed(Some(far))), at(2)).refused_input("deadline");
}

/// Once a store is restored from a backup, tokens of the lost future must not match by chance.
#[test]
fn a_claim_of_another_generation_is_void() {
    let given = claimed();
    let restored = |now| Context { generation: 2, ..at(now) };
    for command in [mark("a", token(1)), renew("a", token(1)), release("a", token(1))] {
        given.when(&command, restored(1_001)).refused_with(&lost("a"));
    }
    let events = given.when(&claim("a", "other"), restored(1_001)).events();
    let DocumentEvent::OperationClaimed(claimed) = &events[0] else { panic!("{events:?}") };
    assert_eq!(claimed.lease.token, FencingToken { generation: 2, version: 2 });
}

#[test]
fn what_waits_is_due_when_its_lease_or_deferral_ends_or_at_once() {
    let due = |given: &Given<Document>| operation(given, "a").due_at();
    let mut given = claimed();
    assert_eq!(due(&given), Some(time(1_000 + TTL)));
    given.done(&release("a", token(1)), at(1_100));
    assert_eq!(due(&given), Some(time(1_100)), "nobody holds it");
    given.done(&claim("a", "me"), at(1_200));
    let token = current(&given, "a");
    given.done(&defer("a", token, false), at(1_300));
    assert_eq!(due(&given), Some(time(1_600)));
    given.done(&claim("a", "me"), at(1_600));
    let token = current(&given, "a");
    given.done(&finalize("a", token, dead()), at(1_700));
    assert_eq!(due(&given), None);
}

#[test]
fn forgetting_a_connection_takes_trim_and_watch_and_keeps_what_stops_a_replay() {
    let forget = |owner_did: &str| DocumentCommand::ForgetDocumentConnection {
        owner: crate::base::OwnerDid::new(owner_did).unwrap(),
        connector: connector(),
    };
    let mut given = claimed();
    given.done(&finalize("a", token(1), committed(Some(options(1)))), at(1_100));
    given.done(&set_trim(), at(1_200));
    given.when(&forget("did:web:p"), at(1_300)).then_nothing();
    let decision = given.state.decide(&key(), &forget("did:web:o"), &at(1_300)).unwrap();
    assert!(decision.trim && !decision.erase);
    given.done(&forget("did:web:o"), at(1_300));
    assert!(given.state.trim.is_none() && given.state.watch.is_none());
    given.assert_rows_are_those_of_the_state();
    let reply = given.done(&claim("a", "me"), at(1_400));
    assert!(matches!(reply, DocumentReply::Finished(_)), "{reply:?}");
    given.when(&forget("did:web:o"), at(1_500)).then_nothing();
    fresh().when(&forget("did:web:o"), at(1)).then_nothing();
}

#[test]
fn an_operations_row_has_the_columns_of_its_table() {
    let mut given = sent();
    given.done(&record("a", token(1), OperationOutcome::Unknown), at(1_200));
    given.done(&begin_read("a", token(1)), at(1_300));
    let key = RowKey::new(Table::Operation, vec![Value::text("a")]);
    let text = |text: &str| Value::text(text);
    let facts = [
        text("a"),
        text("doc-1"),
        text("did:web:o"),
        text("caldav"),
        text("update"),
        text("000000000000007-00000000-n"),
        text(&crate::base::Digest::of(b"request").to_hex()),
    ];
    let rest = [
        text("reconcile_only"),
        Value::Int(1),
        Value::Int(1_100),
        Value::Int(2_000),
        Value::Int(DELAY),
        Value::Int(1_300),
        Value::Null,
        Value::Null,
        text("me"),
        text("1-1"),
        Value::Int(2_000),
        Value::Null,
        Value::Null,
        Value::Null,
        Value::Int(1),
        Value::Int(1_000),
        Value::Int(1_300),
        Value::Int(2_000),
    ];
    let expected = [&facts[..], &rest[..]].concat();
    assert_eq!(given.written(&key).unwrap().values, expected);
    assert_eq!(expected.len(), Table::Operation.spec().columns.len());
    given.done(&defer("a", token(1), false), at(1_400));
    let deferred = given.written(&key).unwrap().values[13..18].to_vec();
    let none = Value::Null;
    assert_eq!(
        deferred,
        [text("rate_limited"), Value::Int(1_700), none.clone(), none.clone(), none]
    );
    given.done(&claim("a", "me"), at(1_700));
    let token = current(&given, "a");
    given.done(&finalize("a", token, committed(None)), at(1_800));
    let ended = given.written(&key).unwrap().values.clone();
    assert_eq!((&ended[7], &ended[24]), (&text("committed"), &Value::Null));
    assert_eq!(ended[18..21], [text("s"), text("etag"), Value::Null]);
    let of_id = given.written(&id_row_key(&op("a"))).unwrap();
    assert_eq!(of_id.values, [text("a"), text("doc-1")]);
}

/// So it can be decided by a time that is told from the last one that was asked for.
#[test]
fn the_end_of_an_operation_compares_nothing_with_the_time_unless_it_arms_a_watch() {
    let of_time = [
        claim("a", "me"),
        mark("a", token(1)),
        defer("a", token(1), true),
        record("a", token(1), OperationOutcome::Unknown),
        begin_read("a", token(1)),
        renew("a", token(1)),
        release("a", token(1)),
        finalize("a", token(1), committed(Some(options(9)))),
    ];
    assert!(!of_time.iter().any(Document::is_timeless));
    for outcome in [committed(None), dead()] {
        for (given, token) in [(claimed(), token(1)), (sent(), token(1)), (sent(), token(9))] {
            let end = finalize("a", token, outcome.clone());
            assert!(Document::is_timeless(&end));
            let decide = |now| given.state.decide(&key(), &end, &at(now)).is_ok();
            assert_eq!(decide(1), decide(i64::MAX), "{end:?}");
        }
    }
}
