//! Adoption: the rows of a store that had no journal become the genesis of their streams, one event
//! for each row.
//!
//! Pure. A backend brings the tables to their shape and reads the rows; here each stream's rows
//! become one append, or are refused where a state could not have them. Nothing but two columns is
//! changed: a sync state without an incarnation gets one, and none is leased, since no holder is known.

use std::collections::BTreeMap;

use uuid::{Builder, Uuid};

use super::codec::encode_event;
use super::damage::RowName;
use super::owners::owner_of;
use super::port::{Append, Expected, NewEvent, Part};
use super::verify::different_columns;
use crate::base::{
    ConnectorName, Digest, DocumentId, Error, OwnerDid, Result, StreamKey, StreamKind, StreamName,
    Timestamp,
};
use crate::domain::auth::{self, PendingAuth};
use crate::domain::connector::{self, Connector};
use crate::domain::document::{self, Document};
use crate::domain::{Aggregate, ColumnType, Row, RowChange, StoredEvent, Table, Unfit, Value};

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

/// The tables of documents' rows, with the place of the document.
pub(super) const OF_DOCUMENTS: [(Table, usize); 3] =
    [(Table::EntityTrim, 0), (Table::ObservationRecords, 2), (Table::ObservationRepair, 0)];

/// The tables of connectors' rows, with the places of owner and connector.
pub(super) const OF_CONNECTORS: [(Table, [usize; 2]); 4] = [
    (Table::SyncState, [1, 0]),
    (Table::SweepReceipt, [0, 1]),
    (Table::SweepCandidate, [0, 1]),
    (Table::SweepCheckpoint, [0, 1]),
];

/// Documents, connectors or authorizations that are read at once.
pub(super) const STREAMS_AT_ONCE: u32 = 32;

/// What the names of the tables that others read begin with.
pub(super) const PREFIX: &str = "kubun_connector_";

/// The rows of some streams, by the streams' names.
pub(super) type Streams = BTreeMap<StreamName, (StreamKey, Vec<Row>)>;

/// A column of another program's table.
pub(super) struct Found {
    /// Its name.
    pub(super) name: String,
    /// How it is stored; none for a type that no column has.
    pub(super) kind: Option<ColumnType>,
    /// Its place in the primary key, from 1; 0 when it is not in it.
    pub(super) key_place: i64,
}

/// The names of the tables that are this program's alone, as a list of SQL texts. Without its
/// schema's version they are no store.
pub(super) fn own_names() -> String {
    let journal =
        ["connector_stream", "connector_journal", "connector_snapshot", "connector_command"];
    let tables = Table::ALL.iter().map(|table| table.spec().name);
    let own = tables.filter(|name| !name.starts_with(PREFIX));
    let quoted: Vec<String> =
        journal.into_iter().chain(own).map(|name| format!("'{name}'")).collect();
    quoted.join(", ")
}

/// The tables of these names.
///
/// # Errors
/// [`Error::AdoptionRefused`] for a name that another program's table can't have.
pub(super) fn known_tables(names: &[String]) -> Result<Vec<Table>> {
    let known = |name: &String| {
        let table = Table::ALL.into_iter().find(|table| table.spec().name == name);
        table.filter(|_| name.starts_with(PREFIX)).ok_or_else(|| table_refused(name))
    };
    names.iter().map(known).collect()
}

/// The name of a table while its rows are moved.
pub(super) fn aside(table: Table) -> String {
    format!("connector_adopted_{}", table.spec().name)
}

/// The refusal of a table.
pub(super) fn table_refused(name: &str) -> Error {
    Error::AdoptionRefused { table: name.to_owned(), column: None, row: Vec::new() }
}

/// Refuses a table that has not exactly the columns that are known, of their types, with their key.
///
/// # Errors
/// [`Error::AdoptionRefused`] that names the first column that is not known, else the first that is
/// missing or differs.
pub(super) fn check_columns(table: Table, found: &[Found]) -> Result<()> {
    let spec = table.spec();
    let refused = |column: &str| {
        let (table, column) = (spec.name.to_owned(), Some(column.to_owned()));
        Err(Error::AdoptionRefused { table, column, row: Vec::new() })
    };
    let is_known = |name: &str| spec.columns.iter().any(|column| column.name == name);
    if let Some(unknown) = found.iter().find(|found| !is_known(&found.name)) {
        return refused(&unknown.name);
    }
    for (at, column) in spec.columns.iter().enumerate() {
        let place = (1..).zip(spec.key).find(|(_, key)| **key == at).map_or(0, |(place, _)| place);
        let is_as_known =
            |found: &Found| found.kind == Some(column.kind) && found.key_place == place;
        if !found.iter().any(|found| found.name == column.name && is_as_known(found)) {
            return refused(column.name);
        }
    }
    Ok(())
}

/// Takes a page of rows to their streams.
///
/// # Errors
/// [`Error::AdoptionRefused`] for a row that no stream can have.
pub(super) fn group(page: Vec<Row>, streams: &mut Streams) -> Result<()> {
    for row in page {
        let key = stream_of(&row)?;
        let (_, rows) = streams.entry(key.stream_name()).or_insert_with(|| (key, Vec::new()));
        rows.push(row);
    }
    Ok(())
}

/// The place of `lease_expires_at` in the sync state's row.
const LEASE_COLUMN: usize = 7;
/// The place of `incarnation` in the sync state's row.
const INCARNATION_COLUMN: usize = 10;

/// The refusal of a row that no state can have.
fn refused(unfit: Unfit) -> Error {
    let RowName { table, key } = RowName::of(&unfit.row);
    let column = Some(unfit.column.to_owned());
    Error::AdoptionRefused { table: table.to_owned(), column, row: key }
}

/// The stream of a row.
fn stream_of(row: &Row) -> Result<StreamKey> {
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
