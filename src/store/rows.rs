//! What list calls read from the read tables.

use crate::base::{
    ConnectorName, DocumentId, Error, Json, ModelId, OwnerDid, PartitionId, Provenance, Result,
    Rfc3339, SourceId, StreamKey, Timestamp,
};
use crate::domain::connector::{CandidateState, SweepCandidate, SyncState, SyncStatus};
use crate::domain::{Row, Value};

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
