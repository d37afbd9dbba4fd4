//! Short names for the tests of a document.

use super::*;
use crate::base::{
    ConnectorName, Digest, DocumentId, Holder, Json, OperationId, OwnerDid, SourceId, StreamKey,
    Timestamp,
};
use crate::domain::given::{Given, given};
use crate::domain::{Aggregate, FencingToken, Lease, LeaseScope};
use crate::records::Hlc;

pub(super) fn document() -> DocumentId {
    DocumentId::new("doc-1").unwrap()
}

pub(super) fn key() -> StreamKey {
    StreamKey::Document(document())
}

pub(super) fn owner() -> OwnerDid {
    OwnerDid::new("did:web:o").unwrap()
}

pub(super) fn connector() -> ConnectorName {
    ConnectorName::new("caldav").unwrap()
}

pub(super) fn op(id: &str) -> OperationId {
    OperationId::new(id).unwrap()
}

pub(super) fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

pub(super) fn source(id: &str) -> SourceId {
    SourceId::new(id).unwrap()
}

pub(super) fn hlc(millis: i64) -> Hlc {
    Hlc::parse(&format!("{millis:015}-00000000-n")).unwrap()
}

pub(super) const fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(super) const fn token(version: i64) -> FencingToken {
    FencingToken { generation: 1, version }
}

pub(super) fn scope(id: &str) -> LeaseScope {
    LeaseScope::Operation { document_id: document(), operation_id: op(id) }
}

pub(super) fn lost(id: &str) -> crate::Error {
    crate::Error::LeaseLost { scope: scope(id).to_string() }
}

/// How long the provider may take to show a write.
pub(super) const DELAY: i64 = 500;
/// How long a claim holds.
pub(super) const TTL: i64 = 1_000;

pub(super) fn claim_of(id: &str, by: &str) -> ClaimOperation {
    ClaimOperation {
        operation_id: op(id),
        owner: owner(),
        connector: connector(),
        op: OperationKind::Update,
        version: hlc(7),
        request_digest: Digest::of(b"request"),
        visibility_delay_ms: DELAY,
        holder: holder(by),
        ttl_ms: TTL,
    }
}

pub(super) fn claim(id: &str, by: &str) -> DocumentCommand {
    DocumentCommand::ClaimOperation(claim_of(id, by))
}

pub(super) fn mark(id: &str, token: FencingToken) -> DocumentCommand {
    DocumentCommand::MarkSendStarted { operation_id: op(id), token }
}

pub(super) fn defer(id: &str, token: FencingToken, definite: bool) -> DocumentCommand {
    let deferral =
        Deferral { reason: DeferReason::RateLimited, delay_ms: 300, definite_refusal: definite };
    DocumentCommand::DeferOperation { operation_id: op(id), token, deferral }
}

pub(super) fn record(id: &str, token: FencingToken, outcome: OperationOutcome) -> DocumentCommand {
    DocumentCommand::RecordOperation { operation_id: op(id), token, outcome }
}

pub(super) fn begin_read(id: &str, token: FencingToken) -> DocumentCommand {
    DocumentCommand::BeginReconcileRead { operation_id: op(id), token }
}

pub(super) fn committed(watch: Option<WatchOptions>) -> FinalOutcome {
    FinalOutcome::Committed {
        source_id: source("s"),
        source_version: Some("etag".to_owned()),
        watch,
    }
}

pub(super) fn dead() -> FinalOutcome {
    FinalOutcome::Dead { error: "gone".to_owned() }
}

pub(super) fn finalize(id: &str, token: FencingToken, outcome: FinalOutcome) -> DocumentCommand {
    DocumentCommand::FinalizeOperation { operation_id: op(id), token, outcome }
}

pub(super) fn renew(id: &str, token: FencingToken) -> DocumentCommand {
    DocumentCommand::RenewOperationLease { operation_id: op(id), token, ttl_ms: TTL }
}

pub(super) fn release(id: &str, token: FencingToken) -> DocumentCommand {
    DocumentCommand::ReleaseOperationLease { operation_id: op(id), token }
}

pub(super) fn identity() -> WatchIdentity {
    WatchIdentity { owner: owner(), connector: connector(), source_id: source("s") }
}

pub(super) fn options(written: i64) -> WatchOptions {
    WatchOptions {
        reason: WatchReason::Write,
        expected_digest: Some(Digest::of(b"written")),
        written_hlc: hlc(written),
        deadline_ms: 100,
    }
}

pub(super) fn arm(written: i64) -> DocumentCommand {
    DocumentCommand::ArmWatch { identity: identity(), options: options(written) }
}

pub(super) fn set_trim() -> DocumentCommand {
    DocumentCommand::SetEntityTrim {
        owner: owner(),
        connector: connector(),
        trimmed_fields: Json::parse("trimmed_fields", "[]").unwrap(),
    }
}

/// A document that these events happened to, with its rows.
pub(super) fn happened(events: &[DocumentEvent]) -> Given<Document> {
    let mut document = given(key(), &[]);
    document.happens(events, DocumentReply::Done);
    document
}

/// A document that nothing happened to.
pub(super) fn fresh() -> Given<Document> {
    happened(&[])
}

pub(super) fn operation<'a>(given: &'a Given<Document>, id: &str) -> &'a Operation {
    &given.state.operations[&op(id)]
}

/// The token of the standing claim.
pub(super) fn current(given: &Given<Document>, id: &str) -> FencingToken {
    operation(given, id).lease.as_ref().unwrap().token
}

/// The event of the first claim of an operation.
pub(super) fn created(id: &str, sequence: i64, lease: Lease, at: i64) -> DocumentEvent {
    let claim = claim_of(id, "me");
    DocumentEvent::OperationCreated(OperationCreated {
        operation_id: claim.operation_id,
        owner: claim.owner,
        connector: claim.connector,
        op: claim.op,
        version: claim.version,
        request_digest: claim.request_digest,
        visibility_delay_ms: DELAY,
        sequence,
        lease,
        at: time(at),
    })
}

pub(super) fn is_read(command: &DocumentCommand) -> bool {
    Document::is_read(command)
}
