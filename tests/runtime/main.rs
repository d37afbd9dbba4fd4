//! The runtime's rules by their effect: what callers are answered, what is stored, what others see.
//!
//! Time is simulated and storage fails on demand; nothing here waits for real time.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod auth;
mod cancel;
mod command_ids;
mod common;
mod crash;
mod embed;
mod feed;
mod fencing;
mod hosts;
mod load;
mod maintenance;
mod outcomes;
mod passivation;
mod shutdown;
mod steps;
mod sweeps;
mod units;
