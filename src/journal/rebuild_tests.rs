//! The read tables come back as they were.

use super::*;
use crate::domain::Value;
use crate::journal::HistoryCut;
use crate::journal::memory::Tables;
use crate::journal::verify;
use crate::journal::world::{
    SECRET_STATES, all_rows as stored, connector, document, put_repair, world,
};

/// Tables whose rows can be written from the streams alone.
fn is_whole_in_streams(table: Table) -> bool {
    table.spec().columns.iter().all(|column| !column.row_only)
}

#[tokio::test]
async fn a_sound_store_is_left_as_it_is() {
    for cut in [false, true] {
        let (journal, storage) = world(cut).await;
        let before = stored(&journal);
        let report = rebuild(&storage).await.unwrap();
        assert_eq!((report.written, report.removed), (0, 0));
        assert!(report.lost.is_empty() && report.damages.is_empty(), "{report:?}");
        assert_eq!(stored(&journal), before);
    }
}

#[tokio::test]
async fn wiped_rows_come_back_row_for_row_also_after_retention() {
    for cut in [false, true] {
        let (journal, storage) = world(cut).await;
        let before = stored(&journal);
        journal.tamper(|tables| {
            tables.rows.retain(|key, _| !is_whole_in_streams(key.table));
            for row in tables.rows.values_mut().filter(|row| row.table != Table::PendingAuth) {
                let spec = row.table.spec();
                for (at, column) in spec.columns.iter().enumerate() {
                    if !column.row_only && !spec.key.contains(&at) {
                        row.values[at] = Value::Null;
                    }
                }
            }
        });
        let report = rebuild(&storage).await.unwrap();
        assert!(report.lost.is_empty() && report.damages.is_empty(), "{report:?}");
        assert!(report.written > 10);
        assert_eq!(stored(&journal), before);
        assert!(verify(&storage).await.unwrap().is_sound());
    }
}

#[tokio::test]
async fn rows_of_no_state_are_removed() {
    let (journal, storage) = world(false).await;
    let before = stored(&journal);
    journal.tamper(|tables| {
        let rows: Vec<Row> = tables.rows.values().cloned().collect();
        for mut row in rows {
            let last = row.table.spec().key.last().copied().unwrap();
            row.values[last] = match &row.values[last] {
                Value::Int(int) => Value::Int(int + 50),
                value => Value::text(format!("{}0", value.as_text().unwrap())),
            };
            tables.rows.insert(row.key(), row);
        }
    });
    let report = rebuild(&storage).await.unwrap();
    assert_eq!(report.removed, before.len() as u64);
    assert_eq!(stored(&journal), before);
}

#[tokio::test]
async fn lost_content_is_named_and_a_row_that_can_be_without_it_is_written() {
    let (journal, storage) = world(false).await;
    let before = stored(&journal);
    journal.tamper(|tables| tables.rows.clear());
    let report = rebuild(&storage).await.unwrap();
    let recovered = stored(&journal);
    let auths = report.lost.iter().filter(|lost| matches!(lost, Damage::RowMissing { .. }));
    assert_eq!(auths.count(), 2);
    let columns: BTreeSet<_> = report
        .lost
        .iter()
        .filter_map(|lost| match lost {
            Damage::ContentDiffers { column, .. } => *column,
            _ => None,
        })
        .collect();
    let lost = ["recovery", "keep", "source_ids", "op_jwt", "payload"];
    assert_eq!(columns, BTreeSet::from(lost));
    for (key, row) in before.iter().filter(|(key, _)| key.table != Table::PendingAuth) {
        let mut columns = key.table.spec().columns.iter().zip(&row.values);
        if columns.any(|(of, value)| of.required && of.row_only && value.as_text() != Some("[]")) {
            assert!(!recovered.contains_key(key), "{key:?}");
            continue;
        }
        let columns = row.table.spec().columns.iter();
        for (at, column) in columns.enumerate().filter(|(_, column)| !column.row_only) {
            assert_eq!(recovered[key].values[at], row.values[at], "{} of {key:?}", column.name);
        }
    }
    let shown = format!("{report:?}");
    assert!(!SECRET_STATES.iter().any(|secret| shown.contains(secret)), "{shown}");
}

/// The event says when a repair was written, else its row does; where both are gone it is written
/// now, behind all that a reader has seen.
#[tokio::test]
async fn the_time_of_a_repair_is_that_of_its_event_else_of_its_row_else_a_new_one() {
    let key = |name: &str| RowKey::new(Table::ObservationRepair, vec![Value::text(name)]);
    for cut in [false, true] {
        let (journal, storage) = world(false).await;
        put_repair(&storage, "old", 1, true).await;
        put_repair(&storage, "new", 1, false).await;
        if cut {
            let recorded_before = crate::base::Timestamp::from_millis(i64::MAX);
            storage.cut_history(HistoryCut { recorded_before, limit: 100 }).await.unwrap();
        }
        let before = stored(&journal);
        let restored = async |spoil: fn(&mut Row)| {
            journal.tamper(|tables| {
                let rows = tables.rows.iter_mut();
                rows.filter(|(key, _)| key.table == Table::ObservationRepair)
                    .for_each(|(_, row)| spoil(row));
            });
            rebuild(&storage).await.unwrap();
            stored(&journal)
        };
        assert_eq!(restored(|row| row.values[2] = Value::text("another")).await, before);
        let wrong = restored(|row| row.values[6] = Value::Int(5)).await;
        for (key, row) in before.iter().filter(|(at, _)| !cut || **at != key("old")) {
            assert_eq!(wrong[key].values, row.values, "{key:?}");
        }
        journal.tamper(|tables| tables.rows = before.clone());
        journal.tamper(|tables| tables.rows.retain(|at, _| at.table != Table::ObservationRepair));
        assert!(rebuild(&storage).await.unwrap().lost.is_empty());
        let mut after = stored(&journal);
        if cut {
            let newest = before[&key("new")].values[6].as_int();
            let old = after.get_mut(&key("old")).unwrap();
            assert!(old.values[6].as_int() > newest);
            old.values[6] = before[&key("old")].values[6].clone();
        }
        assert_eq!(after, before);
    }
}

#[tokio::test]
async fn the_row_of_an_authorization_stays_only_while_it_is_what_was_written() {
    let key = |state: &str| RowKey::new(Table::PendingAuth, vec![Value::text(state)]);
    let (journal, storage) = world(false).await;
    journal.tamper(|tables: &mut Tables| {
        let row = tables.rows.get_mut(&key(SECRET_STATES[0])).unwrap();
        row.values[1] = Value::text("another");
        let mut consumed = tables.rows[&key(SECRET_STATES[1])].clone();
        consumed.values[0] = Value::text(SECRET_STATES[2]);
        tables.rows.insert(consumed.key(), consumed);
    });
    let report = rebuild(&storage).await.unwrap();
    assert_eq!((report.removed, report.lost.len()), (2, 1));
    let left: Vec<RowKey> =
        stored(&journal).into_keys().filter(|key| key.table == Table::PendingAuth).collect();
    assert_eq!(left, [key(SECRET_STATES[1])]);
}

#[tokio::test]
async fn rows_of_a_stream_without_a_state_are_left_alone() {
    let (journal, storage) = world(true).await;
    let before = stored(&journal);
    journal.tamper(|tables| {
        for key in [connector("did:web:a"), document("long")] {
            tables.streams.get_mut(&key.stream_name()).unwrap().snapshot = None;
        }
        tables.streams.get_mut(&document("short").stream_name()).unwrap().kind = 77;
    });
    let report = rebuild(&storage).await.unwrap();
    assert!(report.damages.len() >= 3, "{report:?}");
    assert_eq!((report.written, report.removed), (0, 0));
    assert_eq!(stored(&journal), before);
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_sqlite_file_is_verified_and_rebuilt_as_memory_is() {
    use crate::journal::sqlite::{SqliteOptions, SqliteStorage};

    let directory = tempfile::tempdir().unwrap();
    let now = crate::base::Timestamp::from_millis(1);
    let options = SqliteOptions::new(directory.path().join("store.db"), now);
    let storage = SqliteStorage::open(options).await.unwrap();
    crate::journal::world::populate(&storage).await;
    let (journal, in_memory) = world(false).await;
    assert_eq!(verify(&storage).await.unwrap(), verify(&in_memory).await.unwrap());
    let wiped: Vec<RowChange> = stored(&journal)
        .into_keys()
        .filter(|key| is_whole_in_streams(key.table))
        .map(RowChange::Delete)
        .collect();
    storage.replace_rows(&wiped, &[]).await.unwrap();
    // What is in these rows alone is kept while the rest of them is written.
    let spoiled: Vec<RowChange> = stored(&journal)
        .into_values()
        .filter(|row| row.table == Table::ObservationRecords)
        .map(|mut row| {
            row.values[4] = Value::text("another");
            RowChange::Put(row)
        })
        .collect();
    storage.replace_rows(&spoiled, &[]).await.unwrap();
    let report = rebuild(&storage).await.unwrap();
    assert_eq!(report.written, (wiped.len() + spoiled.len()) as u64);
    for (key, row) in stored(&journal) {
        let found = storage.row(&key).await.unwrap().unwrap();
        assert_eq!(found.values, row.values, "{key:?}");
    }
    storage.close().await.unwrap();
}
