//! The rules of repair obligations one by one.

use super::super::DocumentCommand as Do;
use super::super::fixture::*;
use super::*;
use crate::domain::Aggregate;
use crate::testing::given::at;

#[test]
fn a_repair_is_put_replaced_read_and_cleared() {
    let mut given = fresh();
    given.when(&Do::Repair, at(1)).then_nothing().replies(DocumentReply::Repair(None));
    given.when(&Do::ClearRepair, at(1)).then_nothing().replies(DocumentReply::Done);
    for decided in [5, 3, 3] {
        let event = DocumentEvent::RepairPut(Box::new(repair_of(decided)));
        given.when(&put_repair(decided), at(1)).then(&[event]);
        given.done(&put_repair(decided), at(1));
        given.assert_rows_are_those_of_the_state();
        let read = DocumentReply::Repair(Some(Box::new(repair_of(decided))));
        given.when(&Do::Repair, at(1)).then_nothing().replies(read);
    }
    given.when(&Do::ClearRepair, at(1)).then(&[DocumentEvent::RepairCleared]);
    given.done(&Do::ClearRepair, at(1));
    given.assert_rows_are_those_of_the_state();
    given.when(&Do::ClearRepair, at(1)).then_nothing();
    assert_eq!(given.written_rows().count(), 0);
}

/// The time is the transaction's, also for a repair that is as it was: a reader must see it again.
#[test]
fn each_put_of_a_repair_is_stamped_anew_and_says_when() {
    let mut given = fresh();
    for version in 1..=3 {
        let reply = given.done(&put_repair(5), at(1_000));
        assert_eq!(reply, DocumentReply::RepairPut(Some(time(version))));
        let row = given.written(&repair_key(&document())).unwrap();
        assert_eq!(row.values[WRITTEN_AT_COLUMN], Value::Int(version));
    }
    // Another event of the document leaves the time as it is.
    given.done(&set_trim(), at(1));
    let row = given.written(&repair_key(&document())).unwrap();
    assert_eq!(row.values[WRITTEN_AT_COLUMN], Value::Int(3));
}

#[test]
fn a_repairs_row_has_the_columns_of_its_table() {
    let mut given = fresh();
    given.done(&put_repair(5), at(1));
    let mut expected = vec![
        Value::text("doc-1"),
        Value::text("did:web:o"),
        Value::text(hlc(1).as_str()),
        Value::text(hlc(5).as_str()),
        Value::Int(1),
        Value::text("sha256:aa"),
        Value::Int(1),
    ];
    assert_eq!(given.written(&repair_key(&document())).unwrap().values, expected);
    let absent = ObservationRepair { present: false, value_digest: None, ..repair_of(5) };
    given.done(&Do::PutRepair(Box::new(absent)), at(1));
    expected[4..].clone_from_slice(&[Value::Int(0), Value::Null, Value::Int(2)]);
    assert_eq!(given.written(&repair_key(&document())).unwrap().values, expected);
    given.assert_rows_are_those_of_the_state();
}

/// The stamp is for the backend to fill in, and what it wrote completes the answer.
#[test]
fn no_state_and_no_event_holds_when_a_repair_was_written() {
    let given = fresh();
    let decided = given.state.decide(&key(), &put_repair(5), &at(9_999)).unwrap();
    assert_eq!(decided.content, [(repair_key(&document()), WRITTEN_AT_COLUMN, Value::Stamp)]);
    assert_eq!(decided.reply, DocumentReply::RepairPut(None));
    let other = Row::new(Table::EntityTrim, vec![Value::Int(1); 7]);
    let untouched = Document::with_taken(DocumentReply::RepairPut(None), vec![other.clone()]);
    assert_eq!(untouched, DocumentReply::RepairPut(None));
    assert_eq!(Document::with_taken(DocumentReply::Done, vec![other]), DocumentReply::Done);
}
