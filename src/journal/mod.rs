//! The journal and the read tables: what is kept, and the port behind which a backend keeps it.
//!
//! Codec, hash chain and the judging of a batch are pure; a backend loads what a batch must be
//! judged on, and writes what was judged.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod adopt;
mod ahead;
mod batch;
mod chain;
mod codec;
mod damage;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod file;
mod fold;
mod inspect;
pub mod memory;
mod owners;
mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
mod rebuild;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(test, feature = "testing"))]
pub mod suite;
mod verify;
#[cfg(test)]
mod world;

pub use batch::{Judged, Plan, StreamWrite, View, judge, named_rows};
pub use chain::{ChainHash, EventHashInput};
pub use codec::{
    decode_event, decode_snapshot, decode_value, encode_event, encode_snapshot, encode_value,
};
pub use damage::{Damage, RowName};
pub use fold::{LoadedState, fold, load_state};
pub use memory::MemoryJournal;
pub use port::{
    Append, AppendOutcome, Base, BatchError, BegunAppend, BoxFuture, CommandRecord, Compare,
    DueCandidates, DuePage, Expected, Filter, Head, Heads, HistoryCut, JournalRecord, Lineage,
    Loaded, NewEvent, NewSnapshot, Order, Part, RowQuery, SnapshotRecord, Storage, StreamPage,
};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStorage};
pub use rebuild::{RebuildReport, rebuild};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStorage, Synchronous};
pub use verify::{VerifyReport, verify};
