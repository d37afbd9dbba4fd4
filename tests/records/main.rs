//! Signed records from outside: vectors of other makers and of this one.

// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

mod vectors;
mod wycheproof;
