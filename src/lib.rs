//! The durable state behind a sync host.

pub mod base;
pub mod domain;
pub mod journal;
pub mod records;
