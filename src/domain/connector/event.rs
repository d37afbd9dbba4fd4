//! What happened to an owner's connector. These types are disk format: golden files hold their
//! bytes. Content is here as digest and length only.

use serde::{Deserialize, Serialize};

use super::command::{CandidateKey, ReceiptKey};
use super::compare::KnownDocument;
use super::state::{Candidate, Era, Forgetting, ReceiptFacts, ReceiptPhase, SyncRecord};
use super::view::CommitResult;
use crate::base::{
    DocumentId, Error, ModelId, PartitionId, Provenance, Result, StreamKind, Timestamp,
};
use crate::domain::{ContentRef, Lease, PayloadDecoder, PayloadEncoder, StoredEvent};

/// The kind of a connector's stream, named once.
pub(super) const KIND: StreamKind = StreamKind::Connector;

/// An event of a connector's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectorEvent {
    /// The sync state was created or replaced.
    SyncStateSet(SyncRecord),
    /// The sync moved on.
    SyncProgressUpdated(SyncRecord),
    /// The sync state was removed.
    SyncStateDeleted,
    /// The sync lease was taken.
    LeaseAcquired(Lease),
    /// The sync lease is held longer.
    LeaseRenewed(LeaseRenewed),
    /// The sync lease was given back.
    LeaseReleased,
    /// An enumeration began; an earlier receipt of its key is dropped.
    ReceiptBegun(ReceiptBegun),
    /// A page was added.
    ReceiptExtended(ReceiptExtended),
    /// The provider gave its last page.
    ReceiptCompleted(ReceiptCompleted),
    /// The receipt counts.
    ReceiptCommitted(ReceiptCommitted),
    /// Documents became pending candidates, anew or again.
    CandidatesCreated(CandidatesCreated),
    /// Candidates are there after all, or of an older era.
    CandidatesWithdrawn(CandidatesWithdrawn),
    /// The provider says that the entity is gone.
    CandidateConfirmed(CandidateConfirmed),
    /// The provider did not say.
    CandidateDeferred(CandidateDeferred),
    /// The candidate could not be applied.
    CandidateApplyFailed(CandidateApplyFailed),
    /// The candidate was applied and is removed.
    CandidateApplied(CandidateGone),
    /// The candidate's document was swept.
    CandidateDropped(CandidateGone),
    /// Nothing is left to do up to a receipt.
    CheckpointMoved(CheckpointMoved),
    /// The provider lost the cursor: a sweep is owed.
    CursorLost(CursorLost),
    /// The account is being disconnected; the sync lease is gone.
    ConnectionForgetBegun(ConnectionForgetBegun),
    /// It is not disconnected after all. The lease stays gone.
    ConnectionForgetAbandoned,
    /// Pages of a receipt, or the whole of it, are gone with the connection.
    ReceiptForgotten(ReceiptForgotten),
    /// What was left of a partition is gone with the connection.
    PartitionForgotten(PartitionForgotten),
    /// The connection is gone, and the history before this event erased.
    ConnectionForgotten(ConnectionForgotten),
    /// The receipt stood in a database when that was adopted.
    ReceiptAdopted(Box<ReceiptAdopted>),
    /// The candidate stood in a database when that was adopted.
    CandidateAdopted(Box<CandidateAdopted>),
}

/// The receipt stood in a database when that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptAdopted {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage.
    pub provenance: Provenance,
    /// What is fixed of it. What the enumeration depended on is not known, so the fingerprint is
    /// empty, as no other is.
    pub receipt: ReceiptFacts,
    /// How far it is.
    pub phase: ReceiptPhase,
}

/// The candidate stood in a database when that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateAdopted {
    /// The partition.
    pub partition: PartitionId,
    /// The era that it stands in.
    pub era: Era,
    /// Its document.
    pub document_id: DocumentId,
    /// The candidate.
    pub candidate: Candidate,
}

/// The account is being disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionForgetBegun {
    /// The mark and its time.
    pub forgetting: Forgetting,
}

/// Pages of a receipt are gone, from its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptForgotten {
    /// The receipt.
    pub key: ReceiptKey,
    /// How many pages it still has.
    pub pages_kept: u32,
    /// How many are gone.
    pub pages_gone: u32,
    /// The receipt itself is gone too.
    pub is_whole: bool,
}

/// What was left of a partition is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionForgotten {
    /// The partition.
    pub partition: PartitionId,
}

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionForgotten {
    /// Which forgetting went through: a number and no content, so that whoever was at it too can
    /// tell this end from an abandonment.
    pub mark: i64,
}

/// The sync lease is held longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewed {
    /// Until when.
    pub expires_at: Timestamp,
}

/// An enumeration began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptBegun {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage.
    pub provenance: Provenance,
    /// What is fixed of it from the start.
    pub receipt: ReceiptFacts,
    /// The receipt of the same key whose place it takes.
    pub dropped: Option<DroppedReceipt>,
}

/// A receipt that another took the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedReceipt {
    /// Its sequence.
    pub sequence: i64,
    /// How many pages it had.
    pub pages: u32,
}

/// A page was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptExtended {
    /// The receipt.
    pub key: ReceiptKey,
    /// The page.
    pub page: u32,
    /// How many ids it lists.
    pub ids: u64,
    /// How many bytes the ids have.
    pub id_bytes: u64,
    /// The list.
    pub content: ContentRef,
}

/// The provider gave its last page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptCompleted {
    /// The receipt.
    pub key: ReceiptKey,
    /// How many entities the provider said there are.
    pub expected_count: Option<u64>,
    /// How many distinct ids were seen.
    pub distinct: u64,
    /// The list of them.
    pub keep: ContentRef,
}

/// The receipt counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptCommitted {
    /// The receipt.
    pub key: ReceiptKey,
    /// Its era.
    pub era: i64,
    /// What it came to.
    pub result: CommitResult,
    /// The partition owes no sweep any more.
    pub settles_owed: bool,
    /// When.
    pub at: Timestamp,
}

/// Documents became pending candidates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidatesCreated {
    /// The receipt that lacks them.
    pub key: ReceiptKey,
    /// Their model.
    pub model_id: ModelId,
    /// The documents and their entities.
    pub candidates: Vec<KnownDocument>,
    /// When.
    pub at: Timestamp,
}

/// Candidates are no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidatesWithdrawn {
    /// The partition.
    pub partition: PartitionId,
    /// The lineage that they stood under.
    pub provenance: Provenance,
    /// Their documents.
    pub documents: Vec<DocumentId>,
}

/// The provider says that the entity is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateConfirmed {
    /// Which.
    pub candidate: CandidateKey,
    /// When.
    pub at: Timestamp,
}

/// The provider did not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateDeferred {
    /// Which.
    pub candidate: CandidateKey,
    /// How often by now.
    pub attempts: u32,
    /// When it is due again.
    pub next_attempt_at: Timestamp,
    /// When.
    pub at: Timestamp,
}

/// The candidate could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateApplyFailed {
    /// Which.
    pub candidate: CandidateKey,
    /// How often by now.
    pub apply_failures: u32,
    /// Why.
    pub error: String,
    /// When it is due again.
    pub next_attempt_at: Timestamp,
    /// It is never due again.
    pub is_dead: bool,
    /// When.
    pub at: Timestamp,
}

/// A candidate is no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateGone {
    /// Which.
    pub candidate: CandidateKey,
}

/// Nothing is left to do up to a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMoved {
    /// The receipt.
    pub key: ReceiptKey,
    /// Its era.
    pub era: i64,
    /// When.
    pub at: Timestamp,
}

/// A sweep is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorLost {
    /// The partition.
    pub partition: PartitionId,
    /// The stream version of this event: only a receipt that began behind it settles it.
    pub version: i64,
    /// When.
    pub at: Timestamp,
}

impl StoredEvent for ConnectorEvent {
    fn event_type(&self) -> u16 {
        match self {
            Self::SyncStateSet(_) => 1,
            Self::SyncProgressUpdated(_) => 2,
            Self::SyncStateDeleted => 3,
            Self::LeaseAcquired(_) => 4,
            Self::LeaseRenewed(_) => 5,
            Self::LeaseReleased => 6,
            Self::ReceiptBegun(_) => 7,
            Self::ReceiptExtended(_) => 8,
            Self::ReceiptCompleted(_) => 9,
            Self::ReceiptCommitted(_) => 10,
            Self::CandidatesCreated(_) => 11,
            Self::CandidatesWithdrawn(_) => 12,
            Self::CandidateConfirmed(_) => 13,
            Self::CandidateDeferred(_) => 14,
            Self::CandidateApplyFailed(_) => 15,
            Self::CandidateApplied(_) => 16,
            Self::CandidateDropped(_) => 17,
            Self::CheckpointMoved(_) => 18,
            Self::CursorLost(_) => 19,
            Self::ConnectionForgetBegun(_) => 20,
            Self::ConnectionForgetAbandoned => 21,
            Self::ReceiptForgotten(_) => 22,
            Self::PartitionForgotten(_) => 23,
            Self::ConnectionForgotten(_) => 24,
            Self::ReceiptAdopted(_) => 25,
            Self::CandidateAdopted(_) => 26,
        }
    }

    fn encode_with<E: PayloadEncoder>(&self, encoder: E) -> Result<Vec<u8>> {
        match self {
            Self::SyncStateSet(event) | Self::SyncProgressUpdated(event) => encoder.encode(event),
            Self::SyncStateDeleted | Self::LeaseReleased | Self::ConnectionForgetAbandoned => {
                encoder.encode(&())
            }
            Self::LeaseAcquired(event) => encoder.encode(event),
            Self::LeaseRenewed(event) => encoder.encode(event),
            Self::ReceiptBegun(event) => encoder.encode(event),
            Self::ReceiptExtended(event) => encoder.encode(event),
            Self::ReceiptCompleted(event) => encoder.encode(event),
            Self::ReceiptCommitted(event) => encoder.encode(event),
            Self::CandidatesCreated(event) => encoder.encode(event),
            Self::CandidatesWithdrawn(event) => encoder.encode(event),
            Self::CandidateConfirmed(event) => encoder.encode(event),
            Self::CandidateDeferred(event) => encoder.encode(event),
            Self::CandidateApplyFailed(event) => encoder.encode(event),
            Self::CandidateApplied(event) | Self::CandidateDropped(event) => encoder.encode(event),
            Self::CheckpointMoved(event) => encoder.encode(event),
            Self::CursorLost(event) => encoder.encode(event),
            Self::ConnectionForgetBegun(event) => encoder.encode(event),
            Self::ReceiptForgotten(event) => encoder.encode(event),
            Self::PartitionForgotten(event) => encoder.encode(event),
            Self::ConnectionForgotten(event) => encoder.encode(event),
            Self::ReceiptAdopted(event) => encoder.encode(event),
            Self::CandidateAdopted(event) => encoder.encode(event),
        }
    }

    fn decode_with<D: PayloadDecoder>(event_type: u16, schema: u16, decoder: D) -> Result<Self> {
        match (event_type, schema) {
            (1, 1) => decoder.decode().map(Self::SyncStateSet),
            (2, 1) => decoder.decode().map(Self::SyncProgressUpdated),
            (3, 1) => decoder.decode().map(|()| Self::SyncStateDeleted),
            (4, 1) => decoder.decode().map(Self::LeaseAcquired),
            (5, 1) => decoder.decode().map(Self::LeaseRenewed),
            (6, 1) => decoder.decode().map(|()| Self::LeaseReleased),
            (7, 1) => decoder.decode().map(Self::ReceiptBegun),
            (8, 1) => decoder.decode().map(Self::ReceiptExtended),
            (9, 1) => decoder.decode().map(Self::ReceiptCompleted),
            (10, 1) => decoder.decode().map(Self::ReceiptCommitted),
            (11, 1) => decoder.decode().map(Self::CandidatesCreated),
            (12, 1) => decoder.decode().map(Self::CandidatesWithdrawn),
            (13, 1) => decoder.decode().map(Self::CandidateConfirmed),
            (14, 1) => decoder.decode().map(Self::CandidateDeferred),
            (15, 1) => decoder.decode().map(Self::CandidateApplyFailed),
            (16, 1) => decoder.decode().map(Self::CandidateApplied),
            (17, 1) => decoder.decode().map(Self::CandidateDropped),
            (18, 1) => decoder.decode().map(Self::CheckpointMoved),
            (19, 1) => decoder.decode().map(Self::CursorLost),
            (20, 1) => decoder.decode().map(Self::ConnectionForgetBegun),
            (21, 1) => decoder.decode().map(|()| Self::ConnectionForgetAbandoned),
            (22, 1) => decoder.decode().map(Self::ReceiptForgotten),
            (23, 1) => decoder.decode().map(Self::PartitionForgotten),
            (24, 1) => decoder.decode().map(Self::ConnectionForgotten),
            (25, 1) => decoder.decode().map(Self::ReceiptAdopted),
            (26, 1) => decoder.decode().map(Self::CandidateAdopted),
            _ => Err(Error::UnknownSchema {
                what: "event",
                kind: KIND.number(),
                number: event_type,
                schema,
            }),
        }
    }

    fn is_swept(&self) -> bool {
        matches!(self, Self::ConnectionForgotten(_))
    }
}
