//! The sync lease: one process at a time mirrors for an owner, and one that lost the right to
//! cannot write another row.

use std::time::Duration;

use connector_store::{ConnectorRef, Error, Holder, Lease, Session};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::report::Report;
use crate::stop::Stop;

/// A process that dies leaves its lease behind for so long; one that lives renews it in time.
const TTL: Duration = Duration::from_secs(10);
/// Two renewals may fail before the lease can be taken by another.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How often a lease that another has is asked for again.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A lease that is renewed for as long as this value lives.
#[derive(Debug)]
pub struct HeldLease {
    lease: Lease,
    renewal: JoinHandle<()>,
}

impl HeldLease {
    /// Takes the lease, and waits for it where another holds it. None when the user wants to stop.
    pub async fn take(
        connector: &ConnectorRef,
        holder: &Holder,
        report: &Report,
        stop: &Stop,
    ) -> Result<Option<Self>, Failure> {
        let mut told = false;
        while !stop.requested() {
            match connector.acquire_lease(holder, TTL).await {
                Ok(lease) => {
                    let renewal = tokio::spawn(renew(lease.clone()));
                    return Ok(Some(Self { lease, renewal }));
                }
                Err(Error::LeaseHeld { holder, .. }) => {
                    if !told {
                        report.note(&format!(
                            "waiting: {holder} syncs this owner; if it was killed, its lease ends \
                             within {} s",
                            TTL.as_secs()
                        ));
                        told = true;
                    }
                    stop.sleep(ASK_EVERY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Handles whose every command is refused once another has the lease.
    pub fn session(&self) -> Session {
        self.lease.session()
    }

    /// Gives the lease back. Where it is lost already there is nothing to give.
    pub async fn release(self) -> Result<(), Failure> {
        self.renewal.abort();
        match self.lease.release().await {
            Ok(()) | Err(Error::LeaseLost { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// Renews until the lease is lost. Nobody needs to be told then: the store refuses the session's
/// next command, wherever it comes from.
async fn renew(mut lease: Lease) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match lease.renew(TTL).await {
            Ok(renewed) => lease = renewed,
            Err(error) if error.is_retryable() => {}
            Err(_) => return,
        }
    }
}
