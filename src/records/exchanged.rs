//! A signed record as it is written for others, in JSON or in a binary form of serde.
//!
//! It knows how the fields are written, not whether they are true.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base64url;
use super::hlc::Hlc;
use super::signed::{RecordKey, SignedRecord};
use crate::base::{Digest, DocumentId, OwnerDid};

/// `{"type","owner","id","hlc","op_jwt","op_hash","payload"}`: the digest in lower-case hex, the
/// payload in base64url or null. Every field must be there, and no other.
#[derive(Serialize, Deserialize)]
#[serde(rename = "SignedRecord", deny_unknown_fields)]
struct Exchanged<T> {
    #[serde(rename = "type")]
    record_type: T,
    owner: OwnerDid,
    id: DocumentId,
    hlc: Hlc,
    op_jwt: T,
    op_hash: String,
    // Named, so that a payload that is left out is not taken for one that is absent.
    #[serde(deserialize_with = "Option::deserialize")]
    payload: Option<String>,
}

impl Serialize for SignedRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let exchanged = Exchanged {
            record_type: &*self.key.record_type,
            owner: self.key.owner.clone(),
            id: self.key.id.clone(),
            hlc: self.hlc.clone(),
            op_jwt: &*self.op_jwt,
            op_hash: self.op_hash.to_hex(),
            payload: self.payload.as_deref().map(base64url::encode),
        };
        exchanged.serialize(to)
    }
}

/// Strict. It decodes the payload, so whoever reads a record from others bounds the text before.
impl<'de> Deserialize<'de> for SignedRecord {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = Exchanged::<String>::deserialize(from)?;
        let op_hash = Digest::from_hex(&read.op_hash)
            .ok_or_else(|| D::Error::custom("op_hash: expected lower-case hex of SHA-256"))?;
        let payload = match read.payload {
            None => None,
            Some(text) => {
                let expected = || D::Error::custom("payload: expected strict base64url");
                Some(base64url::decode(&text).ok_or_else(expected)?.into())
            }
        };
        Ok(Self {
            key: RecordKey { record_type: read.record_type.into(), owner: read.owner, id: read.id },
            hlc: read.hlc,
            op_jwt: read.op_jwt.into(),
            op_hash,
            payload,
        })
    }
}

#[cfg(test)]
#[path = "exchanged_tests.rs"]
mod tests;
