//! The handle on a document.

use std::collections::BTreeSet;

use super::{CommandId, Route, Sender, UnitOfWork, equal, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{ConnectorName, DocumentId, Error, Json, OwnerDid, Result, StreamKey};
use crate::domain::connector::{Connector, ConnectorCommand};
use crate::domain::document::{Document, DocumentCommand, DocumentReply, EntityTrimRecord};
use crate::domain::{RowKey, Table, Value};
use crate::journal::RowQuery;

/// How often a sweep starts over because another connector got a candidate meanwhile, or another
/// writer was faster.
const MAX_SWEEP_STARTS: u32 = 8;

/// A handle on a document: its entity trim, its operations, its watch, its observation copies and
/// repair obligation, and its sweep.
///
/// Every method is carried out whole or not at all, also when its future is dropped. Through a
/// session's handle every method answers [`Error::LeaseLost`], too, once the lease is lost.
#[derive(Clone)]
pub struct DocumentRef {
    pub(super) sender: Sender,
    document: DocumentId,
    key: StreamKey,
}

impl std::fmt::Debug for DocumentRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DocumentRef").field(&self.document).finish()
    }
}

impl DocumentRef {
    pub(super) fn new(sender: Sender, document: DocumentId) -> Self {
        let key = StreamKey::Document(document.clone());
        Self { sender, document, key }
    }

    /// The document.
    #[must_use]
    pub const fn id(&self) -> &DocumentId {
        &self.document
    }

    pub(super) const fn key(&self) -> &StreamKey {
        &self.key
    }

    /// This handle, whose next command bears the caller's id: repeated, it gets the first answer
    /// for 24 hours. Each id is for one command; in a unit of work, which a sweep is too, it has no
    /// effect.
    #[must_use]
    pub fn with_command_id(&self, id: CommandId) -> Self {
        let sender = self.sender.with_options(|options| options.command_id = Some(id));
        Self { sender, ..self.clone() }
    }

    /// This handle, which answers [`Error::MailboxFull`] where it would have to wait for room.
    #[must_use]
    pub fn without_waiting(&self) -> Self {
        let sender = self.sender.with_options(|options| options.no_wait = true);
        Self { sender, ..self.clone() }
    }

    /// This handle for what follows its command: without the caller's id, which is for one command.
    pub(super) fn without_id(&self) -> Self {
        let sender = self.sender.with_options(|options| options.command_id = None);
        Self { sender, ..self.clone() }
    }

    /// Its commands hold only once a unit of work is committed.
    pub(super) const fn is_in_a_unit(&self) -> bool {
        matches!(self.sender.route, Route::Unit(_))
    }

    /// What it works on.
    pub(super) const fn store(&self) -> &super::Store {
        &self.sender.store
    }

    pub(super) async fn send(&self, command: DocumentCommand) -> Result<DocumentReply> {
        self.sender.send::<Document>(&self.key, command).await
    }

    async fn done(&self, command: DocumentCommand) -> Result<()> {
        match self.send(command).await? {
            DocumentReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Records which fields were fitted to the model's caps. On a standing trim only the fields and
    /// the time change: owner and connector stay those of the first write.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the JSON is larger than the store takes; retryable errors.
    pub async fn set_entity_trim(
        &self,
        owner: &OwnerDid,
        connector: &ConnectorName,
        trimmed_fields: Json,
    ) -> Result<()> {
        self.sender.store.check_json("trimmed_fields", Some(&trimmed_fields))?;
        let (owner, connector) = (owner.clone(), connector.clone());
        self.done(DocumentCommand::SetEntityTrim { owner, connector, trimmed_fields }).await
    }

    /// The trim, or none.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn entity_trim(&self) -> Result<Option<EntityTrimRecord>> {
        match self.send(DocumentCommand::EntityTrim).await? {
            DocumentReply::Trim(trim) => Ok(trim),
            _ => Err(unexpected()),
        }
    }

    /// Forgets the trim. Forgetting nothing is fine.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn clear_entity_trim(&self) -> Result<()> {
        self.done(DocumentCommand::ClearEntityTrim).await
    }

    /// Begins a sweep whose other end is the host's graph: it is listed by
    /// [`super::Store::begun_sweeps`] until [`Self::sweep_document_rows`] or
    /// [`Self::abandon_document_sweep`] ends it, also over restarts. Beginning again changes nothing.
    ///
    /// # Errors
    /// [`Error::SweepUnfinishedOperation`]: nothing is changed; retryable errors.
    pub async fn begin_document_sweep(&self) -> Result<()> {
        self.done(DocumentCommand::BeginDocumentSweep).await
    }

    /// Takes a begun sweep back. Where none has begun nothing happens.
    ///
    /// While the graph does not have the document any more, the begun sweep alone says that its rows
    /// are left. It is taken back only together with rows that are written anew, in one unit of work.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn abandon_document_sweep(&self) -> Result<()> {
        self.done(DocumentCommand::AbandonDocumentSweep).await
    }

    /// Something of the connector store stands on the document: a watch, a sweep candidate of any
    /// owner's connector, a trim, or an unfinished operation.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn has_document_connector_work(&self) -> Result<bool> {
        match self.send(DocumentCommand::HasWork).await? {
            DocumentReply::HasWork(true) => Ok(true),
            DocumentReply::HasWork(false) => Ok(!self.candidate_holders().await?.is_empty()),
            _ => Err(unexpected()),
        }
    }

    /// Removes all rows of the document, in one atomic unit over the document and every owner's
    /// connector that holds a candidate for it, and erases the document's history.
    /// It ends a begun sweep; without one it does both at once.
    ///
    /// In a unit of work the unit must hold those connectors.
    ///
    /// # Errors
    /// [`Error::SweepUnfinishedOperation`]; [`Error::NotHeld`] in a unit that lacks one of those
    /// connectors; [`Error::LeaseLost`] under a lost lease; [`Error::Contention`] when others wrote the same
    /// keys again and again; retryable errors.
    pub async fn sweep_document_rows(&self) -> Result<()> {
        let options = match &self.sender.route {
            Route::Unit(unit) => {
                let holders = self.candidate_holders().await?;
                // All or nothing: a refusal in the middle would leave half a sweep in the unit.
                holders.iter().try_for_each(|holder| unit.check_held(holder))?;
                return self.sweep_held(holders).await;
            }
            Route::Store(options) => options,
        };
        let store = &self.sender.store;
        for _ in 0..MAX_SWEEP_STARTS {
            let holders = self.candidate_holders().await?;
            let keys = holders.iter().cloned().chain([self.key.clone()]);
            let unit = match UnitOfWork::begin(store, keys, options).await {
                Err(Error::Contention) => continue,
                begun => begun?,
            };
            // Looked up again once all are held: another connector may have got a candidate.
            if !self.candidate_holders().await?.is_subset(&holders) {
                continue;
            }
            unit.document(&self.document).sweep_held(holders).await?;
            match unit.commit().await {
                Err(Error::Contention) => {}
                result => return result,
            }
        }
        Err(Error::Contention)
    }

    async fn sweep_held(&self, holders: BTreeSet<StreamKey>) -> Result<()> {
        self.done(DocumentCommand::SweepDocumentRows).await?;
        for holder in holders {
            let document_id = self.document.clone();
            let command = ConnectorCommand::DropDocumentCandidates { document_id };
            self.sender.send::<Connector>(&holder, command).await?;
        }
        Ok(())
    }

    /// The connectors that hold a candidate for the document.
    async fn candidate_holders(&self) -> Result<BTreeSet<StreamKey>> {
        let mut holders = BTreeSet::new();
        let mut after = None;
        loop {
            let query = RowQuery {
                table: Table::SweepCandidate,
                filters: vec![equal(4, Value::Text(self.document.shared()))],
                order: vec![0, 1, 2, 3],
                after,
                limit: MAX_PAGE_ROWS,
            };
            let rows = self.sender.store.rows(&query).await?;
            for row in &rows {
                holders.insert(super::rows::connector_key(row)?);
            }
            match rows.last() {
                Some(last) if rows.len() == usize::try_from(MAX_PAGE_ROWS).unwrap_or(0) => {
                    let RowKey { mut values, .. } = last.key();
                    values.truncate(4);
                    after = Some(values);
                }
                _ => return Ok(holders),
            }
        }
    }
}
