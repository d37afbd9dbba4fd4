//! The handle on an owner's connector: sync state and lease. Its sweeps are in `sweep.rs`.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::lease::{Lease, millis, not_in_a_unit};
use super::{CommandId, Route, Sender, check_json, unexpected};
use crate::base::limits::DEFAULT_PROGRESS_RETRIES;
use crate::base::{ConnectorName, Error, Holder, OwnerDid, Result, StreamKey};
use crate::domain::connector::{
    Connector, ConnectorCommand, ConnectorReply, ProgressGuard, SyncProgress, SyncState,
    SyncStateInput,
};
use crate::domain::{self, FencingToken};
use crate::runtime::Intent;

/// A handle on an owner's connector: sync state, sync lease, sweeps.
///
/// Every method is carried out whole or not at all, also when its future is dropped. Through a
/// session's handle every method answers [`Error::LeaseLost`], too, once the lease is lost; and while
/// the connection is being forgotten, commands answer [`Error::ConnectionForgotten`].
#[derive(Clone)]
pub struct ConnectorRef {
    pub(super) sender: Sender,
    pub(super) owner: OwnerDid,
    pub(super) connector: ConnectorName,
    pub(super) key: StreamKey,
}

impl std::fmt::Debug for ConnectorRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ConnectorRef").field(&self.owner).field(&self.connector).finish()
    }
}

/// The version that a progress update has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressVersion {
    /// Grows by one with each update, from 0.
    pub version: i64,
    /// Tells the state from earlier ones that were deleted.
    pub incarnation: Uuid,
}

impl ConnectorRef {
    pub(super) fn new(sender: Sender, owner: OwnerDid, connector: ConnectorName) -> Self {
        let key = StreamKey::Connector(owner.clone(), connector.clone());
        Self { sender, owner, connector, key }
    }

    /// Whose connector.
    #[must_use]
    pub const fn owner(&self) -> &OwnerDid {
        &self.owner
    }

    /// The connector's name.
    #[must_use]
    pub const fn name(&self) -> &ConnectorName {
        &self.connector
    }

    /// This handle, whose next command bears the caller's id: repeated, it gets the first answer
    /// for 24 hours. Each id is for one plain-data command; progress updates by closure and units
    /// of work take no id.
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

    /// This handle for the steps of a call that are not its command: without the caller's id, which
    /// is for one command.
    pub(super) fn without_id(&self) -> Self {
        let sender = self.sender.with_options(|options| options.command_id = None);
        Self { sender, ..self.clone() }
    }

    pub(super) async fn send(&self, command: ConnectorCommand) -> Result<ConnectorReply> {
        self.sender.send::<Connector>(&self.key, command).await
    }

    pub(super) async fn done(&self, command: ConnectorCommand) -> Result<()> {
        match self.send(command).await? {
            ConnectorReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// The sync state, or none.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn sync_state(&self) -> Result<Option<SyncState>> {
        match self.send(ConnectorCommand::SyncState).await? {
            ConnectorReply::SyncState(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    /// Creates the sync state (version 0, a new incarnation) or replaces its fields; version,
    /// incarnation and lease of a standing one stay.
    ///
    /// # Errors
    /// [`Error::InvalidInput`]; retryable errors.
    pub async fn set_sync_state(&self, input: SyncStateInput) -> Result<()> {
        self.sender.store.check_json("checkpoint", input.checkpoint.as_ref())?;
        self.sender.store.check_json("recovery", input.recovery.as_ref())?;
        self.done(ConnectorCommand::SetSyncState(input)).await
    }

    /// Moves the sync on: `recompute` gives the new progress from the standing state, in the
    /// actor's turn. In one process it never meets a conflict; it may run again after a failed
    /// append, another host's write, or a panic of its own, so it must be pure. The status is not
    /// touched.
    ///
    /// # Errors
    /// [`Error::ClosurePanicked`] with the state untouched; [`Error::InvalidInput`] for what the
    /// closure gave; retryable errors.
    pub async fn update_sync_progress(
        &self,
        recompute: impl Fn(Option<&SyncState>) -> SyncProgress + Send + Sync + 'static,
    ) -> Result<ProgressVersion> {
        let max_bytes = self.sender.store.env().bounds.max_json_bytes;
        let make = move |state: &Connector| {
            let update = recompute(state.sync_state().as_ref());
            check_progress(max_bytes, &update)?;
            Ok(ConnectorCommand::UpdateSyncProgress { update, guard: None })
        };
        let reply = match &self.sender.route {
            Route::Store(options) => {
                let intent = Intent::Compute { name: "update_sync_progress", make: Arc::new(make) };
                let directories = self.sender.store.directories();
                let mut options = options.clone();
                options.command_id = None;
                directories.call::<Connector>(&self.key, intent, options).await?
            }
            Route::Unit(unit) => {
                let command = unit.with_state::<Connector, _>(&self.key, make)??;
                unit.run::<Connector>(&self.key, &command)?
            }
        };
        progress(&reply)?.ok_or_else(unexpected)
    }

    /// As [`Self::update_sync_progress`], for a computation that must wait: it runs in the caller's
    /// task between a read and a conditional write that is guarded by version and incarnation, at
    /// most `1 + max_retries` times (5 by default: `None`). A state that was deleted and created
    /// anew in between is never overwritten.
    ///
    /// # Errors
    /// [`Error::ProgressContention`] when every try lost; [`Error::InvalidInput`]; retryable errors.
    pub async fn update_sync_progress_with<F>(
        &self,
        max_retries: Option<u32>,
        mut recompute: impl FnMut(Option<SyncState>) -> F,
    ) -> Result<ProgressVersion>
    where
        F: Future<Output = SyncProgress>,
    {
        let attempts = max_retries.unwrap_or(DEFAULT_PROGRESS_RETRIES).saturating_add(1);
        let handle = self.without_id();
        for _ in 0..attempts {
            let standing = handle.sync_state().await?;
            let guard = standing.as_ref().map_or(ProgressGuard::Absent, |state| {
                ProgressGuard::At { version: state.version, incarnation: state.incarnation }
            });
            let update = recompute(standing).await;
            check_progress(self.sender.store.env().bounds.max_json_bytes, &update)?;
            let guard = Some(guard);
            let reply = handle.send(ConnectorCommand::UpdateSyncProgress { update, guard }).await?;
            if let Some(version) = progress(&reply)? {
                return Ok(version);
            }
        }
        let (owner, connector) = (self.owner.clone(), self.connector.clone());
        Err(Error::ProgressContention { owner, connector, attempts })
    }

    /// Removes the sync state. Removing nothing is fine; the lease stays.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn delete_sync_state(&self) -> Result<()> {
        self.done(ConnectorCommand::DeleteSyncState).await
    }

    /// Takes the lease on the sync. The same holder acquiring again gets a new token,
    /// and its old one is lost.
    ///
    /// # Errors
    /// [`Error::LeaseHeld`] while another holder's lease has not expired; [`Error::InvalidInput`]
    /// for a time to live outside 1 ms to 24 h; retryable errors.
    pub async fn acquire_lease(&self, holder: &Holder, ttl: Duration) -> Result<Lease> {
        if let Route::Unit(_) = self.sender.route {
            return Err(not_in_a_unit());
        }
        let command =
            ConnectorCommand::AcquireLease { holder: holder.clone(), ttl_ms: millis(ttl) };
        let lease = lease(self.send(command).await?)?;
        let store = self.sender.store.clone();
        Ok(Lease::new(store, self.owner.clone(), self.connector.clone(), lease))
    }

    pub(super) async fn renew_lease(
        &self,
        token: FencingToken,
        ttl: Duration,
    ) -> Result<domain::Lease> {
        lease(self.send(ConnectorCommand::RenewLease { token, ttl_ms: millis(ttl) }).await?)
    }

    pub(super) async fn release_lease(&self, token: FencingToken) -> Result<()> {
        self.done(ConnectorCommand::ReleaseLease { token }).await
    }
}

fn lease(reply: ConnectorReply) -> Result<domain::Lease> {
    match reply {
        ConnectorReply::Lease(lease) => Ok(lease),
        _ => Err(unexpected()),
    }
}

fn progress(reply: &ConnectorReply) -> Result<Option<ProgressVersion>> {
    match *reply {
        ConnectorReply::Progress { version, incarnation } => {
            Ok(Some(ProgressVersion { version, incarnation }))
        }
        ConnectorReply::ProgressConflict => Ok(None),
        _ => Err(unexpected()),
    }
}

fn check_progress(max_bytes: usize, update: &SyncProgress) -> Result<()> {
    check_json(max_bytes, "checkpoint", update.checkpoint.as_ref())?;
    check_json(max_bytes, "recovery", update.recovery.as_ref())
}
