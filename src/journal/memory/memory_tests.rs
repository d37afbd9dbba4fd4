//! What is a database's own: who may open it, what several stores on it see of each other, and how its
//! rows are found.

use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::base::{StreamKind, StreamName};
use crate::domain::{Row, Table, Value};
use crate::journal::port::{
    Append, AppendOutcome, Compare, Expected, Filter, NewEvent, Part, RowQuery, Storage,
};

fn append(command: u128) -> Append {
    let event = NewEvent { event_type: 2, schema: 1, payload: vec![1], is_swept: false };
    let part = Part {
        stream: StreamName::from("document:a"),
        kind: StreamKind::Document,
        expected: Expected::NONE,
        events: vec![event],
        rows: Vec::new(),
        snapshot: None,
        erase: false,
        trim: false,
    };
    let command_id = Uuid::from_u128(command);
    Append { command_id, record: None, parts: vec![part], fences: Vec::new(), absent: Vec::new() }
}

#[tokio::test]
async fn one_store_at_a_time_opens_a_journal_that_is_not_shared() {
    let journal = MemoryJournal::new();
    let first = journal.open().unwrap();
    assert!(matches!(journal.clone().open(), Err(Error::StoreInUse { .. })));
    first.append(&[append(1)], Timestamp::default()).await.unwrap();
    first.close().await.unwrap();
    let second = journal.open().unwrap();
    assert_eq!(second.events(0, 9).await.unwrap().len(), 1, "what was written is there");
    drop(first);
    assert!(journal.open().is_err(), "a store that ended twice gave one place back");
    drop(second);
    assert!(journal.open().is_ok());
}

#[tokio::test]
async fn stores_on_a_shared_journal_hear_of_and_conflict_with_each_other() {
    let time = Arc::new(AtomicI64::new(100));
    let clock = Arc::clone(&time);
    let now = move || Timestamp::from_millis(clock.load(Ordering::Relaxed));
    let journal = MemoryJournal::shared(Arc::new(now));
    let (one, other) = (journal.open().unwrap(), journal.open().unwrap());
    assert!(one.is_shared() && other.is_shared());
    let mut heard = other.committed();
    heard.mark_unchanged();
    one.append(&[append(1)], Timestamp::from_millis(7)).await.unwrap();
    assert!(heard.has_changed().unwrap());
    let events = other.events(0, 9).await.unwrap();
    assert_eq!(events[0].recorded_at, Timestamp::from_millis(100), "the database's own time");
    let lost = other.append(&[append(2)], Timestamp::default()).await.unwrap();
    assert_eq!(lost, [AppendOutcome::Conflict]);
    time.store(200, Ordering::Relaxed);
    let heads = other.confirm_heads(&[StreamName::from("document:a")]).await.unwrap();
    assert_eq!(heads.now, Timestamp::from_millis(200));
    assert_eq!(heads.heads, [Some(Expected { version: 1, command_id: Uuid::from_u128(1) })]);
}

fn naive(rows: &[Row], query: &RowQuery) -> Vec<Row> {
    let place = |row: &Row| query.order.iter().map(|&at| row.values[at].clone()).collect();
    let mut found: Vec<(Vec<Value>, Row)> = rows
        .iter()
        .filter(|row| {
            query.filters.iter().all(|filter| {
                let value = &row.values[filter.column];
                match &filter.compare {
                    Compare::Equal(wanted) => value == wanted,
                    Compare::In(wanted) => wanted.contains(value),
                    Compare::Less(bound) => value < bound,
                    Compare::AtMost(bound) => value <= bound,
                }
            })
        })
        .map(|row| (place(row), row.clone()))
        .filter(|(place, _)| query.after.as_ref().is_none_or(|after| place > after))
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.truncate(usize::try_from(query.limit).unwrap());
    found.into_iter().map(|(_, row)| row).collect()
}

fn any_name() -> impl Strategy<Value = Value> {
    "[abc]".prop_map(Value::text)
}

fn any_compare() -> impl Strategy<Value = Compare> {
    prop_oneof![
        any_name().prop_map(Compare::Equal),
        proptest::collection::vec(any_name(), 0..3).prop_map(Compare::In),
        any_name().prop_map(Compare::Less),
        any_name().prop_map(Compare::AtMost),
    ]
}

proptest! {
    /// The keys' order only spares looking: what is found is what a look at every row finds.
    #[test]
    fn a_query_finds_what_a_look_at_every_row_finds(
        names in proptest::collection::btree_set([any_name(), any_name(), any_name()], 0..30),
        filters in proptest::collection::vec((0_usize..4, any_compare()), 0..4),
        by_key in any::<bool>(),
        after in proptest::option::of([any_name(), any_name(), any_name()]),
        limit in 0_u32..9,
    ) {
        let (before, table, behind) = (Table::SweepCheckpoint, Table::OwedSweep, Table::EntityTrim);
        let rows: Vec<Row> = names
            .into_iter()
            .map(|[one, two, three]| {
                let last = one.clone();
                Row::new(table, vec![one, two, three, last])
            })
            .collect();
        let mut tables = Tables::default();
        for row in rows.iter().cloned().chain([before, behind].map(|of| {
            Row::new(of, vec![Value::text("b"); of.spec().columns.len()])
        })) {
            tables.put_row(row.key(), &row);
        }
        let filters = filters.into_iter().map(|(column, compare)| Filter { column, compare });
        let order = if by_key { vec![0, 1, 2] } else { vec![2, 1, 0] };
        let query = RowQuery {
            table, filters: filters.collect(), order, after: after.map(Vec::from), limit,
        };
        prop_assert_eq!(tables.query(&query), naive(&rows, &query));
    }
}
