//! What happened to a pending authorization. These types are disk format: golden files hold their
//! bytes. None holds a secret.

use serde::{Deserialize, Serialize};

use crate::base::{Error, OwnerDid, Result, StreamKind, Timestamp};
use crate::domain::{ContentRef, PayloadDecoder, PayloadEncoder, StoredEvent};

/// The kind of an authorization's stream, named once.
pub(super) const KIND: StreamKind = StreamKind::Auth;

/// An event of a pending authorization's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PendingAuthEvent {
    /// The record was kept.
    PendingAuthCreated(PendingAuthCreated),
    /// The record was removed and handed out.
    PendingAuthConsumed(PendingAuthConsumed),
    /// The record was removed because it had expired, or with its connection.
    PendingAuthExpired,
}

/// What may be told of the record; the rest is in its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAuthCreated {
    /// Who was asked.
    pub provider: String,
    /// For whom.
    pub owner: OwnerDid,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// What the row is.
    pub row: ContentRef,
}

/// The record was handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingAuthConsumed {
    /// When.
    pub at: Timestamp,
}

impl StoredEvent for PendingAuthEvent {
    fn event_type(&self) -> u16 {
        match self {
            Self::PendingAuthCreated(_) => 1,
            Self::PendingAuthConsumed(_) => 2,
            Self::PendingAuthExpired => 3,
        }
    }

    fn encode_with<E: PayloadEncoder>(&self, encoder: E) -> Result<Vec<u8>> {
        match self {
            Self::PendingAuthCreated(event) => encoder.encode(event),
            Self::PendingAuthConsumed(event) => encoder.encode(event),
            Self::PendingAuthExpired => encoder.encode(&()),
        }
    }

    fn decode_with<D: PayloadDecoder>(event_type: u16, schema: u16, decoder: D) -> Result<Self> {
        match (event_type, schema) {
            (1, 1) => decoder.decode().map(Self::PendingAuthCreated),
            (2, 1) => decoder.decode().map(Self::PendingAuthConsumed),
            (3, 1) => decoder.decode().map(|()| Self::PendingAuthExpired),
            _ => Err(Error::UnknownSchema {
                what: "event",
                kind: KIND.number(),
                number: event_type,
                schema,
            }),
        }
    }
}
