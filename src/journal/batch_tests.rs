//! The rules of a batch, each by its effect on outcomes and plan.

use super::*;
use crate::base::{ConnectorName, OwnerDid, Result};
use crate::domain::{FencingToken, LeaseScope, Table};

fn name(text: &str) -> StreamName {
    StreamName::from(text)
}

fn event(event_type: u16) -> NewEvent {
    NewEvent { event_type, schema: 1, payload: vec![1], is_swept: event_type == 1 }
}

fn part(stream: &str, expected: Expected, events: Vec<NewEvent>) -> Part {
    Part {
        stream: name(stream),
        kind: StreamKind::Document,
        expected,
        events,
        rows: Vec::new(),
        snapshot: None,
        erase: false,
        trim: false,
    }
}

fn append(command: u128, parts: Vec<Part>) -> Append {
    Append {
        command_id: Uuid::from_u128(command),
        record: None,
        parts,
        fences: Vec::new(),
        absent: Vec::new(),
    }
}

fn at(version: i64, command: u128) -> Expected {
    Expected { version, command_id: Uuid::from_u128(command) }
}

fn committed(judged: &Judged<'_>) -> Vec<bool> {
    let is_commit = |outcome: &AppendOutcome| matches!(outcome, AppendOutcome::Committed { .. });
    judged.outcomes.iter().map(is_commit).collect()
}

fn trim(document: &str, fields: Value) -> Row {
    let values =
        vec![Value::text(document), Value::text("o"), Value::text("c"), fields, Value::Int(1)];
    Row::new(Table::EntityTrim, values)
}

#[test]
fn each_append_is_judged_on_those_that_passed_before_it() {
    let batch = [
        append(1, vec![part("a", Expected::NONE, vec![event(2)])]),
        append(2, vec![part("a", at(1, 1), vec![event(2)])]),
        append(3, vec![part("a", at(1, 1), vec![event(2)])]),
        append(4, vec![part("a", at(2, 2), vec![event(2)])]),
    ];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    assert_eq!(committed(&judged), [true, true, false, true]);
    let versions: Vec<i64> = judged.plan.journal.iter().map(|write| write.version).collect();
    assert_eq!(versions, [1, 2, 3]);
}

/// A caller gave one command to two hosts, and each decided it on the same state, with its own chance.
#[test]
fn an_append_never_stands_on_a_refused_one_whose_command_another_host_has_committed() {
    let record = CommandRecord { digest: Digest::of(b"c"), answer: vec![1] };
    let head = Head { version: 1, command_id: Uuid::from_u128(1), hash: start_hash("a") };
    let mut first = append(1, vec![part("a", Expected::NONE, vec![event(2)])]);
    for own in [Some(record.clone()), None] {
        first.record = own;
        let behind = append(2, vec![part("a", at(1, 1), vec![event(2)])]);
        let unread = append(3, vec![part("a", at(1, 1), Vec::new())]);
        let batch = [first.clone(), behind.clone(), unread];
        let mut view = View::default();
        view.heads.insert(name("a"), head);
        view.commands.insert(first.command_id, record.clone());
        let judged = judge(&batch, &view, Timestamp::default());
        assert_eq!(committed(&judged), [false, false, false]);
        assert!(judged.plan.is_empty());
        let reloaded = [behind];
        let judged = judge(&reloaded, &view, Timestamp::default());
        assert_eq!(committed(&judged), [true]);
    }
}

/// The first of two pipelined appends loses to another host that wrote the same number of events.
#[test]
fn the_version_alone_is_not_enough() {
    let hash = start_hash("a");
    let head = Head { version: 2, command_id: Uuid::from_u128(9), hash };
    let view = View { heads: HashMap::from([(name("a"), head)]), ..View::default() };
    let batch = [append(2, vec![part("a", at(2, 1), vec![event(2)])])];
    let judged = judge(&batch, &view, Timestamp::default());
    assert_eq!(judged.outcomes, [AppendOutcome::Conflict]);
    assert!(judged.plan.is_empty());
}

#[test]
fn a_unit_with_one_stale_key_writes_nothing() {
    let batch = [append(
        1,
        vec![part("a", Expected::NONE, vec![event(2)]), part("b", at(3, 3), Vec::new())],
    )];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    assert_eq!(judged.outcomes, [AppendOutcome::Conflict]);
    assert!(judged.plan.is_empty());
}

#[test]
fn a_fence_is_judged_on_the_lease_as_the_batch_has_left_it() -> Result<()> {
    let scope = LeaseScope::Sync {
        owner: OwnerDid::new("did:web:o")?,
        connector: ConnectorName::new("c")?,
    };
    let token = FencingToken { generation: 1, version: 1 };
    let newer = FencingToken { generation: 1, version: 2 };
    let fence = Fence { scope: scope.clone(), token };
    let fenced = |command: u128, stream: &str| {
        let mut append = append(command, vec![part(stream, Expected::NONE, vec![event(2)])]);
        append.fences.push(fence.clone());
        append
    };
    let mut taken_over = append(2, vec![part("c", Expected::NONE, vec![event(2)])]);
    let mut values = scope.row_key().values;
    values.extend([Value::text("h"), newer.to_value(), Value::Int(5)]);
    taken_over.parts[0].rows.push(RowChange::Put(Row::new(Table::Lease, values)));
    let batch = [fenced(1, "a"), taken_over, fenced(3, "b")];
    let leases = HashMap::from([(scope.row_key(), token.to_value())]);
    let view = View { leases, ..View::default() };
    let judged = judge(&batch, &view, Timestamp::default());
    assert_eq!(committed(&judged), [true, true, false]);
    assert_eq!(judged.outcomes[2], AppendOutcome::FenceLost { fence: fence.clone() });
    let without_row = judge(&batch[..1], &View::default(), Timestamp::default());
    assert_eq!(without_row.outcomes, [AppendOutcome::FenceLost { fence }]);
    Ok(())
}

#[test]
fn a_known_command_id_gets_its_first_outcome() {
    let record = CommandRecord { digest: Digest::of(b"c"), answer: vec![7] };
    let mut first = append(1, vec![part("a", Expected::NONE, vec![event(2)])]);
    first.record = Some(record.clone());
    let mut repeat = append(1, vec![part("a", at(1, 1), vec![event(2)])]);
    repeat.record = Some(CommandRecord { answer: vec![8], ..record.clone() });
    let batch = [first, repeat];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    assert_eq!(judged.outcomes[1], AppendOutcome::CommandKnown(record));
    assert_eq!(judged.plan.journal.len(), 1);
    assert_eq!(judged.plan.commands.len(), 1);
}

#[test]
fn row_changes_fold_to_the_last_and_keep_what_the_batch_wrote() {
    let mut first = append(1, vec![part("a", Expected::NONE, vec![event(2)])]);
    first.parts[0].rows.push(RowChange::Put(trim("d", Value::text("x"))));
    let mut second = append(2, vec![part("a", at(1, 1), vec![event(2)])]);
    second.parts[0].rows.push(RowChange::Put(trim("d", Value::Keep)));
    let mut third = append(3, vec![part("a", at(2, 2), vec![event(2)])]);
    third.parts[0].rows.push(RowChange::Put(trim("e", Value::Keep)));
    let batch = [first, second, third];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    let rows: Vec<&Row> = judged.plan.rows.values().flatten().collect();
    assert_eq!(rows, [&trim("d", Value::text("x")), &trim("e", Value::Keep)]);
}

#[test]
fn a_row_is_taken_once() {
    let row = trim("d", Value::text("x"));
    let take = |command: u128, expected| {
        let mut append = append(command, vec![part("a", expected, vec![event(2)])]);
        append.parts[0].rows.push(RowChange::Take(row.key()));
        append
    };
    let batch = [take(1, Expected::NONE), take(2, at(1, 1))];
    let view = View { standing: HashMap::from([(row.key(), row.clone())]), ..View::default() };
    let judged = judge(&batch, &view, Timestamp::default());
    let expected = [
        AppendOutcome::Committed { taken: vec![row.clone()] },
        AppendOutcome::Committed { taken: Vec::new() },
    ];
    assert_eq!(judged.outcomes, expected);
    assert_eq!(judged.plan.rows.get(&row.key()), Some(&None));
}

#[test]
fn an_erasure_takes_the_events_of_its_own_batch_with_it_and_restarts_the_chain() {
    let first = append(1, vec![part("a", Expected::NONE, vec![event(2), event(3)])]);
    let mut sweep = append(2, vec![part("a", at(2, 1), vec![event(1)])]);
    sweep.parts[0].erase = true;
    let batch = [first, sweep];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    assert_eq!(committed(&judged), [true, true]);
    assert_eq!(judged.plan.journal.len(), 1);
    let swept = &judged.plan.journal[0];
    assert_eq!(swept.version, 3);
    let input = EventHashInput {
        version: 3,
        event_type: 1,
        schema: 1,
        command_id: Uuid::from_u128(2),
        recorded_at: Timestamp::default(),
        payload: &[1],
    };
    assert_eq!(swept.hash, input.chain(&start_hash("a")));
    let stream = name("a");
    assert_eq!(judged.plan.streams.get(&stream).and_then(|write| write.erase_through), Some(2));
}

#[test]
fn a_row_that_must_be_absent_refuses_its_append_alone() {
    let row = trim("d", Value::text("x"));
    let mut first = append(1, vec![part("a", Expected::NONE, vec![event(2)])]);
    first.absent.push(row.key());
    first.parts[0].rows.push(RowChange::Put(row.clone()));
    let mut second = append(2, vec![part("b", Expected::NONE, vec![event(2)])]);
    second.absent.push(row.key());
    let neighbour = append(3, vec![part("c", Expected::NONE, vec![event(2)])]);
    let batch = [first, second, neighbour];
    assert_eq!(named_rows(&batch).len(), 1);
    let judged = judge(&batch, &View::default(), Timestamp::default());
    assert_eq!(committed(&judged), [true, false, true]);
    assert_eq!(judged.outcomes[1], AppendOutcome::RowExists(row.key()));
    let standing = HashMap::from([(row.key(), row.clone())]);
    let view = View { standing, ..View::default() };
    let judged = judge(&batch[..1], &view, Timestamp::default());
    assert_eq!(judged.outcomes, [AppendOutcome::RowExists(row.key())]);
}

#[test]
fn a_trim_takes_the_events_before_it_and_keeps_its_own() {
    let first = append(1, vec![part("a", Expected::NONE, vec![event(2), event(3)])]);
    let mut trim = append(2, vec![part("a", at(2, 1), vec![event(4)])]);
    trim.parts[0].trim = true;
    trim.parts[0].snapshot = Some(crate::journal::NewSnapshot { schema: 1, payload: vec![9] });
    let batch = [first, trim];
    let judged = judge(&batch, &View::default(), Timestamp::default());
    let versions: Vec<i64> = judged.plan.journal.iter().map(|write| write.version).collect();
    assert_eq!(versions, [3]);
    let stream = name("a");
    let write = &judged.plan.streams[&stream];
    assert_eq!(write.trim_through, Some(2));
    let untrimmed = judge(&batch[..1], &View::default(), Timestamp::default());
    let second = untrimmed.plan.journal.last().unwrap();
    assert_eq!(write.base, Some(Base { version: 2, hash: second.hash }));
    assert_eq!(write.snapshot.as_ref().map(|snapshot| snapshot.version), Some(3));
}
