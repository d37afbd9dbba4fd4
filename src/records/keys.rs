//! Signing and public keys: Ed25519 and P-256.
//!
//! The one place that names the signature libraries. It knows no DID and no token. Every public key
//! here is a valid point in its one canonical encoding, and no small-order point.

use std::fmt;

use ed25519_dalek::Signer as _;
use p256::ecdsa::signature::Verifier as _;
use zeroize::Zeroize as _;

use crate::base::{Error, Result};

/// Bytes of an Ed25519 public key.
pub(super) const ED25519_BYTES: usize = 32;
/// Bytes of a compressed P-256 public key.
pub(super) const P256_BYTES: usize = 33;

/// A key that verifies signatures. The key says which algorithm is used, never the signed thing.
#[derive(Clone, PartialEq, Eq)]
pub enum PublicKey {
    /// An Ed25519 key.
    Ed25519(Ed25519PublicKey),
    /// A P-256 key.
    P256(P256PublicKey),
}

/// A valid Ed25519 public key.
#[derive(Clone, PartialEq, Eq)]
pub struct Ed25519PublicKey(ed25519_dalek::VerifyingKey);

/// A valid P-256 public key, decompressed once.
#[derive(Clone, PartialEq, Eq)]
pub struct P256PublicKey(p256::ecdsa::VerifyingKey);

impl Ed25519PublicKey {
    /// The key of its 32 bytes.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `public_key` when they are no point of the curve, not
    /// its canonical encoding, or of small order (which lets one signature fit every message).
    pub fn from_bytes(bytes: &[u8; ED25519_BYTES]) -> Result<Self> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes)
            .map_err(|_| invalid("expected a point of Ed25519"))?;
        if key.to_edwards().compress().as_bytes() != bytes {
            return Err(invalid("expected the canonical encoding of a point of Ed25519"));
        }
        if key.is_weak() {
            return Err(invalid("expected a point of Ed25519 that is not of small order"));
        }
        Ok(Self(key))
    }

    /// The 32 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ED25519_BYTES] {
        self.0.to_bytes()
    }
}

impl P256PublicKey {
    /// The key of its 33 bytes: the compressed point.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `public_key` when they are no compressed point of P-256.
    pub fn from_bytes(bytes: &[u8; P256_BYTES]) -> Result<Self> {
        let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(bytes)
            .map_err(|_| invalid("expected a compressed point of P-256"))?;
        if key.to_sec1_point(true).as_bytes() != bytes {
            return Err(invalid("expected the compressed encoding of a point of P-256"));
        }
        Ok(Self(key))
    }

    /// The 33 bytes: the compressed point.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; P256_BYTES] {
        let mut bytes = [0; P256_BYTES];
        let point = self.0.to_sec1_point(true);
        for (to, from) in bytes.iter_mut().zip(point.as_bytes()) {
            *to = *from;
        }
        bytes
    }
}

impl PublicKey {
    /// Whether `signature` is this key's, over `message`, strictly: one message and key have one
    /// form of it that is taken (Ed25519: canonical S, no small-order R; P-256: SHA-256, r and s
    /// side by side, low s).
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        match self {
            Self::Ed25519(key) => {
                let signature = ed25519_dalek::Signature::from_bytes(signature);
                key.0.verify_strict(message, &signature).is_ok()
            }
            Self::P256(key) => p256::ecdsa::Signature::from_slice(signature)
                .is_ok_and(|s| s.normalize_s() == s && key.0.verify(message, &s).is_ok()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "Ed25519",
            Self::P256(_) => "P256",
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => key.to_bytes().to_vec(),
            Self::P256(key) => key.to_bytes().to_vec(),
        }
    }
}

impl std::hash::Hash for PublicKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.to_vec().hash(state);
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name())?;
        for byte in self.to_vec() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// A secret key. Its memory is overwritten when it is dropped, and `Debug` shows the public half.
pub struct SigningKey(Secret);

enum Secret {
    Ed25519(ed25519_dalek::SigningKey),
    P256(p256::ecdsa::SigningKey),
}

impl SigningKey {
    /// The Ed25519 key of a seed (RFC 8032). The seed must be random and secret; the caller's copy
    /// is the caller's to overwrite.
    #[must_use]
    pub fn ed25519_from_seed(mut seed: [u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(&seed);
        seed.zeroize();
        Self(Secret::Ed25519(key))
    }

    /// The P-256 key of a secret scalar, big-endian. It must be random and secret; the caller's copy
    /// is the caller's to overwrite.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for the field `secret_key` when the scalar is 0 or not below the
    /// order of the curve.
    pub fn p256_from_scalar(mut scalar: [u8; 32]) -> Result<Self> {
        let key = p256::ecdsa::SigningKey::from_slice(&scalar).map_err(|_| {
            Error::invalid("secret_key", "expected a scalar from 1 to below the order of P-256")
        });
        scalar.zeroize();
        Ok(Self(Secret::P256(key?)))
    }

    /// The public half.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        match &self.0 {
            Secret::Ed25519(key) => PublicKey::Ed25519(Ed25519PublicKey(key.verifying_key())),
            Secret::P256(key) => PublicKey::P256(P256PublicKey(*key.verifying_key())),
        }
    }

    /// The signature over `message`, the same each time, in the form that
    /// [`PublicKey::verifies`] takes.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        match &self.0 {
            Secret::Ed25519(key) => key.sign(message).to_bytes(),
            Secret::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(message);
                signature.normalize_s().to_bytes().into()
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {:?})", self.public_key())
    }
}

fn invalid(reason: &str) -> Error {
    Error::invalid("public_key", reason)
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
