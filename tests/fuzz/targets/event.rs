//! The bytes of an event of every kind of stream. It knows the check alone.
#![no_main]

#[path = "../../hostile/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::event(input));
