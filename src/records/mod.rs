//! Signed records: clocks and signers.
//!
//! Pure: no clock, no chance, no I/O. Times and seeds are arguments, so a fuzzer can run all of it.

mod did;
mod hlc;
mod keys;

pub use did::DidKey;
pub use hlc::{DEFAULT_MAX_DRIFT, Hlc, HlcClock};
pub use keys::{Ed25519PublicKey, P256PublicKey, PublicKey, SigningKey};
