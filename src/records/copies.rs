//! The copies of one record: which of them stand, what a put and a prune do to them, and the
//! decision they come to.
//!
//! All standing copies are of one claim, the greatest that was put. The set does not depend on the
//! order of puts, nor on repeats. It knows no token and no signature: whether a copy is valid is
//! an argument.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hlc::Hlc;
use super::signed::{RecordKey, SignedRecord};
use crate::base::Digest;
use crate::base::limits::MAX_RECORD_COPIES;

/// What the valid copies of a record come to: the greatest (version, then claim digest in text
/// order).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordDecision {
    /// The record.
    pub key: RecordKey,
    /// The version that decided.
    pub decision_hlc: Hlc,
    /// The digest of the claim that decided.
    pub content_digest: Digest,
    /// The value; none when the decision is that it is absent.
    pub payload: Option<Arc<[u8]>>,
    /// The valid copies, by signer key.
    pub copies: Vec<SignedRecord>,
}

/// A verified copy, as the set knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordCopy {
    /// The record's stamp.
    pub hlc: Hlc,
    /// The decision version.
    pub version: Hlc,
    /// The digest of the claim.
    pub claim_digest: Digest,
    /// Who signed.
    pub issuer: Arc<str>,
    /// With which key.
    pub signer_key: Arc<str>,
    /// SHA-256 of the token.
    pub op_hash: Digest,
    /// The token's length.
    pub token_bytes: u64,
}

/// A standing copy of one signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingCopy {
    /// Who signed.
    pub issuer: Arc<str>,
    /// SHA-256 of the token.
    pub op_hash: Digest,
    /// The token's length.
    pub token_bytes: u64,
}

/// The standing copies of one record: all of one claim, by signer key, at least one. It is snapshot
/// format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySet {
    /// The stamp that the claim names.
    pub hlc: Hlc,
    /// The decision version that the claim names.
    pub version: Hlc,
    /// The digest of the claim.
    pub claim_digest: Digest,
    /// The copies, by signer key.
    pub copies: BTreeMap<Arc<str>, StandingCopy>,
}

/// What a put does to a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyChange {
    /// The new copy stands.
    pub stands: bool,
    /// The copies that go.
    pub dropped: Vec<Digest>,
}

impl CopyChange {
    /// Nothing happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.stands && self.dropped.is_empty()
    }
}

impl CopySet {
    /// The set of one copy.
    #[must_use]
    pub fn of(copy: &RecordCopy) -> Self {
        let mut set = Self {
            hlc: copy.hlc.clone(),
            version: copy.version.clone(),
            claim_digest: copy.claim_digest,
            copies: BTreeMap::new(),
        };
        set.insert(copy);
        set
    }

    fn insert(&mut self, copy: &RecordCopy) {
        let standing = StandingCopy {
            issuer: Arc::clone(&copy.issuer),
            op_hash: copy.op_hash,
            token_bytes: copy.token_bytes,
        };
        self.copies.insert(Arc::clone(&copy.signer_key), standing);
    }

    /// What putting `copy` does to `standing`. A lower copy does nothing, a higher one takes the
    /// place of all, an equal one stands beside those of other signers: of one signer's copies the
    /// one with the smallest `op_hash`, of all the 64 smallest signer keys. Copies that are not
    /// valid count for nothing, and go where the put is not of a lower copy.
    pub fn put(
        standing: Option<&Self>,
        copy: &RecordCopy,
        is_valid: impl Fn(&StandingCopy) -> bool,
    ) -> CopyChange {
        let Some(set) = standing else {
            return CopyChange { stands: true, dropped: Vec::new() };
        };
        let rank = |version: &Hlc, digest: Digest| (version.clone(), digest);
        let new = rank(&copy.version, copy.claim_digest);
        let old = rank(&set.version, set.claim_digest);
        if new != old {
            if new < old && set.copies.values().any(&is_valid) {
                return CopyChange { stands: false, dropped: Vec::new() };
            }
            let dropped = set.copies.values().map(|copy| copy.op_hash).collect();
            return CopyChange { stands: true, dropped };
        }
        let mut kept: BTreeMap<&Arc<str>, Digest> = BTreeMap::new();
        for (signer, standing) in &set.copies {
            if is_valid(standing) || standing.op_hash == copy.op_hash {
                kept.insert(signer, standing.op_hash);
            }
        }
        let place = kept.entry(&copy.signer_key).or_insert(copy.op_hash);
        *place = copy.op_hash.min(*place);
        while kept.len() > MAX_RECORD_COPIES {
            kept.pop_last();
        }
        let stands_after = |digest: Digest| kept.values().any(|kept| *kept == digest);
        // One that stands without being readable is written again.
        let is_it = |standing: &StandingCopy| standing.op_hash == copy.op_hash;
        let stood = set.copies.values().any(|standing| is_it(standing) && is_valid(standing));
        let before = set.copies.values().map(|standing| standing.op_hash);
        CopyChange {
            stands: stands_after(copy.op_hash) && !stood,
            dropped: before.filter(|digest| !stands_after(*digest)).collect(),
        }
    }

    /// The copies that go when those of `issuer` are pruned, with those that are not valid: none
    /// unless a valid copy of another issuer stays.
    pub fn prune(&self, issuer: &str, is_valid: impl Fn(&StandingCopy) -> bool) -> Vec<Digest> {
        let is_pruned = |copy: &StandingCopy| &*copy.issuer == issuer && is_valid(copy);
        let stays = |copy: &StandingCopy| &*copy.issuer != issuer && is_valid(copy);
        if !self.copies.values().any(stays) || !self.copies.values().any(is_pruned) {
            return Vec::new();
        }
        self.copies.values().filter(|copy| !stays(copy)).map(|copy| copy.op_hash).collect()
    }

    /// The set after a put that made `change`; none before the first copy, or when none is left.
    #[must_use]
    pub fn after_put(
        set: Option<Self>,
        copy: Option<&RecordCopy>,
        dropped: &[Digest],
    ) -> Option<Self> {
        let set = set.and_then(|set| set.without(dropped));
        match (set, copy) {
            (set, None) => set,
            (None, Some(copy)) => Some(Self::of(copy)),
            (Some(mut set), Some(copy)) => {
                set.insert(copy);
                Some(set)
            }
        }
    }

    /// The set without these copies; none when no copy is left.
    #[must_use]
    fn without(mut self, dropped: &[Digest]) -> Option<Self> {
        self.copies.retain(|_, copy| !dropped.contains(&copy.op_hash));
        (!self.copies.is_empty()).then_some(self)
    }
}
