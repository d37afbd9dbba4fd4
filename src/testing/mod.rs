//! What the tests of a host need. In reading order:
//!
//! - [`Scenario`]: given, when, then. What has happened to one key while time passed, a command, and the
//!   answer, refusal, events and rows that it comes to. The rules alone, without a store.
//! - [`SimClock`], [`SeededIds`], [`SeededJitter`]: time that stands still until it is told to pass, and
//!   chance from a seed. Given to a store's builder, they make its runs repeatable.
//! - [`SimRuntime`]: whole hosts on one thread and simulated time, the same each time.
//! - [`FaultyStorage`]: any storage, which fails, stalls, loses an answer or a commit, is outrun by another
//!   host, can't be reached, is full, or dies with its process, by a script ([`Fault`]) or by chance
//!   ([`Chances`]).
//! - [`Provider`]: a provider with the faults of real ones ([`ProviderFault`]), for the tests of a connector.
//! - [`PlantedBug`]: a mistake of the store's own, made on purpose on one thread, that checks must find.
//! - `TestPostgres`, `TestPgBouncer`: servers of a test's own.
//!
//! Behind the feature `testing`. Nothing in the crate itself uses it.

mod chance;
mod clock;
pub(crate) mod given;
#[cfg(all(unix, feature = "postgres"))]
mod pgbouncer;
#[cfg(all(unix, feature = "postgres"))]
mod postgres;
mod provider;
mod runtime;
mod scenario;
#[cfg(all(unix, feature = "postgres"))]
mod service;
mod storage;

pub use crate::base::planted::{Planted, PlantedBug};
pub use chance::{SeededIds, SeededJitter};
pub use clock::SimClock;
pub use given::Then;
#[cfg(all(unix, feature = "postgres"))]
pub use pgbouncer::TestPgBouncer;
#[cfg(all(unix, feature = "postgres"))]
pub use postgres::{Stop, TestPostgres};
pub use provider::{
    Change, Changes, Condition, Cursor, Item, Listing, Next, POISON, Provider, ProviderError,
    ProviderFault, Version, Write,
};
pub use runtime::SimRuntime;
pub use scenario::Scenario;
pub use storage::{Chances, Fault, FaultyStorage, Gate, Stage};
