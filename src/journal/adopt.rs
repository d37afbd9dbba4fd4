//! Adoption: the rows of a store that had no journal become the genesis of their streams, one event
//! for each row.
//!
//! Pure. A backend brings the tables to their shape and reads the rows; here each stream's rows
//! become one append, or are refused where a state could not have them. Nothing but two columns is
//! changed: a sync state without an incarnation gets one, and none is leased, since no holder is known.

use uuid::{Builder, Uuid};

use super::codec::encode_event;
use super::damage::RowName;
use super::owners::owner_of;
use super::port::{Append, Expected, NewEvent, Part};
use super::verify::different_columns;
use crate::base::{
    ConnectorName, Digest, DocumentId, Error, OwnerDid, Result, StreamKey, StreamKind, Timestamp,
};
use crate::domain::auth::{self, PendingAuth};
use crate::domain::connector::{self, Connector};
use crate::domain::document::{self, Document};
use crate::domain::{Aggregate, Row, RowChange, StoredEvent, Table, Unfit, Value};

/// The tables whose rows are adopted. Of the others another program's columns are not known.
pub(super) const ADOPTED: [Table; 8] = [
    Table::SyncState,
    Table::PendingAuth,
    Table::SweepReceipt,
    Table::SweepCandidate,
    Table::SweepCheckpoint,
    Table::EntityTrim,
    Table::ObservationRecords,
    Table::ObservationRepair,
];

/// The place of `lease_expires_at` in the sync state's row.
const LEASE_COLUMN: usize = 7;
/// The place of `incarnation` in the sync state's row.
const INCARNATION_COLUMN: usize = 10;

/// The refusal of a row that no state can have.
pub(super) fn refused(unfit: Unfit) -> Error {
    let RowName { table, key } = RowName::of(&unfit.row);
    let column = Some(unfit.column.to_owned());
    Error::AdoptionRefused { table: table.to_owned(), column, row: key }
}

/// The stream of a row.
///
/// # Errors
/// [`Error::AdoptionRefused`] for a row that no stream can have.
pub(super) fn stream_of(row: &Row) -> Result<StreamKey> {
    owner_of(row).ok_or_else(|| {
        let columns = row.table.spec().columns.iter().zip(&row.values);
        let bad = columns.map(|(column, value)| {
            let text = value.as_text().unwrap_or_default();
            match column.name {
                "document_id" | "id" => DocumentId::new(text).is_err(),
                "owner_did" => OwnerDid::new(text).is_err(),
                "connector_name" => ConnectorName::new(text).is_err(),
                _ => false,
            }
        });
        refused(Unfit::new(row, bad.take_while(|is_bad| !is_bad).count()))
    })
}

/// The genesis of a stream from all its rows. What it changes in them are its row changes.
///
/// # Errors
/// [`Error::AdoptionRefused`] that names the row and the column that does not fit.
pub(super) fn genesis(key: &StreamKey, mut rows: Vec<Row>, now: Timestamp) -> Result<Append> {
    let stream = key.stream_name();
    let mut changed = Vec::new();
    for row in &mut rows {
        check_values(row).map_err(refused)?;
        if complete(row, &stream, now) {
            changed.push(row.key());
        }
    }
    let events = match key.kind() {
        StreamKind::Document => {
            let events = document::adopt(&rows).map_err(refused)?;
            encoded::<Document>(key, &rows, &events)?
        }
        StreamKind::Connector => {
            let events = connector::adopt(&rows).map_err(refused)?;
            encoded::<Connector>(key, &rows, &events)?
        }
        StreamKind::Auth => {
            let adopted = rows.iter().map(|row| auth::adopt(row).map_err(refused));
            let events: Vec<_> = adopted.collect::<Result<_>>()?;
            encoded::<PendingAuth>(key, &[], &events)?
        }
    };
    rows.retain(|row| changed.contains(&row.key()));
    let part = Part {
        kind: key.kind(),
        expected: Expected::NONE,
        events,
        rows: rows.into_iter().map(RowChange::Put).collect(),
        snapshot: None,
        erase: false,
        trim: false,
        stream,
    };
    let command_id = command_id(&part.stream, now);
    let (record, parts) = (None, vec![part]);
    Ok(Append { command_id, record, parts, fences: Vec::new(), absent: Vec::new() })
}

/// Refuses what no column of any table holds.
fn check_values(row: &Row) -> Result<(), Unfit> {
    let bad = row.values.iter().position(|value| match value {
        Value::Int(int) => *int < 0,
        Value::Text(text) => text.contains('\0'),
        Value::Null | Value::Blob(_) | Value::Keep | Value::Stamp => false,
    });
    bad.map_or(Ok(()), |at| Err(Unfit::new(row, at)))
}

/// Brings a row to what a state can have. Says whether it changed.
fn complete(row: &mut Row, stream: &str, now: Timestamp) -> bool {
    if row.table != Table::SyncState {
        return false;
    }
    let mut is_changed = false;
    if let Some(lease @ Value::Int(_)) = row.values.get_mut(LEASE_COLUMN) {
        *lease = Value::Null;
        is_changed = true;
    }
    if let Some(incarnation @ Value::Null) = row.values.get_mut(INCARNATION_COLUMN) {
        *incarnation = Value::text(new_incarnation(stream, now).to_string());
        is_changed = true;
    }
    is_changed
}

/// The events as they are stored, if the state that they come to has exactly these rows.
fn encoded<A: Aggregate>(
    key: &StreamKey,
    rows: &[Row],
    events: &[A::Event],
) -> Result<Vec<NewEvent>> {
    let mut state = A::default();
    events.iter().for_each(|event| state.apply(event));
    for row in rows {
        let place = row.key();
        let differs = match state.row(key, &place) {
            Some(expected) => different_columns(&expected, row).first().copied(),
            None => {
                let spec = row.table.spec();
                spec.key.last().map(|&at| spec.columns[at].name)
            }
        };
        if let Some(column) = differs {
            return Err(refused(Unfit { row: place, column }));
        }
    }
    let encode = |event: &A::Event| {
        Ok(NewEvent {
            event_type: event.event_type(),
            schema: event.schema(),
            payload: encode_event(event)?,
            is_swept: event.is_swept(),
        })
    };
    events.iter().map(encode).collect()
}

/// Ids are told by the stream and the time: nothing draws by chance here, and no other program has
/// written to the stream.
fn drawn<const N: usize>(what: &str, stream: &str, now: Timestamp) -> [u8; N] {
    let at = now.as_millis().to_be_bytes();
    let digest = Digest::of_parts(&[what.as_bytes(), &at, stream.as_bytes()]);
    let mut bytes = [0; N];
    bytes.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
    bytes
}

fn command_id(stream: &str, now: Timestamp) -> Uuid {
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &drawn("command", stream, now)).into_uuid()
}

fn new_incarnation(stream: &str, now: Timestamp) -> Uuid {
    Builder::from_random_bytes(drawn("incarnation", stream, now)).into_uuid()
}
