//! Who may sign for whom, and where the keys of other DID methods than `key` come from.
//!
//! Traits that a host implements. The futures are the host's; nothing here waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::keys::PublicKey;
use crate::base::OwnerDid;

/// The future of a key look-up.
pub type KeyFuture<'a> = Pin<
    Box<dyn Future<Output = std::result::Result<Option<PublicKey>, KeyUnavailable>> + Send + 'a>,
>;

/// A key can't be told now. It is no verdict: the call that needed it may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUnavailable;

/// Resolves the keys of DIDs of other methods than `key`.
pub trait MethodRegistry: Send + Sync + 'static {
    /// The verification key of a DID and a key id. None says for certain that there is no such key.
    fn resolve<'a>(&'a self, did: &'a str, key_id: &'a str) -> KeyFuture<'a>;

    /// Grows when a key was rotated or revoked, or when the signer policy says something else than
    /// before: what was verified under an earlier epoch is verified again.
    fn epoch(&self) -> u64;
}

/// Says whether an issuer may sign for an owner. What it says may change only together with the
/// epoch of the registry.
pub trait SignerPolicy: Send + Sync + 'static {
    /// The issuer may sign records of the owner.
    fn allows(&self, issuer: &str, owner: &OwnerDid) -> bool;
}

/// An owner signs alone. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnerOnly;

impl SignerPolicy for OwnerOnly {
    fn allows(&self, issuer: &str, owner: &OwnerDid) -> bool {
        issuer == owner.as_str()
    }
}

/// An owner signs, and who was allowed to sign for that owner: another device, another host.
#[derive(Clone, Default)]
pub struct AllowList {
    issuers: BTreeMap<OwnerDid, BTreeSet<String>>,
}

impl AllowList {
    /// This list, which lets `issuer` sign for `owner` too.
    #[must_use]
    pub fn allow(mut self, owner: &OwnerDid, issuer: impl Into<String>) -> Self {
        self.issuers.entry(owner.clone()).or_default().insert(issuer.into());
        self
    }
}

impl fmt::Debug for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowList").field("owners", &self.issuers.len()).finish()
    }
}

impl SignerPolicy for AllowList {
    fn allows(&self, issuer: &str, owner: &OwnerDid) -> bool {
        let is_listed = |issuers: &BTreeSet<String>| issuers.contains(issuer);
        issuer == owner.as_str() || self.issuers.get(owner).is_some_and(is_listed)
    }
}

/// Everybody signs for everybody: for records whose issuers are checked elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnySigner;

impl SignerPolicy for AnySigner {
    fn allows(&self, _: &str, _: &OwnerDid) -> bool {
        true
    }
}
