//! What the rows of a partition come to where they do not say it.

use super::*;
use crate::domain::Value;
use crate::domain::connector::Connector;

const HLC: &str = "001767225600000-00000000-node-a";

fn text(text: &str) -> Value {
    Value::text(text)
}

fn receipt_row(provenance: &str, sequence: i64, created_at: i64, committed: bool) -> Row {
    let committed_at = if committed { Value::Int(created_at) } else { Value::Null };
    let values = vec![
        text("did:web:o"),
        text("c"),
        text("p"),
        text(provenance),
        Value::Int(sequence),
        text("m"),
        text("all"),
        text("[]"),
        text(HLC),
        Value::Null,
        text("full"),
        Value::Int(1),
        Value::Int(created_at),
        committed_at,
    ];
    Row::new(Table::SweepReceipt, values)
}

fn candidate_row(provenance: &str, document: &str) -> Row {
    let values = vec![
        text("did:web:o"),
        text("c"),
        text("p"),
        text(provenance),
        text(document),
        text("s"),
        text("m"),
        text("pending"),
        Value::Int(0),
        Value::Int(0),
        Value::Null,
        Value::Int(0),
        Value::Int(0),
    ];
    Row::new(Table::SweepCandidate, values)
}

fn checkpoint_row(provenance: &str, sequence: i64) -> Row {
    let names = [text("did:web:o"), text("c"), text("p"), text(provenance)];
    let values = names.into_iter().chain([Value::Int(sequence), Value::Int(0)]);
    Row::new(Table::SweepCheckpoint, values.collect())
}

fn partition_of(rows: &[Row]) -> Partition {
    let mut state = Connector::default();
    for event in adopt(rows).unwrap() {
        state.apply_event(&event);
    }
    state.partitions.into_values().next().unwrap()
}

fn eras(partition: &Partition) -> Vec<(&str, i64)> {
    let receipts = partition.receipts.iter();
    receipts.map(|(provenance, receipt)| (provenance.as_str(), receipt.facts.era)).collect()
}

#[test]
fn eras_follow_the_times_at_which_receipts_were_begun() {
    let rows = [
        receipt_row("a", 1, 30, true),
        receipt_row("b", 2, 10, true),
        receipt_row("c", 3, 20, true),
    ];
    let partition = partition_of(&rows);
    assert_eq!(eras(&partition), [("a", 3), ("b", 1), ("c", 2)]);
    assert_eq!(partition.era.as_ref().map(|era| era.number), Some(3));
    let swept = partition.swept.unwrap();
    assert_eq!((swept.era.number, swept.committed), (3, 1));
}

#[test]
fn candidates_without_a_receipt_stand_in_the_oldest_era() {
    let rows = [receipt_row("a", 5, 30, true), candidate_row("b", "d")];
    let partition = partition_of(&rows);
    assert_eq!(partition.era.as_ref().map(|era| era.number), Some(2));
    let swept = partition.swept.unwrap();
    assert_eq!((swept.era.number, swept.committed, swept.candidates.len()), (1, 0, 1));
    assert_eq!(swept.open.into_iter().collect::<Vec<_>>(), [(0, 1)]);
}

#[test]
fn a_candidate_is_of_the_newest_receipt_that_can_have_made_it() {
    for (is_committed, expected) in [(true, 5), (false, 4)] {
        let rows = [receipt_row("a", 5, 30, is_committed), candidate_row("a", "d")];
        let swept = partition_of(&rows).swept.unwrap();
        assert_eq!((swept.committed, swept.candidates["d"].sequence), (expected, expected));
    }
}

#[test]
fn the_checkpoint_may_move_to_a_committed_receipt_that_it_has_not_reached() {
    for (checkpoint, awaits) in [
        (None, true),
        (Some(checkpoint_row("a", 4)), true),
        (Some(checkpoint_row("a", 5)), false),
        // A lineage of which nothing else is left is older than all.
        (Some(checkpoint_row("z", 99)), true),
    ] {
        let rows: Vec<Row> =
            [receipt_row("a", 5, 30, true)].into_iter().chain(checkpoint).collect();
        let swept = partition_of(&rows).swept.unwrap();
        assert_eq!(swept.awaiting.contains(&5), awaits, "{rows:?}");
    }
}

#[test]
fn candidates_of_two_lineages_are_refused() {
    let rows = [candidate_row("a", "d"), candidate_row("b", "e")];
    let refused = adopt(&rows).unwrap_err();
    assert_eq!((refused.row, refused.column), (rows[1].key(), "provenance"));
}
