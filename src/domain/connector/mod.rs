//! An owner's connector: sync state, sync lease, sweep receipts, candidates and checkpoints.
//!
//! One stream, one actor. It knows nothing of documents' own streams; what crosses keys is a unit
//! of work outside. Content that no event may hold (recovery, lists of source ids) is here only as
//! a digest and a length.

mod adopt;
mod candidate;
mod checkpoint;
mod command;
mod commit;
mod compare;
mod content;
mod decide;
mod event;
mod forget;
mod lease;
mod receipt;
mod rows;
mod state;
mod sync;
mod view;

pub use adopt::adopt;
pub use command::{
    BeginReceipt, CandidateKey, CommitReceipt, CompleteReceipt, ConnectorCommand, ConnectorReply,
    ExtendReceipt, MassDeleteGuard, ProgressGuard, ReceiptKey, ReceiptKind, SweepOutcome,
    SyncProgress, SyncStateInput, SyncStatus,
};
pub use compare::{Comparer, Comparison, KnownDocument, StandingCandidate};
pub use content::{SourceIdList, keep_content, pages_digest};
pub use event::{
    CandidateAdopted, CandidateApplyFailed, CandidateConfirmed, CandidateDeferred, CandidateGone,
    CandidatesCreated, CandidatesWithdrawn, CheckpointMoved, ConnectionForgetBegun,
    ConnectionForgotten, ConnectorEvent, CursorLost, DroppedReceipt, LeaseRenewed,
    PartitionForgotten, ReceiptAdopted, ReceiptBegun, ReceiptCommitted, ReceiptCompleted,
    ReceiptExtended, ReceiptForgotten,
};
pub use state::{
    Candidate, CandidateState, Completion, Connector, Era, Forgetting, Owed, Partition, Receipt,
    ReceiptFacts, ReceiptPhase, SweptEra, SyncRecord,
};
pub use view::{CommitResult, OwedSweep, SweepCandidate, SweepCheckpoint, SweepReceipt, SyncState};

#[cfg(test)]
mod fixture;
