//! One sample of each event of a document, and snapshots of the states that they come to.

use connector_store::base::{Digest, Holder, OperationId, OwnerDid, SourceId, ValueDigest};
use connector_store::domain::document::{
    DeferReason, Document, DocumentConnectionForgotten, DocumentEvent, DocumentSweepBegun,
    EntityTrimSet, ObservationCopiesDropped, ObservationCopyPut, ObservationRepair,
    OperationClaimed, OperationCreated, OperationDeferred, OperationFinalized, OperationKind,
    OperationLeaseChanged, OperationPhase, OperationRecorded, ReconcileReadBegun, RepairAdopted,
    SendMark, SendStarted, WatchArmed, WatchExpired, WatchIdentity, WatchMismatched, WatchReason,
};
use connector_store::domain::{Aggregate, ContentRef, FencingToken, Lease};
use connector_store::records::{Hlc, RecordCopy};

use super::{Sample, at, connector, event, owner, snapshot, trimmed_fields};

fn operation(name: &str) -> OperationId {
    OperationId::new(name).unwrap()
}

fn hlc() -> Hlc {
    Hlc::parse("001767225600000-0000000a-host").unwrap()
}

fn lease(version: i64) -> Lease {
    let holder = Holder::new("host-1").unwrap();
    let token = FencingToken { generation: 3, version };
    Lease { holder, token, expires_at: at(1_767_225_660_000) }
}

fn created(name: &str, op: OperationKind, sequence: i64) -> DocumentEvent {
    DocumentEvent::OperationCreated(OperationCreated {
        operation_id: operation(name),
        owner: owner(),
        connector: connector(),
        op,
        version: hlc(),
        request_digest: Digest::of(b"request"),
        visibility_delay_ms: 5_000,
        sequence,
        sent: None,
        lease: lease(sequence),
        at: at(1_767_225_600_000),
    })
}

fn created_to_reconcile() -> DocumentEvent {
    match created("op-1", OperationKind::Create, 4) {
        DocumentEvent::OperationCreated(event) => {
            DocumentEvent::OperationCreated(OperationCreated { sent: Some(MARK), ..event })
        }
        other => other,
    }
}

fn claimed(name: &str, reconcile: bool) -> DocumentEvent {
    DocumentEvent::OperationClaimed(OperationClaimed {
        operation_id: operation(name),
        lease: lease(i64::MAX),
        reconcile,
        attempts: 300,
        at: at(1_767_225_601_000),
    })
}

const MARK: SendMark = SendMark { started_at: at(1_767_225_602_000), until: at(i64::MAX) };

fn sent(name: &str) -> DocumentEvent {
    DocumentEvent::SendStarted(SendStarted { operation_id: operation(name), mark: MARK })
}

fn deferred(name: &str, reason: DeferReason) -> DocumentEvent {
    DocumentEvent::OperationDeferred(OperationDeferred {
        operation_id: operation(name),
        reason,
        not_before: at(1_767_225_700_000),
        clears_mark: reason == DeferReason::Conflict,
        at: at(1_767_225_603_000),
    })
}

fn recorded(name: &str, phase: OperationPhase) -> DocumentEvent {
    let operation_id = operation(name);
    DocumentEvent::OperationRecorded(OperationRecorded { operation_id, phase, at: at(7) })
}

fn unknown() -> OperationPhase {
    OperationPhase::ReconcileOnly { sent: MARK, read_at: None }
}

fn read_begun(name: &str) -> DocumentEvent {
    let operation_id = operation(name);
    DocumentEvent::ReconcileReadBegun(ReconcileReadBegun { operation_id, at: at(8) })
}

fn finalized(name: &str, phase: OperationPhase) -> DocumentEvent {
    let operation_id = operation(name);
    DocumentEvent::OperationFinalized(OperationFinalized { operation_id, phase, at: at(9) })
}

fn committed(source_version: Option<&str>) -> OperationPhase {
    OperationPhase::Committed {
        source_id: SourceId::new("event-1").unwrap(),
        source_version: source_version.map(str::to_owned),
    }
}

fn dead() -> OperationPhase {
    OperationPhase::Dead { error: "410: gone".to_owned() }
}

fn leased(name: &str, lease: Option<Lease>) -> DocumentEvent {
    let operation_id = operation(name);
    DocumentEvent::OperationLeaseChanged(OperationLeaseChanged { operation_id, lease, at: at(10) })
}

fn armed(reason: WatchReason, expected_digest: Option<Digest>) -> DocumentEvent {
    DocumentEvent::WatchArmed(WatchArmed {
        identity: WatchIdentity {
            owner: owner(),
            connector: connector(),
            source_id: SourceId::new("event-1").unwrap(),
        },
        reason,
        expected_digest,
        written_hlc: hlc(),
        deadline: at(1_767_225_800_000),
        at: at(11),
    })
}

fn mismatched() -> DocumentEvent {
    let event = WatchMismatched { mismatches: u32::MAX, fetch_hlc: hlc(), at: at(12) };
    DocumentEvent::WatchMismatched(event)
}

fn trim_set() -> DocumentEvent {
    DocumentEvent::EntityTrimSet(EntityTrimSet {
        owner: owner(),
        connector: connector(),
        trimmed_fields: trimmed_fields(),
        updated_at: at(1_767_225_600_000),
    })
}

fn begun() -> DocumentEvent {
    DocumentEvent::DocumentSweepBegun(DocumentSweepBegun { at: at(5) })
}

fn forgotten() -> DocumentEvent {
    DocumentEvent::DocumentConnectionForgotten(DocumentConnectionForgotten {
        owner: owner(),
        connector: connector(),
    })
}

/// A copy with the value, or with none, of the claim "present" or "absent".
fn copy_put(owner: OwnerDid, signer: &str, value: Option<&[u8]>) -> DocumentEvent {
    let claim: &[u8] = if value.is_some() { b"present" } else { b"absent" };
    DocumentEvent::ObservationCopyPut(Box::new(ObservationCopyPut {
        owner,
        copy: RecordCopy {
            hlc: Hlc::parse("001767225600000-0000000b-host").unwrap(),
            version: hlc(),
            claim_digest: Digest::of(claim),
            issuer: signer.into(),
            signer_key: format!("{signer}#key-1").into(),
            op_hash: Digest::of(signer.as_bytes()),
            token_bytes: 700,
        },
        payload: value.map(ContentRef::of_bytes),
        dropped: vec![Digest::of(b"dropped"), Digest::of(b"dropped, too")],
        token: None,
    }))
}

fn copies_dropped() -> DocumentEvent {
    let dropped = vec![Digest::of(b"dropped")];
    DocumentEvent::ObservationCopiesDropped(ObservationCopiesDropped { owner: owner(), dropped })
}

fn repair_put(value_digest: Option<&str>) -> DocumentEvent {
    DocumentEvent::RepairPut(Box::new(ObservationRepair {
        owner: owner(),
        fetch_hlc: hlc(),
        decision_hlc: Hlc::parse("001767225600000-0000000b-host").unwrap(),
        present: value_digest.is_some(),
        value_digest: value_digest.map(|digest| ValueDigest::new(digest).unwrap()),
    }))
}

fn repair_adopted() -> DocumentEvent {
    let DocumentEvent::RepairPut(repair) = repair_put(None) else { return repair_put(None) };
    DocumentEvent::RepairAdopted(Box::new(RepairAdopted { repair: *repair, written_at: at(7) }))
}

/// Two copies of one claim, another owner's copy of an absent value, and a repair.
fn observed() -> Document {
    let mut observed = Document::default();
    let other = OwnerDid::new("did:web:other").unwrap();
    for event in [
        copy_put(owner(), "did:web:a", Some(b"value")),
        copy_put(owner(), "did:web:b", Some(b"value")),
        copy_put(other, "did:web:a", None),
        repair_put(Some("sha256:aa")),
    ] {
        observed.apply(&event);
    }
    observed
}

/// Each phase of an operation, a lease, a deferral, a watch, a trim and a begun sweep.
fn full() -> Document {
    let mut full = Document::default();
    let happened = [
        trim_set(),
        begun(),
        created("attempted", OperationKind::Create, 1),
        created("sent", OperationKind::Update, 2),
        sent("sent"),
        created("deferred", OperationKind::Delete, 3),
        deferred("deferred", DeferReason::Dependency),
        created("reconciled", OperationKind::Update, 4),
        sent("reconciled"),
        claimed("reconciled", true),
        read_begun("reconciled"),
        created("committed", OperationKind::Update, 5),
        finalized("committed", committed(Some("etag"))),
        created("dead", OperationKind::Update, 6),
        finalized("dead", dead()),
        armed(WatchReason::Write, Some(Digest::of(b"written"))),
        mismatched(),
    ];
    for event in &happened {
        full.apply(event);
    }
    full
}

pub(super) fn samples() -> Vec<Sample> {
    let expired = WatchExpired { fetch_hlc: hlc(), at: at(13) };
    let not_written = OperationPhase::Attempted { sent: None };
    vec![
        event("swept", DocumentEvent::Swept),
        event("entity_trim_set", trim_set()),
        event("entity_trim_cleared", DocumentEvent::EntityTrimCleared),
        event("document_sweep_begun", begun()),
        event("document_sweep_abandoned", DocumentEvent::DocumentSweepAbandoned),
        event("operation_created", created("op-1", OperationKind::Create, 1)),
        event("operation_created_update", created("op-1", OperationKind::Update, i64::MAX)),
        event("operation_created_delete", created("op-1", OperationKind::Delete, 3)),
        event("operation_created_to_reconcile", created_to_reconcile()),
        event("operation_claimed", claimed("op-1", false)),
        event("operation_claimed_to_reconcile", claimed("op-1", true)),
        event("send_started", sent("op-1")),
        event("operation_deferred_rate_limited", deferred("op-1", DeferReason::RateLimited)),
        event("operation_deferred_offline", deferred("op-1", DeferReason::Offline)),
        event("operation_deferred_auth_required", deferred("op-1", DeferReason::AuthRequired)),
        event("operation_deferred_conflict", deferred("op-1", DeferReason::Conflict)),
        event("operation_deferred_dependency", deferred("op-1", DeferReason::Dependency)),
        event("operation_recorded_unknown", recorded("op-1", unknown())),
        event("operation_recorded_not_written", recorded("op-1", not_written)),
        event("reconcile_read_begun", read_begun("op-1")),
        event("operation_committed", finalized("op-1", committed(Some("\"etag\"")))),
        event("operation_committed_without_version", finalized("op-1", committed(None))),
        event("operation_dead", finalized("op-1", dead())),
        event("operation_lease_renewed", leased("op-1", Some(lease(4)))),
        event("operation_lease_released", leased("op-1", None)),
        event("watch_armed", armed(WatchReason::Write, Some(Digest::of(b"written")))),
        event("watch_armed_for_absence", armed(WatchReason::Repair, None)),
        event("watch_armed_after_conflict", armed(WatchReason::Conflict, None)),
        event("watch_verified", DocumentEvent::WatchVerified),
        event("watch_mismatched", mismatched()),
        event("watch_expired", DocumentEvent::WatchExpired(expired)),
        event("watch_disarmed", DocumentEvent::WatchDisarmed),
        event("document_connection_forgotten", forgotten()),
        event("observation_copy_put", copy_put(owner(), "did:web:a", Some(b"value"))),
        event("observation_copy_put_of_absence", copy_put(owner(), "did:web:a", None)),
        event("observation_copies_dropped", copies_dropped()),
        event("repair_put", repair_put(Some("sha256:aa"))),
        event("repair_put_of_absence", repair_put(None)),
        event("repair_cleared", DocumentEvent::RepairCleared),
        event("repair_adopted", repair_adopted()),
        snapshot("empty", &Document::default()),
        snapshot("full", &full()),
        snapshot("observed", &observed()),
    ]
}
