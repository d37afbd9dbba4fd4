//! The reading connections: a few, each used by one read at a time, opened when first needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::postgres::PgRow;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connect::{Connector, Session};
use super::fault::{Cause, storage_error, timed_out};
use super::statement::Statement;
use crate::base::{Error, Result};

/// The readers of one store.
#[derive(Debug)]
pub(super) struct Readers {
    connector: Arc<Connector>,
    turns: Semaphore,
    count: u32,
    idle: Mutex<Vec<Session>>,
}

impl Readers {
    pub(super) fn new(connector: Arc<Connector>) -> Self {
        let count = u32::try_from(connector.options().readers).unwrap_or(u32::MAX).clamp(1, 64);
        Self {
            turns: Semaphore::new(usize::try_from(count).unwrap_or(1)),
            count,
            idle: Mutex::new(Vec::new()),
            connector,
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Session> {
        self.idle().pop()
    }

    /// One read. It waits for a connection, and then for the answer, each at most so long as a
    /// command may take. A read that is dropped, or fails, ends its connection.
    pub(super) async fn all(&self, statement: Statement, context: &str) -> Result<Vec<PgRow>> {
        let limit = self.connector.options().command_timeout;
        let permit = timeout(limit, self.turns.acquire()).await.map_err(|_| timed_out(context))?;
        let _permit = permit.map_err(|_| Error::Closed)?;
        let read = timeout(limit, async {
            loop {
                let (session, is_new) = self.connector.open_or(|| self.take()).await?;
                match self.read_by(session, statement.clone()).await {
                    // The server may have ended connections that were idle.
                    Err(error) if !is_new && Cause::of(&error) == Cause::Lost => {
                        self.idle().clear()
                    }
                    read => return read.map_err(|error| storage_error(error, context)),
                }
            }
        });
        read.await.map_err(|_| timed_out(context))?
    }

    async fn read_by(
        &self,
        mut session: Session,
        statement: Statement,
    ) -> sqlx::Result<Vec<PgRow>> {
        let rows = session.read(statement).await?;
        self.idle().push(session);
        Ok(rows)
    }

    /// Waits for the reads that are under way, and closes.
    pub(super) async fn close(&self) {
        if let Ok(permit) = self.turns.acquire_many(self.count).await {
            self.turns.close();
            drop(permit);
        }
        while let Some(session) = self.take() {
            session.close().await;
        }
    }
}
