//! Signed records: clocks and signers. Pure.
