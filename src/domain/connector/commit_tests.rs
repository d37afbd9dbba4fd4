//! The rules of a commit, row by row.

use super::super::fixture::*;
use super::super::{
    Comparer, ConnectorCommand, ExtendReceipt, StandingCandidate, SweepOutcome, keep_content,
};
use super::*;
use crate::base::SourceId;
use crate::domain::Aggregate;
use crate::testing::given::{Given, at};

fn names(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{number:05}")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// An enumeration that lists `kept` of `known`, and what its commit comes to.
fn judged(known: usize, kept: usize, guard: MassDeleteGuard, said: Option<u64>) -> Result<()> {
    let mut given = fresh();
    given.done(&ConnectorCommand::BeginReceipt(begin("a")), at(1));
    let (all, key) = (names(0..known), receipt("a", 1));
    let listed = &texts(&all)[..kept];
    given.done(&ConnectorCommand::ExtendReceipt(extend(&key, 0, listed)), at(1));
    let end = complete(&key, &[listed], said);
    given.done(&ConnectorCommand::CompleteReceipt(end), at(1));
    let input = commit(&given, &key, &texts(&all), listed, guard);
    let before = given.clone();
    let planned = before.when(&ConnectorCommand::PlanReceipt(input.clone()), at(2));
    let result = given.tried(&ConnectorCommand::CommitReceipt(input), at(2));
    match &result {
        Ok(reply) => drop(planned.then_nothing().replies(reply.clone())),
        Err(error) => {
            planned.refused_with(error);
            assert_eq!(given.state, before.state, "nothing is lost by a refusal");
        }
    }
    result.map(|_| ())
}

fn too_large(candidates: u64, known: u64) -> Result<()> {
    Err(Error::SweepTooLarge { partition: partition(), candidates, known })
}

#[test]
fn missing_documents_become_pending_candidates_that_are_due_at_once() {
    let mut given = fresh();
    let key = enumerate(&mut given, "a", &["x"], 1);
    let input = commit(&given, &key, &["x", "y"], &["x"], MassDeleteGuard::default());
    let result = CommitResult { known: 2, missing: 1, candidates: 1, withdrawn: 0 };
    let at_5 = Timestamp::from_millis(5);
    let committed =
        ReceiptCommitted { key: key.clone(), era: 1, result, settles_owed: false, at: at_5 };
    let created = CandidatesCreated {
        key,
        model_id: begin("a").model_id,
        candidates: known(&["y"]),
        at: at_5,
    };
    given
        .when(&ConnectorCommand::CommitReceipt(input.clone()), at(5))
        .then(&[
            ConnectorEvent::ReceiptCommitted(committed),
            ConnectorEvent::CandidatesCreated(created),
        ])
        .replies(ConnectorReply::Committed(result));
    given.done(&ConnectorCommand::CommitReceipt(input), at(5));
    let [candidate] = candidates(&given).try_into().unwrap();
    assert_eq!(candidate.state, CandidateState::Pending);
    assert_eq!((candidate.attempts, candidate.apply_failures), (0, 0));
    assert_eq!((candidate.next_attempt_at, candidate.updated_at), (at_5, at_5));
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn the_guard_holds_at_its_boundaries() {
    let guard =
        |max_ratio, min_count| MassDeleteGuard { max_ratio, min_count, allow_mass_delete: false };
    let usual = MassDeleteGuard::default();
    let cases = [
        // Known, kept, guard, passes: exactly the ratio passes, one more does not.
        (40, 20, usual, true),
        (40, 19, usual, false),
        // Exactly the least count is judged by the ratio, one less is not.
        (21, 1, usual, false),
        (20, 1, usual, true),
        // 0.29 is not a binary fraction.
        (100, 71, guard(0.29, 1), true),
        (100, 70, guard(0.29, 1), false),
        (10, 9, guard(0.0, 1), false),
        (10, 10, guard(0.0, 0), true),
        (10, 1, guard(1.0, 0), true),
        // Nothing kept is refused whatever the guard's numbers.
        (1, 0, usual, false),
        (10, 0, guard(1.0, 1_000), false),
        (0, 0, usual, true),
    ];
    for (known, kept, guard, passes) in cases {
        let result = judged(known, kept, guard, None);
        if passes {
            assert!(result.is_ok(), "{known} {kept} {guard:?}");
        } else {
            let refusal = too_large((known - kept) as u64, known as u64);
            assert_eq!(format!("{result:?}"), format!("{refusal:?}"));
        }
        let allowed = MassDeleteGuard { allow_mass_delete: true, ..guard };
        assert!(judged(known, kept, allowed, None).is_ok());
    }
}

/// The provider's word lifts the rule of the empty listing, not the ratio.
#[test]
fn an_empty_listing_passes_when_the_provider_said_0() {
    let usual = MassDeleteGuard::default();
    assert!(judged(19, 0, usual, Some(0)).is_ok());
    assert!(judged(20, 0, usual, Some(0)).is_err());
    assert!(judged(19, 0, usual, None).is_err());
}

#[test]
fn a_ratio_that_is_none_is_refused() {
    for max_ratio in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let guard = MassDeleteGuard { max_ratio, allow_mass_delete: true, min_count: 0 };
        let result = judged(1, 1, guard, None);
        assert!(matches!(result, Err(Error::InvalidInput { field: "max_ratio", .. })));
    }
}

/// What is a candidate already still counts: many small steps are no way around the guard.
#[test]
fn the_guard_counts_all_that_is_missing() {
    let mut given = fresh();
    let all = names(0..40);
    let all = texts(&all);
    sweep(&mut given, "a", &all, &all[..20], 1);
    let key = enumerate(&mut given, "a", &all[..19], 2);
    let input = commit(&given, &key, &all, &all[..19], MassDeleteGuard::default());
    let refusal = Error::SweepTooLarge { partition: partition(), candidates: 21, known: 40 };
    given.when(&ConnectorCommand::CommitReceipt(input), at(3)).refused_with(&refusal);
}

#[test]
fn events_hold_at_most_a_thousand_candidates_in_one_append() {
    let mut given = fresh();
    let all = names(0..2_500);
    let all = texts(&all);
    let key = enumerate(&mut given, "a", &all[..1], 1);
    let input = commit(&given, &key, &all, &all[..1], lax());
    let events = given.when(&ConnectorCommand::CommitReceipt(input.clone()), at(2)).events();
    let sizes: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            ConnectorEvent::CandidatesCreated(created) => Some(created.candidates.len()),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [1_000, 1_000, 499]);
    given.done(&ConnectorCommand::CommitReceipt(input), at(2));
    let result = sweep(&mut given, "a", &all, &all, 3);
    assert_eq!((result.missing, result.withdrawn), (0, 2_499));
    assert!(states(&given).is_empty());
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn what_is_kept_again_is_withdrawn_and_what_is_missing_again_keeps_state_and_sequence() {
    let mut given = fresh();
    sweep(&mut given, "a", &["w", "x", "y", "z"], &["w"], 1);
    for name in ["y", "z"] {
        let outcome = ConnectorCommand::RecordSweepOutcome {
            candidate: candidate("a", name),
            outcome: SweepOutcome::Absent,
        };
        given.done(&outcome, at(2));
    }
    let result = sweep(&mut given, "a", &["v", "w", "x", "y", "z"], &["w", "z"], 3);
    assert_eq!(result, CommitResult { known: 5, missing: 3, candidates: 1, withdrawn: 1 });
    let swept = given.state.partitions[&partition()].swept.as_ref().unwrap();
    let standing: Vec<(&str, CandidateState, i64)> = swept
        .candidates
        .iter()
        .map(|(document, candidate)| (document.as_str(), candidate.state, candidate.sequence))
        .collect();
    let expected = [
        ("dv", CandidateState::Pending, 2),
        ("dx", CandidateState::Pending, 1),
        ("dy", CandidateState::Confirmed, 1),
    ];
    assert_eq!(standing, expected);
    given.assert_rows_are_those_of_the_state();
}

fn kill(given: &mut Given<Connector>, name: &str) {
    let failure = ConnectorCommand::RecordSweepApplyFailure {
        candidate: candidate("a", name),
        error: "locked".to_owned(),
    };
    for _ in 0..crate::base::limits::MAX_SWEEP_APPLY_ATTEMPTS {
        given.done(&failure, at(9));
    }
}

#[test]
fn a_dead_candidate_that_is_missing_again_is_pending_with_its_counters_at_0() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    kill(&mut given, "y");
    assert_eq!(states(&given), [("dy".to_owned(), CandidateState::Dead)]);
    let result = sweep(&mut given, "a", &["x", "y"], &["x"], 20);
    assert_eq!(result.candidates, 1);
    let [again] = candidates(&given).try_into().unwrap();
    assert_eq!(again.state, CandidateState::Pending);
    assert_eq!((again.attempts, again.apply_failures, again.last_error), (0, 0, None));
    assert_eq!(again.next_attempt_at, Timestamp::from_millis(20));
    assert_eq!(given.state.partitions[&partition()].swept.as_ref().unwrap().open[&2], 1);
}

#[test]
fn a_dead_candidate_that_is_kept_again_is_withdrawn() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    kill(&mut given, "y");
    assert_eq!(sweep(&mut given, "a", &["x", "y"], &["x", "y"], 20).withdrawn, 1);
    assert!(states(&given).is_empty());
}

/// What the provider said of the entity that the document mirrored before does not count.
#[test]
fn a_document_that_is_missing_by_another_entity_is_a_new_candidate() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    let confirm = ConnectorCommand::RecordSweepOutcome {
        candidate: candidate("a", "y"),
        outcome: SweepOutcome::Absent,
    };
    given.done(&confirm, at(2));
    let key = enumerate(&mut given, "a", &["x"], 3);
    let mut documents = known(&["x", "y"]);
    documents[1].source_id = source("moved");
    let comparison = compared(&given, documents, &["x"]);
    let input = CommitReceipt { key, comparison, guard: lax() };
    given.done(&ConnectorCommand::CommitReceipt(input), at(4));
    let [again] = candidates(&given).try_into().unwrap();
    assert_eq!((again.state, again.source_id), (CandidateState::Pending, source("moved")));
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn the_same_receipt_again_answers_its_first_result() {
    let mut given = fresh();
    let first = sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    given.done(&ConnectorCommand::SweepApplied { candidate: candidate("a", "y") }, at(2));
    let again = commit(&given, &receipt("a", 1), &["x"], &["x"], MassDeleteGuard::default());
    let reply = ConnectorReply::Committed(first);
    let command = ConnectorCommand::CommitReceipt(again.clone());
    given.when(&command, at(3)).then_nothing().replies(reply.clone());
    given.when(&ConnectorCommand::PlanReceipt(again), at(3)).then_nothing().replies(reply);
}

#[test]
fn a_receipt_without_its_last_page_is_incomplete() {
    let mut given = fresh();
    given.done(&ConnectorCommand::BeginReceipt(begin("a")), at(1));
    let input = commit(&given, &receipt("a", 1), &["x"], &["x"], lax());
    let result = given.tried(&ConnectorCommand::CommitReceipt(input), at(2));
    assert!(is_refused_with(&result, "CONNECTOR_RECEIPT_INCOMPLETE"));
}

#[test]
fn only_the_current_receipt_of_the_newest_era_commits() {
    let mut given = fresh();
    let absent = Error::NotFound { what: "receipt" };
    let a1 = receipt("a", 1);
    let of = |given: &Given<Connector>, key: &ReceiptKey| {
        ConnectorCommand::CommitReceipt(commit(given, key, &["x"], &["x"], lax()))
    };
    given.when(&of(&given, &a1), at(1)).refused_with(&absent);
    enumerate(&mut given, "a", &["x"], 1);
    let a2 = enumerate(&mut given, "a", &["x"], 2);
    given.when(&of(&given, &a1), at(3)).refused_with(&superseded(&a1));
    // A new era has begun, though it has no commit yet.
    let b1 = enumerate(&mut given, "b", &["x"], 4);
    given.when(&of(&given, &a2), at(5)).refused_with(&superseded(&a2));
    given.done(&of(&given, &b1), at(6));
    given.when(&of(&given, &a2), at(7)).refused_with(&superseded(&a2));
    // The lineage comes back: its own era, its sequence goes on, the older receipt stays behind.
    let a3 = enumerate(&mut given, "a", &["x"], 8);
    assert_eq!(a3.sequence, 3);
    given.when(&of(&given, &a2), at(9)).refused_with(&superseded(&a2));
    given.done(&of(&given, &a3), at(9));
    assert_eq!(checkpoint(&given), Some(("a".to_owned(), 3)));
}

#[test]
fn the_commit_of_a_newer_era_withdraws_the_candidates_of_older_ones() {
    let mut given = fresh();
    sweep(&mut given, "a", &["w", "x", "y", "z"], &["w"], 1);
    kill(&mut given, "z");
    enumerate(&mut given, "b", &["w"], 10);
    assert_eq!(states(&given).len(), 3, "a begin alone withdraws nothing");
    let result = sweep(&mut given, "b", &["w", "x", "y", "z"], &["w", "x", "y"], 11);
    assert_eq!(result, CommitResult { known: 4, missing: 1, candidates: 1, withdrawn: 3 });
    let [left] = candidates(&given).try_into().unwrap();
    assert_eq!((left.provenance, left.document_id), (provenance("b"), document("dz")));
    given.assert_rows_are_those_of_the_state();
}

/// Two eras of one lineage share their candidates' keys.
#[test]
fn a_candidate_of_an_older_era_of_the_same_lineage_starts_anew() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    let confirm = ConnectorCommand::RecordSweepOutcome {
        candidate: candidate("a", "y"),
        outcome: SweepOutcome::Absent,
    };
    given.done(&confirm, at(2));
    enumerate(&mut given, "b", &["x"], 3);
    let result = sweep(&mut given, "a", &["x", "y"], &["x"], 4);
    assert_eq!((result.candidates, result.withdrawn), (1, 1));
    assert_eq!(states(&given), [("dy".to_owned(), CandidateState::Pending)]);
    given.assert_rows_are_those_of_the_state();
}

#[test]
fn a_comparison_with_more_missing_than_known_is_refused() {
    let mut given = fresh();
    let key = enumerate(&mut given, "a", &["x"], 1);
    let comparison = Comparison { known: 0, missing: known(&["y"]), kept_again: Vec::new() };
    let input = CommitReceipt { key, comparison, guard: lax() };
    given.when(&ConnectorCommand::CommitReceipt(input), at(2)).refused_input("known");
}

#[test]
fn a_document_named_twice_is_one_candidate() {
    let mut given = fresh();
    let key = enumerate(&mut given, "a", &["x"], 1);
    let missing = [known(&["y"]), known(&["y"])].concat();
    let comparison = Comparison { known: 3, missing, kept_again: Vec::new() };
    let input = CommitReceipt { key, comparison, guard: lax() };
    given.done(&ConnectorCommand::CommitReceipt(input), at(2));
    assert_eq!(given.state.partitions[&partition()].swept.as_ref().unwrap().open[&1], 1);
}

#[test]
fn a_comparison_takes_nothing_for_missing_that_is_there_under_another_entity() {
    let entry = |document_id: &str, source_id: &str| KnownDocument {
        document_id: document(document_id),
        source_id: source(source_id),
    };
    let documents = vec![
        entry("d1", "a"),
        entry("d1", "b"),
        entry("d2", "c"),
        entry("d2", "d"),
        entry("d3", "e"),
    ];
    let standing = |document_id: &str, source_id: &str| StandingCandidate {
        provenance: provenance("p"),
        document: entry(document_id, source_id),
    };
    let standing =
        vec![standing("d1", "old"), standing("d2", "c"), standing("d9", "z"), standing("d8", "y")];
    let mut comparer = Comparer::new(documents, standing);
    let pages: [&[&str]; 3] = [&["b", "unknown"], &[], &["e", "z"]];
    for page in pages {
        let ids: Vec<SourceId> = page.iter().map(source).collect();
        comparer.page(&ids);
    }
    let expected = Comparison {
        known: 3,
        missing: vec![entry("d2", "d")],
        kept_again: vec![(provenance("p"), document("d1")), (provenance("p"), document("d9"))],
    };
    assert_eq!(comparer.finish(), expected);
}

/// The answer of a commit may be kept under a caller's command id.
#[test]
fn a_commit_can_be_recorded_and_its_command_travels_as_plain_data() {
    let result = CommitResult { known: 1, missing: 0, candidates: 0, withdrawn: 0 };
    let reply = ConnectorReply::Committed(result);
    assert_eq!(Connector::recorded(&reply), Some(reply));
    let given = fresh();
    let input = commit(&given, &receipt("a", 1), &["x"], &[], MassDeleteGuard::default());
    let command = ConnectorCommand::CommitReceipt(input);
    let text = serde_json::to_string(&command).unwrap();
    assert_eq!(serde_json::from_str::<ConnectorCommand>(&text).unwrap(), command);
    let page: ExtendReceipt = extend(&receipt("a", 1), 0, &["x"]);
    assert_eq!(keep_content(&[page.source_ids]).0, 1);
}
