//! Observation records and repairs by their effect: what is taken, what is read, what is left.
//!
//! Records are signed as hosts sign them; time is simulated and storage fails on demand.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod adapter;
mod common;
mod hosts;
mod keys;
mod lives;
mod puts;
mod reads;
mod repairs;
mod standing;
mod units;
