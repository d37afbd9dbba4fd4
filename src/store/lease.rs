//! A held lease, and the session in which every command is fenced by it.

use std::time::Duration;

use super::{ConnectorRef, DocumentRef, Store, UnitOfWork};
use crate::base::limits::MAX_LEASE_MS;
use crate::base::{
    ConnectorName, DocumentId, Error, Holder, OwnerDid, Result, StreamKey, Timestamp,
};
use crate::domain::{self, Fence, FencingToken, LeaseScope};
use crate::runtime::CallOptions;

/// A lease on the sync of an owner's connector.
///
/// Dropping it does not release it: a host that is killed could not do so either, and the lease is
/// taken over after it expires. Every method is carried out whole or not at all, also when its future
/// is dropped.
#[derive(Clone, Debug)]
pub struct Lease {
    store: Store,
    owner: OwnerDid,
    connector: ConnectorName,
    lease: domain::Lease,
}

impl Lease {
    pub(super) const fn new(
        store: Store,
        owner: OwnerDid,
        connector: ConnectorName,
        lease: domain::Lease,
    ) -> Self {
        Self { store, owner, connector, lease }
    }

    /// Who holds it.
    #[must_use]
    pub const fn holder(&self) -> &Holder {
        &self.lease.holder
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.lease.token
    }

    /// From then on anyone may take it; until someone does, it stays good.
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.lease.expires_at
    }

    fn connector(&self) -> ConnectorRef {
        self.store.connector(&self.owner, &self.connector)
    }

    /// Extends the lease to `ttl` from now. The token stays.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when the token is not the current one; [`Error::InvalidInput`] for a
    /// time to live outside 1 ms to 24 h; retryable errors.
    pub async fn renew(&self, ttl: Duration) -> Result<Self> {
        let lease = self.connector().renew_lease(self.token(), ttl).await?;
        Ok(Self { lease, ..self.clone() })
    }

    /// Gives the lease up.
    ///
    /// # Errors
    /// [`Error::LeaseLost`] when the token is not the current one; retryable errors.
    pub async fn release(&self) -> Result<()> {
        self.connector().release_lease(self.token()).await
    }

    /// Handles whose every command commits only if this lease's token is still current in the same
    /// transaction, whichever key it goes to. A host that was paused past its lease cannot write one
    /// more row under it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use connector_store::*;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
    /// # let (owner, source) = (OwnerDid::new("did:web:ada.example")?, ConnectorName::new("files")?);
    /// let account = store.connector(&owner, &source);
    /// let host = Holder::new("host-1")?;
    /// let old = account.acquire_lease(&host, Duration::from_secs(60)).await?;
    /// // The same host after a restart: what is left of the old one writes nothing more.
    /// let new = account.acquire_lease(&host, Duration::from_secs(60)).await?;
    ///
    /// let late = old.session().connector().delete_sync_state().await;
    /// assert!(matches!(late, Err(Error::LeaseLost { .. })));
    /// new.session().connector().delete_sync_state().await?;
    /// # store.close().await
    /// # }
    /// ```
    #[must_use]
    pub fn session(&self) -> Session {
        let (owner, connector) = (self.owner.clone(), self.connector.clone());
        let scope = LeaseScope::Sync { owner: owner.clone(), connector: connector.clone() };
        let fence = Fence { scope, token: self.token() };
        Session::new(self.store.clone(), fence, owner, connector)
    }
}

/// Handles that are fenced by a lease, of a sync or of an operation: see [`Lease::session`] and
/// [`super::ClaimedOperation::session`]. What is called through them answers
/// [`Error::LeaseLost`] once the lease is lost.
#[derive(Clone, Debug)]
pub struct Session {
    store: Store,
    fence: Fence,
    owner: OwnerDid,
    connector: ConnectorName,
}

impl Session {
    pub(super) const fn new(
        store: Store,
        fence: Fence,
        owner: OwnerDid,
        connector: ConnectorName,
    ) -> Self {
        Self { store, fence, owner, connector }
    }

    fn options(&self) -> CallOptions {
        CallOptions {
            fence: Some(self.fence.clone()),
            owner: Some(self.owner.clone()),
            ..CallOptions::default()
        }
    }

    /// A fenced handle on a document.
    #[must_use]
    pub fn document(&self, document: &DocumentId) -> DocumentRef {
        DocumentRef::new(self.store.sender(self.options()), document.clone())
    }

    /// A fenced handle on the connector of the lease.
    #[must_use]
    pub fn connector(&self) -> ConnectorRef {
        let sender = self.store.sender(self.options());
        ConnectorRef::new(sender, self.owner.clone(), self.connector.clone())
    }

    /// A fenced unit of work; see [`Store::unit_of_work`].
    ///
    /// # Errors
    /// As [`Store::unit_of_work`].
    ///
    /// # Cancel safety
    /// A dropped call gives back what it held.
    pub async fn unit_of_work(
        &self,
        keys: impl IntoIterator<Item = StreamKey>,
    ) -> Result<UnitOfWork> {
        UnitOfWork::begin(&self.store, keys, &self.options()).await
    }
}

/// A time to live in milliseconds. What is out of range is refused where the lease is decided.
pub(super) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(MAX_LEASE_MS + 1)
}

/// The refusal of a unit of work to hand out a lease: its token would not be on disk yet.
pub(super) fn not_in_a_unit() -> Error {
    Error::NotHeld { key: "a lease; it is acquired outside units of work".to_owned() }
}
