//! A document: its entity trim, its operations, its watch, its observation copies and repair
//! obligation, its begun sweep.
//!
//! One stream, one actor. It knows nothing of other keys; a sweep that crosses keys is a unit of
//! work outside.

mod adopt;
mod command;
mod decide;
mod event;
#[cfg(test)]
mod fixture;
mod observation;
mod operation;
mod repair;
mod restore;
mod rows;
mod state;
mod token;
mod watch;

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod walk_tests;

pub use adopt::adopt;
pub use command::{
    ArmOutcome, ClaimOperation, Deferral, DocumentCommand, DocumentReply, FinalOutcome,
    OperationOutcome, PutObservationCopy, ReadWinner, SendPermit, UnverifiedCopy, Verification,
    WatchOptions,
};
pub use event::{
    DocumentConnectionForgotten, DocumentEvent, DocumentSweepBegun, EntityTrimSet,
    ObservationCopiesDropped, ObservationCopyPut, OperationClaimed, OperationCreated,
    OperationDeferred, OperationFinalized, OperationLeaseChanged, OperationRecorded,
    ReconcileReadBegun, RepairAdopted, SendStarted, WatchArmed, WatchExpired, WatchMismatched,
};
pub use observation::{CopyContent, Observation};
pub use repair::ObservationRepair;
pub use state::{
    DeferReason, DeferredUntil, Document, EntityTrim, EntityTrimRecord, Operation, OperationKind,
    OperationPhase, OperationRecord, ProjectionWatch, SendMark, Watch, WatchReason, WatchStatus,
};
pub use token::Token;
pub use watch::WatchIdentity;
