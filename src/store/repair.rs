//! Repair obligations: what the owners' records decided, and a document does not show yet.

use std::collections::BTreeSet;

use super::rows::written_repair;
use super::{DocumentRef, Store, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{DocumentId, Result, Timestamp};
use crate::domain::document::{DocumentCommand, DocumentReply, ObservationRepair};
use crate::domain::{Table, Value};
use crate::journal::{Compare, Filter, RowQuery};

/// The column of a repair's row that holds when it was written.
const WRITTEN_AT_COLUMN: usize = 6;
/// Documents that one query names.
const DOCUMENTS_PER_QUERY: usize = 500;

/// A standing repair obligation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenRepair {
    /// The document.
    pub document_id: DocumentId,
    /// What has to be brought to it.
    pub repair: ObservationRepair,
    /// When it was written: the order of [`Store::repairs_written_since`].
    pub written_at: Timestamp,
}

impl DocumentRef {
    /// Creates or replaces the document's repair obligation, and says when it was written; in a unit of
    /// work, where that is not known before the commit, nothing. A repeated command id is told when the
    /// obligation was written that stands now.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn put_repair(&self, repair: &ObservationRepair) -> Result<Option<Timestamp>> {
        let command = DocumentCommand::PutRepair(Box::new(repair.clone()));
        match self.send(command).await? {
            DocumentReply::RepairPut(None) if !self.is_in_a_unit() => {
                let standing = self.store().repairs(std::slice::from_ref(self.id())).await?;
                Ok(standing.first().map(|standing| standing.written_at))
            }
            DocumentReply::RepairPut(written_at) => Ok(written_at),
            _ => Err(unexpected()),
        }
    }

    /// The document's repair obligation, or none.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn repair(&self) -> Result<Option<ObservationRepair>> {
        match self.send(DocumentCommand::Repair).await? {
            DocumentReply::Repair(repair) => Ok(repair.map(|repair| *repair)),
            _ => Err(unexpected()),
        }
    }

    /// Ends the repair obligation. Ending nothing is fine.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn clear_repair(&self) -> Result<()> {
        match self.send(DocumentCommand::ClearRepair).await? {
            DocumentReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

impl Store {
    /// The repair obligations of these documents, by document. One without is absent.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn repairs(&self, documents: &[DocumentId]) -> Result<Vec<WrittenRepair>> {
        let documents: BTreeSet<&DocumentId> = documents.iter().collect();
        let names: Vec<Value> =
            documents.into_iter().map(|document| Value::Text(document.shared())).collect();
        let mut repairs = Vec::new();
        for names in names.chunks(DOCUMENTS_PER_QUERY) {
            let query = RowQuery {
                table: Table::ObservationRepair,
                filters: vec![Filter { column: 0, compare: Compare::In(names.to_vec()) }],
                order: vec![0],
                after: None,
                limit: MAX_PAGE_ROWS,
            };
            for row in self.rows(&query).await? {
                repairs.push(written_repair(&row)?);
            }
        }
        Ok(repairs)
    }

    /// One page of the standing repair obligations in the order in which they were written, behind
    /// `after`. A reader that goes on from the last one it was given misses none, whenever it
    /// comes back: a later write has a later time, also when another host made it.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn repairs_written_since(
        &self,
        after: Option<(Timestamp, &DocumentId)>,
        limit: u32,
    ) -> Result<Vec<WrittenRepair>> {
        let query = RowQuery {
            table: Table::ObservationRepair,
            filters: Vec::new(),
            order: vec![WRITTEN_AT_COLUMN, 0],
            after: after.map(|(written_at, document)| {
                vec![Value::Int(written_at.as_millis()), Value::Text(document.shared())]
            }),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(written_repair).collect()
    }
}
