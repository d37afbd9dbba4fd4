//! Tokens: from the text of a compact JWS to what it claims, and whether its issuer signed it.
//!
//! Strict: every textual form is canonical or refused, and the issuer's key says which algorithm is
//! used, never the token. It resolves no key but those that `did:key` issuers are.

use std::fmt;
use std::sync::Arc;

use super::claim::Claims;
use super::issuer::{EXPECTED_KEY_ID, Issuer};
use super::jws::{Algorithm, Jws};
use super::keys::PublicKey;
use super::signed::{RecordLimits, SignedRecord, VerifiedRecord};
use crate::base::{Digest, RecordFault, Result};

/// A record whose token has the right form and claims what the record says. Nothing is proved
/// before [`verify`].
#[derive(Clone)]
pub struct ParsedRecord {
    claims: VerifiedRecord,
    key_id: Option<Arc<str>>,
    built_in_key: Option<PublicKey>,
    algorithm: Algorithm,
    token: Arc<str>,
    /// How much of the token is signed.
    signed_bytes: usize,
    signature: [u8; 64],
}

impl ParsedRecord {
    /// The DID of the issuer.
    #[must_use]
    pub const fn issuer(&self) -> &Arc<str> {
        &self.claims.issuer
    }

    /// The key id of the header, without the DID and `#` that may stand before it.
    #[must_use]
    pub fn key_id(&self) -> Option<&str> {
        self.key_id.as_deref()
    }

    /// What the token claims.
    #[must_use]
    pub const fn claims(&self) -> &VerifiedRecord {
        &self.claims
    }

    /// The key that the issuer is, for `did:key`; the keys of other methods must be resolved.
    #[must_use]
    pub const fn built_in_key(&self) -> Option<&PublicKey> {
        self.built_in_key.as_ref()
    }
}

/// The token is content, so it is not shown.
impl fmt::Debug for ParsedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedRecord")
            .field("claims", &self.claims)
            .field("key_id", &self.key_id)
            .field("built_in_key", &self.built_in_key)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Reads a record's token and compares it with the record. Sizes come first: nothing of a record
/// that is too large is decoded or hashed.
///
/// # Errors
/// What is wrong with it.
pub fn parse(record: &SignedRecord, limits: &RecordLimits) -> Result<ParsedRecord, RecordFault> {
    limits.check(record)?;
    read(record, Digest::of(record.op_jwt.as_bytes()), Issuer::parse)
}

/// Reads a record of any size, whose token has the digest `op_hash`. `issuer_of` gives what
/// [`Issuer::parse`] does.
pub(crate) fn read(
    record: &SignedRecord,
    op_hash: Digest,
    issuer_of: impl FnOnce(&str) -> Option<Issuer>,
) -> Result<ParsedRecord, RecordFault> {
    let jws = Jws::parse(&record.op_jwt)?;
    let Claims { issuer, not_before_ms, claim, claim_digest } =
        Claims::parse(jws.payload, issuer_of)?;
    let key_id = match jws.kid.as_deref() {
        None => None,
        Some(kid) => {
            Some(issuer.key_id(kid).ok_or(RecordFault::Header { reason: EXPECTED_KEY_ID })?)
        }
    };
    let signer_key = issuer
        .signer_key(key_id)
        .ok_or(RecordFault::Issuer { reason: "expected a kid, for the DID is no key itself" })?;
    let built_in_key = issuer.built_in_key().cloned();
    if built_in_key.as_ref().is_some_and(|key| Algorithm::of(key) != jws.algorithm) {
        return Err(RecordFault::Algorithm);
    }
    let claims = VerifiedRecord {
        key: claim.key,
        hlc: claim.hlc,
        version: claim.version,
        claim_digest,
        payload: claim.payload,
        issuer: Arc::clone(issuer.did()),
        signer_key,
        op_hash,
        not_before_ms,
    };
    claims.check(record)?;
    Ok(ParsedRecord {
        claims,
        key_id: key_id.map(Arc::from),
        built_in_key,
        algorithm: jws.algorithm,
        token: Arc::clone(&record.op_jwt),
        signed_bytes: jws.signed.len(),
        signature: jws.signature,
    })
}

/// Whether the key signed the record, strictly. It must be the issuer's: [`ParsedRecord::built_in_key`],
/// or what the issuer's method says.
///
/// # Errors
/// [`RecordFault::Algorithm`] when the token's algorithm is not the key's, else
/// [`RecordFault::Signature`].
pub fn verify(parsed: &ParsedRecord, key: &PublicKey) -> Result<VerifiedRecord, RecordFault> {
    if Algorithm::of(key) != parsed.algorithm {
        return Err(RecordFault::Algorithm);
    }
    let signed = parsed.token.as_bytes().get(..parsed.signed_bytes).unwrap_or_default();
    if key.verifies(signed, &parsed.signature) {
        Ok(parsed.claims.clone())
    } else {
        Err(RecordFault::Signature)
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
