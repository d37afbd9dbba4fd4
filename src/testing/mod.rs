//! What the tests of a host need: storage that fails on purpose.
//!
//! Behind the feature `testing`. Nothing in the crate itself uses it.

mod storage;

pub use storage::{Chances, Fault, FaultyStorage, Gate, Stage};
