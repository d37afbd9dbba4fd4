//! What is PostgreSQL's own: several stores on one database, and a feed that skips nothing.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tokio::time::timeout;

use super::*;
use crate::base::{ConnectorName, StreamKey, StreamKind};
use crate::domain::{ColumnType, Table, Value, forgetting_key};
use crate::journal::{NewEvent, Part};
use crate::testing::TestPostgres;

/// The time that is given to appends, and that no append takes.
pub(super) const NOW: Timestamp = Timestamp::from_millis(1_000);

/// An empty database on a server of its own, since the transactions of a neighbour would hold the feed
/// back; none without a server.
pub(super) fn place() -> Option<(Arc<TestPostgres>, String)> {
    let server = Arc::new(TestPostgres::start(&[]).unwrap()?);
    let url = server.url(&server.create_database().unwrap());
    Some((server, url))
}

pub(super) async fn open(url: &str) -> Arc<PostgresStorage> {
    Arc::new(PostgresStorage::open(PostgresOptions::new(url)).await.unwrap())
}

/// One event on a document's stream, with the document's trim.
pub(super) fn trim_append(document: &str, command: u128, expected: Expected) -> Append {
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
    let event = NewEvent { event_type: 2, schema: 1, payload: vec![7], is_swept: false };
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

pub(super) const COMMITTED: AppendOutcome = AppendOutcome::Committed { taken: Vec::new() };

pub(super) async fn commit(store: &PostgresStorage, append: Append) {
    assert_eq!(store.append(&[append], NOW).await.unwrap(), [COMMITTED]);
}

/// A connection of another program.
pub(super) async fn outsider(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

/// Runs statements of another program.
pub(super) async fn run(tool: &mut PgConnection, sql: impl Into<String>) -> Vec<PgRow> {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).fetch_all(tool).await.unwrap()
}

pub(super) async fn number(tool: &mut PgConnection, sql: &str) -> i64 {
    run(tool, sql).await[0].get(0)
}

/// Returns once some other connection to this database waits for a lock.
pub(super) async fn until_one_waits(url: &str) {
    let mut tool = outsider(url).await;
    let sql = "SELECT count(*) FROM pg_stat_activity \
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waits = async {
        while number(&mut tool, sql).await == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), waits).await.unwrap();
}

/// How many events there are, once all writers have ended: as many as they were told.
pub(super) async fn all_that_won(url: &str, writers: Vec<tokio::task::JoinHandle<usize>>) -> i64 {
    let mut won = 0;
    for writer in writers {
        won += writer.await.unwrap();
    }
    let mut tool = outsider(url).await;
    let events = number(&mut tool, "SELECT count(*) FROM connector_journal").await;
    assert_eq!(usize::try_from(events).unwrap(), won);
    events
}

/// An append on a task of its own.
pub(super) fn begin(
    store: &Arc<PostgresStorage>,
    append: Append,
) -> tokio::task::JoinHandle<Result<Vec<AppendOutcome>, BatchError>> {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.append(&[append], NOW).await })
}

#[tokio::test]
async fn stores_on_one_database_hear_of_and_conflict_with_each_other() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    assert!(one.is_shared());
    assert_eq!(one.generation(), other.generation());
    let mut heard = other.committed();
    commit(&one, trim_append("a", 1, Expected::NONE)).await;
    let newest = one.last_position().await.unwrap();
    let hears = heard.wait_for(|position| *position == newest);
    timeout(Duration::from_secs(60), hears).await.unwrap().unwrap();
    let lost = other.append(&[trim_append("a", 2, Expected::NONE)], NOW).await.unwrap();
    assert_eq!(lost, [AppendOutcome::Conflict]);
    commit(&other, trim_append("a", 3, expected(1, 1))).await;
    let names = [StreamName::from("document:a")];
    let heads = one.confirm_heads(&names).await.unwrap();
    assert_eq!(heads.heads, [Some(expected(2, 3))]);
    let events = one.events(0, 9).await.unwrap();
    assert!(heads.now >= events[1].recorded_at && events[0].recorded_at > NOW);
    one.close().await.unwrap();
    let reopened = open(&url).await;
    assert_eq!(*reopened.committed().borrow(), events[1].position);
    commit(&reopened, trim_append("a", 4, expected(2, 3))).await;
    assert_eq!(other.load("document:a").await.unwrap().events.len(), 3);
}

#[tokio::test]
async fn the_feed_waits_for_lower_positions_of_older_and_of_younger_transactions() {
    let Some((_server, url)) = place() else { return };
    // It knows no stream, so it locks before it draws.
    let (other, store) = (open(&url).await, open(&url).await);
    commit(&other, trim_append("a", 1, Expected::NONE)).await;
    commit(&other, trim_append("b", 2, Expected::NONE)).await;
    let seen = store.events(0, 9).await.unwrap().last().unwrap().position;
    // The batch gets its id, and waits; only then the young transaction gets its own.
    let mut holder = outsider(&url).await;
    run(&mut holder, "BEGIN; SELECT FROM connector_stream WHERE name = 'document:b' FOR UPDATE")
        .await;
    let mut both = trim_append("a", 3, expected(1, 1));
    both.parts.extend(trim_append("b", 3, expected(1, 2)).parts);
    let batch = begin(&store, both);
    until_one_waits(&url).await;
    let mut young = outsider(&url).await;
    run(&mut young, "BEGIN; SELECT pg_current_xact_id()").await;
    let drawn = number(&mut young, "SELECT nextval('connector_journal_position')").await;
    run(&mut holder, "COMMIT").await;
    assert_eq!(batch.await.unwrap().unwrap(), [COMMITTED]);
    assert!(store.last_position().await.unwrap() > drawn);
    assert_eq!(store.events(seen, 9).await.unwrap(), [], "a lower position may still come");
    // What the batch wrote is older than what is written now, which is held back as well.
    commit(&store, trim_append("c", 4, Expected::NONE)).await;
    assert_eq!(store.events(seen, 9).await.unwrap(), []);
    assert_eq!(store.events(0, 9).await.unwrap().len(), 2, "what was final is given");
    let late = format!(
        "INSERT INTO connector_journal SELECT {drawn}, stream, 99, 1, 1, '', last_command_id, 0, \
         hash, pg_current_xact_id() FROM connector_stream WHERE name = 'document:a'; COMMIT"
    );
    run(&mut young, late).await;
    let events = store.events(seen, 9).await.unwrap();
    assert_eq!(events.len(), 4);
    assert_eq!(events[0].position, drawn);
    assert!(events.is_sorted_by(|one, next| one.position < next.position));
}

#[tokio::test]
async fn the_feed_is_held_up_by_a_transaction_with_an_id_alone_and_goes_on_when_it_ends() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let mut idle = outsider(&url).await;
    run(&mut idle, "BEGIN; SELECT count(*) FROM connector_journal").await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    assert_eq!(store.events(0, 9).await.unwrap().len(), 1);
    run(&mut idle, "SELECT pg_current_xact_id()").await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
    commit(&store, trim_append("a", 3, expected(2, 2))).await;
    let before = store.events(0, 9).await.unwrap();
    assert_eq!(before.len(), 1);
    run(&mut idle, "ROLLBACK").await;
    let events = store.events(before[0].position, 9).await.unwrap();
    assert_eq!(events.iter().map(|event| event.version).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn the_feed_of_a_database_that_came_from_another_server_is_not_held_up() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let sql = "UPDATE connector_journal SET horizon = '9000000000000'";
    run(&mut outsider(&url).await, sql).await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
    assert_eq!(store.events(0, 9).await.unwrap().len(), 2);
    assert_eq!(store.events(0, 1).await.unwrap().len(), 1);
}

/// An append that must be the first to have the trim.
fn first(document: &str, command: u128) -> Append {
    let mut append = trim_append(document, command, Expected::NONE);
    append.parts[0].stream = format!("document:first {command}").into();
    append.absent.push(trim_key(document));
    append
}

#[tokio::test]
async fn of_two_hosts_that_insert_one_row_at_once_the_second_learns_of_the_first() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    for (command, end) in [(1, "COMMIT"), (2, "ROLLBACK")] {
        let document = format!("d{command}");
        let mut other = outsider(&url).await;
        let sql =
            format!("INSERT INTO kubun_connector_entity_trim VALUES ('{document}','','','',0)");
        run(&mut other, format!("BEGIN; {sql}")).await;
        let neighbour = trim_append("n", command, Expected::NONE);
        let batch = [first(&document, command), neighbour];
        let writing = Arc::clone(&store);
        let writing = tokio::spawn(async move { writing.append(&batch, NOW).await });
        until_one_waits(&url).await;
        run(&mut other, end).await;
        let outcomes = writing.await.unwrap().unwrap();
        let own = match end {
            "COMMIT" => AppendOutcome::RowExists(trim_key(&document)),
            _ => COMMITTED,
        };
        let neighbour = if command == 1 { COMMITTED } else { AppendOutcome::Conflict };
        assert_eq!(outcomes, [own, neighbour], "{end}");
    }
}

#[tokio::test]
async fn of_two_hosts_with_one_command_id_the_second_gets_the_first_ones_answer() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let record = CommandRecord { digest: crate::base::Digest::of(b"x"), answer: vec![1] };
    let mut append = trim_append("a", 1, Expected::NONE);
    append.record = Some(record.clone());
    let mut other = outsider(&url).await;
    let (id, digest) = (append.command_id.simple(), record.digest.to_hex());
    let sql = format!("INSERT INTO connector_command VALUES ('\\x{id}','\\x{digest}','\\x01',0)");
    run(&mut other, format!("BEGIN; {sql}")).await;
    let writing = begin(&store, append);
    until_one_waits(&url).await;
    run(&mut other, "COMMIT").await;
    assert_eq!(writing.await.unwrap().unwrap(), [AppendOutcome::CommandKnown(record)]);
    assert_eq!(store.events(0, 9).await.unwrap(), []);
}

/// The mark of a connection that is being forgotten, and an append that sets it, or removes it.
fn forgetting(command: u128, expected: Expected, sets: bool) -> (RowKey, Append) {
    let owner = OwnerDid::new("did:web:o").unwrap();
    let connector = ConnectorName::new("c").unwrap();
    let key = forgetting_key(&owner, &connector);
    let mut append = trim_append("x", command, expected);
    let part = &mut append.parts[0];
    part.stream = StreamKey::Connector(owner, connector).stream_name();
    part.kind = StreamKind::Connector;
    let mut values = key.values.clone();
    values.push(Value::Int(7));
    let mark = Row::new(Table::Forgetting, values);
    part.rows = vec![if sets { RowChange::Put(mark) } else { RowChange::Delete(key.clone()) }];
    (key, append)
}

fn claim(document: &str, command: u128, mark: &RowKey) -> Append {
    let mut claim = trim_append(document, command, Expected::NONE);
    claim.absent.push(mark.clone());
    claim
}

#[tokio::test]
async fn a_claim_waits_for_a_forgetting_that_is_being_begun_by_another_host() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    let (mark, sets) = forgetting(1, Expected::NONE, true);
    let begun = other.begin_append(&[sets], NOW).await.unwrap();
    let writing = begin(&one, claim("a", 2, &mark));
    until_one_waits(&url).await;
    begun.commit.unwrap().await.unwrap();
    let refused = [AppendOutcome::RowExists(mark.clone())];
    assert_eq!(writing.await.unwrap().unwrap(), refused);
    let (_, removes) = forgetting(3, expected(1, 1), false);
    commit(&other, removes).await;
    commit(&one, claim("a", 4, &mark)).await;
}

#[tokio::test]
async fn a_forgetting_waits_for_the_claims_under_way_and_no_claim_for_another() {
    let Some((_server, url)) = place() else { return };
    let (one, other) = (open(&url).await, open(&url).await);
    let (mark, sets) = forgetting(1, Expected::NONE, true);
    let claimed = one.begin_append(&[claim("a", 2, &mark)], NOW).await.unwrap();
    commit(&other, claim("b", 3, &mark)).await;
    // It does not wait for long, since claims wait behind it meanwhile: it is to be tried again.
    let refused = other.append(std::slice::from_ref(&sets), NOW).await;
    assert!(matches!(refused, Err(BatchError::Passing(_))), "{refused:?}");
    commit(&other, claim("d", 5, &mark)).await;
    claimed.commit.unwrap().await.unwrap();
    commit(&other, sets).await;
    let late = one.append(&[claim("c", 4, &mark)], NOW).await.unwrap();
    assert_eq!(late, [AppendOutcome::RowExists(mark.clone())]);
    // Also beside one that would set it, and comes too late.
    let (_, sets) = forgetting(6, Expected::NONE, true);
    for batch in [[sets.clone(), claim("c", 7, &mark)], [claim("c", 7, &mark), sets]] {
        let outcomes = one.append(&batch, NOW).await.unwrap();
        assert!(outcomes.contains(&AppendOutcome::Conflict), "{outcomes:?}");
        assert!(outcomes.contains(&AppendOutcome::RowExists(mark.clone())), "{outcomes:?}");
    }
    // What removes the mark waits for no claim.
    let mut beside = claim("e", 8, &mark);
    beside.absent[0].values[1] = Value::text("another");
    let claimed = one.begin_append(&[beside], NOW).await.unwrap();
    commit(&other, forgetting(9, expected(1, 1), false).1).await;
    claimed.commit.unwrap().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_was_only_locked_leaves_no_head() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let mut append = trim_append("a", 1, Expected::NONE);
    let mut condition = trim_append("b", 1, Expected::NONE).parts.remove(0);
    (condition.events, condition.rows) = (Vec::new(), Vec::new());
    append.parts.push(condition);
    commit(&store, append).await;
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM connector_stream").await, 1);
}

#[tokio::test]
async fn batches_of_two_hosts_over_the_same_keys_never_wait_for_each_other_in_a_circle() {
    const ROUNDS: u128 = 60;
    let Some((_server, url)) = place() else { return };
    let stores = [open(&url).await, open(&url).await];
    let writers = stores.into_iter().zip(0_u128..).map(|(store, host)| {
        tokio::spawn(async move {
            let mut won = 0;
            for round in 0..ROUNDS {
                let mut names: Vec<StreamName> =
                    (0..8).map(|at| format!("document:{at} {round}").into()).collect();
                if host == 1 {
                    names.reverse();
                }
                let command = 1 + round * 2 + host;
                let batch: Vec<Append> = names
                    .into_iter()
                    .map(|name| {
                        let mut append = trim_append("x", command, Expected::NONE);
                        append.parts[0].rows.clear();
                        append.parts[0].stream = name;
                        append
                    })
                    .collect();
                let outcomes = store.append(&batch, NOW).await.unwrap();
                won += outcomes.iter().filter(|outcome| **outcome == COMMITTED).count();
            }
            won
        })
    });
    let events = all_that_won(&url, writers.collect()).await;
    assert_eq!(events, i64::try_from(ROUNDS).unwrap() * 8, "each stream has one first event");
}

#[tokio::test]
async fn a_pooler_is_found_and_nothing_outlives_a_transaction() {
    let Some((server, url)) = place() else { return };
    let Some(pooler) = crate::testing::TestPgBouncer::start(&server, 2).unwrap() else { return };
    let direct = Connector::new(PostgresOptions::new(&url)).await.unwrap();
    assert!(!direct.is_pooled());
    let database = url.rsplit('/').next().unwrap();
    let through = pooler.url(database);
    assert!(Connector::new(PostgresOptions::new(&through)).await.unwrap().is_pooled());
    let (one, other) = (open(&through).await, open(&through).await);
    let mut heads = [Expected::NONE; 2];
    for command in 1..40_u128 {
        let at = usize::try_from(command % 2).unwrap();
        let store = if command % 3 == 0 { &one } else { &other };
        commit(store, trim_append(&at.to_string(), command, heads[at])).await;
        heads[at] = expected(heads[at].version + 1, command);
        assert_eq!(one.rows(&by_trim()).await.unwrap(), other.rows(&by_trim()).await.unwrap());
    }
    assert_eq!(one.events(0, 99).await.unwrap().len(), 39);
    let mut tool = outsider(&url).await;
    assert_eq!(number(&mut tool, "SELECT count(*) FROM pg_prepared_statements").await, 0);
}

fn by_trim() -> RowQuery {
    let order = Table::EntityTrim.spec().key.to_vec();
    RowQuery { table: Table::EntityTrim, filters: Vec::new(), order, after: None, limit: 9 }
}

#[tokio::test]
async fn the_tables_have_the_columns_that_are_written_and_text_is_compared_by_bytes() {
    let Some((_server, url)) = place() else { return };
    open(&url).await.close().await.unwrap();
    let mut tool = outsider(&url).await;
    for table in Table::ALL {
        let spec = table.spec();
        let sql = format!(
            "SELECT column_name::text, data_type::text, coalesce(collation_name::text, ''), \
             is_nullable::text FROM information_schema.columns \
             WHERE table_name = '{}' ORDER BY ordinal_position",
            spec.name
        );
        let rows = run(&mut tool, sql).await;
        assert_eq!(rows.len(), spec.columns.len(), "{table:?}");
        for (row, (at, column)) in rows.iter().zip(spec.columns.iter().enumerate()) {
            let kind = match column.kind {
                ColumnType::Text => ("text", "C"),
                ColumnType::Int => ("bigint", ""),
                ColumnType::Blob => ("bytea", ""),
            };
            let found: (&str, &str) = (row.get(1), row.get(2));
            assert_eq!((row.get::<&str, _>(0), found), (column.name, kind), "{table:?}");
            let is_nullable = row.get::<&str, _>(3) == "YES";
            let is_known = super::statement::NULLABLE.contains(&column.name);
            assert!(!is_nullable || (is_known && !spec.key.contains(&at)), "{table:?} {column:?}");
        }
    }
}

#[tokio::test]
async fn a_bad_url_is_refused_and_no_password_is_shown() {
    let refused = PostgresStorage::open(PostgresOptions::new("postgres://u:secret@:x/")).await;
    assert!(matches!(refused, Err(Error::InvalidInput { field: "url", .. })), "{refused:?}");
    let options = PostgresOptions::new("postgres://u:secret@h/d");
    assert!(!format!("{options:?}").contains("secret"));
    let nobody = PostgresOptions::new("postgres://u:secret@127.0.0.1:1/d");
    let failed = PostgresStorage::open(nobody).await;
    assert!(!format!("{failed:?}").contains("secret"));
    assert!(failed.is_err_and(|error| error.is_retryable()));
}

#[tokio::test]
async fn an_open_storage_shows_no_password() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url.replacen('@', ":secret@", 1)).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let shown = format!("{store:?} {store:#?}");
    assert!(!shown.contains("secret") && shown.contains("PostgresStorage"), "{shown}");
}

#[tokio::test]
async fn a_schema_may_have_any_name() {
    let Some((_server, url)) = place() else { return };
    let mut tool = outsider(&url).await;
    run(&mut tool, "CREATE SCHEMA \"Sync \"\"Host\"").await;
    let database = url.rsplit_once('/').unwrap().1;
    let path = format!("ALTER DATABASE {database} SET search_path = \"Sync \"\"Host\"");
    run(&mut tool, path).await;
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    assert_eq!(open(&url).await.events(0, 9).await.unwrap().len(), 1);
}

/// Another host has written in the place of what was lost, before this one came back.
#[tokio::test]
async fn a_lost_event_is_missed_also_where_another_one_is_in_its_place() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut tool = outsider(&url).await;
    let other = "UPDATE connector_journal SET position = nextval('connector_journal_position')";
    run(&mut tool, other).await;
    let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid != pg_backend_pid()";
    run(&mut tool, end).await;
    let refused = store.load("document:a").await;
    let is_refused = matches!(refused, Err(Error::Storage { fault: StorageFault::Damaged, .. }));
    assert!(is_refused, "{refused:?}");
}
