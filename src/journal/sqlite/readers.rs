//! The reading connections: a few, each used by one read at a time, opened when first needed.
//!
//! No read holds a snapshot of the file for longer than its one query, so none keeps the log from
//! being moved to the file.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connect::Connector;
use super::fault::{Cause, storage_error};
use crate::base::{Error, Result};

/// The readers of one store.
#[derive(Debug)]
pub(super) struct Readers {
    connector: Arc<Connector>,
    turns: Semaphore,
    count: u32,
    idle: Mutex<Vec<SqliteConnection>>,
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

    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    fn take(&self) -> Option<SqliteConnection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, connection: SqliteConnection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }

    /// A connection, once it is this read's turn.
    pub(super) async fn turn(&self) -> Result<Turn<'_>> {
        let permit = self.turns.acquire().await.map_err(|_| Error::Closed)?;
        let connection = match self.take() {
            Some(connection) => connection,
            None => self.connector.reader().await?,
        };
        Ok(Turn { readers: self, connection: Some(connection), _permit: permit })
    }

    /// Waits for the reads that are under way, and closes.
    pub(super) async fn close(&self) {
        if let Ok(permit) = self.turns.acquire_many(self.count).await {
            self.turns.close();
            drop(permit);
        }
        while let Some(connection) = self.take() {
            // Its error is of no use: nothing was written through it.
            let _ = sqlx::Connection::close(connection).await;
        }
    }
}

/// One read's hold on a connection. When it is dropped in the middle of a query, the connection's
/// thread ends the query by itself.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    readers: &'a Readers,
    connection: Option<SqliteConnection>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    pub(super) fn connection(&mut self) -> Result<&mut SqliteConnection> {
        self.connection.as_mut().ok_or(Error::Closed)
    }

    /// The store's error for a failed read. A connection whose medium failed is not used again.
    pub(super) fn failed(&mut self, error: sqlx::Error, context: &str) -> Error {
        if !matches!(Cause::of(&error), Cause::Busy) {
            self.connection = None;
        }
        storage_error(error, context)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.readers.give_back(connection);
        }
    }
}
