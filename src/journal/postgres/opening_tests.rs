//! What stands in the text that a transaction begins with: every name as it is, and no secret.

use sqlx::Row as _;

use super::super::PostgresStorage;
use super::super::connect::Connector;
use super::super::known::{DOUBTED_BATCHES, Ended, RowWrites};
use super::super::options::PostgresOptions;
use super::super::tests::{
    COMMITTED, NOW, begin, commit, expected, number, open, outsider, place, run, trim_append,
    trim_key, until_one_waits,
};
use super::*;
use crate::base::{ConnectorName, Digest, DocumentId, Holder, OperationId, OwnerDid, StorageFault};
use crate::domain::{Fence, FencingToken, Lease, LeaseScope, forgetting_key};
use crate::journal::chain::start_hash;
use crate::journal::{AppendOutcome, BatchError, Head, Storage as _};

/// Names that a text could take for something else.
const ODD: [&str; 6] = [
    "it's",
    "back\\slash",
    "', 'hex'), 'UTF8')); DROP TABLE connector_stream; --",
    "{\"a\",b}",
    "$1 $$ ?",
    "ä\u{1f980}\u{202e}",
];

pub(in super::super) fn id_key(operation: &str) -> RowKey {
    RowKey::new(Table::OperationId, vec![Value::text(operation)])
}

/// An append that must be the first with this operation's id.
pub(in super::super) fn first_with(document: &str, operation: &str, command: u128) -> Append {
    let mut append = trim_append(document, command, Expected::NONE);
    let id = Row::new(Table::OperationId, vec![Value::text(operation), Value::text(document)]);
    append.parts[0].rows.push(RowChange::Put(id));
    append.absent.push(id_key(operation));
    append
}

#[tokio::test]
async fn odd_names_are_locked_and_found_as_they_are() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let batch: Vec<Append> =
        ODD.iter().zip(1..).map(|(name, n)| first_with(name, name, n)).collect();
    assert_eq!(store.append(&batch, NOW).await.unwrap(), vec![COMMITTED; ODD.len()]);
    for (name, n) in ODD.iter().zip(1..) {
        let again = store.append(&[first_with(&format!("{name}2"), name, n + 10)], NOW).await;
        assert_eq!(again.unwrap(), [AppendOutcome::RowExists(id_key(name))]);
        let late = store.append(&[trim_append(name, n + 20, Expected::NONE)], NOW).await.unwrap();
        assert_eq!(late, [AppendOutcome::Conflict]);
        commit(&store, trim_append(name, n + 30, expected(1, n))).await;
        assert_eq!(store.load(&format!("document:{name}")).await.unwrap().events.len(), 2);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_the_store_itself_has_dropped_is_not_remembered() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let [a, b] = ["document:a", "document:b"].map(StreamName::from);
    for (name, n) in [("a", 1), ("b", 2)] {
        commit(&store, trim_append(name, n, Expected::NONE)).await;
    }
    assert_eq!(store.drop_streams(&[(a.clone(), expected(1, 1))]).await.unwrap(), 1);
    let writer = store.writer.lock().await;
    assert!(matches!(writer.known.find(&a), Found::Nothing));
    assert!(matches!(writer.known.find(&b), Found::Standing(_)));
}

#[tokio::test]
async fn a_stream_that_was_dropped_and_begun_anew_elsewhere_is_found() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    commit(&one, trim_append("a", 1, Expected::NONE)).await;
    let a = StreamName::from("document:a");
    for (round, is_begun) in [(2, true), (4, false)] {
        // It knows the stream's id now.
        let standing = one.load("document:a").await.unwrap().head.unwrap().expected();
        commit(&one, trim_append("a", round, standing)).await;
        let known = Expected { version: standing.version + 1, ..expected(0, round) };
        assert_eq!(other.drop_streams(&[(a.clone(), known)]).await.unwrap(), 1);
        let mut next = Expected::NONE;
        if is_begun {
            commit(&other, trim_append("a", round + 1, Expected::NONE)).await;
            next = expected(1, round + 1);
            let late = one.append(&[trim_append("a", 90, known)], NOW).await.unwrap();
            assert_eq!(late, [AppendOutcome::Conflict]);
        }
        commit(&one, trim_append("a", round + 10, next)).await;
        let events = one.load("document:a").await.unwrap().events;
        assert_eq!(events.len(), if is_begun { 2 } else { 1 });
    }
}

/// What is known of a document's stream whose newest event is of this command.
fn of_known(document: &str, command: u128) -> HashMap<StreamName, Known> {
    let hash = start_hash("any");
    let head = Head { version: 1, command_id: Uuid::from_u128(command), hash };
    let known = Known { stream: 1, head };
    HashMap::from([(StreamName::from(format!("document:{document}")), known)])
}

/// Whether a batch of this append goes by what it presumes of its stream: it locks no head then.
fn presumes(append: &Append, known: &KnownStreams) -> bool {
    let opening = Opening::of_batch(std::slice::from_ref(append), known).unwrap();
    assert_ne!(opening.presumes(), opening.text().contains("FOR UPDATE"), "{}", opening.text());
    opening.presumes()
}

/// Learns of a stream by a batch that commits.
fn learn(known: &mut KnownStreams, document: &str) {
    let tell = known.begin(of_known(document, 1), RowWrites::default());
    tell.send(Ended::Committed).unwrap();
    known.settle();
}

fn standing(document: &str) -> KnownStreams {
    let mut known = KnownStreams::default();
    learn(&mut known, document);
    known
}

pub(in super::super) fn changed(append: &Append, change: impl FnOnce(&mut Part)) -> Append {
    let mut append = append.clone();
    change(&mut append.parts[0]);
    append
}

#[test]
fn a_head_is_remembered_where_what_is_written_can_confirm_it() {
    let mut known = KnownStreams::default();
    let append = trim_append("a", 2, expected(1, 1));
    assert!(!presumes(&append, &known), "it is not known yet");
    let _under_way = known.begin(of_known("a", 1), RowWrites::default());
    assert!(presumes(&append, &known), "it is written behind the batch that leaves it so");
    let known = standing("a");
    assert!(presumes(&append, &known));
    let auth = || RowKey::new(Table::PendingAuth, vec![Value::text("state")]);
    let alone = changed(&append, |part| part.events.clear());
    assert!(!presumes(&alone, &known), "a condition alone");
    assert!(!presumes(&changed(&append, |part| part.erase = true), &known));
    assert!(!presumes(&changed(&append, |part| part.trim = true), &known));
    let takes = changed(&append, |part| part.rows.push(RowChange::Take(auth())));
    assert!(!presumes(&takes, &known), "its row is read under the lock");
    let removes = changed(&append, |part| part.rows = vec![RowChange::Delete(trim_key("a"))]);
    assert!(presumes(&removes, &known));
    let stamps = Row::new(Table::EntityTrim, vec![Value::Stamp]);
    let stamped = changed(&append, |part| part.rows.push(RowChange::Put(stamps)));
    assert!(!presumes(&stamped, &known), "the row of stamps is locked behind all heads");
}

#[test]
fn a_stream_is_presumed_to_be_none_where_the_batch_begins_it() {
    let none = KnownStreams::default();
    let first = trim_append("a", 2, Expected::NONE);
    assert!(presumes(&first, &none));
    assert!(presumes(&first, &standing("a")), "it is judged on what is known of it, and refused");
    assert!(!presumes(&trim_append("a", 2, expected(1, 1)), &none), "it is looked for by its name");
    assert!(!presumes(&changed(&first, |part| part.events.clear()), &none));
}

/// Whether a batch of this append waits for the one under way, which leaves the stream of the document
/// `a` as known and changes these rows.
fn is_behind(append: &Append, rows: &[RowKey], is_doubted: bool) -> bool {
    let mut known = KnownStreams::default();
    let rows = rows.iter().map(|key| (key.clone(), None)).collect();
    let _under_way = known.begin(of_known("a", 1), RowWrites::new(rows));
    if is_doubted {
        known.doubt();
    }
    Opening::of_batch(std::slice::from_ref(append), &known).unwrap().is_behind()
}

#[test]
fn what_is_locked_or_read_and_is_still_to_be_written_is_waited_for() {
    let next = trim_append("a", 2, expected(1, 1));
    assert!(!is_behind(&next, &[trim_key("a")], false), "it writes to what it presumes");
    assert!(is_behind(&next, &[], true));
    for other in [trim_append("b", 2, expected(1, 1)), trim_append("b", 2, Expected::NONE)] {
        assert!(!is_behind(&other, &[], false) && !is_behind(&other, &[], true));
    }
    assert!(is_behind(&changed(&next, |part| part.events.clear()), &[], false));
    assert!(is_behind(&changed(&next, |part| part.erase = true), &[], false));
    // Rows, whosever they are.
    let first = first_with("b", "x", 3);
    assert!(!is_behind(&first, &[id_key("x")], false), "it confirms that it is the first");
    assert!(is_behind(&first, &[id_key("x")], true));
    assert!(!is_behind(&first, &[id_key("y")], true));
    let mut bare = trim_append("b", 4, Expected::NONE);
    bare.absent.push(id_key("x"));
    assert!(is_behind(&bare, &[id_key("x")], false));
    let takes = RowChange::Take(trim_key("b"));
    let takes = changed(&trim_append("b", 5, expected(1, 1)), |part| part.rows = vec![takes]);
    assert!(is_behind(&takes, &[trim_key("b")], false) && !is_behind(&takes, &[], false));
    let document_id = DocumentId::new("b").unwrap();
    let scope = LeaseScope::Operation { document_id, operation_id: OperationId::new("x").unwrap() };
    let fence = Fence { scope, token: FencingToken { generation: 1, version: 1 } };
    let lease = fence.scope.row_key();
    let held = fenced("b", 6, &fence, Vec::new());
    assert!(is_behind(&held, std::slice::from_ref(&lease), false) && !is_behind(&held, &[], false));
    let releases = RowChange::Delete(lease.clone());
    let releases = changed(&trim_append("b", 7, expected(1, 1)), |part| part.rows = vec![releases]);
    assert!(is_behind(&releases, &[lease], false) && !is_behind(&releases, &[], false));
}

#[test]
fn once_something_was_not_as_presumed_the_next_batches_lock() {
    let mut known = standing("a");
    let first = first_with("b", "b", 3);
    known.doubt();
    for _ in 0..DOUBTED_BATCHES {
        assert!(!presumes(&trim_append("a", 2, expected(1, 1)), &known));
        let opening = Opening::of_batch(std::slice::from_ref(&first), &known).unwrap();
        assert!(opening.text().contains("connector_operation_id"), "its row is read");
        learn(&mut known, "a");
    }
    assert!(presumes(&trim_append("a", 2, expected(1, 1)), &known));
    let opening = Opening::of_batch(&[first], &known).unwrap();
    assert!(!opening.text().contains("connector_operation_id"));
}

#[test]
fn the_key_of_an_authorization_is_in_no_text() {
    let mut append = trim_append("document", 1, Expected::NONE);
    append.absent.push(id_key("operation"));
    let key = RowKey::new(Table::PendingAuth, vec![Value::text("the state")]);
    append.parts[0].rows.push(RowChange::Take(key));
    let text = Opening::of_batch(&[append], &KnownStreams::default()).unwrap().text().to_owned();
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert!(text.contains(&hex("operation")), "it is looked for by its text");
    assert!(!text.contains(&hex("the state")) && !text.contains("the state"));
}

#[tokio::test]
async fn no_statement_of_a_connection_is_compiled() {
    let Some((_server, url)) = place() else { return };
    for is_pooled in [false, true] {
        let options = PostgresOptions::new(&url).pooler(is_pooled);
        let mut session = Connector::new(options).await.unwrap().open().await.unwrap();
        let rows = session.begin("; SHOW jit").await.unwrap();
        assert_eq!(rows[0].get::<&str, _>(0), "off", "pooled: {is_pooled}");
        session.close().await;
    }
}

/// An append with these fences and rows besides its own.
fn fenced(document: &str, command: u128, fence: &Fence, rows: Vec<RowChange>) -> Append {
    let mut append = trim_append(document, command, Expected::NONE);
    append.parts[0].rows.extend(rows);
    append.fences.push(fence.clone());
    append
}

#[tokio::test]
async fn odd_leases_and_marks_are_locked_and_found_as_they_are() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let owner = OwnerDid::new("did:web:o'\\{,}").unwrap();
    for ((name, n), hundreds) in ODD.iter().zip(1..).zip((100..).step_by(100)) {
        let connector = ConnectorName::new(*name).unwrap();
        let scopes = [
            LeaseScope::Sync { owner: owner.clone(), connector: connector.clone() },
            LeaseScope::Operation {
                document_id: DocumentId::new(*name).unwrap(),
                operation_id: OperationId::new(*name).unwrap(),
            },
        ];
        let (current, other) = (FencingToken { generation: 1, version: n }, hundreds);
        for (scope, at) in scopes.into_iter().zip(0..) {
            let holder = Holder::new(*name).unwrap();
            let lease = Lease { holder, token: current, expires_at: Timestamp::from_millis(9) };
            let mut held = trim_append(&format!("{n}-{at}"), other + 10 * at, Expected::NONE);
            held.parts[0].rows.push(RowChange::Put(lease.row(&scope)));
            commit(&store, held).await;
            let old = FencingToken { generation: 1, version: n - 1 };
            let good = Fence { scope: scope.clone(), token: current };
            let lost = Fence { scope, token: old };
            let batch = [
                fenced(&format!("{n}-{at}-good"), other + 10 * at + 1, &good, Vec::new()),
                fenced(&format!("{n}-{at}-lost"), other + 10 * at + 2, &lost, Vec::new()),
            ];
            let outcomes = store.append(&batch, NOW).await.unwrap();
            assert_eq!(outcomes, [COMMITTED, AppendOutcome::FenceLost { fence: lost }], "{name}");
        }
        let mark = forgetting_key(&owner, &connector);
        let mut values = mark.values.clone();
        values.push(Value::Int(1));
        let mut marks = trim_append(&format!("{n}-mark"), other + 50, Expected::NONE);
        marks.parts[0].rows.push(RowChange::Put(Row::new(Table::Forgetting, values)));
        commit(&store, marks).await;
        let mut late = trim_append(&format!("{n}-late"), other + 51, Expected::NONE);
        late.absent.push(mark.clone());
        let outcomes = store.append(&[late], NOW).await.unwrap();
        assert_eq!(outcomes, [AppendOutcome::RowExists(mark)], "{name}");
    }
}

#[tokio::test]
async fn the_lock_that_is_not_waited_for_long_leaves_the_limit_of_the_others() {
    let Some((_server, url)) = place() else { return };
    for is_pooled in [false, true] {
        let options = PostgresOptions::new(&url).pooler(is_pooled);
        let store = PostgresStorage::open(options.clone()).await.unwrap();
        let mut session = Connector::new(options).await.unwrap().open().await.unwrap();
        let mut shown = Vec::new();
        for sets in [false, true] {
            let mark = Row::new(MARKS, vec![Value::text("o"), Value::text("c"), Value::Int(1)]);
            let row = if sets { mark } else { Row::new(Table::EntityTrim, vec![Value::text("a")]) };
            let opening = Opening::of_told(&[RowChange::Put(row)], &[]).unwrap();
            assert_eq!(opening.text().contains("EXCLUSIVE"), sets);
            assert_eq!(opening.text().contains(&EXCLUSIVE_LIMIT_MS.to_string()), sets);
            let text = format!("{}; SHOW lock_timeout", opening.text());
            let rows = session.begin(&text).await.unwrap();
            shown.push(rows.last().unwrap().get::<String, _>(0));
            session.run("ROLLBACK".to_owned()).await.unwrap();
        }
        assert_eq!(shown, ["5s", "5s"], "pooled: {is_pooled}");
        store.close().await.unwrap();
    }
}

/// Whoever runs the server may have set what such a text, or its rows, are read by.
#[tokio::test]
async fn no_setting_of_a_database_changes_what_is_locked_and_read() {
    let Some((_server, url)) = place() else { return };
    let mut tool = outsider(&url).await;
    for set in [
        "bytea_output = escape",
        "standard_conforming_strings = off",
        "backslash_quote = on",
        "array_nulls = off",
        "datestyle = 'SQL, DMY'",
        "default_transaction_isolation = 'serializable'",
    ] {
        let name = url.rsplit_once('/').unwrap().1;
        run(&mut tool, format!("ALTER DATABASE \"{name}\" SET {set}")).await;
    }
    for is_pooled in [false, true] {
        let options = PostgresOptions::new(&url).pooler(is_pooled);
        let store = PostgresStorage::open(options).await.unwrap();
        let (document, first) = (format!("b\\{is_pooled}"), 10 * u128::from(is_pooled) + 1);
        let record = CommandRecord { digest: Digest::of(b"x"), answer: vec![0, 92, 255] };
        let mut append = trim_append(&document, first, Expected::NONE);
        append.record = Some(record.clone());
        commit(&store, append.clone()).await;
        let again = store.append(&[append], NOW).await.unwrap();
        assert_eq!(again, [AppendOutcome::CommandKnown(record)], "pooled: {is_pooled}");
        commit(&store, trim_append(&document, first + 1, expected(1, first))).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_list_that_is_written_out_is_the_list() {
    let Some((_server, url)) = place() else { return };
    let mut session =
        Connector::new(PostgresOptions::new(&url)).await.unwrap().open().await.unwrap();
    for list in [&[][..], &[""], &["", ""], &["a", "", "b"], &["NULL", "null"], &["{}", ",", "\""]]
    {
        let mut statement = Statement::written_out(
            "SELECT cardinality(texts)::bigint, array_to_string(texts, '|'), numbers FROM (SELECT ",
        );
        statement.bind_texts(list.iter().map(|text| Some(*text)).collect()).unwrap();
        statement.push(", ");
        let numbers: Vec<i64> = list.iter().zip(i64::MIN..).map(|(_, number)| number).collect();
        statement.bind_ints(numbers.iter().copied().map(Some).collect()).unwrap();
        statement.push(") AS lists (texts, numbers)");
        let row = &session.run(statement.sql).await.unwrap()[0];
        assert_eq!(usize::try_from(row.get::<i64, _>(0)).unwrap(), list.len(), "{list:?}");
        assert_eq!(row.get::<&str, _>(1), list.join("|"));
        assert_eq!(row.get::<Vec<i64>, _>(2), numbers);
    }
}

/// The longest names, as many as a batch takes.
#[tokio::test]
async fn the_largest_batch_is_written_and_found_again() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let names: Vec<String> =
        (0..4_096).map(|n| format!("{n:04}{}", "\u{1f980}".repeat(127))).collect();
    let of = |shift: u128| -> Vec<Append> {
        let append = |(name, n): (&String, u128)| {
            let mut append = first_with(name, name, n + shift);
            append.record = Some(CommandRecord { digest: Digest::of(b"x"), answer: vec![7; 100] });
            append
        };
        names.iter().zip(1..).map(append).collect()
    };
    let outcomes = store.append(&of(0), NOW).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == COMMITTED));
    let known = store.append(&of(0), NOW).await.unwrap();
    assert!(known.iter().all(|outcome| matches!(outcome, AppendOutcome::CommandKnown(_))));
    let late = store.append(&of(10_000), NOW).await.unwrap();
    assert!(late.iter().all(|outcome| *outcome == AppendOutcome::Conflict));
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_journal").await, 4_096);
}

/// What is in the way is told by the server in the middle of the text. The connection goes on, without
/// what came before.
#[tokio::test]
async fn a_lock_that_is_not_given_in_time_leaves_nothing_and_the_batch_may_pass_later() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("held", 1, Expected::NONE)).await;
    let mut tool = outsider(&url).await;
    let served = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND pid != pg_backend_pid() AND state = 'idle'";
    let idle = number(&mut tool, served).await;
    let mut holder = outsider(&url).await;
    run(&mut holder, "BEGIN; SELECT 1 FROM connector_stream FOR UPDATE").await;
    let mut append = trim_append("held", 2, expected(1, 1));
    append.parts.extend(trim_append("a new one", 2, Expected::NONE).parts);
    append.parts[1].rows.push(RowChange::Take(trim_key("of old")));
    let waited = store.append(std::slice::from_ref(&append), NOW).await;
    let is_passing = matches!(
        waited,
        Err(BatchError::Passing(Error::Storage { fault: StorageFault::Unavailable, .. }))
    );
    assert!(is_passing, "{waited:?}");
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_stream").await, 1);
    run(&mut holder, "COMMIT").await;
    drop(holder);
    commit(&store, append).await;
    assert!(number(&mut tool, served).await <= idle + 1, "no connection was left behind");
}

#[tokio::test]
async fn a_connection_that_ends_while_a_batch_waits_for_its_locks_loses_nothing() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("held", 1, Expected::NONE)).await;
    let mut holder = outsider(&url).await;
    run(&mut holder, "BEGIN; SELECT 1 FROM connector_stream FOR UPDATE").await;
    let mut append = trim_append("held", 2, expected(1, 1));
    append.parts.extend(trim_append("a new one", 2, Expected::NONE).parts);
    append.parts[1].rows.push(RowChange::Take(trim_key("of old")));
    let waiting = begin(&store, append.clone());
    until_one_waits(&url).await;
    let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    run(&mut holder, end).await;
    let ended = waiting.await.unwrap();
    assert!(matches!(ended, Err(BatchError::Passing(_))), "nothing was written: {ended:?}");
    run(&mut holder, "COMMIT").await;
    commit(&store, append.clone()).await;
    assert_eq!(store.append(&[append], NOW).await.unwrap(), [AppendOutcome::Conflict]);
}

/// Another host takes a new head away before it is locked, so many times.
async fn taken_away(tool: &mut sqlx::postgres::PgConnection, times: u32) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION take_away() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('takings') <= {times} THEN \
         DELETE FROM connector_stream WHERE name = 'document:b'; END IF; RETURN NULL; END $$; \
         DROP SEQUENCE IF EXISTS takings; CREATE SEQUENCE takings"
    );
    run(tool, sql).await;
}

#[tokio::test]
async fn a_head_that_is_taken_away_before_it_is_locked_is_created_anew() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut tool = outsider(&url).await;
    taken_away(&mut tool, 5).await;
    let on =
        "CREATE TRIGGER take_away AFTER INSERT ON connector_stream EXECUTE FUNCTION take_away()";
    run(&mut tool, on).await;
    let batch = |command| {
        ["a", "b", "c"].map(|name| {
            let at = if name == "a" { expected(1, 1) } else { Expected::NONE };
            let mut append = trim_append(name, command, at);
            // What takes a row creates the head and locks it.
            if at == Expected::NONE {
                append.parts[0].rows.push(RowChange::Take(trim_key(&format!("{name} of old"))));
            }
            append
        })
    };
    let mut told = batch(2);
    for (append, n) in told.iter_mut().zip(2..) {
        append.command_id = Uuid::from_u128(n);
    }
    assert_eq!(store.append(&told, NOW).await.unwrap(), [COMMITTED, COMMITTED, COMMITTED]);
    assert!(store.look_up(&told[1]).await.unwrap().is_some());
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_stream").await, 3);
    // Again and again: nothing is written, and it is not told as damage.
    taken_away(&mut tool, u32::MAX).await;
    let away = "DELETE FROM connector_stream WHERE name = 'document:b'";
    run(&mut tool, away).await;
    let refused = store.append(&batch(9)[1..2], NOW).await;
    assert!(matches!(refused, Err(BatchError::Passing(_))), "{refused:?}");
    assert!(store.row(&trim_key("c")).await.unwrap().is_some());
}

/// What has neither a stream nor a row.
#[tokio::test]
async fn a_batch_of_nothing_or_of_records_alone_is_judged_like_others() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    assert_eq!(store.append(&[], NOW).await.unwrap(), []);
    let bare = |command: u128, digest: &[u8]| {
        let mut append = trim_append("a", command, Expected::NONE);
        append.parts.clear();
        append.record = Some(CommandRecord { digest: Digest::of(digest), answer: Vec::new() });
        append
    };
    let mut none = bare(1, b"x");
    none.record = None;
    let first = bare(2, b"x").record.unwrap();
    let batch = [none, bare(2, b"x"), bare(2, b"y"), bare(3, b"x")];
    let outcomes = store.append(&batch, NOW).await.unwrap();
    assert_eq!(
        outcomes,
        [COMMITTED, COMMITTED, AppendOutcome::CommandKnown(first.clone()), COMMITTED]
    );
    let again = store.append(&[bare(2, b"z")], NOW).await.unwrap();
    assert_eq!(again, [AppendOutcome::CommandKnown(first)]);
}
