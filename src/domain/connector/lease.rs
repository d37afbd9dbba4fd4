//! The rules of the sync lease.
//!
//! Fencing decides, not the clock: a lease past its expiry stays good until somebody takes it.

use super::command::ConnectorReply;
use super::event::{ConnectorEvent, LeaseRenewed};
use super::state::Connector;
use crate::base::limits::{MAX_LEASE_MS, MIN_LEASE_MS};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, Holder, Result};
use crate::domain::{Context, Decision, FencingToken, Lease, LeaseScope};

impl Connector {
    /// The standing lease. One of another generation is void: it was taken in a future that a
    /// restored store never saw.
    pub(super) fn standing_lease(&self, context: &Context) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.token.generation == context.generation)
    }

    /// Takes the lease unless another holder has a live one. The same holder gets a new token.
    pub(super) fn acquire_lease(
        &self,
        holder: &Holder,
        ttl_ms: i64,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_ttl(ttl_ms)?;
        if let Some(lease) = self.standing_lease(context)
            && lease.holder != *holder
            && lease.expires_at > context.now
            && !is_planted(PlantedBug::LeaseTakenEarly)
        {
            return Err(Error::LeaseHeld {
                holder: lease.holder.clone(),
                expires_at: lease.expires_at,
            });
        }
        let lease = Lease {
            holder: holder.clone(),
            token: FencingToken { generation: context.generation, version: context.next_version },
            expires_at: context.now.plus_millis(ttl_ms),
        };
        let event = ConnectorEvent::LeaseAcquired(lease.clone());
        Ok(Decision::events(ConnectorReply::Lease(lease), vec![event]))
    }

    /// Holds it longer, also past its expiry while nobody took it.
    pub(super) fn renew_lease(
        &self,
        scope: &LeaseScope,
        token: FencingToken,
        ttl_ms: i64,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_ttl(ttl_ms)?;
        let lease = self.current_lease(scope, token, context)?;
        let expires_at = context.now.plus_millis(ttl_ms);
        let event = ConnectorEvent::LeaseRenewed(LeaseRenewed { expires_at });
        let renewed = Lease { expires_at, ..lease.clone() };
        Ok(Decision::events(ConnectorReply::Lease(renewed), vec![event]))
    }

    /// Gives it back.
    pub(super) fn release_lease(
        &self,
        scope: &LeaseScope,
        token: FencingToken,
        context: &Context,
    ) -> Result<Decision<Self>> {
        self.current_lease(scope, token, context)?;
        Ok(Decision::events(ConnectorReply::Done, vec![ConnectorEvent::LeaseReleased]))
    }

    /// Ends a lease that is void already, so that its row tells of none that stands.
    pub(super) fn void_lease(&self, context: &Context) -> Decision<Self> {
        let is_void = self.lease.is_some() && self.standing_lease(context).is_none();
        let events = if is_void { vec![ConnectorEvent::LeaseReleased] } else { Vec::new() };
        Decision::events(ConnectorReply::Done, events)
    }

    fn current_lease(
        &self,
        scope: &LeaseScope,
        token: FencingToken,
        context: &Context,
    ) -> Result<&Lease> {
        self.standing_lease(context)
            .filter(|lease| lease.token == token)
            .ok_or_else(|| scope.lost())
    }
}

fn check_ttl(ttl_ms: i64) -> Result<()> {
    if (MIN_LEASE_MS..=MAX_LEASE_MS).contains(&ttl_ms) {
        return Ok(());
    }
    let reason = format!("expected {MIN_LEASE_MS} to {MAX_LEASE_MS} ms, got {ttl_ms}");
    Err(Error::invalid("ttl", reason))
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
