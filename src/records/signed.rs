//! Signed records as they are exchanged, and what a verified one says.
//!
//! Plain data. It knows no token's inside and no rule of copies.

use std::fmt;
use std::sync::Arc;

use super::hlc::Hlc;
use crate::base::limits::{DEFAULT_MAX_PAYLOAD_BYTES, DEFAULT_MAX_TOKEN_BYTES};
use crate::base::{Digest, DocumentId, OwnerDid, RecordFault, Result};

/// The one type of records that the store keeps.
pub const OBSERVATION_TYPE: &str = "connector.observation";

/// What a record is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// The type of the record: [`OBSERVATION_TYPE`] for all that the store takes.
    pub record_type: Arc<str>,
    /// Whose record.
    pub owner: OwnerDid,
    /// The document that it speaks of.
    pub id: DocumentId,
}

impl RecordKey {
    /// The key of an observation.
    #[must_use]
    pub fn observation(owner: &OwnerDid, id: &DocumentId) -> Self {
        let record_type = Arc::from(OBSERVATION_TYPE);
        Self { record_type, owner: owner.clone(), id: id.clone() }
    }
}

/// One signed copy of a record. Nothing of it is believed before it is verified.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedRecord {
    /// What it is of.
    pub key: RecordKey,
    /// The record's stamp.
    pub hlc: Hlc,
    /// The token: a compact JWS.
    pub op_jwt: Arc<str>,
    /// SHA-256 of the token's bytes.
    pub op_hash: Digest,
    /// The value; none says that it is absent.
    pub payload: Option<Arc<[u8]>>,
}

/// Token and payload are content, so neither is shown.
impl fmt::Debug for SignedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedRecord")
            .field("key", &self.key)
            .field("hlc", &self.hlc)
            .field("op_hash", &self.op_hash)
            .finish_non_exhaustive()
    }
}

/// How large the parts of a record may be. Held before anything is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// Largest token, in bytes.
    pub max_token_bytes: usize,
    /// Largest payload, in bytes.
    pub max_payload_bytes: usize,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self {
            max_token_bytes: DEFAULT_MAX_TOKEN_BYTES,
            max_payload_bytes: DEFAULT_MAX_PAYLOAD_BYTES,
        }
    }
}

impl RecordLimits {
    /// Refuses a record that is larger.
    ///
    /// # Errors
    /// [`RecordFault::TooLarge`] that names the part.
    pub fn check(&self, record: &SignedRecord) -> Result<(), RecordFault> {
        let payload_bytes = record.payload.as_ref().map_or(0, |payload| payload.len());
        for (what, bytes, max_bytes) in [
            ("token", record.op_jwt.len(), self.max_token_bytes),
            ("payload", payload_bytes, self.max_payload_bytes),
        ] {
            if bytes > max_bytes {
                return Err(RecordFault::TooLarge { what, max_bytes });
            }
        }
        Ok(())
    }
}

/// What a record says once its token is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRecord {
    /// What it is of.
    pub key: RecordKey,
    /// The record's stamp.
    pub hlc: Hlc,
    /// The decision version.
    pub version: Hlc,
    /// The digest of the claim.
    pub claim_digest: Digest,
    /// SHA-256 of the payload; none for an absent value.
    pub payload: Option<Digest>,
    /// Who signed.
    pub issuer: Arc<str>,
    /// With which key: the issuer for `did:key`, else issuer and key id.
    pub signer_key: Arc<str>,
    /// SHA-256 of the token.
    pub op_hash: Digest,
    /// The token is not valid before this time, in milliseconds since the epoch.
    pub not_before_ms: Option<i64>,
}

impl VerifiedRecord {
    /// Refuses a record that has this one's token and says something else beside it.
    ///
    /// # Errors
    /// [`RecordFault::Mismatch`] that names the field.
    pub fn check(&self, record: &SignedRecord) -> Result<(), RecordFault> {
        let payload = record.payload.as_deref().map(Digest::of);
        for (is_same, field) in [
            (record.key.record_type == self.key.record_type, "type"),
            (record.key.owner == self.key.owner, "owner"),
            (record.key.id == self.key.id, "id"),
            (record.hlc == self.hlc, "hlc"),
            (record.op_hash == self.op_hash, "op_hash"),
            (payload == self.payload, "payload"),
        ] {
            if !is_same {
                return Err(RecordFault::Mismatch { field });
            }
        }
        Ok(())
    }
}
