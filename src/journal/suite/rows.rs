//! The read tables: folding, kept columns, filters, orders and pages.

use super::build::{
    RECOVERY, at, by_key, commit, filled, name, one, sync_state, trim, trim_key, with_rows,
};
use super::{Rule, rule};
use crate::base::Result;
use crate::domain::{Row, RowChange, Table, Value};
use crate::journal::port::{Compare, Expected, Filter, RowQuery, Storage};

pub(super) const RULES: &[Rule] = &[
    rule!(changes_of_a_batch_fold_to_the_last),
    rule!(a_kept_column_stays_and_is_null_in_a_new_row),
    rule!(pages_are_in_byte_order),
    rule!(pages_in_another_order_than_the_key_miss_no_row),
    rule!(filters_all_hold_and_null_equals_null_alone),
    rule!(rows_are_replaced_without_events),
    rule!(rows_are_not_replaced_where_one_of_their_streams_has_moved),
];

async fn changes_of_a_batch_fold_to_the_last(storage: &dyn Storage) -> Result<()> {
    let put = |document, fields| RowChange::Put(trim(document, fields));
    let batch = [
        with_rows(1, vec![put("a", "1"), put("b", "1"), put("c", "1")]),
        with_rows(2, vec![put("a", "2"), RowChange::Delete(trim_key("b"))]),
        with_rows(3, vec![RowChange::Delete(trim_key("d")), put("d", "3"), put("a", "3")]),
    ];
    commit(storage, &batch).await?;
    let rows = storage.rows(&by_key(Table::EntityTrim)).await?;
    assert_values(&rows, &[trim("a", "3"), trim("c", "1"), trim("d", "3")]);
    commit(storage, &[with_rows(4, vec![RowChange::Delete(trim_key("a"))])]).await?;
    assert_eq!(storage.row(&trim_key("a")).await?, None);
    Ok(())
}

/// Compares values, which the `Debug` of a row does not show.
fn assert_values(found: &[Row], expected: &[Row]) {
    let values = |rows: &[Row]| rows.iter().map(|row| row.values.clone()).collect::<Vec<_>>();
    assert_eq!(values(found), values(expected));
}

async fn a_kept_column_stays_and_is_null_in_a_new_row(storage: &dyn Storage) -> Result<()> {
    let put = |owner, recovery| RowChange::Put(sync_state("c", owner, recovery));
    let text = || Value::text("[1]");
    let batches = [
        vec![with_rows(1, vec![put("stored", text())])],
        vec![with_rows(2, vec![put("stored", Value::Keep), put("new", Value::Keep)])],
        vec![
            with_rows(3, vec![put("batch", text())]),
            with_rows(4, vec![put("batch", Value::Keep)]),
            with_rows(5, vec![put("batch", Value::Keep)]),
        ],
        vec![
            with_rows(6, vec![put("deleted", text())]),
            with_rows(
                7,
                vec![
                    RowChange::Delete(sync_state("c", "deleted", Value::Null).key()),
                    put("deleted", Value::Keep),
                ],
            ),
        ],
        vec![with_rows(8, vec![put("cleared", text())])],
        vec![with_rows(9, vec![put("cleared", Value::Null)])],
        vec![with_rows(10, vec![put("cleared", Value::Keep)])],
    ];
    for batch in batches {
        commit(storage, &batch).await?;
    }
    let cases = [
        ("stored", text()),
        ("new", Value::Null),
        ("batch", text()),
        ("deleted", Value::Null),
        ("cleared", Value::Null),
    ];
    for (owner, recovery) in cases {
        let row = storage.row(&sync_state("c", owner, Value::Null).key()).await?;
        assert_eq!(row.map(|row| row.values[RECOVERY].clone()), Some(recovery), "{owner}");
    }
    Ok(())
}

async fn pages_are_in_byte_order(storage: &dyn Storage) -> Result<()> {
    let mut names = vec![
        "Z", "a", "A", "aa", "a b", "a!", "é", "e\u{301}", "ß", "ss", "\u{fb33}", "🎈", "\u{e4}",
        "a\u{308}", "\u{ffff}", "~",
    ];
    let puts = names.iter().map(|name| RowChange::Put(trim(name, "[]")));
    commit(storage, &[with_rows(1, puts.collect())]).await?;
    names.sort_unstable_by_key(|name| name.as_bytes());
    for limit in [1, 3, 16, 17] {
        let mut query = RowQuery { limit, ..by_key(Table::EntityTrim) };
        let mut found = Vec::new();
        loop {
            let page = storage.rows(&query).await?;
            let Some(last) = page.last() else { break };
            query.after = Some(vec![last.values[0].clone()]);
            assert!(page.len() <= usize::try_from(limit).unwrap_or_default());
            found.extend(page);
        }
        let found: Vec<_> = found.iter().filter_map(|row| row.values[0].as_text()).collect();
        assert_eq!(found, names, "in pages of {limit}");
    }
    Ok(())
}

/// A candidate that is due at a time.
fn candidate(partition: &str, document: &str, state: &str, due_at: i64) -> Row {
    let key = ["did:web:o", "c", partition, "p", document].map(Value::text);
    let mut row = filled(Table::SweepCandidate, &key, 1);
    row.values[7] = Value::text(state);
    row.values[11] = Value::Int(due_at);
    row
}

async fn pages_in_another_order_than_the_key_miss_no_row(storage: &dyn Storage) -> Result<()> {
    let rows: Vec<Row> = (0..30_i64)
        .map(|at| candidate(&format!("p{}", at % 2), &format!("d{at:02}"), "pending", at % 3))
        .collect();
    let puts = rows.iter().cloned().map(RowChange::Put).collect();
    commit(storage, &[with_rows(1, puts)]).await?;
    let mut query = RowQuery {
        order: vec![11, 4, 2, 3],
        limit: 7,
        filters: vec![Filter { column: 7, compare: Compare::Equal(Value::text("pending")) }],
        ..by_key(Table::SweepCandidate)
    };
    let mut found = Vec::new();
    loop {
        let page = storage.rows(&query).await?;
        let Some(last) = page.last() else { break };
        query.after = Some(query.order.iter().map(|&at| last.values[at].clone()).collect());
        found.extend(page);
    }
    let mut expected = rows;
    expected.sort_by_key(|row| (row.values[11].clone(), row.values[4].clone()));
    assert_values(&found, &expected);
    Ok(())
}

async fn filters_all_hold_and_null_equals_null_alone(storage: &dyn Storage) -> Result<()> {
    let mut rows = [
        candidate("p", "a", "pending", 1),
        candidate("p", "b", "confirmed", 2),
        candidate("p", "c", "dead", 3),
        candidate("q", "d", "pending", 4),
    ];
    rows[3].values[10] = Value::Null;
    let puts = rows.iter().cloned().map(RowChange::Put).collect();
    commit(storage, &[with_rows(1, puts)]).await?;
    let state = |compare| Filter { column: 7, compare };
    let due = |compare| Filter { column: 11, compare };
    let error = |compare| Filter { column: 10, compare };
    let texts = |texts: &[&str]| Compare::In(texts.iter().map(|&text| Value::text(text)).collect());
    let text = |text: &str| Value::text(text);
    let cases = [
        (vec![], "abcd"),
        (vec![state(Compare::Equal(text("pending")))], "ad"),
        (vec![state(texts(&["pending", "confirmed"]))], "abd"),
        (vec![state(texts(&[]))], ""),
        (vec![due(Compare::Less(Value::Int(3)))], "ab"),
        (vec![due(Compare::AtMost(Value::Int(3)))], "abc"),
        (vec![state(texts(&["pending", "dead"])), due(Compare::AtMost(Value::Int(3)))], "ac"),
        (vec![state(Compare::Equal(text("Pending")))], ""),
        (vec![state(Compare::Less(text("dead")))], "b"),
        (vec![error(Compare::Equal(Value::Null))], "d"),
        (vec![error(Compare::Less(Value::Null))], ""),
        (vec![due(Compare::AtMost(Value::Null))], ""),
        (vec![error(Compare::AtMost(text("\u{10ffff}")))], "abc"),
    ];
    for (filters, expected) in cases {
        let query = RowQuery { filters, order: vec![4], ..by_key(Table::SweepCandidate) };
        let found = storage.rows(&query).await?;
        let found: String = found.iter().filter_map(|row| row.values[4].as_text()).collect();
        assert_eq!(found, expected, "{:?}", query.filters);
    }
    let none = RowQuery { limit: 0, ..by_key(Table::SweepCandidate) };
    assert_eq!(storage.rows(&none).await?, []);
    Ok(())
}

async fn rows_are_replaced_without_events(storage: &dyn Storage) -> Result<()> {
    let kept = sync_state("c", "o", Value::text("kept"));
    let batch = [with_rows(1, vec![RowChange::Put(trim("a", "1")), RowChange::Put(kept.clone())])];
    commit(storage, &batch).await?;
    let before = storage.last_position().await?;
    let mut changed = sync_state("c", "o", Value::Keep);
    changed.values[5] = Value::text("idle");
    let changes = [
        RowChange::Delete(trim_key("a")),
        RowChange::Delete(trim_key("none")),
        RowChange::Put(trim("b", "2")),
        RowChange::Put(changed.clone()),
    ];
    storage.replace_rows(&changes, &[]).await?;
    storage.replace_rows(&[], &[]).await?;
    assert_values(&storage.rows(&by_key(Table::EntityTrim)).await?, &[trim("b", "2")]);
    changed.values[RECOVERY] = Value::text("kept");
    assert_values(&storage.rows(&by_key(Table::SyncState)).await?, &[changed]);
    assert_eq!(storage.last_position().await?, before);
    Ok(())
}

async fn rows_are_not_replaced_where_one_of_their_streams_has_moved(
    storage: &dyn Storage,
) -> Result<()> {
    let (a, b) = (name("document:a"), name("document:b"));
    commit(storage, &[one(1, &a, Expected::NONE)]).await?;
    let put = [RowChange::Put(trim("a", "1"))];
    let moved = [
        vec![(a.clone(), Expected::NONE)],
        vec![(a.clone(), at(1, 2))],
        vec![(a.clone(), at(2, 1))],
        vec![(a.clone(), at(1, 1)), (b.clone(), at(1, 1))],
    ];
    for expected in moved {
        assert!(!storage.replace_rows(&put, &expected).await?, "{expected:?}");
        assert_eq!(storage.row(&trim_key("a")).await?, None);
    }
    assert!(storage.replace_rows(&put, &[(a, at(1, 1)), (b.clone(), Expected::NONE)]).await?);
    assert!(storage.row(&trim_key("a")).await?.is_some());
    // The stream that was none is none, and can begin.
    assert_eq!(storage.streams(None, 9).await?.streams.len(), 1);
    commit(storage, &[one(2, &b, Expected::NONE)]).await
}
