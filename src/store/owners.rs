//! Whose document it is: the host's word, and what a put is held to.
//!
//! It knows no record besides its owner.

use std::sync::Arc;

use super::Store;
use crate::base::{DocumentId, Error, OwnerDid, Result};
use crate::journal::BoxFuture;

/// Says whose a document is. The host's graph knows; the store does not.
pub trait DocumentOwners: Send + Sync + 'static {
    /// The document's owner; none when there is no such document. An error is passed on to who asked
    /// the store.
    fn document_owner<'a>(
        &'a self,
        document: &'a DocumentId,
    ) -> BoxFuture<'a, Result<Option<OwnerDid>>>;
}

/// What the store was told of owners.
#[derive(Clone, Default)]
pub(super) struct OwnerRule {
    pub(super) owners: Option<Arc<dyn DocumentOwners>>,
    pub(super) accepts_foreign: bool,
}

impl Store {
    /// Whose a document is, as the host's [`DocumentOwners`] says; none when there is no such
    /// document.
    ///
    /// # Errors
    /// [`Error::NoDocumentOwners`] when the store was given none; [`Error::TimedOut`], and what they
    /// answer.
    pub async fn observation_document_owner(
        &self,
        document: &DocumentId,
    ) -> Result<Option<OwnerDid>> {
        self.env().check_open()?;
        let owners = self.owner_rule.owners.as_ref().ok_or(Error::NoDocumentOwners)?;
        self.env().answer_in_time(owners.document_owner(document)).await
    }

    /// Refuses a record on a document of somebody else.
    pub(super) async fn check_document_owner(
        &self,
        owner: &OwnerDid,
        document: &DocumentId,
    ) -> Result<()> {
        if self.owner_rule.accepts_foreign
            || self.observation_document_owner(document).await?.as_ref() == Some(owner)
        {
            return Ok(());
        }
        let (document_id, owner) = (document.clone(), owner.clone());
        Err(Error::NotDocumentOwner { document_id, owner })
    }
}
