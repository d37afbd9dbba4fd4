//! Why a signed record is no valid copy.

use std::fmt;

/// Why a signed record does not verify. It holds no part of the token or the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordFault {
    /// A part is larger than the store takes. Nothing of it was decoded.
    TooLarge {
        /// Which part.
        what: &'static str,
        /// How large it may be, in bytes.
        max_bytes: usize,
    },
    /// The token is not three parts of strict base64url.
    Token {
        /// What was expected.
        reason: &'static str,
    },
    /// The token's header is not what is taken.
    Header {
        /// What was expected.
        reason: &'static str,
    },
    /// The token's payload is not what is taken.
    Claims {
        /// What was expected.
        reason: &'static str,
    },
    /// The issuer is no canonical DID, or has no key that could sign.
    Issuer {
        /// What was expected.
        reason: &'static str,
    },
    /// The token's algorithm is not that of the issuer's key.
    Algorithm,
    /// The registry of the issuer's method knows no such key.
    UnknownKey,
    /// The signature is not the issuer's, or not in its one strict form.
    Signature,
    /// A field of the record is not what the token claims.
    Mismatch {
        /// The record's field.
        field: &'static str,
    },
    /// The signer policy does not let the issuer sign for the owner.
    SignerNotAllowed,
    /// The token is not valid yet.
    NotYetValid {
        /// From then on it is, in milliseconds since the epoch.
        not_before_ms: i64,
    },
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { what, max_bytes } => {
                write!(f, "{what}: expected at most {max_bytes} bytes")
            }
            Self::Token { reason } => write!(f, "token: {reason}"),
            Self::Header { reason } => write!(f, "header: {reason}"),
            Self::Claims { reason } => write!(f, "claims: {reason}"),
            Self::Issuer { reason } => write!(f, "issuer: {reason}"),
            Self::Algorithm => f.write_str("alg: expected the algorithm of the issuer's key"),
            Self::UnknownKey => f.write_str("the issuer has no such key"),
            Self::Signature => f.write_str("the signature is not the issuer's"),
            Self::Mismatch { field } => write!(f, "{field}: expected what the token claims"),
            Self::SignerNotAllowed => f.write_str("the issuer may not sign for the owner"),
            Self::NotYetValid { not_before_ms } => {
                write!(f, "nbf: the token is valid from {not_before_ms} ms on")
            }
        }
    }
}
