//! What may be asked of a pending authorization, and what it answers.

use serde::{Deserialize, Serialize, Serializer};

use super::record::{PendingAuthRecord, auth_key, record_to_row};
use crate::base::{Error, Result, Secret, Timestamp};
use crate::domain::ContentRef;

/// A command to one pending authorization.
///
/// Serialised it holds digests in place of the secrets: enough to tell two commands apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum PendingAuthCommand {
    /// Keeps a record.
    CreatePendingAuth(#[serde(serialize_with = "digest_of_record")] Box<PendingAuthRecord>),
    /// Removes the record and hands it out, once.
    ConsumePendingAuth {
        /// The state that the provider's answer brought back.
        #[serde(serialize_with = "digest_of_state")]
        state: Secret,
    },
    /// Removes the record if it expired before a time.
    ExpirePendingAuth {
        /// A record that expires at this time or later stays.
        cutoff: Timestamp,
        /// The record's state.
        #[serde(serialize_with = "digest_of_state")]
        state: Secret,
    },
    /// Removes the record with its connection, whenever it expires, and what the journal tells of it.
    ForgetPendingAuth {
        /// The record's state.
        #[serde(serialize_with = "digest_of_state")]
        state: Secret,
    },
}

fn digest_of_record<S: Serializer>(
    record: &PendingAuthRecord,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    ContentRef::of_row(&record_to_row(record)).serialize(serializer)
}

fn digest_of_state<S: Serializer>(state: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    auth_key(state).serialize(serializer)
}

/// The answer to a [`PendingAuthCommand`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PendingAuthReply {
    /// It is kept.
    Created,
    /// The append takes the row; the answer is complete once the row came back with it.
    Taking {
        /// What the row must be.
        row: ContentRef,
    },
    /// The record is gone, or stays because it did not expire before the time.
    Expired {
        /// This command removed it.
        removed: bool,
    },
    /// The record, which is no longer stored. It cannot be serialised.
    // Last, because serde counts the variants without it when it reads.
    #[serde(skip)]
    Consumed(Box<PendingAuthRecord>),
}

impl PendingAuthReply {
    /// The record that was consumed.
    ///
    /// # Errors
    /// Damage when the row that the append should have removed was not there, or not the one that
    /// was written: what it holds must not be trusted.
    pub fn into_consumed(self) -> Result<PendingAuthRecord> {
        match self {
            Self::Consumed(record) => Ok(*record),
            _ => Err(Error::damaged("the row of a pending authorization is missing or changed")),
        }
    }
}
