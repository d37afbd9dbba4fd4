//! `did:key`: a DID that is a public key.
//!
//! It knows how a key is written in a DID, not how a signature is verified.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keys::{
    ED25519_BYTES, Ed25519PublicKey, P256_BYTES, P256PublicKey, PublicKey, SigningKey,
};
use crate::base::{Error, OwnerDid, Result};

/// Method and multibase (`z`: base58, the alphabet of Bitcoin) of every DID that is taken.
const PREFIX: &str = "did:key:z";
/// Longest base58 part, held before decoding. The longest key that is taken has 49 characters.
const MAX_BASE58_CHARS: usize = 64;
/// The multicodec of an Ed25519 public key, as its varint.
const ED25519_CODEC: [u8; 2] = [0xed, 0x01];
/// The multicodec of a P-256 public key, as its varint.
const P256_CODEC: [u8; 2] = [0x80, 0x24];

/// A DID of the method `key` in its one canonical text, with the key it holds.
///
/// ```
/// use connector_store::records::{DidKey, SigningKey};
///
/// let did = SigningKey::ed25519_from_seed([7; 32]).did();
/// assert_eq!(DidKey::parse(did.as_str()).unwrap(), did);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DidKey {
    text: Arc<str>,
    key: PublicKey,
}

impl DidKey {
    /// The DID of a text, if the text is the canonical one of an Ed25519 or P-256 key.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `did`, or for `public_key` when the bytes are no key.
    pub fn parse(text: &str) -> Result<Self> {
        let base58 = text.strip_prefix(PREFIX).ok_or_else(|| invalid("expected did:key:z…"))?;
        if base58.len() > MAX_BASE58_CHARS {
            let reason = format!("expected at most {MAX_BASE58_CHARS} characters of base58");
            return Err(invalid(reason));
        }
        let bytes =
            bs58::decode(base58).into_vec().map_err(|_| invalid("expected base58 after the z"))?;
        let did = Self::from_key(decode_key(&bytes)?);
        // One key has one DID, or two spellings of a signer would be two signers.
        if &*did.text == text { Ok(did) } else { Err(invalid("expected the canonical text")) }
    }

    /// The DID of a key.
    #[must_use]
    pub fn from_key(key: PublicKey) -> Self {
        let mut bytes = Vec::with_capacity(ED25519_CODEC.len() + P256_BYTES);
        match &key {
            PublicKey::Ed25519(key) => {
                bytes.extend(ED25519_CODEC);
                bytes.extend(key.to_bytes());
            }
            PublicKey::P256(key) => {
                bytes.extend(P256_CODEC);
                bytes.extend(key.to_bytes());
            }
        }
        let text = format!("{PREFIX}{}", bs58::encode(bytes).into_string());
        Self { text: text.into(), key }
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }
}

impl SigningKey {
    /// The DID of the public half.
    #[must_use]
    pub fn did(&self) -> DidKey {
        DidKey::from_key(self.public_key())
    }
}

fn decode_key(bytes: &[u8]) -> Result<PublicKey> {
    let Some((codec, key)) = bytes.split_first_chunk::<2>() else {
        return Err(invalid("expected a multicodec and a key"));
    };
    match *codec {
        ED25519_CODEC => {
            let key: &[u8; ED25519_BYTES] =
                key.try_into().map_err(|_| invalid("expected 32 bytes of an Ed25519 key"))?;
            Ed25519PublicKey::from_bytes(key).map(PublicKey::Ed25519)
        }
        P256_CODEC => {
            let key: &[u8; P256_BYTES] =
                key.try_into().map_err(|_| invalid("expected 33 bytes of a P-256 key"))?;
            P256PublicKey::from_bytes(key).map(PublicKey::P256)
        }
        _ => Err(invalid("expected the multicodec of an Ed25519 or P-256 public key")),
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::invalid("did", reason)
}

impl fmt::Display for DidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for DidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DidKey({})", self.text)
    }
}

impl TryFrom<String> for DidKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<DidKey> for String {
    fn from(value: DidKey) -> Self {
        value.text.as_ref().to_owned()
    }
}

impl TryFrom<&DidKey> for OwnerDid {
    type Error = Error;

    fn try_from(did: &DidKey) -> Result<Self> {
        Self::new(did.as_str())
    }
}

#[cfg(test)]
#[path = "did_tests.rs"]
mod tests;
