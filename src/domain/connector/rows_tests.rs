//! Rows are those of the state after any sequence of commands, and never need what a deleted row
//! kept.

use super::super::fixture::*;
use super::super::{
    CommitReceipt, ConnectorCommand, ConnectorReply, MassDeleteGuard, ProgressGuard, SweepOutcome,
    SyncProgress, SyncStatus,
};
use super::*;
use crate::domain::{Aggregate, FencingToken};
use crate::testing::given::{Given, at};

/// A small generator of numbers, so that a failure can be replayed from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.roll(of.len() as u64)).unwrap()]
    }

    fn some_of(&mut self, of: &[&'static str]) -> Vec<&'static str> {
        of.iter().copied().filter(|_| self.roll(3) > 0).collect()
    }
}

const NAMES: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];

fn lease_command(dice: &mut Dice, given: &Given<Connector>) -> ConnectorCommand {
    let standing = given.state.lease.as_ref().map(|lease| lease.token);
    let token = standing.unwrap_or(FencingToken { generation: 1, version: 1 });
    match dice.roll(3) {
        0 => ConnectorCommand::AcquireLease { holder: holder("h"), ttl_ms: 50 },
        1 => ConnectorCommand::RenewLease { token, ttl_ms: 70 },
        _ => ConnectorCommand::ReleaseLease { token },
    }
}

fn sync_command(dice: &mut Dice) -> ConnectorCommand {
    let recovery = [None, Some(json("[1]")), Some(json("[2,3]"))];
    let recovery = dice.one_of(&recovery).clone();
    match dice.roll(4) {
        0 => ConnectorCommand::DeleteSyncState,
        1 => {
            let mut input = state_input(3, SyncStatus::Syncing);
            input.recovery = recovery;
            ConnectorCommand::SetSyncState(input)
        }
        roll => ConnectorCommand::UpdateSyncProgress {
            update: SyncProgress { recovery, ..progress(4) },
            guard: (roll == 2).then_some(ProgressGuard::Absent),
        },
    }
}

fn candidate_command(dice: &mut Dice, given: &Given<Connector>) -> ConnectorCommand {
    let standing = candidates(given);
    let candidate = if standing.is_empty() {
        candidate("a", "1")
    } else {
        let of = dice.one_of(&standing).clone();
        of.key()
    };
    let outcomes = [SweepOutcome::Absent, SweepOutcome::Present, SweepOutcome::Unknown];
    match dice.roll(8) {
        0 => ConnectorCommand::SweepApplied { candidate },
        1 => ConnectorCommand::DropDocumentCandidates { document_id: candidate.document_id },
        2 => ConnectorCommand::CursorLost { partition: partition() },
        3..=5 => ConnectorCommand::RecordSweepApplyFailure { candidate, error: "e".to_owned() },
        _ => ConnectorCommand::RecordSweepOutcome { candidate, outcome: *dice.one_of(&outcomes) },
    }
}

/// One step of an enumeration on the receipt that is current, or a begin of another.
fn receipt_command(
    dice: &mut Dice,
    given: &Given<Connector>,
    pages: &mut Vec<Vec<&'static str>>,
) -> ConnectorCommand {
    let newest = given.state.partitions.get(&partition()).and_then(|known| known.era.clone());
    let lineage = ["a", "b"][usize::from(dice.roll(5) == 0)];
    let Some(era) = newest.filter(|_| dice.roll(6) > 0) else {
        pages.clear();
        return ConnectorCommand::BeginReceipt(begin(lineage));
    };
    let standing = given.state.sweep_receipt(&partition(), &era.provenance).unwrap();
    let key = receipt(era.provenance.as_str(), standing.sequence);
    if standing.complete {
        let listed: Vec<&str> = pages.iter().flatten().copied().collect();
        let comparison = compared(given, known(&dice.some_of(&NAMES)), &listed);
        let guard = if dice.roll(4) == 0 { MassDeleteGuard::default() } else { lax() };
        return ConnectorCommand::CommitReceipt(CommitReceipt { key, comparison, guard });
    }
    if dice.roll(2) == 0 {
        let ids = dice.some_of(&NAMES[..6]);
        let input = extend(&key, standing.next_page, &ids);
        pages.push(ids);
        return ConnectorCommand::ExtendReceipt(input);
    }
    let pages: Vec<&[&str]> = pages.iter().map(Vec::as_slice).collect();
    ConnectorCommand::CompleteReceipt(complete(&key, &pages, None))
}

/// What the counts and the checkpoint must be, by a scan of everything.
fn assert_counts(given: &Given<Connector>) {
    for known in given.state.partitions.values() {
        let Some(swept) = &known.swept else { continue };
        let mut open = std::collections::BTreeMap::<i64, u64>::new();
        for candidate in swept.candidates.values().filter(|candidate| candidate.is_open()) {
            *open.entry(candidate.sequence).or_default() += 1;
        }
        assert_eq!(swept.open, open);
        let checkpoint = known.checkpoint.as_ref().filter(|at| at.era == swept.era.number);
        let reached = checkpoint.map_or(0, |checkpoint| checkpoint.receipt_sequence);
        let due = swept
            .awaiting
            .iter()
            .copied()
            .filter(|sequence| open.range(..=sequence).next().is_none())
            .max();
        assert_eq!(due, None, "a checkpoint that could move has moved, it is at {reached}");
        assert!(open.keys().all(|sequence| *sequence > reached));
        if open.is_empty() {
            assert_eq!(reached, swept.committed);
        }
    }
}

#[test]
fn written_rows_are_those_of_the_state_after_any_commands() {
    let mut refused = 0;
    let mut moved = 0;
    for seed in 0..25 {
        let mut dice = Dice(seed);
        let mut given = fresh();
        let mut pages = Vec::new();
        for step in 1..150 {
            let command = match dice.roll(8) {
                0 => sync_command(&mut dice),
                1 => lease_command(&mut dice, &given),
                2 | 3 => candidate_command(&mut dice, &given),
                _ => receipt_command(&mut dice, &given, &mut pages),
            };
            let before = given.state.clone();
            let checkpoint_before = checkpoint(&given);
            if given.tried(&command, at(step)).is_err() {
                assert_eq!(given.state, before, "a refusal changes nothing");
                refused += 1;
            }
            moved += usize::from(checkpoint(&given) != checkpoint_before);
            assert_counts(&given);
            given.assert_rows_are_those_of_the_state();
        }
    }
    assert!(refused > 50 && moved > 50, "{refused} {moved}");
}

#[test]
fn a_row_of_the_sync_state_has_the_columns_of_its_table() {
    let mut given = fresh();
    given.done(&ConnectorCommand::SetSyncState(state_input(7, SyncStatus::Error)), at(5));
    let key = Naming { owner: &owner(), connector: &connector() }.sync_state();
    let row = given.written(&key).unwrap();
    let expected = [
        Value::text("caldav"),
        Value::text("did:web:o"),
        Value::text("{\"token\":9007199254740993}"),
        Value::text("2026-01-31T08:00:00Z"),
        Value::Int(7),
        Value::text("error"),
        Value::Null,
        Value::Null,
        Value::text("[1]"),
        Value::Int(0),
        Value::text("00000000-0000-0000-0000-000000000005"),
    ];
    assert_eq!(row.values, expected);
    assert_eq!(given.state.resident(&super::super::fixture::key()), [key]);
}

#[test]
fn rows_of_a_sweep_have_the_columns_of_their_tables() {
    let mut given = fresh();
    given.done(&ConnectorCommand::CursorLost { partition: partition() }, at(1));
    sweep(&mut given, "a", &["x"], &["x"], 2);
    given.done(&ConnectorCommand::CursorLost { partition: partition() }, at(3));
    sweep(&mut given, "a", &["x", "y"], &["x"], 4);
    given.done(&ConnectorCommand::CursorLost { partition: partition() }, at(5));
    let reply = given.done(&ConnectorCommand::OwedSweeps, at(6));
    assert!(matches!(reply, ConnectorReply::OwedSweeps(owed) if owed.len() == 1));
    let text = Value::text;
    let place = [text("did:web:o"), text("caldav"), text("p")];
    let with = |rest: &[Value]| [&place[..], rest].concat();
    let expected = [
        (
            Table::SweepReceipt,
            with(&[
                text("a"),
                Value::Int(2),
                text("event"),
                text("calendar"),
                text("[\"x\"]"),
                text(hlc().as_str()),
                Value::Null,
                text("full"),
                Value::Int(1),
                Value::Int(4),
                Value::Int(4),
            ]),
        ),
        (Table::ReceiptPage, with(&[text("a"), Value::Int(2), Value::Int(0), text("[\"x\"]")])),
        (
            Table::SweepCandidate,
            with(&[
                text("a"),
                text("dy"),
                text("y"),
                text("event"),
                text("pending"),
                Value::Int(0),
                Value::Int(0),
                Value::Null,
                Value::Int(4),
                Value::Int(4),
            ]),
        ),
        (Table::SweepCheckpoint, with(&[text("a"), Value::Int(1), Value::Int(2)])),
        (Table::OwedSweep, with(&[Value::Int(5)])),
    ];
    let written: Vec<(Table, Vec<Value>)> =
        given.written_rows().map(|row| (row.table, row.values.clone())).collect();
    assert_eq!(written, expected);
    for (table, values) in &written {
        assert_eq!(values.len(), table.spec().columns.len(), "{}", table.spec().name);
    }
}

/// A stored key may be anything: it names no row, and nothing panics.
#[test]
fn a_key_that_is_none_names_no_row() {
    let mut given = fresh();
    sweep(&mut given, "a", &["x", "y"], &["x"], 1);
    for table in Table::ALL {
        for length in 0..7 {
            for value in [Value::Null, Value::Int(i64::MIN), Value::text("p")] {
                let odd = RowKey::new(table, vec![value; length]);
                assert_eq!(given.state.row(&key(), &odd), None);
                assert!(given.state.content(&key(), &odd).is_empty());
            }
        }
    }
}
