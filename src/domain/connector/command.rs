//! What may be asked of an owner's connector, and what it answers. Plain data, no rule.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::compare::Comparison;
use super::content::SourceIdList;
use super::state::{CandidateState, Forgetting};
use super::view::{
    CommitResult, OwedSweep, SweepCandidate, SweepCheckpoint, SweepReceipt, SyncState,
};
use crate::base::limits::{DEFAULT_MASS_DELETE_MIN_COUNT, DEFAULT_MASS_DELETE_RATIO};
use crate::base::{
    Digest, DocumentId, Holder, Json, ModelId, PartitionId, Provenance, Rfc3339, SourceId,
};
use crate::domain::{FencingToken, Lease};
use crate::records::Hlc;

/// A command to one owner's connector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConnectorCommand {
    /// Reads the sync state.
    SyncState,
    /// Creates or replaces the sync state.
    SetSyncState(SyncStateInput),
    /// Moves the sync on, or creates its state as idle.
    UpdateSyncProgress {
        /// What it comes to.
        update: SyncProgress,
        /// What the update was computed from, when that was outside the actor's turn.
        guard: Option<ProgressGuard>,
    },
    /// Removes the sync state. The lease stays.
    DeleteSyncState,
    /// Takes the sync lease.
    AcquireLease {
        /// Who takes it.
        holder: Holder,
        /// For how long.
        ttl_ms: i64,
    },
    /// Holds the sync lease longer.
    RenewLease {
        /// Proves it.
        token: FencingToken,
        /// For how long from now.
        ttl_ms: i64,
    },
    /// Gives the sync lease back.
    ReleaseLease {
        /// Proves it.
        token: FencingToken,
    },
    /// Takes the sync lease from a holder of another generation: the store was restored from a backup.
    VoidLease,
    /// Reads the sync lease, also one past its expiry that nobody took.
    Lease,
    /// Begins an enumeration of a partition.
    BeginReceipt(BeginReceipt),
    /// Adds a page to an enumeration.
    ExtendReceipt(ExtendReceipt),
    /// Says that the provider gave its last page.
    CompleteReceipt(CompleteReceipt),
    /// Answers what [`Self::CommitReceipt`] would.
    PlanReceipt(CommitReceipt),
    /// Makes the missing documents candidates.
    CommitReceipt(CommitReceipt),
    /// Reads the current receipt of a partition and provenance.
    Receipt {
        /// The partition.
        partition: PartitionId,
        /// The lineage.
        provenance: Provenance,
    },
    /// Reads the checkpoint of a partition.
    SweepCheckpoint {
        /// The partition.
        partition: PartitionId,
    },
    /// Reads standing candidates of a partition in the order of their documents.
    Candidates {
        /// The partition.
        partition: PartitionId,
        /// Only documents behind this one.
        after: Option<DocumentId>,
        /// At most so many.
        limit: u32,
    },
    /// Records what the provider said of a candidate.
    RecordSweepOutcome {
        /// Which.
        candidate: CandidateKey,
        /// What it said.
        outcome: SweepOutcome,
    },
    /// Records that a candidate could not be applied.
    RecordSweepApplyFailure {
        /// Which.
        candidate: CandidateKey,
        /// Why.
        error: String,
    },
    /// Says that a candidate was applied.
    SweepApplied {
        /// Which.
        candidate: CandidateKey,
    },
    /// Says that the provider lost the cursor of a partition.
    CursorLost {
        /// The partition.
        partition: PartitionId,
    },
    /// Reads which partitions owe a sweep.
    OwedSweeps,
    /// Removes every candidate of a document: this key's part of a document sweep.
    DropDocumentCandidates {
        /// The document.
        document_id: DocumentId,
    },
    /// Begins to forget the connection: every session of it is lost, and what else comes is refused.
    BeginForget,
    /// Reads whether the connection is being forgotten.
    Forgetting,
    /// Takes a mark back, because an unfinished operation was found behind it.
    AbandonForget {
        /// Which forgetting.
        mark: i64,
    },
    /// Removes a part of what there is.
    ForgetPage {
        /// Which forgetting.
        mark: i64,
        /// At most so many rows.
        limit: u32,
    },
    /// Ends it, once nothing is left, and erases the history.
    FinishForget {
        /// Which forgetting.
        mark: i64,
    },
}

/// The answer to a [`ConnectorCommand`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ConnectorReply {
    /// It is done.
    Done,
    /// The sync state, or none.
    SyncState(Option<SyncState>),
    /// The progress is written.
    Progress {
        /// The version that the sync state has now.
        version: i64,
        /// The incarnation that the sync state has.
        incarnation: Uuid,
    },
    /// The sync state is not the one that the update was computed from. Nothing was written.
    ProgressConflict,
    /// The lease as acquired or renewed.
    Lease(Lease),
    /// The standing lease, or none.
    StandingLease(Option<Lease>),
    /// The receipt was begun.
    ReceiptBegun {
        /// Its sequence.
        sequence: i64,
    },
    /// The page is kept.
    NextPage(u32),
    /// The current receipt, or none.
    Receipt(Option<SweepReceipt>),
    /// What the commit came to, or would.
    Committed(CommitResult),
    /// The checkpoint, or none.
    SweepCheckpoint(Option<SweepCheckpoint>),
    /// A page of candidates.
    Candidates(Vec<SweepCandidate>),
    /// The state that the candidate has now; none when it was withdrawn.
    CandidateNow(Option<CandidateState>),
    /// The partitions that owe a sweep, by name.
    OwedSweeps(Vec<OwedSweep>),
    /// The forgetting that has begun and not ended, or none.
    Forgetting(Option<Forgetting>),
    /// A part is removed.
    PageForgotten {
        /// Nothing is left.
        is_done: bool,
    },
    /// The forgetting with this mark has ended before. Nothing was done.
    ForgetOver {
        /// It went through; else it was abandoned.
        is_forgotten: bool,
    },
}

/// What a sync is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SyncStatus {
    /// Nothing.
    Idle,
    /// It runs.
    Syncing,
    /// It failed.
    Error,
}

impl SyncStatus {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Syncing => "syncing",
            Self::Error => "error",
        }
    }

    /// The status of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Idle, Self::Syncing, Self::Error].into_iter().find(|status| status.as_str() == text)
    }
}

/// What `set_sync_state` writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncStateInput {
    /// Where the sync goes on.
    pub checkpoint: Option<Json>,
    /// What was fetched but not applied.
    pub recovery: Option<Json>,
    /// When the source was last in sync.
    pub last_synced_at: Rfc3339,
    /// How many entities are mirrored.
    pub entity_count: i64,
    /// What the sync is doing.
    pub status: SyncStatus,
    /// What failed.
    pub error: Option<String>,
}

/// What a progress update writes. The status is not touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncProgress {
    /// Where the sync goes on.
    pub checkpoint: Option<Json>,
    /// What was fetched but not applied.
    pub recovery: Option<Json>,
    /// When the source was last in sync.
    pub last_synced_at: Rfc3339,
    /// How many entities are mirrored.
    pub entity_count: i64,
    /// What failed.
    pub error: Option<String>,
}

/// The sync state that a progress update was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgressGuard {
    /// There was none.
    Absent,
    /// This version of this incarnation. The incarnation tells a re-created state with the same
    /// version apart.
    At {
        /// The version.
        version: i64,
        /// The incarnation.
        incarnation: Uuid,
    },
}

/// Whether an enumeration was of the whole partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReceiptKind {
    /// All of it.
    Full,
    /// What a predicate lets through.
    Predicate,
}

impl ReceiptKind {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Predicate => "predicate",
        }
    }

    /// The one of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Full, Self::Predicate].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// What an enumeration is begun with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginReceipt {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage. One that is not the newest era's opens a new era.
    pub provenance: Provenance,
    /// The documents' model.
    pub model_id: ModelId,
    /// Which documents the receipt speaks for, in the host's words.
    pub scope: String,
    /// The clock when the enumeration began.
    pub source_fetch_hlc: Hlc,
    /// The restriction of a [`ReceiptKind::Predicate`].
    pub predicate: Option<Json>,
    /// Whether the whole partition is enumerated.
    pub kind: ReceiptKind,
    /// What the enumeration depends on, in the host's words.
    pub fingerprint: String,
}

/// Names a receipt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReceiptKey {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage.
    pub provenance: Provenance,
    /// The place in the lineage.
    pub sequence: i64,
}

/// A page of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendReceipt {
    /// The receipt.
    pub key: ReceiptKey,
    /// The page, from 0.
    pub page: u32,
    /// What the page lists.
    pub source_ids: Vec<SourceId>,
    /// What the enumeration depends on now.
    pub fingerprint: String,
}

/// The end of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteReceipt {
    /// The receipt.
    pub key: ReceiptKey,
    /// How many pages the provider gave.
    pub pages: u32,
    /// How many entities the provider says there are. 0 is its word that the partition is empty.
    pub expected_count: Option<u64>,
    /// What the enumeration depends on now.
    pub fingerprint: String,
    /// How many distinct ids the pages hold.
    pub distinct: u64,
    /// [`super::pages_digest`] of the pages that `distinct` and `keep` were computed from.
    pub pages_digest: Digest,
    /// All ids of the pages.
    pub keep: SourceIdList,
}

/// The commit of an enumeration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommitReceipt {
    /// The receipt.
    pub key: ReceiptKey,
    /// What it says of the known documents.
    pub comparison: Comparison,
    /// What protects them.
    pub guard: MassDeleteGuard,
}

/// When a commit is refused because it would delete too much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MassDeleteGuard {
    /// The largest part of the known documents that may go, 0 to 1.
    pub max_ratio: f64,
    /// Below so many documents the part is not asked.
    pub min_count: u64,
    /// The guard is lifted.
    pub allow_mass_delete: bool,
}

impl Default for MassDeleteGuard {
    fn default() -> Self {
        Self {
            max_ratio: DEFAULT_MASS_DELETE_RATIO,
            min_count: DEFAULT_MASS_DELETE_MIN_COUNT,
            allow_mass_delete: false,
        }
    }
}

/// Names a candidate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CandidateKey {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage of the receipt that made it.
    pub provenance: Provenance,
    /// The document.
    pub document_id: DocumentId,
    /// The entity that was missing. What is known of another entity says nothing of it.
    pub source_id: SourceId,
}

/// What the provider said of a candidate's entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SweepOutcome {
    /// It is gone.
    Absent,
    /// It is there.
    Present,
    /// It did not say.
    Unknown,
}
