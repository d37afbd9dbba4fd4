//! The sync host from outside: real trees, real processes, and kill -9 at any moment.
//!
//! It knows the program's command line, its summary and its two databases, and nothing of the code.

#![cfg(all(unix, feature = "sqlite"))]
// A test says what failed best by failing where it did.
#![allow(clippy::unwrap_used)]

mod conflicts;
mod edits;
mod killed;
mod mirror;
mod observations;
mod odd;
mod process;
mod refused;
mod rows;
mod world;
