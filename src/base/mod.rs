//! Values that every other folder speaks in: identifiers, stream keys, times, JSON, digests,
//! secrets, limits and the one public error.
//!
//! Pure: nothing here knows a command, a table's use, a clock or a thread.

mod error;
mod ids;
mod json;
mod key;
pub mod limits;
pub(crate) mod planted;
mod record_fault;
mod secret;
mod text;
mod time;

pub use error::{Error, ErrorClass, Result, StorageFault};
pub use ids::{
    ConnectorName, DocumentId, Holder, ModelId, OperationId, OwnerDid, PartitionId, Provenance,
    SourceId, ValueDigest,
};
pub use json::{Digest, Json};
pub use key::{StreamKey, StreamKind, StreamName};
pub use record_fault::RecordFault;
pub use secret::Secret;
pub(crate) use text::check_nul;
pub use time::{Rfc3339, Timestamp};
