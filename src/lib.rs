//! The durable state behind a sync host.
#![cfg_attr(all(feature = "sqlite", feature = "postgres"), doc = include_str!("../README.md"))]
//!
//! # The map
//!
//! Open a [`Store`] with its [`StoreBuilder`]. Three kinds of keys have actors:
//!
//! | key | handle | what it owns |
//! |---|---|---|
//! | a document | [`Store::document`] | entity trim, operations, projection watch, observation copies, repair obligation, document sweep |
//! | an owner's connector | [`Store::connector`] | sync state, lease, receipts, candidates, checkpoints |
//! | a pending authorization | [`Store::create_pending_auth`], [`Store::consume_pending_auth`] | one record, consumed once |
//!
//! A [`Lease`] gives a [`Session`], whose handles are fenced. A [`ClaimedOperation`] is one write to
//! the provider in the hands of its holder; its page tells the protocol. [`Store::read_winners`] says
//! which fetched values may be applied. [`DocumentRef::put_observation_copy`] takes signed copies of
//! observation records, [`DocumentRef::observation_decision`] says what they come to, and
//! [`Store::records`] is both for a layer that replicates them. [`Store::unit_of_work`] writes on several keys at once, and
//! [`Store::forget_connection`] disconnects an account. [`Store::events`] is the feed of everything that
//! happened, [`Store::due_work`] that of everything whose time has come; [`Store::health`] names what is
//! left undone. Every call answers with [`Result`]; [`Error::class`] says whether it was refused, may be
//! tried again, or is not known.
//!
//! The modules, each of which names only those before it:
//!
//! - [`base`]: identifiers, times, JSON, limits, the error.
//! - [`records`]: hybrid logical clock, keys and signers, tokens of signed records, their copies.
//! - [`domain`]: the rules, as pure functions of state and command.
//! - [`journal`]: how events and rows are kept, the port of a backend, the backends.
//! - `runtime` (not public): the actors, the writer, units of work; its [`Clock`], [`IdSource`] and
//!   [`Jitter`] may be given to the builder, and [`telemetry`] names spans and metrics.
//! - `store` (not public): the handles, which are passed on here.
//! - `testing`: with the feature of that name, scenarios of the rules, simulated time, seeded chance and
//!   storage that fails on purpose.

#![forbid(unsafe_code)]

pub mod base;
pub mod domain;
pub mod journal;
pub mod records;
mod runtime;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use base::{
    ConnectorName, Digest, DocumentId, Error, ErrorClass, Holder, Json, ModelId, OperationId,
    OwnerDid, PartitionId, Provenance, Result, Rfc3339, Secret, SourceId, StorageFault, StreamKey,
    StreamKind, Timestamp, ValueDigest,
};
pub use domain::auth::PendingAuthRecord;
pub use domain::connector::{
    BeginReceipt, CandidateKey, CandidateState, CommitResult, MassDeleteGuard, OwedSweep,
    ReceiptKey, ReceiptKind, SweepCandidate, SweepCheckpoint, SweepOutcome, SweepReceipt,
    SyncProgress, SyncState, SyncStateInput, SyncStatus,
};
pub use domain::document::{
    ArmOutcome, DeferReason, EntityTrimRecord, ObservationRepair, Operation, OperationKind,
    OperationPhase, OperationRecord, ProjectionWatch, ReadWinner, Verification, Watch,
    WatchIdentity, WatchReason, WatchStatus,
};
pub use domain::{FencingToken, LeaseScope};
#[cfg(feature = "postgres")]
pub use journal::PostgresOptions;
#[cfg(feature = "sqlite")]
pub use journal::Synchronous;
pub use journal::{Damage, MemoryJournal, RebuildReport, VerifyReport};
pub use records::{
    Hlc, HlcClock, MethodRegistry, RecordDecision, RecordKey, SignedRecord, SignerPolicy,
};
pub use runtime::{Clock, IdSource, Jitter, telemetry};
pub use store::{
    BegunSweep, Claim, ClaimedOperation, CommandId, ConnectorRef, DecisionPage, DocumentOwners,
    DocumentRef, DueStream, DueWork, Event, EventFilter, EventStream, Evidence, FeedCursor,
    FeedItem, FetchedRead, ForgettingConnection, Health, Lease, OperationFilter, OperationRequest,
    OperationState, ProgressVersion, RecordAdapter, RetentionReport, SendPermit, Session, Store,
    StoreBuilder, StoreStats, StuckReason, StuckWork, SyncStateEntry, UnitOfWork, WatchExpectation,
    Work, WrittenRepair,
};
