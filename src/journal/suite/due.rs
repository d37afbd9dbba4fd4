//! What is due: one order over many tables, pages, the earliest time, what yields to an operation.

use super::build::{commit, filled, with_rows};
use super::{Rule, rule};
use crate::base::{ConnectorName, Error, OwnerDid, Result, Timestamp};
use crate::domain::{DueRow, DueSource, OPERATION_DUE_COLUMN, Row, RowChange, Table, Value};
use crate::journal::port::{DueCandidates, DuePage, Storage};

pub(super) const RULES: &[Rule] = &[
    rule!(what_is_due_is_given_by_time_source_and_names),
    rule!(what_is_finished_or_yields_is_not_due),
    rule!(the_next_due_time_is_the_earliest_behind_another),
    rule!(due_candidates_yield_to_an_unfinished_operation),
];

/// A row that waits until a time, with its key and this text in every other column.
fn waiting(source: DueSource, name: &str, due_at: i64) -> Row {
    let spec = source.spec();
    let mut key: Vec<Value> = vec![Value::text("did:web:o"), Value::text("c")];
    match source {
        DueSource::Operation
        | DueSource::UnknownOutcome
        | DueSource::DeadOperation
        | DueSource::ProjectionWatch
        | DueSource::DocumentSweep => key = vec![Value::text(name)],
        DueSource::SyncLease => key = vec![Value::text(format!("sync:{name}"))],
        DueSource::Forgetting => key[1] = Value::text(name),
        DueSource::OwedSweep => key.push(Value::text(name)),
        DueSource::OpenReceipt => key.extend([Value::text(name), Value::text("v")]),
        DueSource::SweepCandidate | DueSource::DeadCandidate => {
            key.extend(["p", "v", name].map(Value::text));
        }
    }
    let mut row = filled(spec.table, &key, 1);
    if spec.table == Table::Operation {
        row.values[OPERATION_DUE_COLUMN] = Value::Null;
    }
    match source {
        DueSource::SweepCandidate => row.values[7] = Value::text("confirmed"),
        DueSource::DeadCandidate | DueSource::DeadOperation => row.values[7] = Value::text("dead"),
        DueSource::UnknownOutcome => row.values[7] = Value::text("reconcile_only"),
        DueSource::OpenReceipt => row.values[13] = Value::Null,
        _ => {}
    }
    row.values[spec.due] = Value::Int(due_at);
    row
}

async fn put(storage: &dyn Storage, command: u128, rows: &[Row]) -> Result<()> {
    let rows = rows.iter().cloned().map(RowChange::Put).collect();
    commit(storage, &[with_rows(command, rows)]).await
}

fn until(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

async fn all(
    storage: &dyn Storage,
    sources: &'static [DueSource],
    until: Timestamp,
    limit: u32,
) -> Result<Vec<DueRow>> {
    let mut found: Vec<DueRow> = Vec::new();
    loop {
        let after = found.last().cloned();
        let page = storage.due(&DuePage { sources, until, after, limit }).await?;
        assert!(page.len() <= usize::try_from(limit).unwrap_or_default());
        if page.is_empty() {
            return Ok(found);
        }
        found.extend(page);
    }
}

async fn what_is_due_is_given_by_time_source_and_names(storage: &dyn Storage) -> Result<()> {
    let (mut rows, mut expected) = (Vec::new(), Vec::new());
    for source in DueSource::ALL {
        for (name, at) in [("b", 7), ("a", 7), ("ä", 7), ("z", 5), ("c", 9), ("late", 100)] {
            // No two rows of a table have one key.
            let name = format!("{name} {source:?}");
            let row = waiting(source, &name, at);
            expected.extend(DueRow::of(source, &row).filter(|_| at < 100));
            rows.push(row);
        }
    }
    assert_eq!(expected.len(), 5 * DueSource::ALL.len());
    put(storage, 1, &rows).await?;
    expected.sort();
    for limit in [1, 2, 7, 1_000] {
        let found = all(storage, &DueSource::ALL, until(99), limit).await?;
        assert_eq!(found, expected, "in pages of {limit}");
    }
    let waiting = |row: &&DueRow| DueSource::WAITING.contains(&row.source);
    let expected: Vec<DueRow> = expected.iter().filter(waiting).cloned().collect();
    assert_eq!(all(storage, DueSource::WAITING, until(99), 3).await?, expected);
    let in_time = expected.iter().filter(|row| row.due_at <= until(7)).count();
    let count = storage.count_due(DueSource::WAITING, until(7)).await?;
    assert_eq!(usize::try_from(count).unwrap_or_default(), in_time);
    assert_eq!(storage.count_due(&[], until(7)).await?, 0);
    Ok(())
}

/// A candidate of a document, and an operation on it that is unfinished or not.
fn contested(document: &str, unfinished: bool) -> [Row; 2] {
    let candidate = waiting(DueSource::SweepCandidate, document, 1);
    let mut operation = waiting(DueSource::Operation, &format!("op {document}"), 1);
    operation.values[1] = Value::text(document);
    if !unfinished {
        operation.values[OPERATION_DUE_COLUMN] = Value::Null;
    }
    [candidate, operation]
}

async fn what_is_finished_or_yields_is_not_due(storage: &dyn Storage) -> Result<()> {
    let mut operation_lease = waiting(DueSource::SyncLease, "x", 1);
    operation_lease.values[0] = Value::text("operation:x");
    let mut committed = waiting(DueSource::OpenReceipt, "p", 1);
    committed.values[13] = Value::Int(1);
    let mut of_an_older_lineage = waiting(DueSource::OpenReceipt, "p", 0);
    of_an_older_lineage.values[3] = Value::text("older");
    let [free, finished] = contested("free", false);
    let [busy, unfinished] = contested("busy", true);
    let receipts = [committed, of_an_older_lineage];
    let rows = [operation_lease, free.clone(), finished, busy.clone(), unfinished];
    put(storage, 1, &[receipts.as_slice(), &rows].concat()).await?;
    let names = |rows: Vec<DueRow>| -> Vec<String> {
        let is_candidate = |row: &&DueRow| row.source == DueSource::SweepCandidate;
        let document = |row: &DueRow| row.names[4].as_text().map(str::to_owned);
        rows.iter().filter(is_candidate).filter_map(document).collect()
    };
    let found = all(storage, &DueSource::ALL, until(1), 2).await?;
    let sources: Vec<DueSource> = found.iter().map(|row| row.source).collect();
    assert_eq!(sources, [DueSource::Operation, DueSource::SweepCandidate], "{found:?}");
    assert_eq!(names(found), ["free"]);
    assert_eq!(storage.count_due(&[DueSource::SweepCandidate], until(1)).await?, 1);
    put(storage, 2, &contested("busy", false)).await?;
    let found = all(storage, DueSource::WAITING, until(1), 2).await?;
    assert_eq!(names(found), ["busy", "free"]);
    Ok(())
}

async fn the_next_due_time_is_the_earliest_behind_another(storage: &dyn Storage) -> Result<()> {
    assert_eq!(storage.next_due(None).await?, None);
    for (source, at) in DueSource::ALL.into_iter().zip(10_i64..) {
        put(storage, u128::from(at.unsigned_abs()), &[waiting(source, &format!("{source:?}"), at)])
            .await?;
    }
    let last = 10 + i64::try_from(DueSource::WAITING.len()).unwrap_or_default() - 1;
    for at in 10..=last {
        assert_eq!(storage.next_due(Some(until(at - 1))).await?, Some(until(at)), "{at}");
    }
    assert_eq!(storage.next_due(None).await?, Some(until(10)));
    assert_eq!(storage.next_due(Some(until(last))).await?, None, "what is stuck waits for nothing");
    Ok(())
}

async fn due_candidates_yield_to_an_unfinished_operation(storage: &dyn Storage) -> Result<()> {
    let [busy, unfinished] = contested("d2", true);
    let [free, finished] = contested("d3", false);
    let early = waiting(DueSource::SweepCandidate, "d4", 0);
    let late = waiting(DueSource::SweepCandidate, "d5", 9);
    let dead = waiting(DueSource::DeadCandidate, "d6", 1);
    let same_time = waiting(DueSource::SweepCandidate, "d1", 1);
    let mut other = waiting(DueSource::SweepCandidate, "d0", 1);
    other.values[1] = Value::text("other");
    let rows = [busy, unfinished, free, finished, early, late, dead, same_time, other];
    put(storage, 1, &rows).await?;
    let page = |until, limit| {
        let (owner, connector) = (OwnerDid::new("did:web:o")?, ConnectorName::new("c")?);
        Ok::<_, Error>(DueCandidates { owner, connector, until, limit })
    };
    let cases = [(8, 10, "d4 d1 d3"), (8, 2, "d4 d1"), (9, 10, "d4 d1 d3 d5"), (-1, 10, "")];
    for (at, limit, expected) in cases {
        let found = storage.due_candidates(&page(until(at), limit)?).await?;
        let found: Vec<&str> = found.iter().filter_map(|row| row.values[4].as_text()).collect();
        assert_eq!(found.join(" "), expected, "until {at}, at most {limit}");
    }
    Ok(())
}
