//! The text of a `did:key`. It knows the check alone.
#![no_main]

#[path = "../../hostile/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::did(input));
