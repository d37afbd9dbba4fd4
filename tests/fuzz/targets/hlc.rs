//! The texts of two stamps, and clocks that see them. It knows the check alone.
#![no_main]

#[path = "../../hostile/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::hlc(input));
