//! Several hosts on one PostgreSQL server: its faults, those of the network, and the rules that hold
//! over hosts.
//!
//! Each test has a database of its own. Hosts are stores of one process, whose clocks are ten minutes
//! apart. Where no server is installed, the tests say so and pass.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod backups;
mod commits;
#[path = "../runtime/common.rs"]
#[allow(dead_code, reason = "the tests of the runtime need the rest of it")]
mod common;
mod failover;
mod feed;
mod hosts;
mod leases;
mod open;
mod parity;
mod pooled;
mod proxy;
mod refusals;
mod samples;
mod sides;
mod stamps;
#[cfg(feature = "tls")]
mod tls;
mod world;
