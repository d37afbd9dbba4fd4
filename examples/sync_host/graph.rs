//! The host's own document graph: one SQLite table.
//!
//! It is another database than the store's, so nothing is atomic over both. The order of the steps,
//! and the `trim_due` mark, see to it that a run that is killed between two of them is repaired by
//! the next.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use connector_store::{DocumentId, OwnerDid, PartitionId, SourceId};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, QueryBuilder, Row, Sqlite, SqliteConnection};
use tokio::sync::Mutex;

use crate::Failure;
use crate::document::{Document, MODEL};

/// SQLite takes 32,766 values in a statement, a row here has ten.
const ROWS_PER_STATEMENT: usize = 1_000;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS document (
    document_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    model TEXT NOT NULL,
    partition TEXT NOT NULL,
    source_id TEXT NOT NULL,
    title TEXT NOT NULL,
    body TEXT,
    digest TEXT NOT NULL,
    trim TEXT,
    trim_due INTEGER NOT NULL
) STRICT, WITHOUT ROWID";
const INDEX: &str = "
CREATE UNIQUE INDEX IF NOT EXISTS document_source ON document (owner, partition, source_id)";

/// What the graph remembers of a document, to compare with.
#[derive(Clone, Debug)]
pub struct Known {
    pub digest: String,
    pub trim: Option<String>,
    pub trim_due: bool,
}

/// The graph. One connection behind a lock, because SQLite has one writer at a time anyhow.
#[derive(Clone, Debug)]
pub struct Graph(Arc<Mutex<SqliteConnection>>);

impl Graph {
    /// Opens the file, which is created where it is missing.
    pub async fn open(file: &Path) -> Result<Self, Failure> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // The checkpoint in the store says that these rows are safe, so they have to be.
            .synchronous(SqliteSynchronous::Full);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        sqlx::query(SCHEMA).execute(&mut connection).await?;
        sqlx::query(INDEX).execute(&mut connection).await?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Those of the documents that are there.
    pub async fn known(&self, ids: &[DocumentId]) -> Result<HashMap<DocumentId, Known>, Failure> {
        let mut known = HashMap::with_capacity(ids.len());
        let mut connection = self.0.lock().await;
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            let mut query = QueryBuilder::<Sqlite>::new(
                "SELECT document_id, digest, trim, trim_due FROM document WHERE document_id IN (",
            );
            push_ids(&mut query, ids);
            for row in query.build().fetch_all(&mut *connection).await? {
                let id = DocumentId::new(row.try_get::<String, _>(0)?)?;
                let (digest, trim) = (row.try_get(1)?, row.try_get(2)?);
                known.insert(id, Known { digest, trim, trim_due: row.try_get(3)? });
            }
        }
        Ok(known)
    }

    /// Writes the documents, all or none.
    pub async fn write(&self, documents: &[Document]) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for documents in documents.chunks(ROWS_PER_STATEMENT) {
            let mut query = QueryBuilder::<Sqlite>::new(
                "INSERT INTO document (document_id, owner, model, partition, source_id, title, \
                 body, digest, trim, trim_due) ",
            );
            query.push_values(documents, |mut row, document| {
                row.push_bind(document.id.as_str())
                    .push_bind(document.owner.as_str())
                    .push_bind(MODEL)
                    .push_bind(document.partition.as_str())
                    .push_bind(document.source_id.as_str())
                    .push_bind(document.title.as_str())
                    .push_bind(document.body.as_deref())
                    .push_bind(document.digest.as_str())
                    .push_bind(document.trim.as_deref())
                    .push_bind(document.trim_due);
            });
            query.push(
                " ON CONFLICT (document_id) DO UPDATE SET title = excluded.title, \
                 body = excluded.body, digest = excluded.digest, trim = excluded.trim, \
                 trim_due = excluded.trim_due",
            );
            query.build().execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// The store knows the trims of these documents.
    pub async fn trims_told(&self, ids: &[DocumentId]) -> Result<(), Failure> {
        self.change("UPDATE document SET trim_due = 0 WHERE document_id IN (", ids).await?;
        Ok(())
    }

    /// Deletes those of the documents that are there, and says how many were.
    pub async fn delete(&self, ids: &[DocumentId]) -> Result<u64, Failure> {
        self.change("DELETE FROM document WHERE document_id IN (", ids).await
    }

    async fn change(&self, sql: &str, ids: &[DocumentId]) -> Result<u64, Failure> {
        let mut changed = 0;
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            let mut query = QueryBuilder::<Sqlite>::new(sql);
            push_ids(&mut query, ids);
            changed += query.build().execute(&mut *transaction).await?.rows_affected();
        }
        transaction.commit().await?;
        Ok(changed)
    }

    /// The partitions that an owner has documents of.
    pub async fn partitions(&self, owner: &OwnerDid) -> Result<Vec<PartitionId>, Failure> {
        let sql = "SELECT DISTINCT partition FROM document WHERE owner = ? ORDER BY partition";
        let mut connection = self.0.lock().await;
        let rows = sqlx::query(sql).bind(owner.as_str()).fetch_all(&mut *connection).await?;
        rows.iter().map(|row| Ok(PartitionId::new(row.try_get::<String, _>(0)?)?)).collect()
    }

    /// An owner's documents of one partition.
    pub async fn documents(
        &self,
        owner: &OwnerDid,
        partition: &PartitionId,
    ) -> Result<Vec<(DocumentId, SourceId)>, Failure> {
        let sql = "SELECT document_id, source_id FROM document \
                   WHERE owner = ? AND partition = ? ORDER BY source_id";
        let mut connection = self.0.lock().await;
        let query = sqlx::query(sql).bind(owner.as_str()).bind(partition.as_str());
        let rows = query.fetch_all(&mut *connection).await?;
        rows.iter()
            .map(|row| {
                let id = DocumentId::new(row.try_get::<String, _>(0)?)?;
                Ok((id, SourceId::new(row.try_get::<String, _>(1)?)?))
            })
            .collect()
    }

    /// How many documents an owner has.
    pub async fn count(&self, owner: &OwnerDid) -> Result<i64, Failure> {
        let sql = "SELECT count(*) FROM document WHERE owner = ?";
        let mut connection = self.0.lock().await;
        let row = sqlx::query(sql).bind(owner.as_str()).fetch_one(&mut *connection).await?;
        Ok(row.try_get(0)?)
    }

    /// Closes the file, if this is the last handle of it.
    pub async fn close(self) -> Result<(), Failure> {
        if let Some(connection) = Arc::into_inner(self.0) {
            connection.into_inner().close().await?;
        }
        Ok(())
    }
}

fn push_ids(query: &mut QueryBuilder<Sqlite>, ids: &[DocumentId]) {
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(id.as_str());
    }
    query.push(")");
}
