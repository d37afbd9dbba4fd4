//! Short names for the tests of a document.

use std::sync::Arc;

use super::*;
use crate::base::{
    ConnectorName, Digest, DocumentId, Holder, Json, OperationId, OwnerDid, SourceId, StreamKey,
    Timestamp, ValueDigest,
};
use crate::domain::{Aggregate, FencingToken, Lease, LeaseScope};
use crate::records::{Hlc, RecordCopy, RecordDecision};
use crate::testing::given::{Given, given};

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
    document.happens(events);
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
        sent: None,
        lease,
        at: time(at),
    })
}

pub(super) fn is_read(command: &DocumentCommand) -> bool {
    Document::is_read(command)
}

pub(super) fn other_owner() -> OwnerDid {
    OwnerDid::new("did:web:p").unwrap()
}

/// The issuer of a name; each has one key.
pub(super) fn issuer(name: &str) -> Arc<str> {
    format!("did:web:{name}").into()
}

/// A copy that an owner's value of a version is signed with, valid under the epoch 0.
pub(super) fn copy_of(owner: &OwnerDid, version: i64, signer: &str) -> PutObservationCopy {
    let token = format!("TOKEN {version} {signer} {owner}");
    let copy = RecordCopy {
        hlc: hlc(version + 1),
        version: hlc(version),
        claim_digest: Digest::of(format!("{owner} {version}").as_bytes()),
        issuer: issuer(signer),
        signer_key: format!("did:web:{signer}#k").into(),
        op_hash: Digest::of(token.as_bytes()),
        token_bytes: u64::try_from(token.len()).unwrap(),
    };
    let token = Arc::new(Token::new(token.into()));
    token.note(0, true);
    let payload = Arc::from(format!("PAYLOAD {version}").into_bytes());
    PutObservationCopy { owner: owner.clone(), copy, token, payload: Some(payload) }
}

pub(super) fn put_copy(copy: &PutObservationCopy) -> DocumentCommand {
    DocumentCommand::PutObservationCopy(Box::new(copy.clone()))
}

pub(super) fn prune(owner: &OwnerDid, signer: &str) -> DocumentCommand {
    let issuer = issuer(signer);
    DocumentCommand::PruneObservationCopies { owner: owner.clone(), issuer }
}

pub(super) fn read_decision(owner: &OwnerDid) -> DocumentCommand {
    DocumentCommand::ObservationDecision { owner: owner.clone() }
}

pub(super) fn read_winner(owner: &OwnerDid, fetch: i64) -> DocumentCommand {
    DocumentCommand::ReadWinner { owner: owner.clone(), fetch_hlc: hlc(fetch) }
}

/// What an owner's copies come to, all of which must have been verified.
pub(super) fn decision(given: &Given<Document>, owner: &OwnerDid) -> Option<RecordDecision> {
    match given.when(&read_decision(owner), crate::testing::given::at(1)).then_nothing().reply() {
        DocumentReply::Decision(decision) => decision.map(|decision| *decision),
        other => panic!("{other:?}"),
    }
}

pub(super) fn repair_of(decided: i64) -> ObservationRepair {
    ObservationRepair {
        owner: owner(),
        fetch_hlc: hlc(1),
        decision_hlc: hlc(decided),
        present: true,
        value_digest: Some(ValueDigest::new("sha256:aa").unwrap()),
    }
}

pub(super) fn put_repair(decided: i64) -> DocumentCommand {
    DocumentCommand::PutRepair(Box::new(repair_of(decided)))
}
