//! The rows that a document's state stands in.

use super::event::DocumentEvent;
use super::operation::{id_row_key, scope};
use super::state::{Document, Operation, OperationPhase, Watch};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{DocumentId, OperationId, Timestamp};
use crate::domain::{Row, RowKey, Table, Value};

pub(super) fn touched(document: &DocumentId, event: &DocumentEvent, rows: &mut Vec<RowKey>) {
    let operation = match event {
        DocumentEvent::OperationCreated(event) => &event.operation_id,
        DocumentEvent::OperationClaimed(event) => &event.operation_id,
        DocumentEvent::SendStarted(event) => &event.operation_id,
        DocumentEvent::OperationDeferred(event) => &event.operation_id,
        DocumentEvent::OperationRecorded(event) => &event.operation_id,
        DocumentEvent::ReconcileReadBegun(event) => &event.operation_id,
        DocumentEvent::OperationFinalized(event) => &event.operation_id,
        DocumentEvent::OperationLeaseChanged(event) => &event.operation_id,
        _ => return touched_by_document(document, event, rows),
    };
    let [row, of_id, lease] = operation_keys(document, operation);
    rows.push(row);
    match event {
        DocumentEvent::OperationCreated(_) => rows.extend([of_id, lease]),
        DocumentEvent::OperationClaimed(_)
        | DocumentEvent::OperationDeferred(_)
        | DocumentEvent::OperationFinalized(_)
        | DocumentEvent::OperationLeaseChanged(_) => rows.push(lease),
        _ => {}
    }
}

fn touched_by_document(document: &DocumentId, event: &DocumentEvent, rows: &mut Vec<RowKey>) {
    let tables: &[Table] = match event {
        DocumentEvent::EntityTrimCleared if is_planted(PlantedBug::ClearedTrimKeepsRow) => &[],
        DocumentEvent::EntityTrimSet(_) | DocumentEvent::EntityTrimCleared => &[Table::EntityTrim],
        DocumentEvent::DocumentSweepBegun(_) | DocumentEvent::DocumentSweepAbandoned => {
            &[Table::DocumentSweep]
        }
        DocumentEvent::WatchArmed(_)
        | DocumentEvent::WatchVerified
        | DocumentEvent::WatchMismatched(_)
        | DocumentEvent::WatchExpired(_)
        | DocumentEvent::WatchDisarmed => &[Table::ProjectionWatch],
        DocumentEvent::DocumentConnectionForgotten(_) => {
            &[Table::EntityTrim, Table::ProjectionWatch]
        }
        DocumentEvent::RepairPut(_)
        | DocumentEvent::RepairCleared
        | DocumentEvent::RepairAdopted(_) => &[Table::ObservationRepair],
        DocumentEvent::ObservationCopyPut(put) => return rows.extend(put.row_keys(document)),
        DocumentEvent::ObservationCopiesDropped(event) => {
            return rows.extend(event.row_keys(document));
        }
        DocumentEvent::Swept => &[
            Table::EntityTrim,
            Table::DocumentSweep,
            Table::ProjectionWatch,
            Table::ObservationRepair,
        ],
        _ => &[],
    };
    rows.extend(tables.iter().map(|&table| key(table, document)));
}

pub(super) fn operation_keys(document: &DocumentId, id: &OperationId) -> [RowKey; 3] {
    let operation = RowKey::new(Table::Operation, vec![Value::Text(id.shared())]);
    [operation, id_row_key(id), scope(document, id).row_key()]
}

/// A stored key may be anything: one that is not its row's own names none.
pub(super) fn row(state: &Document, document: &DocumentId, key: &RowKey) -> Option<Row> {
    row_of(state, document, key).filter(|row| &row.key() == key)
}

fn row_of(state: &Document, document: &DocumentId, key: &RowKey) -> Option<Row> {
    let id = Value::Text(document.shared());
    match key.table {
        Table::EntityTrim => state.trim.as_ref().map(|trim| {
            let values = vec![
                id,
                Value::Text(trim.owner.shared()),
                Value::Text(trim.connector.shared()),
                Value::Text(trim.trimmed_fields.shared()),
                Value::Int(trim.updated_at.as_millis()),
            ];
            Row::new(key.table, values)
        }),
        Table::DocumentSweep => {
            state.sweep_begun_at.map(|at| Row::new(key.table, vec![id, int(at)]))
        }
        Table::ProjectionWatch => state.watch.as_ref().map(|watch| watch_row(id, watch)),
        Table::ObservationRecords => state.copy_row(document, key),
        Table::ObservationRepair => state.repair_row(document),
        Table::Operation => {
            let (operation_id, operation) = find(state, key)?;
            Some(operation_row(operation_id, id, operation))
        }
        Table::OperationId => {
            let (operation_id, _) = find(state, key)?;
            Some(Row::new(key.table, vec![Value::Text(operation_id.shared()), id]))
        }
        Table::Lease => {
            let mut operations = state.operations.iter();
            operations.find_map(|(operation_id, operation)| {
                let lease = operation.lease.as_ref()?;
                let row = lease.row(&scope(document, operation_id));
                (&row.key() == key).then_some(row)
            })
        }
        _ => None,
    }
}

fn find<'a>(state: &'a Document, key: &RowKey) -> Option<(&'a OperationId, &'a Operation)> {
    let id = OperationId::new(key.values.first()?.as_text()?).ok()?;
    state.operations.get_key_value(&id)
}

fn watch_row(document: Value, watch: &Watch) -> Row {
    let hex = watch.expected_digest.map(|digest| digest.to_hex());
    let values = vec![
        document,
        Value::Text(watch.identity.owner.shared()),
        Value::Text(watch.identity.connector.shared()),
        Value::Text(watch.identity.source_id.shared()),
        Value::text(watch.reason.as_str()),
        Value::text_or_null(hex),
        Value::text(watch.written_hlc.as_str()),
        int(watch.armed_at),
        int(watch.deadline),
        Value::text(watch.status.as_str()),
        Value::Int(i64::from(watch.mismatches)),
        Value::text_or_null(watch.last_fetch_hlc.as_ref().map(|hlc| hlc.as_str())),
    ];
    Row::new(Table::ProjectionWatch, values)
}

fn operation_row(id: &OperationId, document: Value, operation: &Operation) -> Row {
    let (sent, read_at) = match operation.phase {
        OperationPhase::Attempted { sent } => (sent, None),
        OperationPhase::ReconcileOnly { sent, read_at } => (Some(sent), read_at),
        OperationPhase::Committed { .. } | OperationPhase::Dead { .. } => (None, None),
    };
    let (source_id, source_version, error) = match &operation.phase {
        OperationPhase::Committed { source_id, source_version } => {
            (Some(source_id.as_str()), source_version.as_deref(), None)
        }
        OperationPhase::Dead { error } => (None, None, Some(error.as_str())),
        OperationPhase::Attempted { .. } | OperationPhase::ReconcileOnly { .. } => {
            (None, None, None)
        }
    };
    let lease = operation.lease.as_ref();
    let deferral = operation.deferral;
    let values = vec![
        Value::Text(id.shared()),
        document,
        Value::Text(operation.owner.shared()),
        Value::Text(operation.connector.shared()),
        Value::text(operation.op.as_str()),
        Value::text(operation.version.as_str()),
        Value::text(operation.request_digest.to_hex()),
        Value::text(operation.phase.as_str()),
        Value::Int(i64::from(operation.attempts)),
        int_or_null(sent.map(|sent| sent.started_at)),
        int_or_null(sent.map(|sent| sent.until)),
        Value::Int(operation.visibility_delay_ms),
        int_or_null(read_at),
        Value::text_or_null(deferral.map(|deferral| deferral.reason.as_str())),
        int_or_null(deferral.map(|deferral| deferral.not_before)),
        Value::text_or_null(lease.map(|lease| lease.holder.shared())),
        lease.map_or(Value::Null, |lease| lease.token.to_value()),
        int_or_null(lease.map(|lease| lease.expires_at)),
        Value::text_or_null(source_id),
        Value::text_or_null(source_version),
        Value::text_or_null(error),
        Value::Int(operation.sequence),
        int(operation.created_at),
        int(operation.updated_at),
        int_or_null(operation.due_at()),
    ];
    Row::new(Table::Operation, values)
}

const fn int(at: Timestamp) -> Value {
    Value::Int(at.as_millis())
}

fn int_or_null(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, int)
}

pub(super) fn rows(state: &Document, document: &DocumentId) -> Vec<RowKey> {
    let mut rows = Vec::new();
    for (stands, table) in [
        (state.trim.is_some(), Table::EntityTrim),
        (state.sweep_begun_at.is_some(), Table::DocumentSweep),
        (state.watch.is_some(), Table::ProjectionWatch),
        (state.repair.is_some(), Table::ObservationRepair),
    ] {
        rows.extend(stands.then(|| key(table, document)));
    }
    for (id, operation) in &state.operations {
        let [at, of_id, lease] = operation_keys(document, id);
        rows.extend([at, of_id]);
        rows.extend(operation.lease.is_some().then_some(lease));
    }
    rows.extend(state.copy_keys(document));
    rows
}

fn key(table: Table, document: &DocumentId) -> RowKey {
    RowKey::new(table, vec![Value::Text(document.shared())])
}
