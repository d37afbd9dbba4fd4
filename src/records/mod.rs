//! Signed records: clocks and signers. Pure.

mod hlc;

pub use hlc::Hlc;
