//! What is SQLite's own: one store per file, migrations, statements of every size, the log.

use std::path::Path;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use tempfile::TempDir;

use super::*;
use crate::base::StreamKind;
use crate::domain::{Table, Value};
use crate::journal::{Compare, Filter, NewEvent, Part};

pub(super) const NOW: Timestamp = Timestamp::from_millis(1_000);

pub(super) async fn open(path: &Path) -> SqliteStorage {
    SqliteStorage::open(SqliteOptions::new(path, NOW)).await.unwrap()
}

pub(super) fn place() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    (directory, path)
}

/// One event on a document's stream, with the document's trim.
pub(super) fn trim_append(
    document: &str,
    command: u128,
    expected: Expected,
    payload: &[u8],
) -> Append {
    let row = Row::new(
        Table::EntityTrim,
        vec![
            Value::text(document),
            Value::text("did:web:o"),
            Value::text("c"),
            Value::text("{}"),
            Value::Int(i64::try_from(command).unwrap_or(i64::MAX)),
        ],
    );
    let event = NewEvent { event_type: 2, schema: 1, payload: payload.to_vec(), is_swept: false };
    let part = Part {
        stream: StreamName::from(format!("document:{document}")),
        kind: StreamKind::Document,
        expected,
        events: vec![event],
        rows: vec![RowChange::Put(row)],
        snapshot: None,
        erase: false,
        trim: false,
    };
    let command_id = Uuid::from_u128(command);
    Append { command_id, record: None, parts: vec![part], fences: Vec::new(), absent: Vec::new() }
}

pub(super) fn expected(version: i64, command: u128) -> Expected {
    Expected { version, command_id: Uuid::from_u128(command) }
}

pub(super) fn trim_key(document: &str) -> RowKey {
    RowKey::new(Table::EntityTrim, vec![Value::text(document)])
}

pub(super) async fn commit(store: &SqliteStorage, append: Append) {
    let outcomes = store.append(&[append], NOW).await.unwrap();
    assert!(matches!(outcomes.as_slice(), [AppendOutcome::Committed { .. }]), "{outcomes:?}");
}

/// A connection of another program.
pub(super) async fn outsider(path: &Path, read_only: bool) -> sqlx::sqlite::SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path).read_only(read_only);
    options.connect().await.unwrap()
}

pub(super) async fn number(connection: &mut sqlx::sqlite::SqliteConnection, sql: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap();
    row.get_unchecked(0)
}

#[tokio::test]
async fn what_is_appended_is_read_back_also_after_reopening() {
    let (_directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"first")).await;
    commit(&store, trim_append("a", 2, expected(1, 1), b"second")).await;
    commit(&store, trim_append("b", 3, Expected::NONE, b"third")).await;
    let generation = store.generation();
    assert_eq!(generation, NOW.as_millis());
    assert_eq!(*store.committed().borrow(), 3);
    store.close().await.unwrap();
    assert!(matches!(store.load("document:a").await, Err(Error::Closed)));
    let refused = store.append(&[trim_append("a", 4, expected(2, 2), b"")], NOW).await;
    assert!(matches!(refused, Err(BatchError::Failed(Error::Closed))));

    let options = SqliteOptions::new(&path, NOW.plus_millis(9));
    let store = SqliteStorage::open(options).await.unwrap();
    assert_eq!(store.generation(), generation);
    let loaded = store.load("document:a").await.unwrap();
    let payloads: Vec<&[u8]> = loaded.events.iter().map(|event| &*event.payload).collect();
    assert_eq!(payloads, [b"first".as_slice(), b"second"]);
    assert_eq!(loaded.head.map(|head| head.version), Some(2));
    assert_eq!(loaded.head.map(|head| head.hash), loaded.events.last().map(|event| event.hash));
    let row = store.row(&trim_key("a")).await.unwrap().unwrap();
    assert_eq!(row.values[4], Value::Int(2));
    commit(&store, trim_append("a", 4, expected(2, 2), b"fourth")).await;
    let feed = store.events(1, 10).await.unwrap();
    let found: Vec<(i64, &str, i64)> =
        feed.iter().map(|event| (event.position, &*event.stream, event.version)).collect();
    assert_eq!(found, [(2, "document:a", 2), (3, "document:b", 1), (4, "document:a", 3)]);
    let unknown = store.load("document:none").await.unwrap();
    assert!(unknown.head.is_none() && unknown.events.is_empty() && unknown.snapshot.is_none());
}

/// Every size up to past the widest statement: chunks, joined texts and padded lists.
#[tokio::test]
async fn a_batch_of_any_size_is_written_whole() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let mut total = 0;
    for size in (1..=40_u128).chain([63, 64, 65, 255, 256, 257, 700]) {
        let name = |at: u128| format!("{size}-{at}");
        let batch: Vec<Append> =
            (0..size).map(|at| trim_append(&name(at), at + 1, Expected::NONE, &[7; 20])).collect();
        let outcomes = store.append(&batch, NOW).await.unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, AppendOutcome::Committed { .. })));
        // The heads come from the file again.
        store.writer.lock().await.forget_head(&StreamName::from(format!("document:{size}-0")));
        let erasing: Vec<Append> = (0..size)
            .map(|at| {
                let mut append = trim_append(&name(at), at + 9_000, expected(1, at + 1), b"");
                append.parts[0].erase = true;
                append.parts[0].rows = vec![RowChange::Delete(trim_key(&name(at)))];
                append
            })
            .collect();
        let outcomes = store.append(&erasing, NOW).await.unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, AppendOutcome::Committed { .. })), "{size}");
        total += i64::try_from(size).unwrap();
        let mut reader = outsider(&path, true).await;
        assert_eq!(number(&mut reader, "SELECT count(*) FROM connector_journal").await, total);
        assert_eq!(
            number(&mut reader, "SELECT count(*) FROM kubun_connector_entity_trim").await,
            0
        );
        let sql = "SELECT count(*) FROM connector_stream WHERE version = 2";
        assert_eq!(number(&mut reader, sql).await, total);
        reader.close().await.unwrap();
    }
    assert_eq!(store.last_position().await.unwrap(), total * 2);
}

#[tokio::test]
async fn one_store_has_a_file() {
    let (directory, path) = place();
    let store = open(&path).await;
    let again = SqliteStorage::open(SqliteOptions::new(&path, NOW)).await;
    assert!(matches!(again, Err(Error::StoreInUse { .. })), "{again:?}");
    let other_name = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &other_name).unwrap();
    let by_link = SqliteStorage::open(SqliteOptions::new(&other_name, NOW)).await;
    assert!(matches!(by_link, Err(Error::StoreInUse { .. })), "{by_link:?}");
    store.close().await.unwrap();
    open(&path).await.close().await.unwrap();
}

#[tokio::test]
async fn keep_leaves_a_column_as_it_is() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let receipt = |keep: Value, complete: i64| {
        let text = |text: &str| Value::text(text);
        let mut values = vec![text("o"), text("c"), text("p"), text("v"), Value::Int(1)];
        values.extend([text("m"), text("s"), keep, text("h"), Value::Null, text("full")]);
        values.extend([Value::Int(complete), Value::Int(5), Value::Null]);
        RowChange::Put(Row::new(Table::SweepReceipt, values))
    };
    let put = |row| async { store.replace_rows(&[row], &[]).await };
    put(receipt(Value::text("[\"x\"]"), 0)).await.unwrap();
    put(receipt(Value::Keep, 1)).await.unwrap();
    let key = ["o", "c", "p", "v"].map(Value::text).to_vec();
    let row = store.row(&RowKey::new(Table::SweepReceipt, key)).await.unwrap().unwrap();
    assert_eq!((&row.values[7], &row.values[11]), (&Value::text("[\"x\"]"), &Value::Int(1)));
}

#[tokio::test]
async fn numbers_and_text_come_back_exactly() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let texts = ["-0.0", "1e400", "9007199254740993", "{\"a\":-0.0}", "ä\u{308}\u{1f600}", ""];
    for number in [i64::MAX, i64::MIN, 0, (1 << 53) + 1, -((1 << 53) + 1)] {
        for text in texts {
            let values = ["d", "o", "c", text].map(Value::text);
            let values = values.into_iter().chain([Value::Int(number)]).collect();
            let row = Row::new(Table::EntityTrim, values);
            store.replace_rows(&[RowChange::Put(row.clone())], &[]).await.unwrap();
            assert_eq!(store.row(&trim_key("d")).await.unwrap(), Some(row));
        }
    }
}

#[tokio::test]
async fn pages_of_rows_follow_each_other_by_bytes() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let mut names: Vec<String> =
        ["b", "B", "ä", "a\u{308}", "a", "aa", "😀", "\u{fb33}"].map(str::to_owned).to_vec();
    names.extend((0..50).map(|at| format!("n{at}")));
    let batch: Vec<Append> = (1..)
        .zip(&names)
        .map(|(command, name)| trim_append(name, command, Expected::NONE, b""))
        .collect();
    store.append(&batch, NOW).await.unwrap();
    names.sort();
    let mut query = RowQuery {
        table: Table::EntityTrim,
        filters: vec![Filter { column: 1, compare: Compare::Equal(Value::text("did:web:o")) }],
        order: vec![1, 0],
        after: None,
        limit: 7,
    };
    let mut found = Vec::new();
    loop {
        let page = store.rows(&query).await.unwrap();
        let Some(last) = page.last() else { break };
        query.after = Some(vec![last.values[1].clone(), last.values[0].clone()]);
        found.extend(page.iter().map(|row| row.values[0].as_text().unwrap().to_owned()));
    }
    assert_eq!(found, names);
    let mut after = None;
    let mut streams = Vec::new();
    loop {
        let page = store.streams(after.as_deref(), 7).await.unwrap();
        let Some((last, ..)) = page.streams.last() else { break };
        after = Some(last.to_string());
        streams.extend(page.streams.into_iter().map(|(name, ..)| name.to_string()));
    }
    let expected: Vec<String> = names.iter().map(|name| format!("document:{name}")).collect();
    assert_eq!(streams, expected);
}

/// Deleting and taking rows by keys of many columns goes by the key's index, not over the table.
#[tokio::test]
async fn no_key_match_scans_its_table() {
    let (_directory, path) = place();
    let store = open(&path).await;
    store.close().await.unwrap();
    let mut connection = outsider(&path, true).await;
    for table in Table::ALL {
        let mut sql = format!("EXPLAIN QUERY PLAN SELECT 1 FROM {} WHERE ", table.spec().name);
        statements::write_key_match(&mut sql, table, 4);
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get_unchecked("detail")).collect();
        let search = format!("SEARCH {}", table.spec().name);
        assert!(plan.iter().any(|line| line.starts_with(&search)), "{plan:?}");
    }
}

#[tokio::test]
async fn a_failing_statement_leaves_no_transaction_open() {
    let (_directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"1")).await;
    for size in [1, 100] {
        let mut batch: Vec<Append> = (0..size)
            .map(|at| trim_append(&format!("x{at}"), at + 10, Expected::NONE, b""))
            .collect();
        let row = Row::new(
            Table::EntityTrim,
            vec![Value::text("bad"), Value::Null, Value::Null, Value::Null, Value::Null],
        );
        batch[0].parts[0].rows.push(RowChange::Put(row));
        let failed = store.append(&batch, NOW).await;
        let Err(BatchError::Failed(Error::Storage { fault, .. })) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(fault, StorageFault::Damaged);
        // Nobody is kept from writing, also before the store's next batch.
        let mut tool = outsider(&path, false).await;
        let sql = "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK";
        sqlx::raw_sql(sql).execute(&mut tool).await.unwrap();
        tool.close().await.unwrap();
        assert!(store.load("document:x0").await.unwrap().head.is_none());
    }
    commit(&store, trim_append("a", 2, expected(1, 1), b"2")).await;
    assert_eq!(store.last_position().await.unwrap(), 2);
}

/// A batch whose future was dropped in the middle is gone or whole, and the next one works.
#[tokio::test]
async fn an_append_that_is_dropped_leaves_the_writer_usable() {
    let (_directory, path) = place();
    let store = open(&path).await;
    for polls in 0..40_u32 {
        let name = format!("d{polls}");
        let size = if polls % 2 == 0 { 1 } else { 60 };
        let batch: Vec<Append> = (0..size)
            .map(|at| trim_append(&format!("{name}-{at}"), at + 1, Expected::NONE, b"x"))
            .collect();
        let mut append = store.append(&batch, NOW);
        for _ in 0..polls {
            let turn = std::future::poll_fn(|context| {
                std::task::Poll::Ready(append.as_mut().poll(context).is_ready())
            });
            if turn.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(append);
        commit(&store, trim_append(&name, 7, Expected::NONE, b"")).await;
        let mut there = 0;
        for at in 0..size {
            let stream = format!("document:{name}-{at}");
            there += u128::from(store.load(&stream).await.unwrap().head.is_some());
        }
        assert!(there == 0 || there == size, "{there} of {size}");
    }
    let mut reader = outsider(&path, true).await;
    let events = number(&mut reader, "SELECT count(*) FROM connector_journal").await;
    let newest = number(&mut reader, "SELECT max(position) FROM connector_journal").await;
    assert_eq!(newest, events);
}

#[tokio::test]
async fn an_erased_payload_is_in_no_file_after_idle() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let secret = b"SECRET-PAYLOAD-0123456789".repeat(400);
    commit(&store, trim_append("a", 1, Expected::NONE, &secret)).await;
    commit(&store, trim_append("b", 2, Expected::NONE, b"other")).await;
    let holds = || {
        ["", "-wal"].into_iter().any(|suffix| {
            let bytes =
                std::fs::read(crate::journal::file::beside(&path, suffix)).unwrap_or_default();
            bytes.windows(20).any(|window| window == &secret[..20])
        })
    };
    assert!(holds());
    let mut sweep = trim_append("a", 3, expected(1, 1), b"");
    sweep.parts[0].erase = true;
    commit(&store, sweep).await;
    assert!(holds(), "the log still has it");
    store.idle().await.unwrap();
    assert!(!holds());
    let left = store.stream_events("document:a").await.unwrap();
    assert_eq!(left.iter().map(|event| event.version).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn retention_cuts_a_prefix_behind_the_snapshot_and_says_so() {
    let (_directory, path) = place();
    let store = open(&path).await;
    for (version, command) in (0..6).zip(1_u128..) {
        let previous = if version == 0 { Expected::NONE } else { expected(version, command - 1) };
        let append = trim_append("a", command, previous, b"x");
        // The clock went back behind the third event.
        let at = if version == 3 { 1 } else { version * 10 };
        store.append(&[append], Timestamp::from_millis(at)).await.unwrap();
    }
    let snapshot = NewSnapshot { schema: 1, payload: vec![1, 2, 3] };
    store.write_snapshot("document:a", expected(4, 4), snapshot.clone()).await.unwrap();
    assert!(store.load("document:a").await.unwrap().snapshot.is_none(), "not the head");
    store.write_snapshot("document:a", expected(6, 6), snapshot).await.unwrap();
    let cut = HistoryCut { recorded_before: Timestamp::from_millis(15), limit: 10 };
    assert_eq!(store.cut_history(cut).await.unwrap(), 2);
    assert_eq!(store.cut_history(cut).await.unwrap(), 0);
    assert_eq!(store.trimmed_up_to().await.unwrap(), 2);
    let left = store.stream_events("document:a").await.unwrap();
    assert_eq!(left.iter().map(|event| event.version).collect::<Vec<_>>(), [3, 4, 5, 6]);
    let all = HistoryCut { recorded_before: Timestamp::from_millis(1_000), limit: 10 };
    assert_eq!(store.cut_history(all).await.unwrap(), 4);
    let loaded = store.load("document:a").await.unwrap();
    assert_eq!(loaded.head.map(|head| head.version), Some(6));
    assert_eq!(loaded.snapshot.map(|snapshot| snapshot.version), Some(6));
    assert_eq!(loaded.events, []);
    commit(&store, trim_append("a", 7, expected(6, 6), b"x")).await;
    assert_eq!(store.last_position().await.unwrap(), 7);
}

#[tokio::test]
async fn a_dropped_stream_starts_anew_and_a_moved_one_stays() {
    let (_directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    commit(&store, trim_append("b", 2, Expected::NONE, b"x")).await;
    let name = StreamName::from("document:a");
    let stale = [(name.clone(), expected(1, 9)), ("document:none".into(), expected(1, 1))];
    assert_eq!(store.drop_streams(&stale).await.unwrap(), 0);
    assert_eq!(store.drop_streams(&[(name, expected(1, 1))]).await.unwrap(), 1);
    assert!(store.load("document:a").await.unwrap().head.is_none());
    assert_eq!(store.trimmed_up_to().await.unwrap(), 1);
    commit(&store, trim_append("a", 3, Expected::NONE, b"x")).await;
    assert_eq!(store.load("document:b").await.unwrap().events.len(), 1);
    assert_eq!(store.last_position().await.unwrap(), 3);
}

#[tokio::test]
async fn a_position_is_never_given_twice_also_after_the_newest_was_erased() {
    let (_directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    let dropped = [(StreamName::from("document:a"), expected(1, 1))];
    assert_eq!(store.drop_streams(&dropped).await.unwrap(), 1);
    store.close().await.unwrap();
    let store = open(&path).await;
    commit(&store, trim_append("a", 2, Expected::NONE, b"x")).await;
    assert_eq!(store.events(0, 10).await.unwrap()[0].position, 2);
}

#[tokio::test]
async fn outcomes_of_commands_are_kept_and_forgotten() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let record = CommandRecord { digest: crate::base::Digest::of(b"c"), answer: vec![1, 2] };
    let command_id = Uuid::from_u128(5);
    let append = Append {
        command_id,
        record: Some(record.clone()),
        parts: Vec::new(),
        fences: Vec::new(),
        absent: Vec::new(),
    };
    assert_eq!(store.look_up(&append).await.unwrap(), None);
    commit(&store, append.clone()).await;
    assert_eq!(store.command(command_id).await.unwrap(), Some(record.clone()));
    let again = store.append(std::slice::from_ref(&append), NOW).await.unwrap();
    assert_eq!(again, [AppendOutcome::CommandKnown(record)]);
    assert!(store.look_up(&append).await.unwrap().is_some());
    assert_eq!(store.drop_commands(NOW).await.unwrap(), 0);
    assert_eq!(store.drop_commands(NOW.plus_millis(1)).await.unwrap(), 1);
    assert_eq!(store.command(command_id).await.unwrap(), None);
}

#[tokio::test]
async fn a_look_up_finds_the_event_of_that_command_alone() {
    let (_directory, path) = place();
    let store = open(&path).await;
    let append = trim_append("a", 1, Expected::NONE, b"x");
    assert_eq!(store.look_up(&append).await.unwrap(), None);
    commit(&store, append.clone()).await;
    let found = store.look_up(&append).await.unwrap();
    assert_eq!(found, Some(AppendOutcome::Committed { taken: Vec::new() }));
    let rival = trim_append("a", 2, Expected::NONE, b"x");
    assert_eq!(store.look_up(&rival).await.unwrap(), None);
}

/// A read-only tool looks on while the store writes: neither ever meets a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_onlooker_and_the_writer_never_meet_a_lock() {
    let (_directory, path) = place();
    let options = SqliteOptions::new(&path, NOW).busy_timeout(Duration::ZERO);
    let store = Arc::new(SqliteStorage::open(options).await.unwrap());
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    let (done, mut is_done) = watch::channel(false);
    let looking = tokio::spawn({
        let path = path.clone();
        async move {
            let mut tool = outsider(&path, true).await;
            let mut seen = 0;
            while !*is_done.borrow_and_update() {
                let count = number(&mut tool, "SELECT count(*) FROM connector_journal").await;
                assert!(count >= seen);
                seen = count;
                tokio::task::yield_now().await;
            }
            seen
        }
    });
    let mut last = expected(1, 1);
    for command in 2..600 {
        commit(&store, trim_append("a", command, last, &[3; 500])).await;
        last = expected(last.version + 1, command);
        if command % 100 == 0 {
            store.idle().await.unwrap();
        }
    }
    done.send_replace(true);
    assert!(looking.await.unwrap() > 0);
}

/// A reader pins a moment of the file: writes go on, and the log shrinks once it has gone.
#[tokio::test]
async fn a_reader_that_stays_holds_up_the_log_and_nothing_else() {
    let (_directory, path) = place();
    let store = open(&path).await;
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    let mut tool = outsider(&path, true).await;
    sqlx::query("BEGIN").execute(&mut tool).await.unwrap();
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 1);
    let mut last = expected(1, 1);
    for command in 2..60 {
        commit(&store, trim_append("a", command, last, &[3; 20_000])).await;
        last = expected(last.version + 1, command);
    }
    let mut sweep = trim_append("a", 99, last, b"");
    sweep.parts[0].erase = true;
    commit(&store, sweep).await;
    store.idle().await.unwrap();
    let log = || std::fs::metadata(crate::journal::file::beside(&path, "-wal")).unwrap().len();
    assert!(log() > 1_000_000);
    assert!(store.writer.lock().await.has_erased, "the truncation is still owed");
    commit(&store, trim_append("b", 100, Expected::NONE, b"x")).await;
    sqlx::query("ROLLBACK").execute(&mut tool).await.unwrap();
    store.idle().await.unwrap();
    assert_eq!(log(), 0);
    assert!(!store.writer.lock().await.has_erased);
}

/// Without an erasure nothing truncates the log by a checkpoint of its own.
#[tokio::test]
async fn a_log_that_a_reader_made_long_is_cut_once_it_has_gone() {
    let (_directory, path) = place();
    let store = open(&path).await;
    store.idle().await.unwrap();
    commit(&store, trim_append("a", 1, Expected::NONE, b"x")).await;
    let mut tool = outsider(&path, true).await;
    sqlx::query("BEGIN").execute(&mut tool).await.unwrap();
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 1);
    let log = || std::fs::metadata(crate::journal::file::beside(&path, "-wal")).unwrap().len();
    let limit = u64::from(connect::MAX_KEPT_LOG_BYTES);
    let mut last = expected(1, 1);
    let mut command = 1;
    while log() < limit + 2_000_000 {
        command += 1;
        commit(&store, trim_append("a", command, last, &[3; 1_000_000])).await;
        last = expected(last.version + 1, command);
    }
    sqlx::query("ROLLBACK").execute(&mut tool).await.unwrap();
    for _ in 0..2 {
        command += 1;
        commit(&store, trim_append("a", command, last, b"x")).await;
        last = expected(last.version + 1, command);
    }
    assert!(log() <= limit, "{}", log());
}
