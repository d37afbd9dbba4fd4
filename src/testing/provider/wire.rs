//! What passes between a connector and its provider: requests, answers, errors. It holds what the
//! wire can tell apart and no more: a connector that needs to know more is not one for real providers.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Json, OperationId, PartitionId, SourceId};
use crate::domain::document::OperationKind;

/// A version of an entity (an `ETag`): equal only where the entity is the same.
pub type Version = Arc<str>;

/// Where a listing or the changes go on. Opaque to connectors, who keep its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Arc<str>);

impl Cursor {
    /// The cursor of this text. Whether it is good, only the provider can say.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Its text, to be kept.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An entity as the provider shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name within the account.
    pub source_id: SourceId,
    /// Its version.
    pub version: Version,
    /// What is in it.
    pub content: Json,
    /// The name that it had before it was renamed, where the provider tells it.
    pub former: Option<SourceId>,
}

/// A page of a listing, in the order of the source ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entities.
    pub items: Vec<Item>,
    /// How it goes on.
    pub next: Next,
}

/// What follows a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another page, behind this cursor.
    Page(Cursor),
    /// Nothing: this is the last page.
    Last {
        /// How many entities there are, where the provider counts them.
        total: Option<u64>,
        /// From here [`super::Provider::changes`] goes on.
        sync: Cursor,
    },
}

/// What has happened since a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Each entity once, by the time of its last change.
    pub changes: Vec<Change>,
    /// From here the next call goes on.
    pub sync: Cursor,
}

/// What became of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there, as it is now.
    Is(Item),
    /// It was deleted: a tombstone.
    Gone(SourceId),
}

/// A write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Names the write. It is on the wire only as an idempotency key; otherwise it is for counting.
    pub operation_id: OperationId,
    /// Where.
    pub partition: PartitionId,
    /// What is done.
    pub op: OperationKind,
    /// To which entity. The client chooses the names of new ones.
    pub source_id: SourceId,
    /// What is written; nothing where the entity is deleted.
    pub content: Option<Json>,
    /// When it is refused.
    pub condition: Condition,
}

/// The condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is done in any case.
    None,
    /// `If-None-Match: *`: only where nothing stands.
    IfNoneMatch,
    /// `If-Match`: only where this version stands.
    IfMatch(Version),
    /// The operation's id is sent along: a repeat gets the first answer and does nothing.
    IdempotencyKey,
}

/// Why there is no answer to work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// 410 of a listing or of the changes: the cursor is worth nothing any more, start over.
    #[error("the cursor has expired")]
    CursorExpired,
    /// No answer came. A write may have been done.
    #[error("no answer came in time")]
    TimedOut,
    /// 503. A write may have been done.
    #[error("the provider is not available")]
    Unavailable,
    /// 429: nothing was done.
    #[error("too many requests: try again after {retry_after:?}")]
    RateLimited {
        /// Earlier it is refused again.
        retry_after: Duration,
    },
    /// 400: nothing was done, and never will be.
    #[error("the request was rejected")]
    Rejected,
    /// 412: the condition does not hold, nothing was done.
    #[error("the condition of the write does not hold")]
    ConditionFailed,
    /// 404 or 410 of an entity: it is not there.
    #[error("the entity is not there")]
    Gone,
}
