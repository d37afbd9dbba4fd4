//! A document's state, and how events change it.

use serde::{Deserialize, Serialize};

use super::event::DocumentEvent;
use crate::base::{ConnectorName, DocumentId, Json, OwnerDid, Timestamp};

/// The state of one document's stream. It is snapshot format: golden files hold its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The standing trim.
    pub trim: Option<EntityTrim>,
    /// When the sweep began that is not ended.
    pub sweep_begun_at: Option<Timestamp>,
    /// The stream holds events that a sweep must erase.
    pub has_history: bool,
}

/// Which fields were fitted to the model's caps when the document was last written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityTrim {
    /// Whose document, as the first write said.
    pub owner: OwnerDid,
    /// Which connector's, as the first write said.
    pub connector: ConnectorName,
    /// The trimmed fields.
    pub trimmed_fields: Json,
    /// When it was last set.
    pub updated_at: Timestamp,
}

/// An [`EntityTrim`] with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityTrimRecord {
    /// The document.
    pub document_id: DocumentId,
    /// Whose document.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// The trimmed fields.
    pub trimmed_fields: Json,
    /// When it was last set.
    pub updated_at: Timestamp,
}

impl Document {
    pub(super) fn apply_event(&mut self, event: &DocumentEvent) {
        self.has_history = true;
        match event {
            DocumentEvent::Swept => *self = Self::default(),
            DocumentEvent::EntityTrimSet(set) => {
                self.trim = Some(EntityTrim {
                    owner: set.owner.clone(),
                    connector: set.connector.clone(),
                    trimmed_fields: set.trimmed_fields.clone(),
                    updated_at: set.updated_at,
                });
            }
            DocumentEvent::EntityTrimCleared => self.trim = None,
            DocumentEvent::DocumentSweepBegun(begun) => self.sweep_begun_at = Some(begun.at),
            DocumentEvent::DocumentSweepAbandoned => self.sweep_begun_at = None,
        }
    }
}
