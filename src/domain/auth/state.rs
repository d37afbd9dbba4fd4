//! A pending authorization's state, and how events change it.

use serde::{Deserialize, Serialize};

use super::event::PendingAuthEvent;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{OwnerDid, Timestamp};
use crate::domain::ContentRef;

/// The state of one authorization's stream. It is snapshot format: golden files hold its bytes. It
/// holds no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PendingAuth {
    /// Nothing is known of it.
    #[default]
    Absent,
    /// The record is in its row.
    Pending(Pending),
    /// The record was handed out, and is no longer stored.
    Consumed {
        /// When.
        at: Timestamp,
    },
    /// The record was removed because it had expired.
    Expired,
}

/// What the state keeps of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
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

impl PendingAuth {
    /// What the row must be, if there must be one. The row's key is not known here: whoever
    /// compares finds the row by the SHA-256 of its `state`.
    #[must_use]
    pub const fn pending_row(&self) -> Option<ContentRef> {
        match self {
            Self::Pending(pending) => Some(pending.row),
            Self::Absent | Self::Consumed { .. } | Self::Expired => None,
        }
    }

    /// It was consumed or expired: nothing of it can change any more, but for a new record in the
    /// place of an expired one.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self, Self::Consumed { .. } | Self::Expired)
    }

    pub(super) fn apply_event(&mut self, event: &PendingAuthEvent) {
        *self = match event {
            PendingAuthEvent::PendingAuthCreated(created) => Self::Pending(Pending {
                provider: created.provider.clone(),
                owner: created.owner.clone(),
                created_at: created.created_at,
                expires_at: created.expires_at,
                row: created.row,
            }),
            PendingAuthEvent::PendingAuthConsumed(_)
                if is_planted(PlantedBug::AuthorizationStays) =>
            {
                return;
            }
            PendingAuthEvent::PendingAuthConsumed(consumed) => Self::Consumed { at: consumed.at },
            PendingAuthEvent::PendingAuthExpired => Self::Expired,
        };
    }
}
