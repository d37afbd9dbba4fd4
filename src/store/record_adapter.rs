//! What a layer that replicates signed records works with: copies and decisions by their keys, alone
//! or several in one unit of work.

use std::sync::Arc;

use super::observation::{DecisionPage, check_type, decided_in_chunks};
use super::{DocumentRef, Route, Sender, Store, UnitOfWork};
use crate::base::{DocumentId, Error, OwnerDid, Result, StreamKey};
use crate::records::{RecordDecision, RecordKey, SignedRecord};
use crate::runtime::CallOptions;

/// Observation records by their keys. See [`Store::records`].
///
/// ```
/// # use connector_store::*;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
/// # let owner = OwnerDid::new("did:web:ada.example")?;
/// let keys = ["doc-1", "doc-2"].map(|id| DocumentId::new(id).map(|id| RecordKey::observation(&owner, &id)));
/// let [first, second] = [keys[0].clone()?, keys[1].clone()?];
/// let both = [first.clone(), second.clone()];
/// let decided = store
///     .records()
///     .transaction(&both, async |records| {
///         records.prune_copy(&first, "did:web:old-device.example").await?;
///         records.get(&second).await
///     })
///     .await?;
/// assert_eq!(decided, None);
/// # store.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct RecordAdapter {
    sender: Sender,
}

impl std::fmt::Debug for RecordAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_transaction = self.is_transaction();
        f.debug_struct("RecordAdapter")
            .field("is_transaction", &is_transaction)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// The store's observation records, as a layer that replicates them works with them.
    #[must_use]
    pub fn records(&self) -> RecordAdapter {
        RecordAdapter { sender: self.sender(CallOptions::default()) }
    }
}

impl RecordAdapter {
    fn document(&self, id: &DocumentId) -> DocumentRef {
        DocumentRef::new(self.sender.clone(), id.clone())
    }

    /// It holds documents, and nothing that it does counts before [`Self::commit`].
    #[must_use]
    pub const fn is_transaction(&self) -> bool {
        matches!(self.sender.route, Route::Unit(_))
    }

    /// The decision of a record; none without a valid copy.
    ///
    /// # Errors
    /// As [`DocumentRef::observation_decision`]; [`Error::UnsupportedRecordType`]; [`Error::NotHeld`] in
    /// a transaction that does not hold the document.
    pub async fn get(&self, key: &RecordKey) -> Result<Option<RecordDecision>> {
        check_type(&key.record_type)?;
        self.document(&key.id).observation_decision(&key.owner).await
    }

    /// The decisions of these records, in their order. One without a valid copy is absent.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<RecordDecision>> {
        decided_in_chunks(keys, |id| self.document(id)).await
    }

    /// A page of decisions; see [`Store::list_observation_decisions`]. In a transaction it shows the
    /// held documents as the transaction has left them, if they had a copy before.
    ///
    /// # Errors
    /// As [`Store::list_observation_decisions`].
    pub async fn list(
        &self,
        types: &[&str],
        after: Option<(&OwnerDid, &DocumentId)>,
        limit: u32,
    ) -> Result<DecisionPage> {
        let store = &self.sender.store;
        let handle = |id: &DocumentId| match &self.sender.route {
            // One that is not held is asked outside; one that is would wait for this transaction.
            Route::Unit(unit) if unit.check_held(&StreamKey::Document(id.clone())).is_err() => {
                store.document(id)
            }
            _ => self.document(id),
        };
        store.list_decisions(types, after, limit, handle).await
    }

    /// Puts a copy; see [`DocumentRef::put_observation_copy`].
    ///
    /// # Errors
    /// As [`DocumentRef::put_observation_copy`]; [`Error::NotHeld`] as [`Self::get`].
    pub async fn put_copy(&self, record: &SignedRecord) -> Result<()> {
        self.document(&record.key.id).put_observation_copy(record).await
    }

    /// Drops the copies of an issuer; see [`DocumentRef::prune_observation_copy`].
    ///
    /// # Errors
    /// As [`DocumentRef::prune_observation_copy`]; [`Error::UnsupportedRecordType`]; [`Error::NotHeld`]
    /// as [`Self::get`].
    pub async fn prune_copy(&self, key: &RecordKey, issuer: &str) -> Result<()> {
        check_type(&key.record_type)?;
        self.document(&key.id).prune_observation_copy(&key.owner, issuer).await
    }

    /// Whose a document is; see [`Store::observation_document_owner`].
    ///
    /// # Errors
    /// As [`Store::observation_document_owner`].
    pub async fn document_owner(&self, document: &DocumentId) -> Result<Option<OwnerDid>> {
        self.sender.store.observation_document_owner(document).await
    }

    /// An adapter that holds the documents of these records until it has committed, or it and its
    /// clones are dropped; see [`Store::unit_of_work`]. It holds them in sorted order, so two that
    /// hold the same ones never wait for each other.
    ///
    /// # Errors
    /// As [`Store::unit_of_work`]; [`Error::UnsupportedRecordType`]; [`Error::NotHeld`] in a transaction,
    /// which can't begin another one.
    ///
    /// # Cancel safety
    /// A dropped call gives back what it held.
    pub async fn lock(&self, keys: &[RecordKey]) -> Result<Self> {
        keys.iter().try_for_each(|key| check_type(&key.record_type))?;
        let Route::Store(options) = &self.sender.route else {
            let key = "another transaction; it is begun outside of this one".to_owned();
            return Err(Error::NotHeld { key });
        };
        let documents = keys.iter().map(|key| StreamKey::Document(key.id.clone()));
        let unit = UnitOfWork::begin(&self.sender.store, documents, options).await?;
        Ok(Self { sender: unit.sender() })
    }

    /// Writes what this transaction did in one append, or nothing.
    ///
    /// # Errors
    /// As [`UnitOfWork::commit`]; [`Error::NotHeld`] outside a transaction, and when it has committed
    /// before.
    ///
    /// # Cancel safety
    /// A dropped call is carried out whole or not at all.
    pub async fn commit(&self) -> Result<()> {
        match &self.sender.route {
            Route::Unit(unit) => Arc::clone(unit).commit().await,
            Route::Store(_) => {
                Err(Error::NotHeld { key: "anything: it is no transaction".to_owned() })
            }
        }
    }

    /// Runs `work` with an adapter that holds the documents of these records. If it answers well all
    /// that it did is committed, else nothing is.
    ///
    /// # Errors
    /// What `work` answers; as [`Self::lock`] and [`Self::commit`]. After [`Error::Contention`] it may
    /// be run again.
    ///
    /// # Cancel safety
    /// A dropped call is carried out whole or not at all.
    pub async fn transaction<T>(
        &self,
        keys: &[RecordKey],
        work: impl AsyncFnOnce(Self) -> Result<T>,
    ) -> Result<T> {
        let held = self.lock(keys).await?;
        let done = work(held.clone()).await?;
        held.commit().await?;
        Ok(done)
    }
}
