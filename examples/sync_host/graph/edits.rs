//! The local edits: what the user has changed and the provider has not, or is not seen to have.
//!
//! An edit and the document that it changes are written in one transaction, before anything is asked
//! of the store. So the intent is safe from the first moment on, and the operation that carries it
//! to the provider has the same id in every run.

use std::collections::{HashMap, HashSet};

use connector_store::{Digest, DocumentId, Hlc, OperationId, OwnerDid, Provenance, SourceId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};

use super::{Graph, insert, stamp};
use crate::Failure;
use crate::document::Document;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS edit (
    number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    operation_id TEXT NOT NULL UNIQUE,
    document_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    lineage TEXT NOT NULL,
    source_id TEXT NOT NULL,
    text TEXT NOT NULL,
    digest TEXT NOT NULL,
    base TEXT,
    version TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'conflict', 'written')),
    seen TEXT
) STRICT";
pub(super) const INDEX: &str = "CREATE INDEX IF NOT EXISTS edit_document ON edit (document_id)";

const COLUMNS: &str = "SELECT number, operation_id, document_id, source_id, text, digest, base, \
                       version, state, seen FROM edit ";

/// What is known of an edit's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditState {
    /// To be written.
    Pending,
    /// Not written, because this was seen at the source; none where nothing was there.
    Conflict(Option<String>),
    /// Written, and not yet read back.
    Written,
}

/// A local change of a document.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Its place in the order of all edits.
    pub number: i64,
    pub operation_id: OperationId,
    pub document: DocumentId,
    pub source_id: SourceId,
    pub text: String,
    /// SHA-256 of the text.
    pub digest: String,
    /// What stood at the source when the user made the edit; none for a new file.
    pub base: Option<String>,
    /// The stamp of the change.
    pub version: Hlc,
    pub state: EditState,
}

/// The name of the operation of an edit: of the same edit always the same, of another always
/// another, also where the text is the same.
pub fn operation_id(
    document: &DocumentId,
    digest: &str,
    version: &Hlc,
) -> Result<OperationId, Failure> {
    let parts = [document.as_str(), "\u{1f}", digest, "\u{1f}", version.as_str()];
    let digest = Digest::of_parts(&parts.map(str::as_bytes));
    Ok(OperationId::new(format!("edit-{}", digest.to_hex()))?)
}

impl Graph {
    /// Keeps an edit of the document, and the document as it is by it.
    pub async fn keep_edit(
        &self,
        document: &Document,
        edit: &Edit,
        lineage: &Provenance,
    ) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        insert(&mut transaction, std::slice::from_ref(document)).await?;
        let sql = "INSERT INTO edit (operation_id, document_id, owner, lineage, source_id, text, \
                   digest, base, version, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending')";
        sqlx::query(sql)
            .bind(edit.operation_id.as_str())
            .bind(edit.document.as_str())
            .bind(document.owner.as_str())
            .bind(lineage.as_str())
            .bind(edit.source_id.as_str())
            .bind(&edit.text)
            .bind(&edit.digest)
            .bind(&edit.base)
            .bind(edit.version.as_str())
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The lineage of another source for which an edit is not written yet, or none.
    pub async fn unwritten_elsewhere(
        &self,
        lineage: &Provenance,
    ) -> Result<Option<String>, Failure> {
        let sql = "SELECT lineage FROM edit WHERE lineage <> ? AND state <> 'written' LIMIT 1";
        let mut connection = self.0.lock().await;
        let query = sqlx::query(sql).bind(lineage.as_str());
        let found = query.fetch_optional(&mut *connection).await?;
        Ok(found.map(|row| row.try_get(0)).transpose()?)
    }

    /// The document's last edit that is not written, or none.
    pub async fn last_unwritten(&self, document: &DocumentId) -> Result<Option<Edit>, Failure> {
        let sql = "WHERE document_id = ? AND state <> 'written' ORDER BY number DESC LIMIT 1";
        let sql = format!("{COLUMNS}{sql}");
        let mut connection = self.0.lock().await;
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(document.as_str());
        query.fetch_optional(&mut *connection).await?.as_ref().map(edit).transpose()
    }

    /// The owner's first edit behind `after` that is not written, or none.
    pub async fn next_unwritten(
        &self,
        owner: &OwnerDid,
        after: i64,
    ) -> Result<Option<Edit>, Failure> {
        let sql = "WHERE owner = ? AND number > ? AND state <> 'written' ORDER BY number LIMIT 1";
        let sql = format!("{COLUMNS}{sql}");
        let mut connection = self.0.lock().await;
        let query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(owner.as_str()).bind(after);
        query.fetch_optional(&mut *connection).await?.as_ref().map(edit).transpose()
    }

    /// The documents of the owner that have edits which are not written.
    pub async fn unwritten(&self, owner: &OwnerDid) -> Result<HashSet<DocumentId>, Failure> {
        let sql = "SELECT DISTINCT document_id FROM edit WHERE owner = ? AND state <> 'written'";
        let mut connection = self.0.lock().await;
        let rows = sqlx::query(sql).bind(owner.as_str()).fetch_all(&mut *connection).await?;
        rows.iter().map(|row| Ok(DocumentId::new(row.try_get::<String, _>(0)?)?)).collect()
    }

    /// How many edits of each owner are not written.
    pub async fn unwritten_by_owner(&self) -> Result<HashMap<String, u64>, Failure> {
        let sql = "SELECT owner, count(*) FROM edit WHERE state <> 'written' GROUP BY owner";
        let mut connection = self.0.lock().await;
        let rows = sqlx::query(sql).fetch_all(&mut *connection).await?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, u64::try_from(row.try_get::<i64, _>(1)?)?)))
            .collect()
    }

    /// The owner's edits that are written and were not read back, by document.
    pub async fn written(&self, owner: &OwnerDid) -> Result<HashMap<DocumentId, i64>, Failure> {
        let sql = "SELECT document_id, number FROM edit WHERE owner = ? AND state = 'written'";
        let mut connection = self.0.lock().await;
        let rows = sqlx::query(sql).bind(owner.as_str()).fetch_all(&mut *connection).await?;
        rows.iter()
            .map(|row| Ok((DocumentId::new(row.try_get::<String, _>(0)?)?, row.try_get(1)?)))
            .collect()
    }

    /// The edit was not written, because something else was seen at the source.
    pub async fn edit_conflicts(&self, edit: &Edit, seen: Option<&str>) -> Result<(), Failure> {
        let sql = "UPDATE edit SET state = 'conflict', seen = ? WHERE number = ?";
        let mut connection = self.0.lock().await;
        sqlx::query(sql).bind(seen).bind(edit.number).execute(&mut *connection).await?;
        Ok(())
    }

    /// The edit is written. Those before it need not be read back any more.
    pub async fn edit_written(&self, edit: &Edit) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let sql = "UPDATE edit SET state = 'written', seen = NULL WHERE number = ?";
        sqlx::query(sql).bind(edit.number).execute(&mut *transaction).await?;
        let sql = "DELETE FROM edit WHERE document_id = ? AND number < ?";
        let query = sqlx::query(sql).bind(edit.document.as_str()).bind(edit.number);
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The edit will never be written. One that was made upon it stands now upon what it stood upon.
    pub async fn edit_dropped(&self, edit: &Edit) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let sql = "UPDATE edit SET base = ? WHERE number = (SELECT min(number) FROM edit \
                   WHERE document_id = ? AND number > ?) AND base = ?";
        sqlx::query(sql)
            .bind(&edit.base)
            .bind(edit.document.as_str())
            .bind(edit.number)
            .bind(&edit.digest)
            .execute(&mut *transaction)
            .await?;
        forget(&mut transaction, edit.number).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// The edit was read back, or never will be: nothing is left to do for it.
    pub async fn edit_done(&self, number: i64) -> Result<(), Failure> {
        let mut connection = self.0.lock().await;
        forget(&mut connection, number).await
    }

    /// The greatest stamp in the graph: a clock that starts above it gives none twice.
    pub async fn greatest_stamp(&self) -> Result<Option<Hlc>, Failure> {
        // The order of the texts is that of the clock.
        let sql = "SELECT max(version) FROM (SELECT version FROM edit UNION ALL \
                   SELECT version FROM document WHERE version IS NOT NULL)";
        let mut connection = self.0.lock().await;
        let row = sqlx::query(sql).fetch_one(&mut *connection).await?;
        row.try_get::<Option<String>, _>(0)?.map(stamp).transpose()
    }
}

async fn forget(connection: &mut SqliteConnection, number: i64) -> Result<(), Failure> {
    sqlx::query("DELETE FROM edit WHERE number = ?").bind(number).execute(connection).await?;
    Ok(())
}

fn edit(row: &SqliteRow) -> Result<Edit, Failure> {
    Ok(Edit {
        number: row.try_get(0)?,
        operation_id: OperationId::new(row.try_get::<String, _>(1)?)?,
        document: DocumentId::new(row.try_get::<String, _>(2)?)?,
        source_id: SourceId::new(row.try_get::<String, _>(3)?)?,
        text: row.try_get(4)?,
        digest: row.try_get(5)?,
        base: row.try_get(6)?,
        version: stamp(row.try_get(7)?)?,
        state: match row.try_get(8)? {
            "pending" => EditState::Pending,
            "conflict" => EditState::Conflict(row.try_get(9)?),
            _ => EditState::Written,
        },
    })
}
