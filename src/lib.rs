//! The durable state behind a sync host.

pub mod base;
pub mod domain;
pub mod journal;
pub mod records;
mod runtime;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use base::{
    ConnectorName, Digest, DocumentId, Error, ErrorClass, Holder, Json, ModelId, OwnerDid,
    PartitionId, Provenance, Result, Rfc3339, Secret, SourceId, StorageFault, StreamKey,
    StreamKind, Timestamp,
};
pub use domain::auth::PendingAuthRecord;
pub use domain::connector::{
    BeginReceipt, CandidateKey, CandidateState, CommitResult, MassDeleteGuard, OwedSweep,
    ReceiptKey, ReceiptKind, SweepCandidate, SweepCheckpoint, SweepOutcome, SweepReceipt,
    SyncProgress, SyncState, SyncStateInput, SyncStatus,
};
pub use domain::document::EntityTrimRecord;
pub use domain::{FencingToken, LeaseScope};
#[cfg(feature = "sqlite")]
pub use journal::Synchronous;
pub use journal::{MemoryJournal, RebuildReport, VerifyReport};
pub use records::{Hlc, HlcClock};
pub use runtime::{Clock, IdSource, Jitter, telemetry};
pub use store::{
    BegunSweep, CommandId, ConnectorRef, DocumentRef, Event, EventFilter, EventStream, FeedItem,
    Lease, ProgressVersion, RetentionReport, Session, Store, StoreBuilder, StoreStats,
    SyncStateEntry, UnitOfWork,
};
