//! Signed records: clocks and signers.
//!
//! Pure: no clock, no chance, no I/O. Times and seeds are arguments, so a fuzzer can run all of it.

mod hlc;

pub use hlc::{DEFAULT_MAX_DRIFT, Hlc, HlcClock};
