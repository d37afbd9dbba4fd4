//! Provider-write operations: the claim of one, and what its holder may do. The protocol, with an
//! example, is told at [`ClaimedOperation`], where users find it.
//!
//! It sends nothing: the request, its time-out and its condition are the host's.

use std::time::Duration;

use super::lease::{Session, millis, not_in_a_unit};
use super::rows::operation_record;
use super::{DocumentRef, Store, equal, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{
    ConnectorName, Digest, DocumentId, Holder, OperationId, OwnerDid, Result, SourceId, Timestamp,
};
use crate::domain::document::{
    ArmOutcome, ClaimOperation, DeferReason, Deferral, DocumentCommand, DocumentReply,
    FinalOutcome, OperationKind, OperationOutcome, OperationRecord, WatchOptions, WatchReason,
};
use crate::domain::{Fence, FencingToken, Lease, LeaseScope, RowKey, Table, Value};
use crate::journal::{Compare, Filter, RowQuery};
use crate::records::Hlc;

/// Columns of an operation's row.
const DOCUMENT_COLUMN: usize = 1;
const OWNER_COLUMN: usize = 2;
const CONNECTOR_COLUMN: usize = 3;
const STATE_COLUMN: usize = 7;
const DUE_COLUMN: usize = 24;

/// The facts of an operation, the same at each claim of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRequest {
    /// Unique over the store.
    pub operation_id: OperationId,
    /// Whose account is written to.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// What is done at the provider.
    pub op: OperationKind,
    /// The stamp of the local change.
    pub version: Hlc,
    /// The digest of the request, in the host's form.
    pub request_digest: Digest,
    /// How long the provider may take to show a write. Kept from the first claim.
    pub visibility_delay: Duration,
}

/// What a claim comes to.
#[derive(Clone, Debug)]
pub enum Claim {
    /// Nothing was sent: the holder may mark and send.
    Attempt(ClaimedOperation),
    /// It may have been sent: the holder must ask the provider, and must not send.
    Reconcile(ClaimedOperation),
    /// It was finished before: the recorded result, also for a replay.
    Finished(OperationRecord),
}

/// The permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendPermit {
    /// Nothing may be sent later than so long after the call of
    /// [`ClaimedOperation::mark_send_started`], on the host's monotonic clock. The request's own
    /// time-out must end by then too.
    pub send_within: Duration,
    /// The same moment on the store's clock.
    pub send_until: Timestamp,
}

/// What a watch that is armed with a committed operation expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchExpectation {
    /// Why it is armed.
    pub reason: WatchReason,
    /// The digest that must be read; none when the entity must be absent.
    pub expected_digest: Option<Digest>,
    /// The stamp of the write.
    pub written_hlc: Hlc,
    /// How long a different value is only a mismatch.
    pub deadline: Duration,
}

impl WatchExpectation {
    pub(super) fn options(&self) -> WatchOptions {
        WatchOptions {
            reason: self.reason,
            expected_digest: self.expected_digest,
            written_hlc: self.written_hlc.clone(),
            deadline_ms: delay(self.deadline),
        }
    }
}

/// The states of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationState {
    /// It may be sent, or was perhaps.
    Attempted,
    /// The provider must be asked what happened.
    ReconcileOnly,
    /// The provider has the write.
    Committed,
    /// The write will never be made.
    Dead,
}

impl OperationState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Attempted => "attempted",
            Self::ReconcileOnly => "reconcile_only",
            Self::Committed => "committed",
            Self::Dead => "dead",
        }
    }
}

/// Which operations a list call gives. An empty filter gives all.
#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    /// Only of this owner.
    pub owner: Option<OwnerDid>,
    /// Only of this connector.
    pub connector: Option<ConnectorName>,
    /// Only on this document.
    pub document: Option<DocumentId>,
    /// Only in these states; all when empty.
    pub states: Vec<OperationState>,
    /// Only unfinished ones that wait for a time at or before this.
    pub due_before: Option<Timestamp>,
}

impl DocumentRef {
    /// Claims an operation on the document, or creates it. A repeat of a finished one gets its
    /// recorded result. Not in a unit of work: what a claim permits must be on disk first. The protocol
    /// of its holder is told at [`ClaimedOperation`].
    ///
    /// # Errors
    /// [`crate::Error::OperationMismatch`] when the id is known with other facts, also on another
    /// document; [`crate::Error::OperationBusy`], [`crate::Error::Deferred`],
    /// [`crate::Error::DocumentBeingSwept`], [`crate::Error::ConnectionForgotten`],
    /// [`crate::Error::InvalidInput`]; [`crate::Error::NotHeld`] in a unit of work; retryable errors.
    pub async fn claim_operation(
        &self,
        request: &OperationRequest,
        holder: &Holder,
        ttl: Duration,
    ) -> Result<Claim> {
        if self.is_in_a_unit() {
            return Err(not_in_a_unit());
        }
        let command = DocumentCommand::ClaimOperation(ClaimOperation {
            operation_id: request.operation_id.clone(),
            owner: request.owner.clone(),
            connector: request.connector.clone(),
            op: request.op,
            version: request.version.clone(),
            request_digest: request.request_digest,
            visibility_delay_ms: delay(request.visibility_delay),
            holder: holder.clone(),
            ttl_ms: millis(ttl),
        });
        match self.send(command).await? {
            DocumentReply::Finished(record) => Ok(Claim::Finished(*record)),
            DocumentReply::Claimed { operation, lease } => {
                let may_send = operation.operation.phase.as_str() == "attempted";
                let document = self.without_id();
                let claimed = ClaimedOperation { document, record: *operation, lease };
                Ok(if may_send { Claim::Attempt(claimed) } else { Claim::Reconcile(claimed) })
            }
            _ => Err(unexpected()),
        }
    }

    /// Is there an operation on the document with a higher sequence that is not dead?
    ///
    /// # Errors
    /// [`crate::Error::NotFound`]; retryable errors.
    pub async fn has_newer_operation(&self, operation: &OperationId) -> Result<bool> {
        let operation_id = operation.clone();
        match self.send(DocumentCommand::HasNewerOperation { operation_id }).await? {
            DocumentReply::HasNewer(newer) => Ok(newer),
            _ => Err(unexpected()),
        }
    }
}

/// An operation in the hands of its holder: one write to the provider that happens once.
///
/// 1. [`DocumentRef::claim_operation`] says what the holder may do: [`Claim::Attempt`] send,
///    [`Claim::Reconcile`] only ask, [`Claim::Finished`] nothing, with the recorded result.
/// 2. [`Self::mark_send_started`] right before the request leaves, once. It is on disk before it
///    answers with the permit. The request leaves within `send_within`, its time-out included.
/// 3. [`Self::finalize_committed`] when the provider has the write, and the watch with it, in one
///    append; [`Self::defer`] with its definite refusal; [`Self::finalize_dead`] when there will be
///    none; [`Self::record_unknown`] when nobody knows.
/// 4. Whoever claims an operation that was marked and not ended is told to reconcile, the same
///    holder too: [`Self::begin_reconcile_read`], then the provider is asked. It has the write:
///    finalize. It has not: [`Self::record_not_written`], which a read proves only if it began
///    after the permit and the visibility delay; then it may be marked and sent again.
///
/// **The limit.** The store promises one effective write for requests that leave within their
/// permit. One that leaves later (a process stopped between the mark and the socket, and woken) is
/// beyond any store. Only a condition at the provider closes that: `If-Match`, `If-None-Match`, an
/// id chosen by the client, an idempotency key.
///
/// Every method answers [`crate::Error::LeaseLost`] once another claim has taken the operation; a
/// lease past its expiry that nobody took stays good, but permits no send. Every method is carried
/// out whole or not at all, also when its future is dropped.
///
/// ```
/// use std::time::{Duration, Instant};
/// use connector_store::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let store = Store::builder().memory(&MemoryJournal::new()).open().await?;
/// # let mut clock = HlcClock::new("host-1", Duration::from_secs(60))?;
/// # // The provider, with one condition: what has a version is not created again.
/// # let provider = std::cell::Cell::new(0);
/// # let put_if_none_match = |_text: &str, _time_out: Duration| provider.set(provider.get() + 1);
/// # let has_the_write = || provider.get() == 1;
/// # let (owner, connector) = (OwnerDid::new("did:web:ada.example")?, ConnectorName::new("files")?);
/// let written_hlc = clock.now(1_767_225_600_000)?;
/// let request = OperationRequest {
///     operation_id: OperationId::new("edit-1")?,
///     owner,
///     connector,
///     op: OperationKind::Create,
///     version: written_hlc.clone(),
///     request_digest: Digest::of(b"create notes/a.md: hello"),
///     visibility_delay: Duration::from_secs(5),
/// };
/// let (document, holder) = (store.document(&DocumentId::new("doc-1")?), Holder::new("host-1")?);
/// let claimed = match document.claim_operation(&request, &holder, Duration::from_secs(60)).await? {
///     Claim::Attempt(claimed) => {
///         let called = Instant::now();
///         let permit = claimed.mark_send_started().await?;
///         if let Some(left) = permit.send_within.checked_sub(called.elapsed()) {
///             put_if_none_match("hello", left);
///         }
///         claimed
///     }
///     Claim::Reconcile(claimed) => claimed,
///     Claim::Finished(_) => return Ok(()),
/// };
/// if matches!(claimed.operation().operation.phase, OperationPhase::ReconcileOnly { .. }) {
///     claimed.begin_reconcile_read().await?;
/// }
/// if has_the_write() {
///     let expected = WatchExpectation {
///         reason: WatchReason::Write,
///         expected_digest: Some(Digest::of(b"hello")),
///         written_hlc,
///         deadline: Duration::from_secs(60),
///     };
///     let source_id = SourceId::new("notes/a.md")?;
///     claimed.finalize_committed(&source_id, Some("etag-1"), Some(&expected)).await?;
/// } else {
///     claimed.record_not_written().await?; // Asked too early, it is refused: defer, ask later.
/// }
/// // A replay after a restart gets the recorded result, and sends nothing.
/// let replay = document.claim_operation(&request, &holder, Duration::from_secs(60)).await?;
/// assert!(matches!(replay, Claim::Finished(_)));
/// # store.close().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClaimedOperation {
    document: DocumentRef,
    record: OperationRecord,
    lease: Lease,
}

impl ClaimedOperation {
    /// The operation as it was claimed.
    #[must_use]
    pub const fn operation(&self) -> &OperationRecord {
        &self.record
    }

    /// The fencing token.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.lease.token
    }

    /// From then on others may claim it.
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.lease.expires_at
    }

    fn id(&self) -> OperationId {
        self.record.operation_id.clone()
    }

    async fn done(&self, command: DocumentCommand) -> Result<()> {
        match self.document.send(command).await? {
            DocumentReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// To be called right before the request leaves, once. It is on disk before it answers.
    ///
    /// # Errors
    /// [`crate::Error::ReconcileFirst`] for a second call, also with the current token, and for an
    /// operation that is to be reconciled; [`crate::Error::LeaseExpired`] past the expiry (renew
    /// first); [`crate::Error::LeaseLost`]; retryable errors.
    pub async fn mark_send_started(&self) -> Result<SendPermit> {
        let command =
            DocumentCommand::MarkSendStarted { operation_id: self.id(), token: self.token() };
        match self.document.send(command).await? {
            DocumentReply::SendPermit(permit) => {
                let millis = u64::try_from(permit.send_within_ms).unwrap_or(0);
                let send_within = Duration::from_millis(millis);
                Ok(SendPermit { send_within, send_until: permit.send_until })
            }
            _ => Err(unexpected()),
        }
    }

    /// Gives the operation back until later. After sending has started only with
    /// `definite_refusal`, the caller's word that the provider has refused the request, which
    /// clears the mark. One that is to be reconciled stays so.
    ///
    /// # Errors
    /// [`crate::Error::ReconcileFirst`], [`crate::Error::LeaseLost`],
    /// [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn defer(
        &self,
        reason: DeferReason,
        by: Duration,
        definite_refusal: bool,
    ) -> Result<()> {
        let deferral = Deferral { reason, delay_ms: delay(by), definite_refusal };
        let (operation_id, token) = (self.id(), self.token());
        self.done(DocumentCommand::DeferOperation { operation_id, token, deferral }).await
    }

    async fn record(&self, outcome: OperationOutcome) -> Result<()> {
        let (operation_id, token) = (self.id(), self.token());
        self.done(DocumentCommand::RecordOperation { operation_id, token, outcome }).await
    }

    /// Records that the outcome is unknown: the provider must be asked.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`]; retryable errors.
    pub async fn record_unknown(&self) -> Result<()> {
        self.record(OperationOutcome::Unknown).await
    }

    /// Says that the provider is about to be asked what became of the write.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`]; [`crate::Error::InvalidInput`] for one that is not to be
    /// reconciled; retryable errors.
    pub async fn begin_reconcile_read(&self) -> Result<()> {
        let (operation_id, token) = (self.id(), self.token());
        self.done(DocumentCommand::BeginReconcileRead { operation_id, token }).await
    }

    /// Records that the provider was asked and has not the write: it may be sent again. Only a read
    /// that began after the end of the permit and the provider's visibility delay proves it.
    ///
    /// # Errors
    /// [`crate::Error::ReconcileTooEarly`], [`crate::Error::ReconcileFirst`],
    /// [`crate::Error::LeaseLost`]; retryable errors.
    pub async fn record_not_written(&self) -> Result<()> {
        self.record(OperationOutcome::NotWritten).await
    }

    /// Ends the operation: the provider has the write. The watch is armed in the same append, so no
    /// crash can come between.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`], [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn finalize_committed(
        &self,
        source_id: &SourceId,
        source_version: Option<&str>,
        watch: Option<&WatchExpectation>,
    ) -> Result<Option<ArmOutcome>> {
        self.finalize(FinalOutcome::Committed {
            source_id: source_id.clone(),
            source_version: source_version.map(str::to_owned),
            watch: watch.map(WatchExpectation::options),
        })
        .await
    }

    /// Ends the operation: the write will never be made.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`], [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn finalize_dead(&self, error: &str) -> Result<()> {
        self.finalize(FinalOutcome::Dead { error: error.to_owned() }).await.map(|_| ())
    }

    async fn finalize(&self, outcome: FinalOutcome) -> Result<Option<ArmOutcome>> {
        let (operation_id, token) = (self.id(), self.token());
        let command = DocumentCommand::FinalizeOperation { operation_id, token, outcome };
        match self.document.send(command).await? {
            DocumentReply::Finalized(armed) => Ok(armed),
            _ => Err(unexpected()),
        }
    }

    /// Extends the claim to `ttl` from now. A permit to send stays as it is.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`], [`crate::Error::InvalidInput`]; retryable errors.
    pub async fn renew(&self, ttl: Duration) -> Result<Self> {
        let (operation_id, token) = (self.id(), self.token());
        let ttl_ms = millis(ttl);
        let command = DocumentCommand::RenewOperationLease { operation_id, token, ttl_ms };
        match self.document.send(command).await? {
            DocumentReply::Lease(lease) => Ok(Self { lease, ..self.clone() }),
            _ => Err(unexpected()),
        }
    }

    /// Gives the claim up; the operation stays as it is.
    ///
    /// # Errors
    /// [`crate::Error::LeaseLost`]; retryable errors.
    pub async fn release(&self) -> Result<()> {
        let (operation_id, token) = (self.id(), self.token());
        self.done(DocumentCommand::ReleaseOperationLease { operation_id, token }).await
    }

    /// Handles whose every command commits only if this claim is still current in the same
    /// transaction.
    #[must_use]
    pub fn session(&self) -> Session {
        let scope = LeaseScope::Operation {
            document_id: self.record.document_id.clone(),
            operation_id: self.id(),
        };
        let fence = Fence { scope, token: self.token() };
        let operation = &self.record.operation;
        let store = self.document.store().clone();
        Session::new(store, fence, operation.owner.clone(), operation.connector.clone())
    }
}

impl Store {
    /// An operation, by its id alone, or none.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn operation(&self, operation: &OperationId) -> Result<Option<OperationRecord>> {
        self.env().check_open()?;
        let key = RowKey::new(Table::Operation, vec![Value::Text(operation.shared())]);
        let row = self.env().answer_in_time(self.storage().row(&key)).await?;
        row.as_ref().map(operation_record).transpose()
    }

    /// One page of operations, by their ids, behind `after`.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn tracked_operations(
        &self,
        filter: &OperationFilter,
        after: Option<&OperationId>,
        limit: u32,
    ) -> Result<Vec<OperationRecord>> {
        let mut filters = Vec::new();
        filters
            .extend(filter.owner.as_ref().map(|at| equal(OWNER_COLUMN, Value::Text(at.shared()))));
        filters.extend(
            filter.connector.as_ref().map(|at| equal(CONNECTOR_COLUMN, Value::Text(at.shared()))),
        );
        filters.extend(
            filter.document.as_ref().map(|at| equal(DOCUMENT_COLUMN, Value::Text(at.shared()))),
        );
        if !filter.states.is_empty() {
            let states = filter.states.iter().map(|state| Value::text(state.as_str())).collect();
            filters.push(Filter { column: STATE_COLUMN, compare: Compare::In(states) });
        }
        filters.extend(filter.due_before.map(|due| Filter {
            column: DUE_COLUMN,
            compare: Compare::AtMost(Value::Int(due.as_millis())),
        }));
        let query = RowQuery {
            table: Table::Operation,
            filters,
            order: vec![0],
            after: after.map(|id| vec![Value::Text(id.shared())]),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        self.rows(&query).await?.iter().map(operation_record).collect()
    }
}

/// A duration in milliseconds. What is out of range is refused where it is decided.
pub(super) fn delay(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
