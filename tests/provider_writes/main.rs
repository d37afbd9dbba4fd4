//! Provider writes happen once: a host is killed and paused at every step of every path, and the
//! effective writes at a simulated provider are counted.
//!
//! Time is simulated; nothing here waits for real time.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;
mod field_cases;
mod holders;
mod host;
mod identity;
mod killed;
mod paused;
mod provider;
#[cfg(feature = "sqlite")]
mod restored;
mod slow;
mod sweeps;
mod watches;
