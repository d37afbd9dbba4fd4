//! What happened to a document. These types are disk format: golden files hold their bytes.

use serde::{Deserialize, Serialize};

use crate::base::{ConnectorName, Error, Json, OwnerDid, Result, StreamKind, Timestamp};
use crate::domain::{Aggregate, PayloadDecoder, PayloadEncoder, StoredEvent};

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

impl StoredEvent for DocumentEvent {
    fn event_type(&self) -> u16 {
        match self {
            Self::Swept => 1,
            Self::EntityTrimSet(_) => 2,
            Self::EntityTrimCleared => 3,
            Self::DocumentSweepBegun(_) => 4,
            Self::DocumentSweepAbandoned => 5,
        }
    }

    fn encode_with<E: PayloadEncoder>(&self, encoder: E) -> Result<Vec<u8>> {
        match self {
            Self::EntityTrimSet(event) => encoder.encode(event),
            Self::DocumentSweepBegun(event) => encoder.encode(event),
            Self::Swept | Self::EntityTrimCleared | Self::DocumentSweepAbandoned => {
                encoder.encode(&())
            }
        }
    }

    fn decode_with<D: PayloadDecoder>(event_type: u16, schema: u16, decoder: D) -> Result<Self> {
        match (event_type, schema) {
            (1, 1) => decoder.decode().map(|()| Self::Swept),
            (2, 1) => decoder.decode().map(Self::EntityTrimSet),
            (3, 1) => decoder.decode().map(|()| Self::EntityTrimCleared),
            (4, 1) => decoder.decode().map(Self::DocumentSweepBegun),
            (5, 1) => decoder.decode().map(|()| Self::DocumentSweepAbandoned),
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
}

/// The kind of a document's stream, named once.
pub(super) const KIND: StreamKind = StreamKind::Document;
