//! Signed records: clocks, signers, tokens, copies and the decisions they come to.
//!
//! Pure: no clock, no chance, no I/O. Times and seeds are arguments, so a fuzzer can run all of it.

mod base64url;
mod claim;
mod copies;
mod decimal;
mod did;
mod exchanged;
#[cfg(test)]
mod given;
mod hlc;
mod i_json;
mod issuer;
mod jws;
mod keys;
mod signed;
mod signer;
mod signers;
mod token;

pub use copies::{CopyChange, CopySet, RecordCopy, RecordDecision, StandingCopy};
pub use did::DidKey;
pub use hlc::{DEFAULT_MAX_DRIFT, Hlc, HlcClock};
pub(crate) use issuer::Issuer;
pub use keys::{Ed25519PublicKey, P256PublicKey, PublicKey, SigningKey};
pub use signed::{OBSERVATION_TYPE, RecordKey, RecordLimits, SignedRecord, VerifiedRecord};
pub use signer::RecordSigner;
pub use signers::{
    AllowList, AnySigner, KeyFuture, KeyUnavailable, MethodRegistry, OwnerOnly, SignerPolicy,
};
pub(crate) use token::read;
pub use token::{ParsedRecord, parse, verify};
