//! What may be asked of a document, and what it answers. Plain data, no rule.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::repair::ObservationRepair;
use super::state::{
    DeferReason, EntityTrimRecord, OperationKind, OperationRecord, ProjectionWatch, WatchReason,
};
use super::token::Token;
use super::watch::WatchIdentity;
use crate::base::{
    ConnectorName, Digest, Holder, Json, OperationId, OwnerDid, SourceId, Timestamp,
};
use crate::domain::{FencingToken, Lease};
use crate::records::{Hlc, RecordCopy, RecordDecision, SignedRecord};

/// A command to one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DocumentCommand {
    /// Records which fields of the document were fitted to its model's caps.
    SetEntityTrim {
        /// Whose document. Kept from the first write.
        owner: OwnerDid,
        /// Which connector's. Kept from the first write.
        connector: ConnectorName,
        /// The trimmed fields.
        trimmed_fields: Json,
    },
    /// Reads the trim.
    EntityTrim,
    /// Forgets the trim.
    ClearEntityTrim,
    /// Begins a sweep whose other end is the host's graph.
    BeginDocumentSweep,
    /// Takes a begun sweep back.
    AbandonDocumentSweep,
    /// Removes everything of the document and erases its history. Part of a unit of work that also
    /// holds every connector with a candidate for it.
    SweepDocumentRows,
    /// Claims an operation, or creates it.
    ClaimOperation(ClaimOperation),
    /// Says that the request leaves now.
    MarkSendStarted {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
    },
    /// Gives an operation back until later.
    DeferOperation {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
        /// Why and for how long.
        deferral: Deferral,
    },
    /// Records that the outcome is unknown, or that the provider has not the write.
    RecordOperation {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
        /// What is known.
        outcome: OperationOutcome,
    },
    /// Says that the provider is being asked what became of the write.
    BeginReconcileRead {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
    },
    /// Ends an operation.
    FinalizeOperation {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
        /// How it ends.
        outcome: FinalOutcome,
    },
    /// Holds an operation longer.
    RenewOperationLease {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
        /// For how long from now.
        ttl_ms: i64,
    },
    /// Gives an operation's lease back; its state stays.
    ReleaseOperationLease {
        /// The operation.
        operation_id: OperationId,
        /// Proves the claim.
        token: FencingToken,
    },
    /// Takes the claims of all unfinished operations, and has the provider asked about each: the store
    /// was restored from a backup, and what was sent since is not known.
    RestoreOperations,
    /// Reads an operation.
    Operation {
        /// The operation.
        operation_id: OperationId,
    },
    /// Is there one with a higher sequence that is not dead?
    HasNewerOperation {
        /// The operation.
        operation_id: OperationId,
    },
    /// Watches that a write is read back.
    ArmWatch {
        /// What is watched.
        identity: WatchIdentity,
        /// What is expected.
        options: WatchOptions,
    },
    /// Reads the watch.
    WatchByDocument,
    /// Records what a fetch has shown.
    RecordVerification {
        /// When the fetch began.
        fetch_hlc: Hlc,
        /// What it has shown; none when the entity was absent.
        observed: Option<Digest>,
    },
    /// Ends the watch.
    DisarmWatch,
    /// Says whether a fetched value may be applied.
    ReadWinner {
        /// Whose.
        owner: OwnerDid,
        /// When the fetch began.
        fetch_hlc: Hlc,
    },
    /// Does a watch, a trim or an unfinished operation stand on the document?
    HasWork,
    /// Puts a verified copy of an observation record.
    PutObservationCopy(Box<PutObservationCopy>),
    /// Drops the copies of an issuer, if a valid one of another issuer stays.
    PruneObservationCopies {
        /// Whose record.
        owner: OwnerDid,
        /// The issuer's DID.
        issuer: Arc<str>,
    },
    /// Reads the decision of an owner's copies.
    ObservationDecision {
        /// Whose record.
        owner: OwnerDid,
    },
    /// Creates or replaces the repair obligation.
    PutRepair(Box<ObservationRepair>),
    /// Reads the repair obligation.
    Repair,
    /// Ends the repair obligation.
    ClearRepair,
    /// Removes what a disconnected account has left on the document, and trims its history.
    ForgetDocumentConnection {
        /// Whose account.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
}

/// A verified copy on its way to a document.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutObservationCopy {
    /// Whose record.
    pub owner: OwnerDid,
    /// What its token says.
    pub copy: RecordCopy,
    /// The token, with its verdict.
    pub token: Arc<Token>,
    /// The value; none when it is absent.
    pub payload: Option<Arc<[u8]>>,
}

/// Token and payload are content, so neither is shown.
impl fmt::Debug for PutObservationCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutObservationCopy")
            .field("owner", &self.owner)
            .field("copy", &self.copy)
            .finish_non_exhaustive()
    }
}

/// A standing copy of which it is not known whether it is valid under the present keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnverifiedCopy {
    /// The copy.
    pub record: SignedRecord,
    /// Where the verdict is noted.
    pub token: Arc<Token>,
}

/// The claim of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOperation {
    /// Unique over the store.
    pub operation_id: OperationId,
    /// Whose account is written to.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// What is done at the provider.
    pub op: OperationKind,
    /// The stamp of the local change.
    pub version: Hlc,
    /// The digest of the request, in the host's form.
    pub request_digest: Digest,
    /// How long the provider may take to show a write, in milliseconds.
    pub visibility_delay_ms: i64,
    /// Who claims.
    pub holder: Holder,
    /// For how long, in milliseconds.
    pub ttl_ms: i64,
}

/// Why and for how long an operation is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// Why.
    pub reason: DeferReason,
    /// For how long, in milliseconds.
    pub delay_ms: i64,
    /// The provider has definitely refused what was sent: the mark of sending is cleared.
    pub definite_refusal: bool,
}

/// What is known of an operation that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationOutcome {
    /// Nothing: the provider must be asked.
    Unknown,
    /// The provider was asked, and has not the write.
    NotWritten,
}

/// How an operation ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinalOutcome {
    /// The provider has the write.
    Committed {
        /// The entity at the provider.
        source_id: SourceId,
        /// The provider's version of it.
        source_version: Option<String>,
        /// Arms the watch in the same append.
        watch: Option<WatchOptions>,
    },
    /// The write will never be made.
    Dead {
        /// Why.
        error: String,
    },
}

/// What a watch expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchOptions {
    /// Why it is armed.
    pub reason: WatchReason,
    /// The digest that must be read; none when the entity must be absent.
    pub expected_digest: Option<Digest>,
    /// The stamp of the write.
    pub written_hlc: Hlc,
    /// How long a different value is only a mismatch, in milliseconds.
    pub deadline_ms: i64,
}

/// The permission to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendPermit {
    /// Nothing may be sent later than so long after the call, in milliseconds.
    pub send_within_ms: i64,
    /// The end of that time on the store's clock.
    pub send_until: Timestamp,
}

/// What became of an arming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArmOutcome {
    /// There was none.
    Armed,
    /// The standing watch was of an older or the same write.
    Replaced,
    /// The standing watch is of a newer write.
    Kept,
}

/// What a fetch has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verification {
    /// The written value: the watch is removed.
    Verified,
    /// Another value.
    Mismatched {
        /// How often so far.
        count: u32,
    },
    /// The fetch is older than the write.
    Stale,
    /// Another value, and the deadline has passed.
    Expired,
    /// Nothing is watched.
    NoWatch,
}

/// Who wins a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReadWinner {
    /// A local write: the fetched value must not be applied.
    LocalWrite {
        /// The unfinished operation; none when a watch's write is newer than the fetch.
        operation_id: Option<OperationId>,
    },
    /// The owner's records decided after the fetch: the fetched value must not be applied.
    Decision {
        /// The version that decided.
        hlc: Hlc,
    },
    /// The fetched value.
    Source,
}

/// The answer to a [`DocumentCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DocumentReply {
    /// It is done.
    Done,
    /// The trim, or none.
    Trim(Option<EntityTrimRecord>),
    /// The operation as claimed, with its lease.
    Claimed {
        /// `attempted`: it may be sent. `reconcile_only`: the provider must be asked first.
        operation: Box<OperationRecord>,
        /// Proves the claim.
        lease: Lease,
    },
    /// The operation was finished before.
    Finished(Box<OperationRecord>),
    /// The request may leave.
    SendPermit(SendPermit),
    /// The operation is finished; what became of the watch that was asked for.
    Finalized(Option<ArmOutcome>),
    /// The renewed lease.
    Lease(Lease),
    /// The operation, or none.
    Operation(Option<Box<OperationRecord>>),
    /// There is a newer one, or not.
    HasNewer(bool),
    /// What became of the arming.
    Armed(ArmOutcome),
    /// The watch, or none.
    Watch(Option<Box<ProjectionWatch>>),
    /// What the fetch has shown.
    Verification(Verification),
    /// Who wins.
    ReadWinner(ReadWinner),
    /// Something stands on the document, or not.
    HasWork(bool),
    /// The repair obligation stands; when it was written, once that is known.
    RepairPut(Option<Timestamp>),
    /// The repair obligation, or none.
    Repair(Option<Box<ObservationRepair>>),
    /// What the valid copies come to; none without one. Variants that are never recorded come last:
    /// those behind them would be read as others than they were written.
    #[serde(skip)]
    Decision(Option<Arc<RecordDecision>>),
    /// Nothing was decided: these copies must be verified first.
    #[serde(skip)]
    Unverified(Vec<UnverifiedCopy>),
}
