//! What waits for a time, health, and disconnecting an account: through the whole store, on every
//! storage, in simulated time.
#![cfg(feature = "sqlite")]
// A test that cannot go on should stop.
#![allow(clippy::unwrap_used)]

mod due_work;
mod forget;
mod forget_races;
mod health;
mod world;
