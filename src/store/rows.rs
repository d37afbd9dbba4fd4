//! What list calls read from the read tables.

use super::{ForgettingConnection, WrittenRepair};
use crate::base::{
    ConnectorName, Digest, DocumentId, Holder, OperationId, OwnerDid, Result, SourceId, StreamKey,
    Timestamp,
};
use crate::domain::connector::{SweepCandidate, SyncState};
use crate::domain::document::{
    DeferReason, DeferredUntil, ObservationRepair, Operation, OperationKind, OperationPhase,
    OperationRecord, ProjectionWatch, SendMark, Watch, WatchIdentity, WatchReason, WatchStatus,
};
use crate::domain::{BadColumn, Columns, FencingToken, Lease, Row};
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

pub(super) fn sync_state_entry(row: &Row) -> Result<SyncStateEntry> {
    let owner = Columns(row).name(1, OwnerDid::new)?;
    Ok(SyncStateEntry { owner, state: SyncState::from_row(row)? })
}

pub(super) fn begun_sweep(row: &Row) -> Result<BegunSweep> {
    Ok(BegunSweep { document_id: document(row)?, begun_at: Columns(row).time(1)? })
}

pub(super) fn forgetting(row: &Row) -> Result<ForgettingConnection> {
    let columns = Columns(row);
    Ok(ForgettingConnection {
        owner: columns.name(0, OwnerDid::new)?,
        connector: columns.name(1, ConnectorName::new)?,
        begun_at: columns.time(2)?,
    })
}

/// The document of a row that begins with it.
pub(super) fn document(row: &Row) -> Result<DocumentId> {
    Ok(Columns(row).name(0, DocumentId::new)?)
}

/// The key of a row that begins with owner and connector.
pub(super) fn connector_key(row: &Row) -> Result<StreamKey> {
    let columns = Columns(row);
    let owner = columns.name(0, OwnerDid::new)?;
    Ok(StreamKey::Connector(owner, columns.name(1, ConnectorName::new)?))
}

pub(super) fn candidate(row: &Row) -> Result<SweepCandidate> {
    Ok(SweepCandidate::from_row(row)?)
}

pub(super) fn hlc(row: &Row, column: usize) -> Result<Hlc> {
    Ok(Columns(row).hlc(column)?)
}

pub(super) fn operation_record(row: &Row) -> Result<OperationRecord> {
    let columns = Columns(row);
    let lease = match columns.optional_text(15)? {
        Some(_) => Some(Lease {
            holder: columns.name(15, Holder::new)?,
            token: columns.word(16, FencingToken::parse)?,
            expires_at: columns.time(17)?,
        }),
        None => None,
    };
    let deferral = match columns.optional_text(13)? {
        Some(_) => Some(DeferredUntil {
            reason: columns.word(13, DeferReason::parse)?,
            not_before: columns.time(14)?,
        }),
        None => None,
    };
    let operation = Operation {
        owner: columns.name(2, OwnerDid::new)?,
        connector: columns.name(3, ConnectorName::new)?,
        op: columns.word(4, OperationKind::parse)?,
        version: columns.hlc(5)?,
        request_digest: columns.word(6, Digest::from_hex)?,
        visibility_delay_ms: columns.int(11)?,
        sequence: columns.int(21)?,
        phase: phase(columns)?,
        attempts: columns.count(8)?,
        lease,
        deferral,
        created_at: columns.time(22)?,
        updated_at: columns.time(23)?,
    };
    Ok(OperationRecord {
        operation_id: columns.name(0, OperationId::new)?,
        document_id: columns.name(1, DocumentId::new)?,
        operation,
    })
}

fn phase(columns: Columns<'_>) -> Result<OperationPhase, BadColumn> {
    let sent = match columns.optional_time(9)? {
        Some(started_at) => Some(SendMark { started_at, until: columns.time(10)? }),
        None => None,
    };
    match columns.text(7)? {
        "attempted" => Ok(OperationPhase::Attempted { sent }),
        "reconcile_only" => {
            let sent = sent.ok_or_else(|| columns.bad(9))?;
            Ok(OperationPhase::ReconcileOnly { sent, read_at: columns.optional_time(12)? })
        }
        "committed" => Ok(OperationPhase::Committed {
            source_id: columns.name(18, SourceId::new)?,
            source_version: columns.optional_text(19)?.map(str::to_owned),
        }),
        "dead" => Ok(OperationPhase::Dead { error: columns.text(20)?.to_owned() }),
        _ => Err(columns.bad(7)),
    }
}

pub(super) fn written_repair(row: &Row) -> Result<WrittenRepair> {
    let repair = ObservationRepair::from_row(row)?;
    Ok(WrittenRepair { document_id: document(row)?, repair, written_at: Columns(row).time(6)? })
}

pub(super) fn projection_watch(row: &Row) -> Result<ProjectionWatch> {
    let columns = Columns(row);
    let identity = WatchIdentity {
        owner: columns.name(1, OwnerDid::new)?,
        connector: columns.name(2, ConnectorName::new)?,
        source_id: columns.name(3, SourceId::new)?,
    };
    let has = |at| Ok::<_, BadColumn>(columns.optional_text(at)?.is_some());
    let watch = Watch {
        identity,
        reason: columns.word(4, WatchReason::parse)?,
        expected_digest: has(5)?.then(|| columns.word(5, Digest::from_hex)).transpose()?,
        written_hlc: columns.hlc(6)?,
        armed_at: columns.time(7)?,
        deadline: columns.time(8)?,
        status: columns.word(9, WatchStatus::parse)?,
        mismatches: columns.count(10)?,
        last_fetch_hlc: has(11)?.then(|| columns.hlc(11)).transpose()?,
    };
    Ok(ProjectionWatch { document_id: document(row)?, watch })
}
