//! Every fault of the catalogue, twice: a naive client, which fails, and a client that keeps the store's
//! rules, which does not. What is asserted is data: what was deleted, how often it was written, what
//! stands in the end.
//!
//! Time is simulated; nothing here waits for real time.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod accounts;
mod common;
mod cursors;
mod edits;
mod listings;
mod seeds;
mod writes;
