//! Observation copies and repairs in a file: stamps over restarts, plans of queries, erased content.

use sqlx::Row as _;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Connection as _};

use super::query::Built;
use super::tests::{NOW, commit, number, open, outsider, place, trim_append};
use super::*;
use crate::base::limits::DEFAULT_MAX_PAYLOAD_BYTES;
use crate::domain::{Table, Value};
use crate::journal::owners::{RowPages, all_rows, rows_of};
use crate::journal::world::{TOKEN, copy, document, put_copy, put_repair, sweep};

fn repair_key(document: &str) -> RowKey {
    RowKey::new(Table::ObservationRepair, vec![Value::text(document)])
}

/// One event on a document's stream, with a repair that is stamped.
fn repair_append(document: &str, command: u128) -> Append {
    let texts = [document, "did:web:o", "f", "d"].map(Value::text);
    let rest = [Value::Int(1), Value::Null, Value::Stamp];
    let row = Row::new(Table::ObservationRepair, texts.into_iter().chain(rest).collect());
    let mut append = trim_append(document, command, Expected::NONE, b"x");
    append.parts[0].rows = vec![RowChange::Put(row)];
    append
}

/// Writes a repair and gives what it was stamped with, as the append says.
async fn stamp(store: &SqliteStorage, document: &str, now: Timestamp) -> Option<i64> {
    let outcomes = store.append(&[repair_append(document, 1)], now).await.unwrap();
    let [AppendOutcome::Committed { taken }] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    let stored = store.row(&repair_key(document)).await.unwrap().unwrap();
    assert_eq!(stored.values, taken[0].values);
    stored.values[6].as_int()
}

#[tokio::test]
async fn stamps_grow_over_a_restart_also_when_the_clock_stepped_back() {
    let (_directory, path) = place();
    let mut last = None;
    for (run, now) in [NOW, NOW, NOW.plus_millis(-900), NOW.plus_millis(5)].into_iter().enumerate()
    {
        let store = open(&path).await;
        for at in 0..3 {
            let stamped = stamp(&store, &format!("d{run}-{at}"), now).await;
            assert!(stamped > last, "{stamped:?} is not behind {last:?}");
            last = stamped;
        }
        // The newest row is gone, and with it the only trace in the read table.
        let newest = repair_key(&format!("d{run}-2"));
        store.replace_rows(&[RowChange::Delete(newest)], &[]).await.unwrap();
        store.close().await.unwrap();
    }
}

/// A commit is in the file, and the writer does not know it.
#[tokio::test]
async fn a_doubtful_commit_gives_no_stamp_twice() {
    let (_directory, path) = place();
    let store = open(&path).await;
    assert_eq!(stamp(&store, "a", NOW).await, Some(1_000));
    let commit_unseen = async |at: i64| {
        let mut tool = outsider(&path, false).await;
        let sql = "UPDATE connector_meta SET value = ? WHERE key = 'stamped_at'";
        sqlx::query(sql).bind(at).execute(&mut tool).await.unwrap();
        tool.close().await.unwrap();
    };
    commit_unseen(9_000).await;
    store.writer.lock().await.doubt(std::collections::HashMap::new());
    assert_eq!(stamp(&store, "b", NOW).await, Some(9_001));
    commit_unseen(9_500).await;
    let incomplete = Row::new(Table::ObservationRepair, vec![Value::Null; 7]);
    assert!(store.replace_rows(&[RowChange::Put(incomplete)], &[]).await.is_err());
    assert_eq!(stamp(&store, "c", NOW).await, Some(9_501));
}

/// How SQLite goes about a query.
async fn plan(store: &SqliteStorage, built: Built) -> Vec<String> {
    let sql = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", built.sql));
    let rows = store.readers.all(sql, built.arguments, "a plan").await.unwrap();
    rows.iter().map(|row| row.get_unchecked("detail")).collect()
}

/// Neither reads a token or a payload that it does not give, and neither sorts rows that hold them.
#[tokio::test]
async fn copies_are_found_by_their_indexes_and_never_sorted() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let after = (OwnerDid::new("did:web:o").unwrap(), DocumentId::new("d").unwrap());
    for after in [None, Some(&after)] {
        let plan = plan(&store, due::observed(after, 7).unwrap()).await;
        let is_it = |line: &String| line.contains("SEARCH") && line.contains("COVERING INDEX");
        assert!(plan.len() == 1 && plan.iter().all(is_it), "{plan:#?}");
    }
    let of_document = rows_of(&document("d")).into_iter();
    let queries = of_document.chain(Table::ALL.map(all_rows));
    for mut query in queries.filter(|query| query.table == Table::ObservationRecords) {
        let after = ["t", "o", "d", "h"].map(Value::text).to_vec();
        for after in [None, Some(after)] {
            query.after = after;
            let plan = plan(&store, query::build(&query).unwrap()).await;
            let is_it = |line: &String| line.contains("INDEX") && !line.contains("TEMP");
            assert!(plan.len() == 1 && plan.iter().all(is_it), "{plan:#?}");
        }
    }
    let built = Built {
        sql: "SELECT * FROM kubun_connector_observation_repair WHERE (written_at, document_id) > \
              (1, 'd') ORDER BY written_at, document_id LIMIT 5"
            .to_owned(),
        arguments: SqliteArguments::default(),
    };
    let plan = plan(&store, built).await;
    assert!(plan.len() == 1 && plan[0].contains("repair_written"), "{plan:#?}");
}

/// Superseded and pruned copies are in the log until it is truncated, which the sweep sees to.
#[tokio::test]
async fn no_byte_of_a_copy_of_a_swept_document_is_in_a_file() {
    let (_directory, path) = place();
    let store = open(&path).await;
    assert!(store.idle().await.unwrap());
    let payload = |word: &str| format!("{word}-PAYLOAD-0123456789").repeat(3_000).into_bytes();
    let (old, new) = (payload("FORMER"), payload("LATTER"));
    put_copy(&store, "kept", copy("did:web:kept", "a", 1, Some(b"kept")), false).await;
    put_copy(&store, "d", copy("did:web:swept", "a", 1, Some(&old)), false).await;
    put_copy(&store, "d", copy("did:web:swept", "a", 2, Some(&new)), true).await;
    put_copy(&store, "d", copy("did:web:swept", "b", 2, Some(&new)), false).await;
    put_repair(&store, "d", 1, false).await;
    let token = format!("{TOKEN} of a for did:web:swept");
    let contents = [token.as_bytes(), &old[..20], &new[..20]];
    let held = || {
        let files = ["", "-wal"]
            .map(|suffix| std::fs::read(crate::journal::file::beside(&path, suffix)).unwrap());
        contents.map(|content| {
            files.iter().any(|file| file.windows(content.len()).any(|part| part == content))
        })
    };
    assert_eq!(held(), [true; 3]);
    sweep(&store, "d").await;
    assert_eq!(held(), [true; 3], "the log still has them");
    assert!(store.idle().await.unwrap());
    assert_eq!(held(), [false; 3]);
    let mut tool = outsider(&path, true).await;
    let copies = "SELECT count(*) FROM kubun_connector_observation_records";
    assert_eq!(number(&mut tool, copies).await, 1, "the other document keeps its copy");
    let repairs = "SELECT count(*) FROM kubun_connector_observation_repair";
    assert_eq!(number(&mut tool, repairs).await, 0);
}

/// Rows as large as any, more of them than one statement takes.
#[tokio::test]
async fn a_document_full_of_the_largest_copies_is_written_and_read_whole() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let payload: Vec<u8> = (0..=255).cycle().take(DEFAULT_MAX_PAYLOAD_BYTES).collect();
    let value = Value::Blob(payload.into());
    let rows = (0..64).map(|at| {
        let texts = ["connector.observation", "did:web:o", "d", &format!("{at:02}"), "h", "t"]
            .map(Value::text);
        Row::new(Table::ObservationRecords, texts.into_iter().chain([value.clone()]).collect())
    });
    let mut append = trim_append("d", 1, Expected::NONE, b"x");
    append.parts[0].rows = rows.map(RowChange::Put).collect();
    commit(&store, append).await;
    let mut found = 0;
    for query in rows_of(&document("d")) {
        let mut pages = RowPages::new(query);
        while let Some(page) = pages.next(&store).await.unwrap() {
            assert!(page.len() <= 16, "a page of large rows is short");
            found += page.iter().filter(|row| row.values[6] == value).count();
        }
    }
    assert_eq!(found, 64);
}
