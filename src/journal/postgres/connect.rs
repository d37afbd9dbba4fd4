//! Connections to the server: how they are made, what each transaction begins with, and whether a
//! pooler stands between.
//!
//! Behind a pooler that gives each transaction another connection, nothing outlives a transaction:
//! no prepared statement, no setting, no `LISTEN`. There every read is a transaction too.

use std::fmt;
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tokio::time::{interval, timeout};

use super::fault::{Cause, storage_error, timed_out};
use super::options::PostgresOptions;
use super::read::get;
use super::statement::Statement;
use crate::base::{Error, Result, StorageFault, StreamName};

/// The oldest server whose snapshots have 64-bit transaction ids, and that is still maintained.
const OLDEST_SERVER: u32 = 140_000;
/// What the URL of a PostgreSQL server begins with.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Prepared statements that a connection keeps.
const CACHED_STATEMENTS: usize = 256;
/// How long a statement waits for a lock: longer than any batch takes. Beyond it, the batch begins
/// anew with what is then there.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two tries to connect to a server that has no room.
const CROWDED_PAUSE: Duration = Duration::from_millis(50);
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// What is asked of each connection, and no more where a pooler may stand between.
const QUESTION: &str = "SELECT pg_is_in_recovery()";
/// How often two connections are asked who serves them, to find a pooler.
const PROBES: usize = 4;

/// How the connections of one store are made.
pub(super) struct Connector {
    connect: PgConnectOptions,
    options: PostgresOptions,
    is_pooled: bool,
    /// What a transaction begins with, with its settings where others get the connection behind it.
    begin: String,
    /// What a connection begins with, with the settings where no one else gets it. Every statement has
    /// an index; one that was planned while its table was small must not be the one that reads it
    /// whole when it has grown. No statement is worth being compiled. The rows of statements without
    /// values are texts, which must not depend on what a database or a user is set to.
    greeting: String,
    seen: Mutex<Option<Seen>>,
}

/// The newest event that this store knows to be durable.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) position: i64,
    pub(super) stream: StreamName,
    pub(super) version: i64,
}

/// What the library knows of the URL holds its password.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("options", &self.options)
            .field("is_pooled", &self.is_pooled)
            .finish_non_exhaustive()
    }
}

impl Connector {
    /// Checks the options, and that the server answers and can keep a store.
    pub(super) async fn new(options: PostgresOptions) -> Result<Self> {
        let invalid = || Error::invalid("url", "expected postgres://user@host:port/database");
        // The library takes the URL of any server.
        if !SCHEMES.iter().any(|scheme| options.url.starts_with(scheme)) {
            return Err(invalid());
        }
        let connect: PgConnectOptions = options.url.parse().map_err(|_| invalid())?;
        check_mode(connect.get_ssl_mode(), cfg!(feature = "tls"))?;
        // A pooler refuses what it can't keep track of.
        let connect = connect
            .extra_float_digits(None)
            .statement_cache_capacity(CACHED_STATEMENTS)
            .disable_statement_logging();
        let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
        let (limit, lock) = (options.command_timeout, LOCK_TIMEOUT.min(options.command_timeout));
        let (limit, lock) = (millis(limit), millis(lock));
        let set = |scope: &str| {
            format!(
                "; SET {scope} statement_timeout = {limit}; SET {scope} lock_timeout = {lock}; \
                 SET {scope} idle_in_transaction_session_timeout = {limit}; \
                 SET {scope} enable_seqscan = off; SET {scope} jit = off; \
                 SET {scope} bytea_output = hex"
            )
        };
        let greeting = format!("{QUESTION}{}", set("SESSION"));
        let is_pooled = options.pooler.unwrap_or_default();
        let mut connector = Self {
            connect,
            options,
            is_pooled,
            begin: format!("{BEGIN}{}", set("LOCAL")),
            greeting: QUESTION.to_owned(),
            seen: Mutex::default(),
        };
        let mode = connector.connect.get_ssl_mode();
        let mut first = connector.open().await.map_err(|error| untrusted(error, mode))?;
        check_server(&mut first).await?;
        if connector.options.pooler.is_none() {
            connector.is_pooled = connector.finds_pooler(&mut first).await?;
        }
        if !connector.is_pooled {
            connector.greeting = greeting;
            connector.begin = BEGIN.to_owned();
        }
        first.close().await;
        Ok(connector)
    }

    pub(super) const fn options(&self) -> &PostgresOptions {
        &self.options
    }

    pub(super) const fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    pub(super) const fn connect_options(&self) -> &PgConnectOptions {
        &self.connect
    }

    fn seen(&self) -> MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every connection must know of from now on.
    pub(super) fn has_written(&self, newest: Seen) {
        *self.seen() = Some(newest);
    }

    /// The newest position that this store has written.
    pub(super) fn last_written(&self) -> i64 {
        self.seen().as_ref().map_or(0, |seen| seen.position)
    }

    /// A connection to a server that takes writes, and has all that this store has written: a
    /// standby may lag behind what was acknowledged, and one that took over may have lost some.
    pub(super) async fn open(&self) -> Result<Session> {
        self.open_or(|| None).await.map(|(session, _)| session)
    }

    /// The same, or one that `take` gives before the server has room for a new one; and whether it
    /// is new.
    pub(super) async fn open_or(
        &self,
        take: impl Fn() -> Option<Session>,
    ) -> Result<(Session, bool)> {
        let context = "connecting to the database";
        let mut turns = interval(CROWDED_PAUSE);
        let mut last = timed_out(context);
        let opened = timeout(self.options.connect_timeout, async {
            loop {
                turns.tick().await;
                if let Some(session) = take() {
                    return Ok((session, false));
                }
                match self.connect.connect().await {
                    Ok(connection) => return self.session(connection).await.map(|new| (new, true)),
                    Err(error) => {
                        let is_crowded = Cause::of(&error) == Cause::Crowded;
                        last = storage_error(error, context);
                        if !is_crowded {
                            return Err(last.clone());
                        }
                    }
                }
            }
        })
        .await;
        opened.unwrap_or(Err(last))
    }

    async fn session(&self, connection: PgConnection) -> Result<Session> {
        let (is_pooled, begin) = (self.is_pooled, self.begin.clone());
        let mut session = Session { connection, is_pooled, begin };
        let rows = session.run(self.greeting.clone()).await;
        let rows = rows.map_err(|error| storage_error(error, "asking what the server is"))?;
        if rows.first().map(|row| get(row, 0)).transpose()?.unwrap_or(true) {
            return Err(Error::storage(StorageFault::ReadOnly, "the server is a standby"));
        }
        if self.lacks_seen(&mut session).await? {
            let lost = "the database has lost events that were acknowledged: it is an older copy";
            return Err(Error::damaged(lost));
        }
        Ok(session)
    }

    /// A server that took the place of another may lack its last commits. Then positions are given
    /// again, or the newest stream is not as far as it was, or another host has written in the place of
    /// what was lost, and no retention has taken it away.
    async fn lacks_seen(&self, session: &mut Session) -> Result<bool> {
        let Some(seen) = self.seen().clone() else { return Ok(false) };
        let failed = |error| storage_error(error, "looking for what was written");
        let mut statement = Statement::new(
            "SELECT (SELECT last_value FROM connector_journal_position) < $1 OR NOT ( \
             EXISTS (SELECT 1 FROM connector_stream AS s WHERE s.name = $2 AND s.version >= $3 \
             AND NOT EXISTS (SELECT 1 FROM connector_journal AS j WHERE j.stream = s.stream \
             AND j.stream_version = $3 AND j.position != $1)) OR EXISTS \
             (SELECT 1 FROM connector_meta WHERE key = 'trimmed_up_to' AND value >= $1))",
        );
        let added = statement
            .add(seen.position)
            .and_then(|()| statement.add(&*seen.stream))
            .and_then(|()| statement.add(seen.version));
        added.map_err(failed)?;
        let rows = session.read(statement).await.map_err(failed)?;
        rows.first().map_or(Ok(true), |row| get(row, 0))
    }

    /// Two connections to one server are served by two of its processes; those to a pooler in turn
    /// by one, or each by now one and now another.
    async fn finds_pooler(&self, first: &mut Session) -> Result<bool> {
        let mut second = match self.open().await {
            Ok(second) => second,
            // A server without room for a second connection has no pooler before it.
            Err(Error::Storage { fault: StorageFault::Unavailable, .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for _ in 0..PROBES {
            found.push((first.process().await?, second.process().await?));
        }
        second.close().await;
        let (one, other) = found.first().copied().unwrap_or_default();
        Ok(one == other || found.iter().any(|pair| *pair != (one, other)))
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: PgConnection,
    is_pooled: bool,
    begin: String,
}

impl Session {
    /// Runs a statement with values.
    pub(super) async fn all(&mut self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        let Statement { sql, arguments, .. } = statement;
        let query = sqlx::query_with(AssertSqlSafe(sql), arguments).persistent(!self.is_pooled);
        query.fetch_all(&mut self.connection).await
    }

    /// Runs statements without values, in one round trip; their rows are texts.
    pub(super) async fn run(&mut self, sql: String) -> sqlx::Result<Vec<PgRow>> {
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut self.connection).await
    }

    /// The connection itself, for what is no statement with rows.
    pub(super) const fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Begins a transaction whose statements end by themselves, should this program not, with `more` in
    /// the same round trip. Gives the rows of that.
    pub(super) async fn begin(&mut self, more: &str) -> sqlx::Result<Vec<PgRow>> {
        self.run(format!("{}{more}", self.begin)).await
    }

    pub(super) async fn commit(&mut self) -> sqlx::Result<()> {
        self.run("COMMIT".to_owned()).await.map(drop)
    }

    /// Leaves a transaction. `None`: the connection is of no use any more.
    pub(super) async fn rolled_back(mut self) -> Option<Self> {
        self.run("ROLLBACK".to_owned()).await.is_ok().then_some(self)
    }

    /// A read: one statement, in a transaction of its own.
    pub(super) async fn read(&mut self, statement: Statement) -> sqlx::Result<Vec<PgRow>> {
        if !self.is_pooled {
            return self.all(statement).await;
        }
        self.begin("").await?;
        let rows = self.all(statement).await?;
        self.commit().await?;
        Ok(rows)
    }

    /// The server's process that serves this connection now.
    async fn process(&mut self) -> Result<i32> {
        let rows = self.run("SELECT pg_backend_pid()".to_owned()).await;
        let rows = rows.map_err(|error| storage_error(error, "asking who serves a connection"))?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    }

    pub(super) async fn close(self) {
        // Its error is of no use: the connection is gone either way.
        let _ = self.connection.close().await;
    }

    /// The error of a failed statement, and whether the connection may be used again.
    pub(super) fn outlives(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some() && !Cause::of(error).ends_connection()
    }
}

/// A connection that must be encrypted is not tried by a program that can't.
fn check_mode(mode: PgSslMode, has_tls: bool) -> Result<()> {
    if has_tls || matches!(mode, PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer) {
        return Ok(());
    }
    Err(Error::invalid("url", "expected an sslmode that needs no TLS, or the crate feature `tls`"))
}

/// What is no passing fault of a server that is opened for the first time: it has no TLS, or a certificate
/// that is not to be trusted, or the authority can't be read that would say so.
fn untrusted(error: Error, mode: PgSslMode) -> Error {
    let verifies = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    let Error::Storage { source: Some(source), .. } = &error else { return error };
    let reason = match source.downcast_ref() {
        Some(sqlx::Error::Tls(reason)) => reason.to_string(),
        // What the handshake came to is an error of the connection.
        Some(sqlx::Error::Io(reason)) if reason.kind() == ErrorKind::InvalidData => {
            reason.to_string()
        }
        Some(sqlx::Error::Io(reason)) if verifies && reason.kind() == ErrorKind::NotFound => {
            format!("sslrootcert: {reason}")
        }
        _ => return error,
    };
    Error::invalid("url", format!("expected a server to be trusted by its sslmode: {reason}"))
}

async fn check_server(session: &mut Session) -> Result<()> {
    let failed = |error| storage_error(error, "reading the server's version");
    let sql = "SELECT current_setting('server_version_num')::bigint, \
               current_setting('server_encoding')";
    let rows = session.run(sql.to_owned()).await.map_err(failed)?;
    let Some(row) = rows.first() else { return Err(Error::damaged("the server has no version")) };
    let version: i64 = get(row, 0)?;
    let encoding: &str = get(row, 1)?;
    if version < OLDEST_SERVER.into() {
        let reason = format!("expected PostgreSQL 14 or newer, got {}", version / 10_000);
        return Err(Error::invalid("server", reason));
    }
    if encoding != "UTF8" {
        let reason = format!("expected a database in UTF8, got {encoding}");
        return Err(Error::invalid("database", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_url_of_another_server_is_refused_before_it_is_asked() {
        for url in ["mysql://sync@127.0.0.1:1/sync", "host=127.0.0.1 user=sync", "127.0.0.1"] {
            let refused = Connector::new(PostgresOptions::new(url)).await.err();
            assert!(matches!(refused, Some(Error::InvalidInput { field: "url", .. })), "{url}");
        }
    }

    #[test]
    fn a_connection_that_must_be_encrypted_needs_the_feature() {
        let modes = [
            (PgSslMode::Disable, true),
            (PgSslMode::Allow, true),
            (PgSslMode::Prefer, true),
            (PgSslMode::Require, false),
            (PgSslMode::VerifyCa, false),
            (PgSslMode::VerifyFull, false),
        ];
        for (mode, may_be_plain) in modes {
            assert!(check_mode(mode, true).is_ok());
            assert_eq!(check_mode(mode, false).is_ok(), may_be_plain, "{mode:?}");
        }
    }
}
