//! The copies of one record: which of them stand, what a put and a prune do to them, and the
//! decision they come to.
//!
//! It knows no token and no signature: whether a copy is valid is an argument. All standing copies
//! are of one claim, the greatest that was put.
//!
//! While what is valid stays so, the set after some puts depends neither on their order nor on
//! repeats, stores that put each other's copies come to equal sets, and no put takes the decision
//! back. A copy that is no longer valid, because its key was revoked or its content is damaged,
//! counts for nothing: if no valid one is left, a lower copy may decide, until a higher one is put
//! again.
//!
//! A prune never changes the decision, but it does not commute with puts: a pruned copy that is put
//! again stands again. Each store prunes by the copies that it has itself, so where two of them prune
//! different issuers at once, a valid copy is left in both, and once they put each other's copies
//! they are equal again, with what both had left.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hlc::Hlc;
use super::signed::{RecordKey, SignedRecord, VerifiedRecord};
use crate::base::Digest;
use crate::base::limits::MAX_RECORD_COPIES;
use crate::base::planted::{PlantedBug, is_planted};

/// What the valid copies of a record come to: the greatest (version, then claim digest in text
/// order).
#[derive(Clone, PartialEq, Eq)]
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

/// The payload is content: it is not shown.
impl fmt::Debug for RecordDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordDecision")
            .field("key", &self.key)
            .field("decision_hlc", &self.decision_hlc)
            .field("content_digest", &self.content_digest)
            .field("copies", &self.copies)
            .finish_non_exhaustive()
    }
}

/// A verified copy, as the set knows it. It is part of an event's format.
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

impl RecordCopy {
    /// What the set knows of a record with this token.
    #[must_use]
    pub fn of(said: &VerifiedRecord, token: &str) -> Self {
        Self {
            hlc: said.hlc.clone(),
            version: said.version.clone(),
            claim_digest: said.claim_digest,
            issuer: Arc::clone(&said.issuer),
            signer_key: Arc::clone(&said.signer_key),
            op_hash: said.op_hash,
            token_bytes: token.len() as u64,
        }
    }
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
    /// What putting `copy`, which is valid, does to `standing`. A lower copy does nothing, a higher
    /// one takes the place of all, an equal one stands beside those of other signers: of one signer's
    /// copies the one with the smallest `op_hash`, of all the 64 smallest signer keys. Copies that
    /// are not valid count for nothing, and go where the put is not of a lower copy.
    pub fn put(
        standing: Option<&Self>,
        copy: &RecordCopy,
        is_valid: impl Fn(&StandingCopy) -> bool,
    ) -> CopyChange {
        let Some(set) = standing else {
            return CopyChange { stands: true, dropped: Vec::new() };
        };
        match (&copy.version, copy.claim_digest).cmp(&(&set.version, set.claim_digest)) {
            Ordering::Less
                if set.copies.values().any(&is_valid)
                    && !is_planted(PlantedBug::LowerDecisionWins) =>
            {
                CopyChange { stands: false, dropped: Vec::new() }
            }
            Ordering::Equal => set.put_equal(copy, is_valid),
            Ordering::Less | Ordering::Greater => {
                let dropped = set.copies.values().map(|copy| copy.op_hash).collect();
                CopyChange { stands: true, dropped }
            }
        }
    }

    fn put_equal(&self, copy: &RecordCopy, is_valid: impl Fn(&StandingCopy) -> bool) -> CopyChange {
        let valid = self.copies.iter().filter(|(_, standing)| is_valid(standing));
        let mut kept: BTreeMap<&str, Digest> =
            valid.map(|(signer, standing)| (&**signer, standing.op_hash)).collect();
        let signer = &*copy.signer_key;
        // One that stands without being valid is written again.
        let stood = kept.get(signer) == Some(&copy.op_hash);
        let place = kept.entry(signer).or_insert(copy.op_hash);
        *place = copy.op_hash.min(*place);
        while kept.len() > MAX_RECORD_COPIES {
            kept.pop_last();
        }
        let goes = |(signer, standing): &(&Arc<str>, &StandingCopy)| {
            kept.get(&***signer) != Some(&standing.op_hash)
        };
        let dropped = self.copies.iter().filter(goes).map(|(_, standing)| standing.op_hash);
        let stands = kept.get(signer) == Some(&copy.op_hash) && !stood;
        CopyChange { stands, dropped: dropped.collect() }
    }

    /// The copies that go when those of `issuer`, made with whichever of its keys, are pruned, and
    /// with them those that are not valid: none unless a valid copy of another issuer stays.
    pub fn prune(&self, issuer: &str, is_valid: impl Fn(&StandingCopy) -> bool) -> Vec<Digest> {
        let (stay, go): (Vec<_>, Vec<_>) =
            self.copies.values().partition(|copy| &*copy.issuer != issuer && is_valid(copy));
        let is_last = stay.is_empty() && !is_planted(PlantedBug::PruneLosesDecision);
        if is_last { Vec::new() } else { go.iter().map(|copy| copy.op_hash).collect() }
    }

    /// The set once a copy stands in it; none is the set before the first one.
    #[must_use]
    pub fn with(before: Option<Self>, copy: &RecordCopy) -> Self {
        let mut copies = before.map_or_else(BTreeMap::new, |set| set.copies);
        let standing = StandingCopy {
            issuer: Arc::clone(&copy.issuer),
            op_hash: copy.op_hash,
            token_bytes: copy.token_bytes,
        };
        copies.insert(Arc::clone(&copy.signer_key), standing);
        let (hlc, version) = (copy.hlc.clone(), copy.version.clone());
        Self { hlc, version, claim_digest: copy.claim_digest, copies }
    }

    /// The set without these copies; none when no copy is left.
    #[must_use]
    pub fn without(mut self, dropped: &[Digest]) -> Option<Self> {
        self.copies.retain(|_, copy| !dropped.contains(&copy.op_hash));
        (!self.copies.is_empty()).then_some(self)
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
