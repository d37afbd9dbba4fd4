//! One sample of each event of a connector, and snapshots of the states that they come to.

use connector_store::base::{
    DocumentId, Holder, Json, ModelId, PartitionId, Provenance, Rfc3339, SourceId,
};
use connector_store::domain::connector::{
    Candidate, CandidateAdopted, CandidateApplyFailed, CandidateConfirmed, CandidateDeferred,
    CandidateGone, CandidateKey, CandidateState, CandidatesCreated, CandidatesWithdrawn,
    CheckpointMoved, CommitResult, Completion, ConnectionForgetBegun, ConnectionForgotten,
    Connector, ConnectorEvent, CursorLost, DroppedReceipt, Era, Forgetting, KnownDocument,
    LeaseRenewed, PartitionForgotten, ReceiptAdopted, ReceiptBegun, ReceiptCommitted,
    ReceiptCompleted, ReceiptExtended, ReceiptFacts, ReceiptForgotten, ReceiptKey, ReceiptKind,
    ReceiptPhase, SyncRecord, SyncStatus,
};
use connector_store::domain::{Aggregate, ContentRef, FencingToken, Lease};
use connector_store::records::Hlc;

use super::{Sample, at, event, snapshot};

fn partition() -> PartitionId {
    PartitionId::new("work").unwrap()
}

fn provenance() -> Provenance {
    Provenance::new("account-1").unwrap()
}

fn document(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn receipt(sequence: i64) -> ReceiptKey {
    ReceiptKey { partition: partition(), provenance: provenance(), sequence }
}

fn candidate(name: &str) -> CandidateKey {
    CandidateKey {
        partition: partition(),
        provenance: provenance(),
        document_id: document(name),
        source_id: SourceId::new(format!("/{name}.ics")).unwrap(),
    }
}

fn record(version: i64, status: SyncStatus) -> SyncRecord {
    SyncRecord {
        checkpoint: Some(Json::parse("checkpoint", r#"{"token":9007199254740993}"#).unwrap()),
        recovery: Some(ContentRef::of("[1]")),
        last_synced_at: Rfc3339::parse("2026-01-31T08:00:00Z").unwrap(),
        entity_count: i64::MAX,
        status,
        error: Some("offline".to_owned()),
        version,
        incarnation: uuid::Uuid::from_u128(7),
    }
}

fn begun(sequence: i64, dropped: Option<DroppedReceipt>) -> ConnectorEvent {
    let receipt = ReceiptFacts {
        era: 1,
        sequence,
        begun_version: 9,
        model_id: ModelId::new("event").unwrap(),
        scope: "calendar".to_owned(),
        source_fetch_hlc: Hlc::parse("001767225600000-00000000-host").unwrap(),
        predicate: Some(Json::parse("predicate", "{}").unwrap()),
        kind: ReceiptKind::Predicate,
        fingerprint: "f".to_owned(),
        created_at: at(1_767_225_600_000),
    };
    ConnectorEvent::ReceiptBegun(ReceiptBegun {
        partition: partition(),
        provenance: provenance(),
        receipt,
        dropped,
    })
}

fn pages_and_commit() -> Vec<(&'static str, ConnectorEvent)> {
    let extended = ReceiptExtended {
        key: receipt(1),
        page: 0,
        ids: 1,
        id_bytes: 1,
        content: ContentRef::of("[\"x\"]"),
    };
    let completed = ReceiptCompleted {
        key: receipt(1),
        expected_count: Some(1),
        distinct: 1,
        keep: ContentRef::of("[\"x\"]"),
    };
    let committed = ReceiptCommitted {
        key: receipt(1),
        era: 1,
        result: CommitResult { known: 4, missing: 3, candidates: 3, withdrawn: 0 },
        settles_owed: true,
        at: at(5),
    };
    let entry = |name: &str| KnownDocument {
        document_id: document(name),
        source_id: SourceId::new(format!("/{name}.ics")).unwrap(),
    };
    let created = CandidatesCreated {
        key: receipt(1),
        model_id: ModelId::new("event").unwrap(),
        candidates: ["a", "b", "c", "d", "e", "f"].map(entry).to_vec(),
        at: at(5),
    };
    vec![
        ("receipt_begun", begun(1, None)),
        ("receipt_extended", ConnectorEvent::ReceiptExtended(extended)),
        ("receipt_completed", ConnectorEvent::ReceiptCompleted(completed)),
        ("receipt_committed", ConnectorEvent::ReceiptCommitted(committed)),
        ("candidates_created", ConnectorEvent::CandidatesCreated(created)),
    ]
}

fn candidates() -> Vec<(&'static str, ConnectorEvent)> {
    let withdrawn = CandidatesWithdrawn {
        partition: partition(),
        provenance: provenance(),
        documents: vec![document("d")],
    };
    let confirmed = CandidateConfirmed { candidate: candidate("a"), at: at(6) };
    let deferred = CandidateDeferred {
        candidate: candidate("b"),
        attempts: 1,
        next_attempt_at: at(500),
        at: at(6),
    };
    let failed = CandidateApplyFailed {
        candidate: candidate("c"),
        apply_failures: 5,
        error: "locked".to_owned(),
        next_attempt_at: at(700),
        is_dead: true,
        at: at(6),
    };
    let gone = |name| CandidateGone { candidate: candidate(name) };
    let moved = CheckpointMoved { key: receipt(1), era: 1, at: at(8) };
    let lost = CursorLost { partition: partition(), version: 20, at: at(9) };
    vec![
        ("candidates_withdrawn", ConnectorEvent::CandidatesWithdrawn(withdrawn)),
        ("candidate_confirmed", ConnectorEvent::CandidateConfirmed(confirmed)),
        ("candidate_deferred", ConnectorEvent::CandidateDeferred(deferred)),
        ("candidate_apply_failed", ConnectorEvent::CandidateApplyFailed(failed)),
        ("candidate_applied", ConnectorEvent::CandidateApplied(gone("e"))),
        ("candidate_dropped", ConnectorEvent::CandidateDropped(gone("f"))),
        ("cursor_lost", ConnectorEvent::CursorLost(lost)),
        ("checkpoint_moved", ConnectorEvent::CheckpointMoved(moved)),
    ]
}

/// Every event once, in an order that can happen, and the states on the way.
pub(super) fn samples() -> Vec<Sample> {
    let lease = Lease {
        holder: Holder::new("host-1").unwrap(),
        token: FencingToken { generation: 1_767_225_600_000, version: 3 },
        expires_at: at(1_767_225_660_000),
    };
    let renewed = LeaseRenewed { expires_at: at(i64::MAX) };
    let mut full = vec![
        ("sync_state_set", ConnectorEvent::SyncStateSet(record(0, SyncStatus::Syncing))),
        (
            "sync_progress_updated",
            ConnectorEvent::SyncProgressUpdated(record(1, SyncStatus::Error)),
        ),
        ("lease_acquired", ConnectorEvent::LeaseAcquired(lease)),
        ("lease_renewed", ConnectorEvent::LeaseRenewed(renewed)),
    ];
    full.extend(pages_and_commit());
    full.extend(candidates());
    let dropped = DroppedReceipt { sequence: 1, pages: 1 };
    let end = [
        ("lease_released", ConnectorEvent::LeaseReleased),
        ("sync_state_deleted", ConnectorEvent::SyncStateDeleted),
        ("receipt_begun_again", begun(2, Some(dropped))),
    ];
    let mut state = Connector::default();
    let mut samples = vec![snapshot("empty", &state)];
    for (name, happened) in full {
        state.apply(&happened);
        samples.push(event(name, happened));
    }
    samples.push(snapshot("full", &state));
    for (name, happened) in end {
        state.apply(&happened);
        samples.push(event(name, happened));
    }
    samples.push(snapshot("begun_again", &state));
    for (name, happened) in forgetting() {
        state.apply(&happened);
        samples.push(event(name, happened));
        if name == "receipt_forgotten" {
            samples.push(snapshot("being_forgotten", &state));
        }
    }
    samples.push(snapshot("forgotten", &state));
    samples.extend(adopted());
    samples
}

/// What the rows of an adopted database come to, and their state.
fn adopted() -> Vec<Sample> {
    let ConnectorEvent::ReceiptBegun(begun) = begun(3, None) else { return Vec::new() };
    let keep = ContentRef::of("[]");
    let completion = Completion { expected_count: None, distinct: 0, keep };
    let committed = ReceiptPhase::Committed(completion, CommitResult::default(), at(5));
    let receipt = |name: &str, phase| {
        ConnectorEvent::ReceiptAdopted(Box::new(ReceiptAdopted {
            partition: PartitionId::new(name).unwrap(),
            provenance: provenance(),
            receipt: ReceiptFacts { fingerprint: String::new(), ..begun.receipt.clone() },
            phase,
        }))
    };
    let candidate = CandidateAdopted {
        partition: partition(),
        era: Era { number: 1, provenance: provenance() },
        document_id: document("a"),
        candidate: Candidate {
            source_id: SourceId::new("/a.ics").unwrap(),
            model_id: ModelId::new("event").unwrap(),
            sequence: 3,
            state: CandidateState::Confirmed,
            attempts: 1,
            apply_failures: 2,
            last_error: Some("locked".into()),
            next_attempt_at: at(6),
            updated_at: at(7),
        },
    };
    let mut state = Connector::default();
    let mut samples = Vec::new();
    for (name, happened) in [
        ("receipt_adopted", receipt("work", committed)),
        ("receipt_adopted_unfinished", receipt("home", ReceiptPhase::Abandoned(keep))),
        ("candidate_adopted", ConnectorEvent::CandidateAdopted(Box::new(candidate))),
    ] {
        state.apply(&happened);
        samples.push(event(name, happened));
    }
    samples.push(snapshot("adopted", &state));
    samples
}

fn forgetting() -> Vec<(&'static str, ConnectorEvent)> {
    let forgetting = Forgetting { mark: 30, begun_at: at(1_767_225_600_000) };
    let gone = ReceiptForgotten { key: receipt(2), pages_kept: 0, pages_gone: 1, is_whole: true };
    let begun = ConnectorEvent::ConnectionForgetBegun(ConnectionForgetBegun { forgetting });
    vec![
        ("connection_forget_begun", begun.clone()),
        ("connection_forget_abandoned", ConnectorEvent::ConnectionForgetAbandoned),
        ("connection_forget_begun", begun),
        ("receipt_forgotten", ConnectorEvent::ReceiptForgotten(gone)),
        (
            "partition_forgotten",
            ConnectorEvent::PartitionForgotten(PartitionForgotten { partition: partition() }),
        ),
        (
            "connection_forgotten",
            ConnectorEvent::ConnectionForgotten(ConnectionForgotten { mark: 30 }),
        ),
    ]
}
