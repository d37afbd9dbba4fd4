//! Header and payload of a token, which is then signed. It knows the check alone.
#![no_main]

#[path = "../../hostile/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::claim(input));
