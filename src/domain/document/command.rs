//! What may be asked of a document, and what it answers.

use serde::{Deserialize, Serialize};

use super::state::EntityTrimRecord;
use crate::base::{ConnectorName, Json, OwnerDid};

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
}

/// The answer to a [`DocumentCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DocumentReply {
    /// It is done.
    Done,
    /// The trim, or none.
    Trim(Option<EntityTrimRecord>),
}
