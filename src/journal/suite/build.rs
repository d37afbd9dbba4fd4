//! Short ways to write appends, rows and queries.

use uuid::Uuid;

use crate::base::{ConnectorName, Digest, OwnerDid, Result, StreamKind, StreamName, Timestamp};
use crate::domain::{
    ColumnType, Fence, FencingToken, LeaseScope, Row, RowChange, RowKey, Table, Value,
};
use crate::journal::port::{
    Append, AppendOutcome, Base, BatchError, CommandRecord, Expected, JournalRecord, NewEvent,
    NewSnapshot, Part, RowQuery, Storage,
};

/// The time that the rules write with.
pub(super) const NOW: i64 = 1_700_000_000_000;

pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(NOW)
}

pub(super) fn name(text: &str) -> StreamName {
    StreamName::from(text)
}

pub(super) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// The head that the command of this number left.
pub(super) fn at(version: i64, command: u128) -> Expected {
    Expected { version, command_id: id(command) }
}

pub(super) fn event(payload: &[u8]) -> NewEvent {
    NewEvent { event_type: 2, schema: 1, payload: payload.to_vec(), is_swept: false }
}

/// What stands for erased history.
pub(super) fn swept() -> NewEvent {
    NewEvent { event_type: 1, schema: 1, payload: vec![0], is_swept: true }
}

pub(super) fn part(stream: &str, expected: Expected, events: Vec<NewEvent>) -> Part {
    Part {
        stream: name(stream),
        kind: StreamKind::Document,
        expected,
        events,
        rows: Vec::new(),
        snapshot: None,
        erase: false,
        trim: false,
    }
}

pub(super) fn unit(command: u128, parts: Vec<Part>) -> Append {
    Append { command_id: id(command), record: None, parts, fences: Vec::new(), absent: Vec::new() }
}

/// One event on one stream.
pub(super) fn one(command: u128, stream: &str, expected: Expected) -> Append {
    unit(command, vec![part(stream, expected, vec![event(&command.to_be_bytes())])])
}

/// One event on a stream of its own, and these row changes.
pub(super) fn with_rows(command: u128, rows: Vec<RowChange>) -> Append {
    let mut append = one(command, &format!("rows:{command}"), Expected::NONE);
    append.parts[0].rows = rows;
    append
}

pub(super) fn snapshot(payload: &[u8]) -> NewSnapshot {
    NewSnapshot { schema: 1, payload: payload.to_vec() }
}

pub(super) fn record(command: &str, answer: &[u8]) -> CommandRecord {
    CommandRecord { digest: Digest::of(command.as_bytes()), answer: answer.to_vec() }
}

/// Writes a batch.
pub(super) async fn write(storage: &dyn Storage, batch: &[Append]) -> Result<Vec<AppendOutcome>> {
    storage.append(batch, now()).await.map_err(|error| match error {
        BatchError::Passing(error) | BatchError::Failed(error) | BatchError::Unknown(error) => {
            error
        }
    })
}

/// Writes a batch of which every append must commit.
pub(super) async fn commit(storage: &dyn Storage, batch: &[Append]) -> Result<()> {
    let outcomes = write(storage, batch).await?;
    assert_eq!(outcomes.len(), batch.len(), "one outcome for each append");
    let is_commit = |outcome| matches!(outcome, &AppendOutcome::Committed { .. });
    assert!(outcomes.iter().all(is_commit), "all commit: {outcomes:?}");
    Ok(())
}

pub(super) const COMMITTED: AppendOutcome = AppendOutcome::Committed { taken: Vec::new() };

/// Every event of the journal.
pub(super) async fn journal(storage: &dyn Storage) -> Result<Vec<JournalRecord>> {
    storage.events(0, 1_000_000).await
}

pub(super) fn versions(records: &[JournalRecord]) -> Vec<i64> {
    records.iter().map(|record| record.version).collect()
}

/// The base that a cut up to this event leaves.
pub(super) fn base_at(record: &JournalRecord) -> Option<Base> {
    Some(Base { version: record.version, hash: record.hash })
}

/// A row with this key and a value in every other column; another `seed`, other values.
pub(super) fn filled(table: Table, key: &[Value], seed: i64) -> Row {
    let spec = table.spec();
    let values = spec.columns.iter().zip(0_i64..).map(|(column, place)| match column.kind {
        ColumnType::Int => Value::Int(seed * 100 + place),
        ColumnType::Blob => Value::Blob(format!("{} {seed}", column.name).into_bytes().into()),
        ColumnType::Text => Value::text(format!("{} {seed}", column.name)),
    });
    let mut row = Row::new(table, values.collect());
    for (&column, value) in spec.key.iter().zip(key) {
        row.values[column] = value.clone();
    }
    row
}

pub(super) fn trim(document: &str, fields: &str) -> Row {
    let mut row = filled(Table::EntityTrim, &[Value::text(document)], 1);
    row.values[3] = Value::text(fields);
    row
}

pub(super) const RECOVERY: usize = 8;

/// A sync state, whose `recovery` is row-only.
pub(super) fn sync_state(connector: &str, owner: &str, recovery: Value) -> Row {
    let mut row = filled(Table::SyncState, &[Value::text(connector), Value::text(owner)], 1);
    row.values[RECOVERY] = recovery;
    row
}

/// A fence on the lease of a connector of this name, by the token of this version.
pub(super) fn fence(connector: &str, version: i64) -> Result<Fence> {
    let owner = OwnerDid::new("did:web:o")?;
    let scope = LeaseScope::Sync { owner, connector: ConnectorName::new(connector)? };
    Ok(Fence { scope, token: FencingToken { generation: 1, version } })
}

/// The row of the lease that satisfies the fence.
pub(super) fn lease(fence: &Fence) -> Row {
    let mut row = filled(Table::Lease, &fence.scope.row_key().values, 1);
    row.values[2] = fence.token.to_value();
    row
}

/// The rows of a table by its key.
pub(super) fn by_key(table: Table) -> RowQuery {
    let order = table.spec().key.to_vec();
    RowQuery { table, filters: Vec::new(), order, after: None, limit: 10_000 }
}

pub(super) fn trim_key(document: &str) -> RowKey {
    RowKey::new(Table::EntityTrim, vec![Value::text(document)])
}
