//! Stored values read back: a value that is not what was written is damage, never a panic.

use sqlx::Row as _;
use sqlx::ValueRef as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::fault::storage_error;
use crate::base::{Digest, Error, Result, StreamName, Timestamp};
use crate::domain::{ColumnType, Row, Table, Value};
use crate::journal::{Base, Head, JournalRecord, SnapshotRecord};

fn failed(error: sqlx::Error) -> Error {
    storage_error(error, "reading a stored value")
}

pub(super) fn int(row: &SqliteRow, at: usize) -> Result<i64> {
    row.try_get(at).map_err(failed)
}

pub(super) fn text(row: &SqliteRow, at: usize) -> Result<String> {
    row.try_get(at).map_err(failed)
}

pub(super) fn bytes(row: &SqliteRow, at: usize) -> Result<Vec<u8>> {
    row.try_get(at).map_err(failed)
}

fn small(row: &SqliteRow, at: usize) -> Result<u16> {
    u16::try_from(int(row, at)?).map_err(|_| Error::damaged("a type or schema number"))
}

pub(super) fn blob_uuid(row: &SqliteRow, at: usize) -> Result<Uuid> {
    let bytes: &[u8] = row.try_get(at).map_err(failed)?;
    Uuid::from_slice(bytes).map_err(|_| Error::damaged("a command id"))
}

pub(super) fn blob_digest(row: &SqliteRow, at: usize) -> Result<Digest> {
    let bytes: &[u8] = row.try_get(at).map_err(failed)?;
    bytes.try_into().map(Digest::from_bytes).map_err(|_| Error::damaged("a hash"))
}

/// Version, command id and hash from three columns.
pub(super) fn head_of(row: &SqliteRow, from: usize) -> Result<Head> {
    Ok(Head {
        version: int(row, from)?,
        command_id: blob_uuid(row, from + 1)?,
        hash: blob_digest(row, from + 2)?,
    })
}

/// The base of a stream, from its two columns.
pub(super) fn base_of(row: &SqliteRow, version: usize, hash: usize) -> Result<Option<Base>> {
    let version: Option<i64> = row.try_get(version).map_err(failed)?;
    version.map(|version| Ok(Base { version, hash: blob_digest(row, hash)? })).transpose()
}

/// An event from eight columns: position, version, type, schema, payload, command id, time, hash.
pub(super) fn event_of(
    row: &SqliteRow,
    from: usize,
    stream: StreamName,
    kind: i64,
) -> Result<JournalRecord> {
    Ok(JournalRecord {
        position: int(row, from)?,
        stream,
        kind,
        version: int(row, from + 1)?,
        event_type: small(row, from + 2)?,
        schema: small(row, from + 3)?,
        payload: bytes(row, from + 4)?,
        command_id: blob_uuid(row, from + 5)?,
        recorded_at: Timestamp::from_millis(int(row, from + 6)?),
        hash: blob_digest(row, from + 7)?,
    })
}

/// A snapshot from five columns: version, schema, payload, hash, checksum.
pub(super) fn snapshot_of(row: &SqliteRow, columns: [usize; 5]) -> Result<SnapshotRecord> {
    let [version, schema, payload, hash, checksum] = columns;
    Ok(SnapshotRecord {
        version: int(row, version)?,
        schema: small(row, schema)?,
        payload: bytes(row, payload)?,
        hash: blob_digest(row, hash)?,
        checksum: blob_digest(row, checksum)?,
    })
}

/// The content of these rows is compared with the journal wherever it is used, and a state can do
/// without one that is damaged: reading it must not fail before it is compared.
const fn is_checked(table: Table) -> bool {
    matches!(table, Table::ObservationRecords)
}

/// A text that may be none any more: then it is another one than was written.
fn token(row: &SqliteRow, at: usize) -> Result<Value> {
    let bytes: &[u8] = row.try_get_unchecked(at).map_err(failed)?;
    Ok(Value::text(String::from_utf8_lossy(bytes)))
}

/// A row of a read table, from its columns in their order.
pub(super) fn row_of(row: &SqliteRow, table: Table) -> Result<Row> {
    let values = table.spec().columns.iter().enumerate().map(|(at, column)| {
        if row.try_get_raw(at).map_err(failed)?.is_null() {
            return Ok(Value::Null);
        }
        match column.kind {
            ColumnType::Text if is_checked(table) && column.row_only => token(row, at),
            ColumnType::Text => text(row, at).map(Value::text),
            ColumnType::Int => int(row, at).map(Value::Int),
            ColumnType::Blob => bytes(row, at).map(|bytes| Value::Blob(bytes.into())),
        }
    });
    Ok(Row::new(table, values.collect::<Result<_>>()?))
}
