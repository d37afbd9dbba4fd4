//! The read tables come back as they were.

use super::*;
use crate::domain::Value;
use crate::journal::memory::Tables;
use crate::journal::verify;
use crate::journal::world::{SECRET_STATES, all_rows as stored, connector, document, world};

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
async fn lost_content_is_named_and_the_rest_of_its_row_is_written() {
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
    assert_eq!(columns, BTreeSet::from(["recovery", "keep", "source_ids"]));
    for (key, row) in before.iter().filter(|(key, _)| key.table != Table::PendingAuth) {
        let columns = row.table.spec().columns.iter();
        for (at, column) in columns.enumerate().filter(|(_, column)| !column.row_only) {
            assert_eq!(recovered[key].values[at], row.values[at], "{} of {key:?}", column.name);
        }
    }
    let shown = format!("{report:?}");
    assert!(!SECRET_STATES.iter().any(|secret| shown.contains(secret)), "{shown}");
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
    storage.replace_rows(&wiped).await.unwrap();
    assert_eq!(rebuild(&storage).await.unwrap().written, wiped.len() as u64);
    for (key, row) in stored(&journal) {
        let found = storage.row(&key).await.unwrap().unwrap();
        assert_eq!(found.values, row.values, "{key:?}");
    }
    storage.close().await.unwrap();
}
