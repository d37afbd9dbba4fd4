//! The durable state behind a sync host.

pub mod base;
pub mod domain;
pub mod journal;
pub mod records;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
