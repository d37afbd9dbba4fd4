//! What the tests of a host need: time that stands still, chance from a seed, storage that fails
//! on purpose.
//!
//! Behind the feature `testing`. Nothing in the crate itself uses it.

mod chance;
mod clock;
mod storage;

pub use chance::{SeededIds, SeededJitter};
pub use clock::SimClock;
pub use storage::{Chances, Fault, FaultyStorage, Gate, Stage};
