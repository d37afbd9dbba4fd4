//! A database that another program's store has written becomes a store, with all its rows, or is left
//! as it is.
#![cfg(feature = "sqlite")]
// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

mod adopted;
mod killed;
#[cfg(all(feature = "postgres", unix))]
mod postgres;
mod refused;
mod seed;
