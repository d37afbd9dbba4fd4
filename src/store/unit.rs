//! The handle on a unit of work.

use std::sync::Arc;

use super::{ConnectorRef, DocumentRef, Route, Sender, Store};
use crate::base::{ConnectorName, DocumentId, OwnerDid, Result, StreamKey};
use crate::runtime::{CallOptions, Unit, begin};

/// Keys that are held, and what was decided on them so far.
///
/// Handles made by a unit run their commands against the held states at once; their answers hold
/// once [`Self::commit`] has gone through. A unit that is dropped, or held longer than the hold
/// limit (5 s by default), gives its keys back and counts for nothing. A unit's handle cannot begin
/// another unit.
///
/// ```
/// # use connector_store::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
/// # let (owner, source) = (OwnerDid::new("did:web:ada.example")?, ConnectorName::new("files")?);
/// let (old, new) = (DocumentId::new("doc-1")?, DocumentId::new("doc-2")?);
/// let keys = [StreamKey::Document(old.clone()), StreamKey::Document(new.clone())];
/// let fields = Json::parse("trimmed_fields", r#"["body"]"#)?;
/// loop {
///     let unit = store.unit_of_work(keys.clone()).await?;
///     unit.document(&old).clear_entity_trim().await?;
///     unit.document(&new).set_entity_trim(&owner, &source, fields.clone()).await?;
///     match unit.commit().await {
///         Err(Error::Contention) => continue,
///         done => break done?,
///     }
/// }
/// # store.close().await
/// # }
/// ```
pub struct UnitOfWork {
    store: Store,
    unit: Arc<Unit>,
}

impl std::fmt::Debug for UnitOfWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnitOfWork").finish_non_exhaustive()
    }
}

impl UnitOfWork {
    pub(super) async fn begin(
        store: &Store,
        keys: impl IntoIterator<Item = StreamKey>,
        options: &CallOptions,
    ) -> Result<Self> {
        let (owner, fence) = (options.owner.clone(), options.fence.clone());
        let unit = begin(store.directories(), keys, owner, fence).await?;
        Ok(Self { store: store.clone(), unit: Arc::new(unit) })
    }

    pub(super) fn sender(&self) -> Sender {
        Sender { store: self.store.clone(), route: Route::Unit(Arc::clone(&self.unit)) }
    }

    /// A handle on a held document. Its commands answer [`crate::Error::NotHeld`] for a document
    /// that is not held.
    #[must_use]
    pub fn document(&self, document: &DocumentId) -> DocumentRef {
        DocumentRef::new(self.sender(), document.clone())
    }

    /// A handle on a held connector. Its commands answer [`crate::Error::NotHeld`] for one that is
    /// not held.
    #[must_use]
    pub fn connector(&self, owner: &OwnerDid, connector: &ConnectorName) -> ConnectorRef {
        ConnectorRef::new(self.sender(), owner.clone(), connector.clone())
    }

    /// Writes everything in one append, or nothing. The keys are given back when the append is
    /// handed over, before it is on disk.
    ///
    /// # Errors
    /// [`crate::Error::Contention`] when another writer was faster or the hold limit passed (run
    /// the unit again), [`crate::Error::LeaseLost`] under a lost lease, retryable errors,
    /// [`crate::Error::OutcomeUnknown`].
    ///
    /// # Cancel safety
    /// A dropped call is carried out whole or not at all.
    pub async fn commit(self) -> Result<()> {
        self.unit.commit().await
    }
}
