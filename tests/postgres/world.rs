//! A database, its hosts, and what is seen of it from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use connector_store::journal::{BoxFuture, PostgresOptions, PostgresStorage};
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, TestPostgres};
use connector_store::{Clock, Result, Store, StoreBuilder, Timestamp};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::common::{bounded, settle};
use crate::proxy::Proxy;

/// Timers and connections of the hosts, which may live for a moment longer than their test.
static HOSTS: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

/// Real time, on a wall clock that is wrong.
pub struct HostClock {
    wall: Timestamp,
    origin: Instant,
}

impl HostClock {
    /// The clock of the host with this number, which is long past, and ten minutes from the next.
    pub fn new(number: u64) -> Self {
        let wall = Timestamp::from_millis(1_750_000_000_000);
        let wall = wall.plus(Duration::from_secs(600) * u32::try_from(number).unwrap());
        Self { wall, origin: Instant::now() }
    }
}

impl Clock for HostClock {
    fn wall(&self) -> Timestamp {
        self.wall
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let _timers = HOSTS.enter();
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A store on the database. Its storage fails only where a test says so.
pub struct Host {
    pub store: Store,
    pub faults: Arc<FaultyStorage>,
}

pub struct World {
    pub server: Arc<TestPostgres>,
    pub database: String,
    hosts: AtomicU64,
}

impl World {
    /// An empty database on a server of its own, since the transactions of a neighbour would hold
    /// the feed back; none where no server is installed.
    pub fn new() -> Option<Self> {
        Self::with(&[])
    }

    /// The same, with these settings.
    pub fn with(settings: &[(&str, &str)]) -> Option<Self> {
        let server = Arc::new(TestPostgres::start(settings).unwrap()?);
        let database = server.create_database().unwrap();
        Some(Self { server, database, hosts: AtomicU64::new(1) })
    }

    pub fn url(&self) -> String {
        self.server.url(&self.database)
    }

    pub async fn host(&self) -> Host {
        self.host_at(&self.url()).await
    }

    pub async fn hosts(&self) -> [Host; 2] {
        [self.host().await, self.host().await]
    }

    /// A host that reaches the server by this URL.
    pub async fn host_at(&self, url: &str) -> Host {
        self.open(PostgresOptions::new(url), |builder| builder).await.unwrap()
    }

    /// A host behind a proxy, whose calls may take so long.
    pub async fn proxied(&self, timeout: Duration) -> (Proxy, Host) {
        let proxy = Proxy::start(self.server.port()).await;
        let options = PostgresOptions::new(proxy.url(&self.database)).command_timeout(timeout);
        let host = self.open(options, |builder| builder.command_timeout(timeout)).await.unwrap();
        (proxy, host)
    }

    pub async fn open(
        &self,
        options: PostgresOptions,
        change: impl FnOnce(StoreBuilder) -> StoreBuilder,
    ) -> Result<Host> {
        let faults = Arc::new(FaultyStorage::new(open_storage(options).await?));
        let builder = self.builder().storage(Arc::clone(&faults) as _);
        Ok(Host { store: change(builder).open().await?, faults })
    }

    /// What the next host is built with.
    pub fn builder(&self) -> StoreBuilder {
        let number = self.hosts.fetch_add(1, Ordering::Relaxed);
        Store::builder()
            .clock(Arc::new(HostClock::new(number)))
            .ids(Arc::new(SeededIds::new(number)))
            .jitter(Arc::new(SeededJitter::new(number)))
            .arbiters(2)
    }

    /// A connection that no host knows of.
    pub async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    /// The one number that a query gives.
    pub fn number(&self, query: &str) -> i64 {
        self.server.sql(&self.database, query).unwrap().parse().unwrap()
    }

    /// How many events are in the journal.
    pub fn events(&self) -> i64 {
        self.number("SELECT count(*) FROM connector_journal")
    }

    /// Waits until so many events are in the journal.
    pub async fn until_events(&self, count: i64) {
        bounded(async {
            while self.events() < count {
                settle().await;
            }
        })
        .await;
    }

    /// Waits until so many sessions of the database wait for a lock.
    pub async fn until_locked_out(&self, sessions: i64) {
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        bounded(async {
            while self.number(waiting) < sessions {
                settle().await;
            }
        })
        .await;
    }

    /// The errors that the server told its clients, all of them or those with this text.
    pub fn errors(&self, text: &str) -> Vec<String> {
        let mut lines = self.server.log(&self.database).unwrap();
        lines.retain(|line| line.starts_with("ERROR:") && line.contains(text));
        lines
    }

    /// All that is in the database's tables, as text.
    pub fn dump(&self) -> String {
        let dump = "SELECT table_to_xml(oid, true, false, '') FROM pg_class \
                    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname";
        self.server.sql(&self.database, &format!("SET xmlbinary TO hex; {dump}")).unwrap()
    }
}

/// A storage, whose connections live as long as it.
pub async fn open_storage(options: PostgresOptions) -> Result<Arc<PostgresStorage>> {
    HOSTS.spawn(PostgresStorage::open(options)).await.unwrap().map(Arc::new)
}

/// Runs statements on a connection, where they stay in its transaction.
pub async fn run(session: &mut PgConnection, statements: &str) {
    session.execute(sqlx::raw_sql(AssertSqlSafe(statements.to_owned()))).await.unwrap();
}
