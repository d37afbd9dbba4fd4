//! Stored values read back: a value that is not what was written is damage, never a panic.

use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row as _, Type};
use uuid::Uuid;

use super::fault::storage_error;
use crate::base::{Digest, Error, Result, StreamName, Timestamp};
use crate::domain::{ColumnType, Row, Table, Value};
use crate::journal::{Base, Head, JournalRecord, SnapshotRecord};

/// A value of a column.
pub(super) fn get<'r, T>(row: &'r PgRow, at: usize) -> Result<T>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(at).map_err(|error| storage_error(error, "reading a stored value"))
}

pub(super) fn int(row: &PgRow, at: usize) -> Result<i64> {
    get(row, at)
}

pub(super) fn text(row: &PgRow, at: usize) -> Result<&str> {
    get(row, at)
}

fn small(row: &PgRow, at: usize) -> Result<u16> {
    u16::try_from(int(row, at)?).map_err(|_| Error::damaged("a type or schema number"))
}

/// Bytes, also of a statement without values, whose rows are texts.
pub(super) fn bytes(row: &PgRow, at: usize) -> Result<Vec<u8>> {
    get(row, at)
}

pub(super) fn blob_uuid(row: &PgRow, at: usize) -> Result<Uuid> {
    Uuid::from_slice(&bytes(row, at)?).map_err(|_| Error::damaged("a command id"))
}

pub(super) fn blob_digest(row: &PgRow, at: usize) -> Result<Digest> {
    let bytes = bytes(row, at)?.try_into();
    bytes.map(Digest::from_bytes).map_err(|_| Error::damaged("a hash"))
}

/// Version, command id and hash from three columns.
pub(super) fn head_of(row: &PgRow, from: usize) -> Result<Head> {
    Ok(Head {
        version: int(row, from)?,
        command_id: blob_uuid(row, from + 1)?,
        hash: blob_digest(row, from + 2)?,
    })
}

/// The base of a stream, from its two columns.
pub(super) fn base_of(row: &PgRow, version: usize, hash: usize) -> Result<Option<Base>> {
    let version: Option<i64> = get(row, version)?;
    version.map(|version| Ok(Base { version, hash: blob_digest(row, hash)? })).transpose()
}

/// An event from eight columns: position, version, type, schema, payload, command id, time, hash.
pub(super) fn event_of(
    row: &PgRow,
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
        payload: get(row, from + 4)?,
        command_id: blob_uuid(row, from + 5)?,
        recorded_at: Timestamp::from_millis(int(row, from + 6)?),
        hash: blob_digest(row, from + 7)?,
    })
}

/// A snapshot from five columns: version, schema, payload, hash, checksum.
pub(super) fn snapshot_of(row: &PgRow, columns: [usize; 5]) -> Result<SnapshotRecord> {
    let [version, schema, payload, hash, checksum] = columns;
    Ok(SnapshotRecord {
        version: int(row, version)?,
        schema: small(row, schema)?,
        payload: get(row, payload)?,
        hash: blob_digest(row, hash)?,
        checksum: blob_digest(row, checksum)?,
    })
}

/// A row of a read table, from its columns in their order.
pub(super) fn row_of(row: &PgRow, table: Table) -> Result<Row> {
    let values = table.spec().columns.iter().enumerate().map(|(at, column)| {
        Ok(match column.kind {
            ColumnType::Text => Value::text_or_null(get::<Option<&str>>(row, at)?),
            ColumnType::Int => get::<Option<i64>>(row, at)?.map_or(Value::Null, Value::Int),
            ColumnType::Blob => get::<Option<Vec<u8>>>(row, at)?
                .map_or(Value::Null, |bytes| Value::Blob(bytes.into())),
        })
    });
    Ok(Row::new(table, values.collect::<Result<_>>()?))
}
