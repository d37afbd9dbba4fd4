//! What happened to a document. These types are disk format: golden files hold their bytes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::repair::ObservationRepair;
use super::state::{DeferReason, OperationKind, OperationPhase, SendMark, WatchReason};
use super::token::Token;
use super::watch::WatchIdentity;
use crate::base::{
    ConnectorName, Digest, Error, Json, OperationId, OwnerDid, Result, StreamKind, Timestamp,
};
use crate::domain::{Aggregate, ContentRef, Lease, PayloadDecoder, PayloadEncoder, StoredEvent};
use crate::records::{Hlc, RecordCopy};

/// An event of a document's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentEvent {
    /// Everything was removed, and the history before this event erased.
    Swept,
    /// The trim was created or replaced.
    EntityTrimSet(EntityTrimSet),
    /// The trim was forgotten.
    EntityTrimCleared,
    /// A sweep began.
    DocumentSweepBegun(DocumentSweepBegun),
    /// A begun sweep was taken back.
    DocumentSweepAbandoned,
    /// An operation was created and claimed.
    OperationCreated(OperationCreated),
    /// A known operation was claimed.
    OperationClaimed(OperationClaimed),
    /// Its request was about to leave.
    SendStarted(SendStarted),
    /// It was given back until later.
    OperationDeferred(OperationDeferred),
    /// What is known of it changed.
    OperationRecorded(OperationRecorded),
    /// The provider was about to be asked.
    ReconcileReadBegun(ReconcileReadBegun),
    /// It ended.
    OperationFinalized(OperationFinalized),
    /// Its lease was renewed or released.
    OperationLeaseChanged(OperationLeaseChanged),
    /// A watch was armed.
    WatchArmed(WatchArmed),
    /// The written value was read: the watch is gone.
    WatchVerified,
    /// Another value was read.
    WatchMismatched(WatchMismatched),
    /// Another value was read behind the deadline.
    WatchExpired(WatchExpired),
    /// The watch was ended.
    WatchDisarmed,
    /// What a disconnected account had left was removed.
    DocumentConnectionForgotten(DocumentConnectionForgotten),
    /// A copy of an observation record was put.
    ObservationCopyPut(Box<ObservationCopyPut>),
    /// Copies of an observation record went.
    ObservationCopiesDropped(ObservationCopiesDropped),
    /// The repair obligation was created or replaced.
    RepairPut(Box<ObservationRepair>),
    /// The repair obligation was ended.
    RepairCleared,
    /// The repair obligation stood in a database when that was adopted.
    RepairAdopted(Box<RepairAdopted>),
}

/// The repair obligation stood in a database when that was adopted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairAdopted {
    /// The obligation.
    pub repair: ObservationRepair,
    /// When it had been written there.
    pub written_at: Timestamp,
}

/// A copy of an observation record was put. Token and payload are in its row alone.
#[derive(Clone, Debug, Eq, Serialize, Deserialize)]
pub struct ObservationCopyPut {
    /// Whose record.
    pub owner: OwnerDid,
    /// What its token says.
    pub copy: RecordCopy,
    /// The reference of its value; none when the value is absent.
    pub payload: Option<ContentRef>,
    /// The copies that went for it.
    pub dropped: Vec<Digest>,
    /// The token with its verdict, for the state in memory. No part of what is stored.
    #[serde(skip)]
    pub token: Option<Arc<Token>>,
}

impl PartialEq for ObservationCopyPut {
    fn eq(&self, other: &Self) -> bool {
        let stored = |event: &Self| {
            (event.owner.clone(), event.copy.clone(), event.payload, event.dropped.clone())
        };
        stored(self) == stored(other)
    }
}

/// Copies of an observation record went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservationCopiesDropped {
    /// Whose record.
    pub owner: OwnerDid,
    /// The copies that went.
    pub dropped: Vec<Digest>,
}

/// The trim as it stands after the event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityTrimSet {
    /// Whose document.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// The trimmed fields.
    pub trimmed_fields: Json,
    /// When.
    pub updated_at: Timestamp,
}

/// A sweep began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentSweepBegun {
    /// When.
    pub at: Timestamp,
}

/// An operation was created and claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationCreated {
    /// The operation.
    pub operation_id: OperationId,
    /// Whose account.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// What is done at the provider.
    pub op: OperationKind,
    /// The stamp of the local change.
    pub version: Hlc,
    /// The digest of the request.
    pub request_digest: Digest,
    /// How long the provider may take to show a write.
    pub visibility_delay_ms: i64,
    /// Its place among the document's operations.
    pub sequence: i64,
    /// Set when it may have been sent before the store was restored from a backup that does not know
    /// it: the provider must be asked before anything is sent.
    pub sent: Option<SendMark>,
    /// The claim.
    pub lease: Lease,
    /// When.
    pub at: Timestamp,
}

/// A known operation was claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationClaimed {
    /// The operation.
    pub operation_id: OperationId,
    /// The claim.
    pub lease: Lease,
    /// The provider must be asked before anything is sent.
    pub reconcile: bool,
    /// How often it was claimed to be sent, this time included.
    pub attempts: u32,
    /// When.
    pub at: Timestamp,
}

/// A request was about to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendStarted {
    /// The operation.
    pub operation_id: OperationId,
    /// When, and how long.
    pub mark: SendMark,
}

/// An operation was given back until later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationDeferred {
    /// The operation.
    pub operation_id: OperationId,
    /// Why.
    pub reason: DeferReason,
    /// When it may be claimed again.
    pub not_before: Timestamp,
    /// Nothing that was sent can have arrived.
    pub clears_mark: bool,
    /// When.
    pub at: Timestamp,
}

/// What is known of an operation changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecorded {
    /// The operation.
    pub operation_id: OperationId,
    /// Its phase now.
    pub phase: OperationPhase,
    /// When.
    pub at: Timestamp,
}

/// The provider was about to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconcileReadBegun {
    /// The operation.
    pub operation_id: OperationId,
    /// When.
    pub at: Timestamp,
}

/// An operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationFinalized {
    /// The operation.
    pub operation_id: OperationId,
    /// Its last phase.
    pub phase: OperationPhase,
    /// When.
    pub at: Timestamp,
}

/// An operation's lease was renewed or released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationLeaseChanged {
    /// The operation.
    pub operation_id: OperationId,
    /// The lease now.
    pub lease: Option<Lease>,
    /// When.
    pub at: Timestamp,
}

/// A watch was armed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchArmed {
    /// What is watched.
    pub identity: WatchIdentity,
    /// Why.
    pub reason: WatchReason,
    /// What must be read.
    pub expected_digest: Option<Digest>,
    /// The stamp of the write.
    pub written_hlc: Hlc,
    /// From then on a different value expires the watch.
    pub deadline: Timestamp,
    /// When.
    pub at: Timestamp,
}

/// Another value was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchMismatched {
    /// How often so far.
    pub mismatches: u32,
    /// When the newest fetch that counted began.
    pub fetch_hlc: Hlc,
    /// When.
    pub at: Timestamp,
}

/// Another value was read behind the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchExpired {
    /// When the newest fetch that counted began.
    pub fetch_hlc: Hlc,
    /// When.
    pub at: Timestamp,
}

/// What a disconnected account had left was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentConnectionForgotten {
    /// Whose account.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
}

impl StoredEvent for DocumentEvent {
    fn event_type(&self) -> u16 {
        match self {
            Self::Swept => 1,
            Self::EntityTrimSet(_) => 2,
            Self::EntityTrimCleared => 3,
            Self::DocumentSweepBegun(_) => 4,
            Self::DocumentSweepAbandoned => 5,
            Self::OperationCreated(_) => 6,
            Self::OperationClaimed(_) => 7,
            Self::SendStarted(_) => 8,
            Self::OperationDeferred(_) => 9,
            Self::OperationRecorded(_) => 10,
            Self::ReconcileReadBegun(_) => 11,
            Self::OperationFinalized(_) => 12,
            Self::OperationLeaseChanged(_) => 13,
            Self::WatchArmed(_) => 14,
            Self::WatchVerified => 15,
            Self::WatchMismatched(_) => 16,
            Self::WatchExpired(_) => 17,
            Self::WatchDisarmed => 18,
            Self::DocumentConnectionForgotten(_) => 19,
            Self::ObservationCopyPut(_) => 20,
            Self::ObservationCopiesDropped(_) => 21,
            Self::RepairPut(_) => 22,
            Self::RepairCleared => 23,
            Self::RepairAdopted(_) => 24,
        }
    }

    fn encode_with<E: PayloadEncoder>(&self, encoder: E) -> Result<Vec<u8>> {
        match self {
            Self::EntityTrimSet(event) => encoder.encode(event),
            Self::DocumentSweepBegun(event) => encoder.encode(event),
            Self::OperationCreated(event) => encoder.encode(event),
            Self::OperationClaimed(event) => encoder.encode(event),
            Self::SendStarted(event) => encoder.encode(event),
            Self::OperationDeferred(event) => encoder.encode(event),
            Self::OperationRecorded(event) => encoder.encode(event),
            Self::ReconcileReadBegun(event) => encoder.encode(event),
            Self::OperationFinalized(event) => encoder.encode(event),
            Self::OperationLeaseChanged(event) => encoder.encode(event),
            Self::WatchArmed(event) => encoder.encode(event),
            Self::WatchMismatched(event) => encoder.encode(event),
            Self::WatchExpired(event) => encoder.encode(event),
            Self::DocumentConnectionForgotten(event) => encoder.encode(event),
            Self::ObservationCopyPut(event) => encoder.encode(event),
            Self::ObservationCopiesDropped(event) => encoder.encode(event),
            Self::RepairPut(event) => encoder.encode(event),
            Self::RepairAdopted(event) => encoder.encode(event),
            Self::Swept
            | Self::EntityTrimCleared
            | Self::DocumentSweepAbandoned
            | Self::WatchVerified
            | Self::WatchDisarmed
            | Self::RepairCleared => encoder.encode(&()),
        }
    }

    fn decode_with<D: PayloadDecoder>(event_type: u16, schema: u16, decoder: D) -> Result<Self> {
        match (event_type, schema) {
            (1, 1) => decoder.decode().map(|()| Self::Swept),
            (2, 1) => decoder.decode().map(Self::EntityTrimSet),
            (3, 1) => decoder.decode().map(|()| Self::EntityTrimCleared),
            (4, 1) => decoder.decode().map(Self::DocumentSweepBegun),
            (5, 1) => decoder.decode().map(|()| Self::DocumentSweepAbandoned),
            (6, 1) => decoder.decode().map(Self::OperationCreated),
            (7, 1) => decoder.decode().map(Self::OperationClaimed),
            (8, 1) => decoder.decode().map(Self::SendStarted),
            (9, 1) => decoder.decode().map(Self::OperationDeferred),
            (10, 1) => decoder.decode().map(Self::OperationRecorded),
            (11, 1) => decoder.decode().map(Self::ReconcileReadBegun),
            (12, 1) => decoder.decode().map(Self::OperationFinalized),
            (13, 1) => decoder.decode().map(Self::OperationLeaseChanged),
            (14, 1) => decoder.decode().map(Self::WatchArmed),
            (15, 1) => decoder.decode().map(|()| Self::WatchVerified),
            (16, 1) => decoder.decode().map(Self::WatchMismatched),
            (17, 1) => decoder.decode().map(Self::WatchExpired),
            (18, 1) => decoder.decode().map(|()| Self::WatchDisarmed),
            (19, 1) => decoder.decode().map(Self::DocumentConnectionForgotten),
            (20, 1) => decoder.decode().map(Self::ObservationCopyPut),
            (21, 1) => decoder.decode().map(Self::ObservationCopiesDropped),
            (22, 1) => decoder.decode().map(Self::RepairPut),
            (23, 1) => decoder.decode().map(|()| Self::RepairCleared),
            (24, 1) => decoder.decode().map(Self::RepairAdopted),
            _ => Err(Error::UnknownSchema {
                what: "event",
                kind: <super::Document as Aggregate>::KIND.number(),
                number: event_type,
                schema,
            }),
        }
    }

    fn is_swept(&self) -> bool {
        matches!(self, Self::Swept)
    }

    fn stamped_at(&self) -> Option<Timestamp> {
        match self {
            Self::RepairAdopted(adopted) => Some(adopted.written_at),
            _ => None,
        }
    }
}

/// The kind of a document's stream, named once.
pub(super) const KIND: StreamKind = StreamKind::Document;
