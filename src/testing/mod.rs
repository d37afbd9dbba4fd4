//! What the tests of a host need: time that stands still, chance from a seed, storage that fails
//! on purpose, a provider with the faults of real ones, servers of their own.
//!
//! Behind the feature `testing`. Nothing in the crate itself uses it.

mod chance;
mod clock;
#[cfg(all(unix, feature = "postgres"))]
mod pgbouncer;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
mod provider;
mod runtime;
#[cfg(all(unix, feature = "postgres"))]
mod service;
mod storage;

pub use crate::base::planted::{Planted, PlantedBug};
pub use chance::{SeededIds, SeededJitter};
pub use clock::SimClock;
#[cfg(all(unix, feature = "postgres"))]
pub use pgbouncer::TestPgBouncer;
#[cfg(all(unix, feature = "postgres"))]
pub use postgres::{Stop, TestPostgres};
pub use provider::{
    Change, Changes, Condition, Cursor, Item, Listing, Next, POISON, Provider, ProviderError,
    ProviderFault, Version, Write,
};
pub use runtime::SimRuntime;
pub use storage::{Chances, Fault, FaultyStorage, Gate, Stage};
