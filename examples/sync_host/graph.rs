//! The host's own document graph: one SQLite table, and another for local edits.
//!
//! It is another database than the store's, so nothing is atomic over both. The order of the steps,
//! and the marks `trim_due` and `sign_due`, see to it that a run that is killed between two of them is
//! repaired by the next.

mod edits;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use connector_store::journal::BoxFuture;
use connector_store::{
    DocumentId, DocumentOwners, Error, Hlc, OwnerDid, PartitionId, Result as StoreResult, SourceId,
    StorageFault,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, QueryBuilder, Row, Sqlite, SqliteConnection};
use tokio::sync::Mutex;

use crate::Failure;
use crate::document::{Document, MODEL};

pub use edits::{Edit, EditState, operation_id};

/// SQLite takes 32,766 values in a statement, a row here has twelve.
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
    trim_due INTEGER NOT NULL,
    version TEXT,
    sign_due INTEGER NOT NULL
) STRICT, WITHOUT ROWID";
const INDEX: &str = "
CREATE UNIQUE INDEX IF NOT EXISTS document_source ON document (owner, partition, source_id)";
/// A graph that was made before there were edits, or signed observations, lacks a column.
const HAS_COLUMN: &str = "SELECT count(*) FROM pragma_table_info('document') WHERE name = ?";
const ADDED_COLUMNS: [(&str, &str); 2] = [
    ("version", "ALTER TABLE document ADD COLUMN version TEXT"),
    ("sign_due", "ALTER TABLE document ADD COLUMN sign_due INTEGER NOT NULL DEFAULT 1"),
];
const SIGN_INDEX: &str = "
CREATE INDEX IF NOT EXISTS document_sign_due ON document (owner, document_id) WHERE sign_due = 1";

/// What the graph remembers of a document, to compare with.
#[derive(Clone, Debug)]
pub struct Known {
    pub digest: String,
    pub trim: Option<String>,
    pub trim_due: bool,
    /// None in a graph that was made before stamps were kept.
    pub version: Option<Hlc>,
}

/// What a document shows, of which the store has no signed record yet.
#[derive(Clone, Debug)]
pub struct Unsigned {
    pub id: DocumentId,
    pub title: String,
    pub digest: String,
    pub version: Hlc,
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
        for sql in [SCHEMA, INDEX, edits::SCHEMA, edits::INDEX] {
            sqlx::query(sql).execute(&mut connection).await?;
        }
        for (name, add) in ADDED_COLUMNS {
            let found = sqlx::query(HAS_COLUMN).bind(name).fetch_one(&mut connection).await?;
            if found.try_get::<i64, _>(0)? == 0 {
                sqlx::query(add).execute(&mut connection).await?;
            }
        }
        sqlx::query(SIGN_INDEX).execute(&mut connection).await?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Those of the documents that are there.
    pub async fn known(&self, ids: &[DocumentId]) -> Result<HashMap<DocumentId, Known>, Failure> {
        let mut known = HashMap::with_capacity(ids.len());
        let mut connection = self.0.lock().await;
        for ids in ids.chunks(ROWS_PER_STATEMENT) {
            let mut query = QueryBuilder::<Sqlite>::new(
                "SELECT document_id, digest, trim, trim_due, version FROM document \
                 WHERE document_id IN (",
            );
            push_ids(&mut query, ids);
            for row in query.build().fetch_all(&mut *connection).await? {
                let id = DocumentId::new(row.try_get::<String, _>(0)?)?;
                let (digest, trim) = (row.try_get(1)?, row.try_get(2)?);
                let version = row.try_get::<Option<String>, _>(4)?.map(stamp).transpose()?;
                known.insert(id, Known { digest, trim, trim_due: row.try_get(3)?, version });
            }
        }
        Ok(known)
    }

    /// Writes the documents, all or none. Each is to be signed from then on.
    pub async fn write(&self, documents: &[Document]) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        insert(&mut transaction, documents).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The store knows the trims of these documents.
    pub async fn trims_told(&self, ids: &[DocumentId]) -> Result<(), Failure> {
        self.change("UPDATE document SET trim_due = 0 WHERE document_id IN (", ids).await?;
        Ok(())
    }

    /// The first of the owner's documents whose records are not signed yet.
    pub async fn unsigned(&self, owner: &OwnerDid, limit: u32) -> Result<Vec<Unsigned>, Failure> {
        let sql = "SELECT document_id, title, digest, version FROM document WHERE owner = ? \
                   AND sign_due = 1 AND version IS NOT NULL ORDER BY document_id LIMIT ?";
        let mut connection = self.0.lock().await;
        let query = sqlx::query(sql).bind(owner.as_str()).bind(limit);
        let rows = query.fetch_all(&mut *connection).await?;
        rows.iter()
            .map(|row| {
                let id = DocumentId::new(row.try_get::<String, _>(0)?)?;
                let (title, digest) = (row.try_get(1)?, row.try_get(2)?);
                Ok(Unsigned { id, title, digest, version: stamp(row.try_get(3)?)? })
            })
            .collect()
    }

    /// The store has the records of these documents.
    pub async fn signed(&self, ids: &[DocumentId]) -> Result<(), Failure> {
        self.change("UPDATE document SET sign_due = 0 WHERE document_id IN (", ids).await?;
        Ok(())
    }

    /// Deletes those of the documents that are there, and says how many were. What was written to
    /// them is not to be read back any more.
    pub async fn delete(&self, ids: &[DocumentId]) -> Result<u64, Failure> {
        self.change("DELETE FROM edit WHERE state = 'written' AND document_id IN (", ids).await?;
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

impl DocumentOwners for Graph {
    fn document_owner<'a>(
        &'a self,
        document: &'a DocumentId,
    ) -> BoxFuture<'a, StoreResult<Option<OwnerDid>>> {
        Box::pin(async move {
            let sql = "SELECT owner FROM document WHERE document_id = ?";
            let mut connection = self.0.lock().await;
            let query = sqlx::query_scalar::<_, String>(sql).bind(document.as_str());
            let owner = query.fetch_optional(&mut *connection).await;
            let owner = owner.map_err(|error| {
                Error::storage(StorageFault::Unavailable, format!("the graph: {error}"))
            })?;
            owner.map(OwnerDid::new).transpose()
        })
    }
}

/// Writes the documents within the caller's transaction.
async fn insert(connection: &mut SqliteConnection, documents: &[Document]) -> Result<(), Failure> {
    for documents in documents.chunks(ROWS_PER_STATEMENT) {
        let mut query = QueryBuilder::<Sqlite>::new(
            "INSERT INTO document (document_id, owner, model, partition, source_id, title, \
             body, digest, trim, trim_due, version, sign_due) ",
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
                .push_bind(document.trim_due)
                .push_bind(document.version.as_str())
                .push_bind(true);
        });
        query.push(
            " ON CONFLICT (document_id) DO UPDATE SET title = excluded.title, \
             body = excluded.body, digest = excluded.digest, trim = excluded.trim, \
             trim_due = excluded.trim_due, version = excluded.version, \
             sign_due = excluded.sign_due",
        );
        query.build().execute(&mut *connection).await?;
    }
    Ok(())
}

fn stamp(text: String) -> Result<Hlc, Failure> {
    Ok(Hlc::try_from(text)?)
}

fn push_ids(query: &mut QueryBuilder<Sqlite>, ids: &[DocumentId]) {
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(id.as_str());
    }
    query.push(")");
}
