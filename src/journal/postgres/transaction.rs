//! A transaction and the connection that it owns until its end was seen. One that is dropped, or does
//! not end in time, takes the connection with it: the server rolls back, and the next one begins on
//! another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgRow;
use tokio::time::timeout;

use super::connect::{Connector, Session};
use super::fault::{Cause, storage_error, timed_out};
use crate::base::{Error, Result};

/// Connections that are kept: one writes and commits what was judged on the other.
const MAX_IDLE: usize = 2;

/// What the work of a transaction comes to.
pub(super) enum End<T> {
    Commit(T),
    RollBack(T),
}

/// A transaction whose work is done.
pub(super) enum Worked<T> {
    /// It was rolled back, as its work wanted.
    Ended(T),
    /// It is to be committed.
    Open(T, Transaction),
}

/// Why a transaction did not end as it should.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) cause: Cause,
    /// The commit had been sent, so it may have happened.
    pub(super) at_commit: bool,
}

/// The connections that write.
#[derive(Debug)]
pub(super) struct Sessions {
    connector: Arc<Connector>,
    /// None once they are closed for good.
    idle: Mutex<Option<Vec<Session>>>,
}

impl Sessions {
    pub(super) fn new(connector: Arc<Connector>, first: Session) -> Arc<Self> {
        Arc::new(Self { connector, idle: Mutex::new(Some(vec![first])) })
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Session> {
        self.idle().as_mut()?.pop()
    }

    fn give_back(&self, session: Session) {
        if let Some(idle) = &mut *self.idle()
            && idle.len() < MAX_IDLE
        {
            idle.push(session);
        }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.idle().is_some() { Ok(()) } else { Err(Error::Closed) }
    }

    pub(super) async fn close(&self) {
        let idle = self.idle().take();
        for session in idle.into_iter().flatten() {
            session.close().await;
        }
    }

    /// Begins a transaction with what stands behind its `BEGIN`, and does its work, which is given the
    /// rows of that. It is not cut short but by its time-out, which ends its connection.
    pub(super) async fn begin<T>(
        self: &Arc<Self>,
        context: &str,
        opening: &str,
        work: impl AsyncFnOnce(&mut Session, Vec<PgRow>) -> sqlx::Result<End<T>>,
    ) -> Result<Worked<T>, Failure> {
        let (session, context) = (self.session().await?, context.to_owned());
        let transaction = Transaction { session, sessions: Arc::clone(self), context };
        let work = async |session: &mut Session| {
            let rows = session.begin(opening).await?;
            work(session, rows).await
        };
        transaction.go_on(work).await
    }

    /// A connection that is at rest, or a new one. Where none can be made, there is one again once a
    /// commit that is under way has ended.
    async fn session(self: &Arc<Self>) -> Result<Session, Failure> {
        let failure = |error, cause| Failure { error, cause, at_commit: false };
        self.check_open().map_err(|error| failure(error, Cause::Crowded))?;
        match self.connector.open_or(|| self.take()).await {
            Ok((session, _)) => Ok(session),
            Err(error) => {
                // Each transaction holds the connections.
                let is_alone = Arc::strong_count(self) == 1;
                let cause = if is_alone { Cause::Crowded } else { Cause::Busy };
                self.take().ok_or_else(|| failure(error, cause))
            }
        }
    }

    async fn failed(
        &self,
        session: Session,
        error: sqlx::Error,
        context: &str,
        at_commit: bool,
    ) -> Failure {
        let cause = Cause::of(&error);
        if Session::outlives(&error) {
            let limit = self.connector.options().command_timeout;
            if let Ok(Some(session)) = timeout(limit, session.rolled_back()).await {
                self.give_back(session);
            }
        }
        Failure { error: storage_error(error, context), cause, at_commit }
    }
}

/// A transaction that is to be gone on with, and committed.
pub(super) struct Transaction {
    session: Session,
    sessions: Arc<Sessions>,
    context: String,
}

impl Transaction {
    /// Does more of its work, which is cut short as its beginning is.
    pub(super) async fn go_on<T>(
        mut self,
        work: impl AsyncFnOnce(&mut Session) -> sqlx::Result<End<T>>,
    ) -> Result<Worked<T>, Failure> {
        let worked = timeout(self.sessions.connector.options().command_timeout, async {
            let end = work(&mut self.session).await?;
            if matches!(end, End::RollBack(_)) {
                self.session.run("ROLLBACK".to_owned()).await?;
            }
            Ok(end)
        });
        match worked.await {
            Ok(Ok(End::RollBack(done))) => {
                self.sessions.give_back(self.session);
                Ok(Worked::Ended(done))
            }
            Ok(Ok(End::Commit(done))) => Ok(Worked::Open(done, self)),
            Ok(Err(error)) => {
                Err(self.sessions.failed(self.session, error, &self.context, false).await)
            }
            Err(_) => Err(too_slow(&self.context, false)),
        }
    }

    /// Commits it. Its connection is another one's after that.
    pub(super) async fn commit(self) -> Result<(), Failure> {
        let Self { mut session, sessions, context } = self;
        let limit = sessions.connector.options().command_timeout;
        match timeout(limit, session.commit()).await {
            Ok(Ok(())) => {
                sessions.give_back(session);
                Ok(())
            }
            Ok(Err(error)) => Err(sessions.failed(session, error, &context, true).await),
            Err(_) => Err(too_slow(&context, true)),
        }
    }
}

fn too_slow(context: &str, at_commit: bool) -> Failure {
    Failure { error: timed_out(context), cause: Cause::Slow, at_commit }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "transaction_tests.rs"]
mod tests;
