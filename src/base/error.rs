//! The one public error: what was refused, what may be tried again, what is not known.
//!
//! It knows no library: a source is kept as a boxed error, callers branch on variants, codes and
//! classes, never on text. No variant holds a secret or a payload.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::ids::{ConnectorName, DocumentId, Holder, OperationId, OwnerDid, PartitionId};
use super::record_fault::RecordFault;
use super::time::Timestamp;

/// The result of every call of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller may conclude from an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The state or the input says no: the same call gives the same answer until something changes.
    Refused,
    /// Nothing happened: the same call may succeed later.
    Retryable,
    /// It may or may not have happened: repeat the call with the command id.
    Unknown,
}

/// Why the storage could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageFault {
    /// No room is left on the medium.
    Full,
    /// The medium, the file or its directory (which must hold `-wal`, `-shm` and `.lock`) is read-only.
    ReadOnly,
    /// The medium failed to read or write.
    Io,
    /// The storage does not answer.
    Unavailable,
    /// What is stored is not what was written.
    Damaged,
}

/// Everything that a call of the store can answer besides its result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is not what the field takes. Nothing was sent to an actor.
    #[error("{field}: {reason}")]
    InvalidInput {
        /// The field's name.
        field: &'static str,
        /// What was expected.
        reason: String,
    },
    /// The thing exists already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// What exists, in words.
        what: &'static str,
    },
    /// The pending authorization was consumed before.
    #[error("the pending authorization was consumed already")]
    AlreadyConsumed,
    /// There is no such thing.
    #[error("{what} not found")]
    NotFound {
        /// What is missing, in words.
        what: &'static str,
    },
    /// Another holder has the lease.
    #[error("the lease is held by {holder} until {expires_at}")]
    LeaseHeld {
        /// Who holds it.
        holder: Holder,
        /// When it can be taken.
        expires_at: Timestamp,
    },
    /// The fencing token is not the current one: somebody else took the lease, or it was released.
    #[error("the lease is lost: {scope}")]
    LeaseLost {
        /// What was leased.
        scope: String,
    },
    /// The row changed under every try of a conditional progress update.
    #[error("progress of {connector} of {owner} was contended {attempts} times")]
    ProgressContention {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
        /// How often it was tried.
        attempts: u32,
    },
    /// The caller's closure panicked; the state is untouched.
    #[error("the closure given to the store panicked")]
    ClosurePanicked,
    /// The receipt lacks pages, or its count is not what the provider said, or it is not complete.
    #[error("the receipt of {partition} is incomplete: {reason}")]
    ReceiptIncomplete {
        /// The partition that was enumerated.
        partition: PartitionId,
        /// What is missing.
        reason: String,
    },
    /// Another receipt took this one's place.
    #[error("receipt {sequence} of {partition} was superseded")]
    ReceiptSuperseded {
        /// The partition that was enumerated.
        partition: PartitionId,
        /// The sequence that the call named.
        sequence: i64,
    },
    /// The receipt would hold more ids or bytes than a receipt may.
    #[error("the receipt of {partition} is too large: {reason}")]
    ReceiptTooLarge {
        /// The partition that was enumerated.
        partition: PartitionId,
        /// Which limit was met.
        reason: String,
    },
    /// A page that was given before came again with other ids.
    #[error("page {page} of {partition} was given before with other ids")]
    PageMismatch {
        /// The partition that is enumerated.
        partition: PartitionId,
        /// The page.
        page: u32,
    },
    /// A page was left out.
    #[error("page {expected} of {partition} is expected next")]
    PageGap {
        /// The partition that is enumerated.
        partition: PartitionId,
        /// The page that must come next.
        expected: u32,
    },
    /// The enumeration no longer depends on what it did when it began.
    #[error("the fingerprint of the enumeration of {partition} changed")]
    ScopeChanged {
        /// The partition that is enumerated.
        partition: PartitionId,
    },
    /// The mass-delete guard: too large a part of what is known would be deleted.
    #[error("{candidates} of {known} known documents of {partition} would be swept")]
    SweepTooLarge {
        /// The partition that was enumerated.
        partition: PartitionId,
        /// How many documents would become candidates.
        candidates: u64,
        /// How many are known.
        known: u64,
    },
    /// A sweep of the document has begun.
    #[error("document {document_id} is being swept")]
    DocumentBeingSwept {
        /// The document.
        document_id: DocumentId,
    },
    /// An operation on the document can still write to the provider.
    #[error("document {document_id} has an unfinished operation")]
    SweepUnfinishedOperation {
        /// The document.
        document_id: DocumentId,
    },
    /// A clock stamp is so far ahead of the wall clock that it would win for ever. It was not taken.
    #[error("a stamp is {ahead_ms} ms ahead of the wall clock, at most {max_drift_ms} are taken")]
    HlcDrift {
        /// How far it is ahead.
        ahead_ms: i64,
        /// How far it may be ahead.
        max_drift_ms: i64,
    },
    /// The signed record is no valid copy. Nothing was stored.
    #[error("the observation record is not valid: {reason}")]
    InvalidObservationRecord {
        /// Why it does not verify.
        reason: RecordFault,
    },
    /// Only records of the type `connector.observation` are kept here.
    #[error("records of the type {record_type:?} are not kept here")]
    UnsupportedRecordType {
        /// The type that was given, cut off where it is long.
        record_type: String,
    },
    /// The record's owner is not the owner of its document.
    #[error("{owner} is not the owner of document {document_id}")]
    NotDocumentOwner {
        /// The document.
        document_id: DocumentId,
        /// The record's owner.
        owner: OwnerDid,
    },
    /// The store was not told who owns which document, nor to take every owner's records.
    #[error("the store does not know the owners of documents")]
    NoDocumentOwners,
    /// The key of a record's issuer can't be resolved now, so nothing is known of the record.
    #[error("the key of {issuer} can't be resolved now")]
    KeyUnavailable {
        /// The issuer's DID.
        issuer: String,
    },
    /// The operation id is known with another document, owner, connector, op, version or request.
    #[error("operation {operation_id} is known with other facts")]
    OperationMismatch {
        /// The operation.
        operation_id: OperationId,
    },
    /// Another holder has claimed the operation.
    #[error("operation {operation_id} is claimed until {expires_at}")]
    OperationBusy {
        /// The operation.
        operation_id: OperationId,
        /// When the claim can be taken.
        expires_at: Timestamp,
    },
    /// The operation was given back until later.
    #[error("operation {operation_id} is deferred until {not_before}: {reason}")]
    Deferred {
        /// The operation.
        operation_id: OperationId,
        /// When it may be claimed.
        not_before: Timestamp,
        /// Why.
        reason: &'static str,
    },
    /// The operation may have been sent: the provider must be asked before anything else.
    #[error("operation {operation_id} may have been sent: reconcile first")]
    ReconcileFirst {
        /// The operation.
        operation_id: OperationId,
    },
    /// The provider was asked too early to prove that it has not the write.
    #[error("operation {operation_id} can be reconciled by a read begun after {not_before}")]
    ReconcileTooEarly {
        /// The operation.
        operation_id: OperationId,
        /// The read must begin after it.
        not_before: Timestamp,
    },
    /// The lease is past its expiry: renew it first.
    #[error("the lease is expired: {scope}")]
    LeaseExpired {
        /// What was leased.
        scope: String,
    },
    /// The account is being disconnected.
    #[error("{connector} of {owner} is being forgotten")]
    ConnectionForgotten {
        /// Whose account.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// An operation of the connection can still write to the provider.
    #[error("{connector} of {owner} has an unfinished operation")]
    ForgetUnfinishedOperation {
        /// Whose account.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// The command id was used before, for another command.
    #[error("command id {command_id} was used for another command")]
    CommandMismatch {
        /// The id.
        command_id: Uuid,
    },
    /// The command with this id is under way.
    #[error("command {command_id} is in flight")]
    InFlight {
        /// The id.
        command_id: Uuid,
    },
    /// The command may or may not have been carried out. Repeat it with this id: the answer of a
    /// command whose id the caller had given is kept, so it is done once. Where the store had chosen
    /// the id no answer is kept, and the command is decided again on what the first one may have left.
    #[error("the outcome of command {command_id} is unknown")]
    OutcomeUnknown {
        /// The id to repeat it with.
        command_id: Uuid,
    },
    /// The key's mailbox has no room.
    #[error("the mailbox is full")]
    MailboxFull,
    /// The key's actor stopped before it took the command. Nothing happened.
    #[error("the actor stopped")]
    ActorStopped,
    /// Others wrote the same keys again and again. Nothing happened.
    #[error("the keys are contended")]
    Contention,
    /// The call found no turn within its time. Nothing happened.
    #[error("the call timed out")]
    TimedOut,
    /// A unit of work was used after it ended, or for a key that it does not hold.
    #[error("the unit of work does not hold {key}")]
    NotHeld {
        /// The key in words.
        key: String,
    },
    /// The store is closed or closing.
    #[error("the store is closed")]
    Closed,
    /// Another process, or another store of this one, has the file open.
    #[error("{} is in use by another store", path.display())]
    StoreInUse {
        /// The database file.
        path: PathBuf,
    },
    /// The database was written by a newer program. It was not changed.
    #[error("the database has schema {found}, this program knows up to {supported}")]
    NewerDatabase {
        /// The database's schema version.
        found: i64,
        /// The newest schema version that this program knows.
        supported: i64,
    },
    /// The database has tables of another program's store, and something in them that can't be
    /// adopted. It was not changed.
    #[error("the database can't be adopted: {}", refused_at(table, column.as_deref(), row))]
    AdoptionRefused {
        /// The table.
        table: String,
        /// The column that is not known, is missing, or does not fit; none when it is the table.
        column: Option<String>,
        /// The key of the row whose column does not fit; empty when it is no row's. A pending
        /// authorization is named by its stream.
        row: Vec<String>,
    },
    /// An event or a snapshot is of a kind or schema that this program does not know. Other keys
    /// are not affected.
    #[error("unknown {what} of stream kind {kind}: type {number}, schema {schema}")]
    UnknownSchema {
        /// `event` or `snapshot`.
        what: &'static str,
        /// The number of the stream's kind.
        kind: i64,
        /// The stored type number.
        number: u16,
        /// The stored schema number.
        schema: u16,
    },
    /// The storage failed.
    #[error("storage: {context}")]
    Storage {
        /// What kind of failure.
        fault: StorageFault,
        /// What was being done.
        context: String,
        /// The library's error.
        #[source]
        source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// [`Error::InvalidInput`].
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidInput { field, reason: reason.into() }
    }

    /// [`Error::Storage`] without a source.
    pub fn storage(fault: StorageFault, context: impl fmt::Display) -> Self {
        Self::Storage { fault, context: context.to_string(), source: None }
    }

    /// [`Error::Storage`] for something stored that can't be read back.
    pub fn damaged(context: impl fmt::Display) -> Self {
        Self::storage(StorageFault::Damaged, context)
    }

    /// The stable code of this variant.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidInput { .. } => "CONNECTOR_INVALID_INPUT",
            Self::AlreadyExists { .. } => "CONNECTOR_ALREADY_EXISTS",
            Self::AlreadyConsumed => "CONNECTOR_ALREADY_CONSUMED",
            Self::NotFound { .. } => "CONNECTOR_NOT_FOUND",
            Self::LeaseHeld { .. } => "CONNECTOR_LEASE_HELD",
            Self::LeaseLost { .. } => "CONNECTOR_LEASE_LOST",
            Self::ProgressContention { .. } => "CONNECTOR_PROGRESS_CONTENTION",
            Self::ClosurePanicked => "CONNECTOR_CLOSURE_PANICKED",
            Self::ReceiptIncomplete { .. } => "CONNECTOR_RECEIPT_INCOMPLETE",
            Self::ReceiptSuperseded { .. } => "CONNECTOR_RECEIPT_SUPERSEDED",
            Self::ReceiptTooLarge { .. } => "CONNECTOR_RECEIPT_TOO_LARGE",
            Self::PageMismatch { .. } => "CONNECTOR_PAGE_MISMATCH",
            Self::PageGap { .. } => "CONNECTOR_PAGE_GAP",
            Self::ScopeChanged { .. } => "CONNECTOR_SCOPE_CHANGED",
            Self::SweepTooLarge { .. } => "CONNECTOR_SWEEP_TOO_LARGE",
            Self::DocumentBeingSwept { .. } => "CONNECTOR_DOCUMENT_BEING_SWEPT",
            Self::SweepUnfinishedOperation { .. } => "CONNECTOR_SWEEP_UNFINISHED_OPERATION",
            Self::HlcDrift { .. } => "CONNECTOR_HLC_DRIFT",
            Self::InvalidObservationRecord { .. } => "CONNECTOR_INVALID_OBSERVATION_RECORD",
            Self::UnsupportedRecordType { .. } => "CONNECTOR_UNSUPPORTED_RECORD_TYPE",
            Self::NotDocumentOwner { .. } => "CONNECTOR_NOT_DOCUMENT_OWNER",
            Self::NoDocumentOwners => "CONNECTOR_NO_DOCUMENT_OWNERS",
            Self::KeyUnavailable { .. } => "CONNECTOR_KEY_UNAVAILABLE",
            Self::OperationMismatch { .. } => "CONNECTOR_OPERATION_MISMATCH",
            Self::OperationBusy { .. } => "CONNECTOR_OPERATION_BUSY",
            Self::Deferred { .. } => "CONNECTOR_DEFERRED",
            Self::ReconcileFirst { .. } => "CONNECTOR_RECONCILE_FIRST",
            Self::ReconcileTooEarly { .. } => "CONNECTOR_RECONCILE_TOO_EARLY",
            Self::LeaseExpired { .. } => "CONNECTOR_LEASE_EXPIRED",
            Self::ConnectionForgotten { .. } => "CONNECTOR_CONNECTION_FORGOTTEN",
            Self::ForgetUnfinishedOperation { .. } => "CONNECTOR_FORGET_UNFINISHED_OPERATION",
            Self::CommandMismatch { .. } => "CONNECTOR_COMMAND_MISMATCH",
            Self::InFlight { .. } => "CONNECTOR_IN_FLIGHT",
            Self::OutcomeUnknown { .. } => "CONNECTOR_OUTCOME_UNKNOWN",
            Self::MailboxFull => "CONNECTOR_MAILBOX_FULL",
            Self::ActorStopped => "CONNECTOR_ACTOR_STOPPED",
            Self::Contention => "CONNECTOR_CONTENTION",
            Self::TimedOut => "CONNECTOR_TIMED_OUT",
            Self::NotHeld { .. } => "CONNECTOR_NOT_HELD",
            Self::Closed => "CONNECTOR_CLOSED",
            Self::StoreInUse { .. } => "CONNECTOR_STORE_IN_USE",
            Self::NewerDatabase { .. } => "CONNECTOR_NEWER_DATABASE",
            Self::AdoptionRefused { .. } => "CONNECTOR_ADOPTION_REFUSED",
            Self::UnknownSchema { .. } => "CONNECTOR_UNKNOWN_SCHEMA",
            Self::Storage { .. } => "CONNECTOR_STORAGE",
        }
    }

    /// The class of this error.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        match self {
            Self::OutcomeUnknown { .. } => ErrorClass::Unknown,
            Self::ProgressContention { .. }
            | Self::InFlight { .. }
            | Self::MailboxFull
            | Self::ActorStopped
            | Self::Contention
            | Self::TimedOut
            | Self::KeyUnavailable { .. }
            | Self::StoreInUse { .. } => ErrorClass::Retryable,
            Self::Storage { fault, .. } => match fault {
                StorageFault::Damaged => ErrorClass::Refused,
                StorageFault::Full
                | StorageFault::ReadOnly
                | StorageFault::Io
                | StorageFault::Unavailable => ErrorClass::Retryable,
            },
            _ => ErrorClass::Refused,
        }
    }

    /// Nothing happened, and the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.class(), ErrorClass::Retryable)
    }
}

/// Table, column and row of a refusal, as far as they are known.
fn refused_at(table: &str, column: Option<&str>, row: &[String]) -> String {
    let mut at = format!("table {table}");
    if let Some(column) = column {
        at = format!("{at}, column {column}");
    }
    if !row.is_empty() {
        at = format!("{at}, row {}", row.join(", "));
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_classes_are_stable() {
        let id = Uuid::nil();
        let cases = [
            (Error::invalid("owner", "x"), "CONNECTOR_INVALID_INPUT", ErrorClass::Refused),
            (Error::AlreadyConsumed, "CONNECTOR_ALREADY_CONSUMED", ErrorClass::Refused),
            (
                Error::HlcDrift { ahead_ms: 2, max_drift_ms: 1 },
                "CONNECTOR_HLC_DRIFT",
                ErrorClass::Refused,
            ),
            (Error::MailboxFull, "CONNECTOR_MAILBOX_FULL", ErrorClass::Retryable),
            (
                Error::OutcomeUnknown { command_id: id },
                "CONNECTOR_OUTCOME_UNKNOWN",
                ErrorClass::Unknown,
            ),
            (
                Error::AdoptionRefused { table: "t".to_owned(), column: None, row: Vec::new() },
                "CONNECTOR_ADOPTION_REFUSED",
                ErrorClass::Refused,
            ),
            (Error::storage(StorageFault::Full, "x"), "CONNECTOR_STORAGE", ErrorClass::Retryable),
            (Error::damaged("x"), "CONNECTOR_STORAGE", ErrorClass::Refused),
        ];
        for (error, code, class) in cases {
            assert_eq!((error.code(), error.class()), (code, class));
            assert_eq!(error.is_retryable(), class == ErrorClass::Retryable);
        }
    }

    #[test]
    fn a_refused_adoption_says_where() {
        let refused = |column: Option<&str>, row: &[&str]| {
            let row = row.iter().map(|&value| value.to_owned()).collect();
            let column = column.map(str::to_owned);
            Error::AdoptionRefused { table: "t".to_owned(), column, row }.to_string()
        };
        let what = "the database can't be adopted: table t";
        assert_eq!(refused(None, &[]), what);
        assert_eq!(refused(Some("c"), &[]), format!("{what}, column c"));
        assert_eq!(refused(Some("c"), &["a", "b"]), format!("{what}, column c, row a, b"));
    }
}
