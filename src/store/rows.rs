//! What list calls read from the read tables.

use super::{ForgettingConnection, WrittenRepair};
use crate::base::{
    ConnectorName, Digest, DocumentId, Error, Holder, Json, ModelId, OperationId, OwnerDid,
    PartitionId, Provenance, Result, Rfc3339, SourceId, StreamKey, Timestamp, ValueDigest,
};
use crate::domain::connector::{CandidateState, SweepCandidate, SyncState, SyncStatus};
use crate::domain::document::{
    DeferReason, DeferredUntil, ObservationRepair, Operation, OperationKind, OperationPhase,
    OperationRecord, ProjectionWatch, SendMark, Watch, WatchIdentity, WatchReason, WatchStatus,
};
use crate::domain::{FencingToken, Lease, Row, Value};
use crate::records::Hlc;

/// An owner's sync state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStateEntry {
    /// Whose.
    pub owner: OwnerDid,
    /// The state.
    pub state: SyncState,
}

/// A document sweep that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunSweep {
    /// The document.
    pub document_id: DocumentId,
    /// When it began.
    pub begun_at: Timestamp,
}

fn damaged(row: &Row, column: usize) -> Error {
    let spec = row.table.spec();
    let name = spec.columns.get(column).map_or("?", |column| column.name);
    Error::damaged(format_args!("column {name} of a row of {}", spec.name))
}

fn text(row: &Row, column: usize) -> Result<&str> {
    row.values.get(column).and_then(Value::as_text).ok_or_else(|| damaged(row, column))
}

fn optional_text(row: &Row, column: usize) -> Option<&str> {
    row.values.get(column).and_then(Value::as_text)
}

fn int(row: &Row, column: usize) -> Result<i64> {
    row.values.get(column).and_then(Value::as_int).ok_or_else(|| damaged(row, column))
}

fn count(row: &Row, column: usize) -> Result<u32> {
    u32::try_from(int(row, column)?).map_err(|_| damaged(row, column))
}

fn json(row: &Row, column: usize) -> Result<Option<Json>> {
    optional_text(row, column).map(|text| Json::parse("json", text)).transpose()
}

pub(super) fn sync_state_entry(row: &Row) -> Result<SyncStateEntry> {
    let state = SyncState {
        checkpoint: json(row, 2)?,
        recovery: json(row, 8)?,
        last_synced_at: Rfc3339::parse(text(row, 3)?)?,
        entity_count: int(row, 4)?,
        status: SyncStatus::parse(text(row, 5)?).ok_or_else(|| damaged(row, 5))?,
        error: optional_text(row, 6).map(str::to_owned),
        lease_expires_at: int(row, 7).ok().map(Timestamp::from_millis),
        version: int(row, 9)?,
        incarnation: text(row, 10)?.parse().map_err(|_| damaged(row, 10))?,
    };
    Ok(SyncStateEntry { owner: OwnerDid::new(text(row, 1)?)?, state })
}

pub(super) fn begun_sweep(row: &Row) -> Result<BegunSweep> {
    Ok(BegunSweep {
        document_id: DocumentId::new(text(row, 0)?)?,
        begun_at: Timestamp::from_millis(int(row, 1)?),
    })
}

pub(super) fn forgetting(row: &Row) -> Result<ForgettingConnection> {
    Ok(ForgettingConnection {
        owner: OwnerDid::new(text(row, 0)?)?,
        connector: ConnectorName::new(text(row, 1)?)?,
        begun_at: time(row, 2)?,
    })
}

/// The document of a row that begins with it.
pub(super) fn document(row: &Row) -> Result<DocumentId> {
    DocumentId::new(text(row, 0)?)
}

/// The key of a row that begins with owner and connector.
pub(super) fn connector_key(row: &Row) -> Result<StreamKey> {
    Ok(StreamKey::Connector(OwnerDid::new(text(row, 0)?)?, ConnectorName::new(text(row, 1)?)?))
}

pub(super) fn candidate(row: &Row) -> Result<SweepCandidate> {
    Ok(SweepCandidate {
        partition: PartitionId::new(text(row, 2)?)?,
        provenance: Provenance::new(text(row, 3)?)?,
        document_id: DocumentId::new(text(row, 4)?)?,
        source_id: SourceId::new(text(row, 5)?)?,
        model_id: ModelId::new(text(row, 6)?)?,
        state: CandidateState::parse(text(row, 7)?).ok_or_else(|| damaged(row, 7))?,
        attempts: count(row, 8)?,
        apply_failures: count(row, 9)?,
        last_error: optional_text(row, 10).map(str::to_owned),
        next_attempt_at: Timestamp::from_millis(int(row, 11)?),
        updated_at: Timestamp::from_millis(int(row, 12)?),
    })
}

fn time(row: &Row, column: usize) -> Result<Timestamp> {
    int(row, column).map(Timestamp::from_millis)
}

fn optional_time(row: &Row, column: usize) -> Option<Timestamp> {
    time(row, column).ok()
}

pub(super) fn hlc(row: &Row, column: usize) -> Result<Hlc> {
    Hlc::parse(text(row, column)?).ok_or_else(|| damaged(row, column))
}

fn digest(row: &Row, column: usize) -> Result<Digest> {
    Digest::from_hex(text(row, column)?).ok_or_else(|| damaged(row, column))
}

pub(super) fn operation_record(row: &Row) -> Result<OperationRecord> {
    let lease = match optional_text(row, 15) {
        Some(holder) => Some(Lease {
            holder: Holder::new(holder)?,
            token: FencingToken::parse(text(row, 16)?).ok_or_else(|| damaged(row, 16))?,
            expires_at: time(row, 17)?,
        }),
        None => None,
    };
    let deferral = match optional_text(row, 13) {
        Some(reason) => Some(DeferredUntil {
            reason: DeferReason::parse(reason).ok_or_else(|| damaged(row, 13))?,
            not_before: time(row, 14)?,
        }),
        None => None,
    };
    let operation = Operation {
        owner: OwnerDid::new(text(row, 2)?)?,
        connector: ConnectorName::new(text(row, 3)?)?,
        op: OperationKind::parse(text(row, 4)?).ok_or_else(|| damaged(row, 4))?,
        version: hlc(row, 5)?,
        request_digest: digest(row, 6)?,
        visibility_delay_ms: int(row, 11)?,
        sequence: int(row, 21)?,
        phase: phase(row)?,
        attempts: count(row, 8)?,
        lease,
        deferral,
        created_at: time(row, 22)?,
        updated_at: time(row, 23)?,
    };
    Ok(OperationRecord {
        operation_id: OperationId::new(text(row, 0)?)?,
        document_id: DocumentId::new(text(row, 1)?)?,
        operation,
    })
}

fn phase(row: &Row) -> Result<OperationPhase> {
    let sent = match optional_time(row, 9) {
        Some(started_at) => Some(SendMark { started_at, until: time(row, 10)? }),
        None => None,
    };
    match text(row, 7)? {
        "attempted" => Ok(OperationPhase::Attempted { sent }),
        "reconcile_only" => {
            let sent = sent.ok_or_else(|| damaged(row, 9))?;
            Ok(OperationPhase::ReconcileOnly { sent, read_at: optional_time(row, 12) })
        }
        "committed" => Ok(OperationPhase::Committed {
            source_id: SourceId::new(text(row, 18)?)?,
            source_version: optional_text(row, 19).map(str::to_owned),
        }),
        "dead" => Ok(OperationPhase::Dead { error: text(row, 20)?.to_owned() }),
        _ => Err(damaged(row, 7)),
    }
}

pub(super) fn written_repair(row: &Row) -> Result<WrittenRepair> {
    let repair = ObservationRepair {
        owner: OwnerDid::new(text(row, 1)?)?,
        fetch_hlc: hlc(row, 2)?,
        decision_hlc: hlc(row, 3)?,
        present: int(row, 4)? != 0,
        value_digest: optional_text(row, 5).map(ValueDigest::new).transpose()?,
    };
    Ok(WrittenRepair { document_id: document(row)?, repair, written_at: time(row, 6)? })
}

pub(super) fn projection_watch(row: &Row) -> Result<ProjectionWatch> {
    let identity = WatchIdentity {
        owner: OwnerDid::new(text(row, 1)?)?,
        connector: ConnectorName::new(text(row, 2)?)?,
        source_id: SourceId::new(text(row, 3)?)?,
    };
    let watch = Watch {
        identity,
        reason: WatchReason::parse(text(row, 4)?).ok_or_else(|| damaged(row, 4))?,
        expected_digest: optional_text(row, 5).map(|_| digest(row, 5)).transpose()?,
        written_hlc: hlc(row, 6)?,
        armed_at: time(row, 7)?,
        deadline: time(row, 8)?,
        status: WatchStatus::parse(text(row, 9)?).ok_or_else(|| damaged(row, 9))?,
        mismatches: count(row, 10)?,
        last_fetch_hlc: optional_text(row, 11).map(|_| hlc(row, 11)).transpose()?,
    };
    Ok(ProjectionWatch { document_id: DocumentId::new(text(row, 0)?)?, watch })
}
