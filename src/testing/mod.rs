//! What the tests of a host need: time that stands still, chance from a seed, storage that fails
//! on purpose, servers of their own.
//!
//! Behind the feature `testing`. Nothing in the crate itself uses it.

mod chance;
mod clock;
pub(crate) mod given;
#[cfg(all(unix, feature = "postgres"))]
mod pgbouncer;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
mod scenario;
#[cfg(all(unix, feature = "postgres"))]
mod service;
mod storage;

pub use chance::{SeededIds, SeededJitter};
pub use clock::SimClock;
pub use given::Then;
#[cfg(all(unix, feature = "postgres"))]
pub use pgbouncer::TestPgBouncer;
#[cfg(all(unix, feature = "postgres"))]
pub use postgres::{Stop, TestPostgres};
pub use scenario::Scenario;
pub use storage::{Chances, Fault, FaultyStorage, Gate, Stage};
