//! Connections that break, servers that do not answer, that take no writes, or that are older copies:
//! what a commit came to is never told wrongly, no call hangs, and work goes on afterwards.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::tests::{
    COMMITTED, NOW, begin, commit, expected, number, open, outsider, place, run, trim_append,
    trim_key, until_one_waits,
};
use super::*;

const PASSES: u8 = 0;
/// A commit reaches the server, its answer does not come back.
const LOSES_ANSWERS: u8 = 1;
/// A commit does not reach the server.
const LOSES_COMMITS: u8 = 2;
/// Nothing reaches the server, and no end of a connection is told.
const SWALLOWS: u8 = 3;

/// A network between a store and its server.
struct Network {
    state: Arc<AtomicU8>,
    url: String,
}

impl Network {
    async fn before(url: &str) -> Self {
        let (server, database) = url.rsplit_once('/').unwrap();
        let server = server.rsplit_once('@').unwrap().1.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(AtomicU8::new(PASSES));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(join(client, server, Arc::clone(&shared)));
            }
        });
        Self { state, url: format!("postgres://postgres@127.0.0.1:{port}/{database}") }
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }
}

/// Carries bytes between the two until one of them, or the state, ends it.
async fn join(mut client: TcpStream, mut server: TcpStream, state: Arc<AtomicU8>) {
    let (mut asked, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_doomed = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let asked = &asked[..length];
                let is_commit = asked.windows(7).any(|bytes| bytes == b"COMMIT\0");
                match state.load(Ordering::SeqCst) {
                    LOSES_COMMITS if is_commit => return,
                    SWALLOWS => continue,
                    LOSES_ANSWERS => is_doomed |= is_commit,
                    _ => {}
                }
                if server.write_all(asked).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut said) => {
                let Ok(length @ 1..) = read else { return };
                if is_doomed || client.write_all(&said[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// An append that takes the row of a trim.
fn taking(document: &str, command: u128, at: Expected) -> Append {
    let mut append = trim_append(document, command, at);
    append.parts[0].rows = vec![RowChange::Take(trim_key(document))];
    append
}

/// The batch as the repository writes it: tried again when it fails for a passing reason.
async fn write(store: &PostgresStorage, append: Append) -> Result<Vec<AppendOutcome>, BatchError> {
    let batch = [append];
    for _ in 0..9 {
        match store.append(&batch, NOW).await {
            Err(BatchError::Passing(_)) => {}
            result => return result,
        }
    }
    store.append(&batch, NOW).await
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_looked_up_with_all_that_it_took() {
    let Some((_server, url)) = place() else { return };
    let network = Network::before(&url).await;
    let store = open(&network.url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let row = store.row(&trim_key("a")).await.unwrap().unwrap();
    network.set(LOSES_ANSWERS);
    let append = taking("a", 2, expected(1, 1));
    let unknown = store.append(std::slice::from_ref(&append), NOW).await;
    assert!(matches!(unknown, Err(BatchError::Unknown(_))), "{unknown:?}");
    network.set(PASSES);
    let found = store.look_up(&append).await.unwrap();
    assert_eq!(found, Some(AppendOutcome::Committed { taken: vec![row] }));
    assert_eq!(store.events(0, 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_that_never_came_is_not_there_and_cannot_come() {
    let Some((_server, url)) = place() else { return };
    let network = Network::before(&url).await;
    let store = open(&network.url).await;
    let mut recorded = trim_append("a", 1, Expected::NONE);
    recorded.record =
        Some(CommandRecord { digest: crate::base::Digest::of(b"x"), answer: vec![1] });
    let mut alone = recorded.clone();
    (alone.parts, alone.command_id) = (Vec::new(), Uuid::from_u128(2));
    for append in [recorded, alone] {
        network.set(LOSES_COMMITS);
        let unknown = store.append(std::slice::from_ref(&append), NOW).await;
        assert!(matches!(unknown, Err(BatchError::Unknown(_))), "{unknown:?}");
        network.set(PASSES);
        assert_eq!(store.look_up(&append).await.unwrap(), None);
        commit(&store, append.clone()).await;
        assert_eq!(store.look_up(&append).await.unwrap(), Some(COMMITTED));
    }
}

#[tokio::test]
async fn a_look_up_waits_for_a_commit_that_is_under_way() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut other = outsider(&url).await;
    let id = Uuid::from_u128(2).simple();
    let sql = format!(
        "BEGIN; UPDATE connector_stream SET version = 2, last_command_id = '\\x{id}' \
         WHERE name = 'document:a'; INSERT INTO connector_journal \
         SELECT 90, stream, 2, 2, 1, '\\x07', '\\x{id}', 0, '', '3' FROM connector_stream"
    );
    run(&mut other, sql).await;
    let looking = Arc::clone(&store);
    let append = trim_append("a", 2, expected(1, 1));
    let looking = tokio::spawn(async move { looking.look_up(&append).await });
    until_one_waits(&url).await;
    run(&mut other, "COMMIT").await;
    assert_eq!(looking.await.unwrap().unwrap(), Some(COMMITTED));
}

#[tokio::test]
async fn a_look_up_waits_for_the_first_commit_of_a_stream_that_is_under_way() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    let mut other = outsider(&url).await;
    let id = Uuid::from_u128(1).simple();
    let sql = format!(
        "BEGIN; INSERT INTO connector_stream \
         VALUES (90, 'document:a', 1, 1, '\\x{id}', sha256('')); \
         INSERT INTO connector_journal VALUES (90, 90, 1, 2, 1, '\\x07', '\\x{id}', 0, '', '3')"
    );
    run(&mut other, sql).await;
    let looking = Arc::clone(&store);
    let append = trim_append("a", 1, Expected::NONE);
    let looking = tokio::spawn(async move { looking.look_up(&append).await });
    tokio::select! {
        () = until_one_waits(&url) => {}
        () = async { while !looking.is_finished() { tokio::task::yield_now().await } } => {}
    }
    run(&mut other, "COMMIT").await;
    assert_eq!(looking.await.unwrap().unwrap(), Some(COMMITTED));
}

#[tokio::test]
async fn a_look_up_takes_no_other_hosts_event_of_the_same_command_for_its_own() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut append = trim_append("a", 1, Expected::NONE);
    append.parts[0].events[0].payload = vec![8];
    assert_eq!(store.look_up(&append).await.unwrap(), None);
}

#[tokio::test]
async fn a_connection_that_is_lost_before_the_commit_has_written_nothing() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut other = outsider(&url).await;
    run(&mut other, "BEGIN; SELECT FROM connector_stream FOR UPDATE").await;
    let writing = begin(&store, trim_append("a", 2, expected(1, 1)));
    until_one_waits(&url).await;
    terminate_all(&mut other).await;
    let failed = writing.await.unwrap();
    assert!(matches!(failed, Err(BatchError::Passing(_))), "{failed:?}");
    run(&mut other, "COMMIT").await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
    assert_eq!(store.events(0, 9).await.unwrap().len(), 2);
    terminate_all(&mut other).await;
    assert_eq!(write(&store, trim_append("a", 3, expected(2, 2))).await.unwrap(), [COMMITTED]);
    assert_eq!(store.stream_events("document:a").await.unwrap().len(), 3, "readers come back too");
}

/// Ends every other connection to this database.
async fn terminate_all(tool: &mut PgConnection) {
    let sql = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid != pg_backend_pid()";
    run(tool, sql).await;
}

#[tokio::test]
async fn no_call_hangs_on_a_network_that_swallows_everything() {
    let Some((_server, url)) = place() else { return };
    let network = Network::before(&url).await;
    let limit = Duration::from_millis(700);
    let options =
        PostgresOptions::new(&network.url).command_timeout(limit).connect_timeout(limit).readers(1);
    let store = Arc::new(PostgresStorage::open(options).await.unwrap());
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    network.set(SWALLOWS);
    let patience = Duration::from_secs(60);
    let read = timeout(patience, store.load("document:a")).await.unwrap();
    assert!(read.is_err_and(|error| error.is_retryable()));
    let batch = [trim_append("a", 2, expected(1, 1))];
    for _ in 0..2 {
        let failed = timeout(patience, store.append(&batch, NOW)).await.unwrap();
        let Err(BatchError::Failed(error) | BatchError::Passing(error)) = failed else {
            panic!("nothing was committed: {failed:?}")
        };
        assert!(error.is_retryable());
    }
    network.set(PASSES);
    assert_eq!(write(&store, trim_append("a", 2, expected(1, 1))).await.unwrap(), [COMMITTED]);
    assert_eq!(store.load("document:a").await.unwrap().events.len(), 2);
}

#[tokio::test]
async fn a_lock_that_is_not_given_back_ends_the_batch_alone() {
    let Some((_server, url)) = place() else { return };
    let options = PostgresOptions::new(&url).command_timeout(Duration::from_millis(800));
    let store = Arc::new(PostgresStorage::open(options).await.unwrap());
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut other = outsider(&url).await;
    run(&mut other, "BEGIN; SELECT FROM connector_stream FOR UPDATE").await;
    let failed = store.append(&[trim_append("a", 2, expected(1, 1))], NOW).await;
    let Err(BatchError::Passing(error) | BatchError::Failed(error)) = failed else {
        panic!("{failed:?}")
    };
    assert!(error.is_retryable());
    commit(&store, trim_append("b", 3, Expected::NONE)).await;
    run(&mut other, "COMMIT").await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
}

#[tokio::test]
async fn a_connection_that_takes_no_writes_is_given_up() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let mut other = outsider(&url).await;
    let database = url.rsplit('/').next().unwrap();
    let alter = |action: &str| format!("ALTER DATABASE {database} {action}");
    run(&mut other, alter("SET default_transaction_read_only = on")).await;
    terminate_all(&mut other).await;
    let failed = write(&store, trim_append("a", 2, expected(1, 1))).await;
    let Err(BatchError::Failed(error)) = failed else { panic!("{failed:?}") };
    assert!(matches!(error, Error::Storage { fault: StorageFault::ReadOnly, .. }), "{error:?}");
    assert!(error.is_retryable());
    run(&mut other, alter("RESET default_transaction_read_only")).await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
}

#[tokio::test]
async fn a_database_that_lost_what_was_acknowledged_is_neither_written_to_nor_read() {
    let Some((_server, url)) = place() else { return };
    let store = open(&url).await;
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    commit(&store, trim_append("a", 2, expected(1, 1))).await;
    let mut other = outsider(&url).await;
    let id = Uuid::from_u128(1).simple();
    let sql = format!(
        "DELETE FROM connector_journal WHERE stream_version = 2; \
         UPDATE connector_stream SET version = 1, last_command_id = '\\x{id}'"
    );
    run(&mut other, sql).await;
    terminate_all(&mut other).await;
    for _ in 0..2 {
        let refused = write(&store, trim_append("a", 3, expected(1, 1))).await;
        let Err(BatchError::Failed(error)) = refused else { panic!("{refused:?}") };
        assert!(matches!(error, Error::Storage { fault: StorageFault::Damaged, .. }), "{error:?}");
        assert!(error.to_string().contains("an older copy"), "{error}");
        assert!(store.stream_events("document:a").await.is_err());
    }
    let events = "SELECT count(*) FROM connector_journal";
    assert_eq!(number(&mut other, events).await, 1);
}

#[tokio::test]
async fn what_another_host_dropped_since_is_not_missed() {
    let Some((_server, url)) = place() else { return };
    let (store, host) = (open(&url).await, open(&url).await);
    commit(&store, trim_append("a", 1, Expected::NONE)).await;
    let dropped = [(StreamName::from("document:a"), expected(1, 1))];
    assert_eq!(host.drop_streams(&dropped).await.unwrap(), 1);
    terminate_all(&mut outsider(&url).await).await;
    assert_eq!(write(&store, trim_append("a", 2, Expected::NONE)).await.unwrap(), [COMMITTED]);
}

#[tokio::test]
async fn a_server_with_few_connections_is_waited_for() {
    let Some((server, url)) = place() else { return };
    let database = url.rsplit('/').next().unwrap();
    let role = format!("few_{database}");
    let sql = format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 3; GRANT ALL ON SCHEMA public TO {role}"
    );
    server.sql(database, &sql).unwrap();
    let options = PostgresOptions::new(url.replace("postgres@", &format!("{role}@"))).readers(16);
    let store = Arc::new(PostgresStorage::open(options).await.unwrap());
    let work = (1..=200_u128).map(|command| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let document = format!("d{command}");
            commit(&store, trim_append(&document, command, Expected::NONE)).await;
            store.load(&format!("document:{document}")).await.map(|loaded| loaded.events.len())
        })
    });
    for one in work.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().unwrap(), 1);
    }
}
