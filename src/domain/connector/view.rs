//! What a reader of a connector sees. Plain data.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{CandidateKey, ReceiptKey, ReceiptKind, SyncStatus};
use super::state::CandidateState;
use crate::base::{
    DocumentId, Json, ModelId, PartitionId, Provenance, Rfc3339, SourceId, Timestamp,
};
use crate::domain::{BadColumn, Columns, Row};
use crate::records::Hlc;

/// The state of a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncState {
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
    /// When the standing lease expires.
    pub lease_expires_at: Option<Timestamp>,
    /// Grows by one with each progress update, from 0.
    pub version: i64,
    /// Tells this state from earlier ones that were deleted.
    pub incarnation: Uuid,
}

impl SyncState {
    /// The sync state of its row.
    ///
    /// # Errors
    /// The column that does not hold what it should.
    pub fn from_row(row: &Row) -> Result<Self, BadColumn> {
        let columns = Columns(row);
        Ok(Self {
            checkpoint: columns.optional_json(2)?,
            last_synced_at: columns.name(3, Rfc3339::parse)?,
            entity_count: columns.int(4)?,
            status: columns.word(5, SyncStatus::parse)?,
            error: columns.optional_text(6)?.map(str::to_owned),
            lease_expires_at: columns.optional_time(7)?,
            recovery: columns.optional_json(8)?,
            version: columns.int(9)?,
            incarnation: columns.word(10, |text| Uuid::parse_str(text).ok())?,
        })
    }
}

/// The current receipt of a partition and provenance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepReceipt {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage.
    pub provenance: Provenance,
    /// The place in the lineage.
    pub sequence: i64,
    /// The documents' model.
    pub model_id: ModelId,
    /// Which documents it speaks for.
    pub scope: String,
    /// The clock when the enumeration began.
    pub source_fetch_hlc: Hlc,
    /// The restriction of the enumeration.
    pub predicate: Option<Json>,
    /// Whether the whole partition is enumerated.
    pub kind: ReceiptKind,
    /// What the enumeration depends on.
    pub fingerprint: String,
    /// Where the enumeration goes on.
    pub next_page: u32,
    /// How many ids its pages list.
    pub ids: u64,
    /// The provider gave its last page.
    pub complete: bool,
    /// How many entities the provider said there are.
    pub expected_count: Option<u64>,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it was committed.
    pub committed_at: Option<Timestamp>,
    /// What its commit came to.
    pub result: Option<CommitResult>,
}

impl SweepReceipt {
    /// The receipt as commands name it.
    #[must_use]
    pub fn key(&self) -> ReceiptKey {
        ReceiptKey {
            partition: self.partition.clone(),
            provenance: self.provenance.clone(),
            sequence: self.sequence,
        }
    }
}

/// What a commit came to. Nothing is counted of one that was made before its database was adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitResult {
    /// How many documents were known.
    pub known: u64,
    /// How many of them the enumeration lacked, also those that were candidates before.
    pub missing: u64,
    /// How many became candidates.
    pub candidates: u64,
    /// How many candidates were withdrawn.
    pub withdrawn: u64,
}

/// A document whose entity an enumeration lacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepCandidate {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage of the receipt that made it.
    pub provenance: Provenance,
    /// The document.
    pub document_id: DocumentId,
    /// Its entity.
    pub source_id: SourceId,
    /// Its model.
    pub model_id: ModelId,
    /// How far it is.
    pub state: CandidateState,
    /// How often the provider did not say.
    pub attempts: u32,
    /// How often it could not be applied.
    pub apply_failures: u32,
    /// Why it could not be applied the last time.
    pub last_error: Option<String>,
    /// When it is due.
    pub next_attempt_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl SweepCandidate {
    /// The candidate of its row.
    ///
    /// # Errors
    /// The column that does not hold what it should.
    pub fn from_row(row: &Row) -> Result<Self, BadColumn> {
        let columns = Columns(row);
        Ok(Self {
            partition: columns.name(2, PartitionId::new)?,
            provenance: columns.name(3, Provenance::new)?,
            document_id: columns.name(4, DocumentId::new)?,
            source_id: columns.name(5, SourceId::new)?,
            model_id: columns.name(6, ModelId::new)?,
            state: columns.word(7, CandidateState::parse)?,
            attempts: columns.count(8)?,
            apply_failures: columns.count(9)?,
            last_error: columns.optional_text(10)?.map(str::to_owned),
            next_attempt_at: columns.time(11)?,
            updated_at: columns.time(12)?,
        })
    }

    /// The candidate as commands name it.
    #[must_use]
    pub fn key(&self) -> CandidateKey {
        CandidateKey {
            partition: self.partition.clone(),
            provenance: self.provenance.clone(),
            document_id: self.document_id.clone(),
            source_id: self.source_id.clone(),
        }
    }
}

/// The newest committed receipt behind which nothing is left to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepCheckpoint {
    /// The lineage.
    pub provenance: Provenance,
    /// The era of the receipt.
    pub era: i64,
    /// The receipt's sequence.
    pub receipt_sequence: i64,
    /// When it moved.
    pub updated_at: Timestamp,
}

/// A partition that owes a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwedSweep {
    /// The partition.
    pub partition: PartitionId,
    /// When its cursor was first lost since it was last swept.
    pub owed_since: Timestamp,
}
