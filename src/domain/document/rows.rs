//! The rows that a document's state stands in.

use super::event::DocumentEvent;
use super::state::Document;
use crate::base::DocumentId;
use crate::domain::{Row, RowKey, Table, Value};

pub(super) fn touched(document: &DocumentId, event: &DocumentEvent, rows: &mut Vec<RowKey>) {
    let tables: &[Table] = match event {
        DocumentEvent::EntityTrimSet(_) | DocumentEvent::EntityTrimCleared => &[Table::EntityTrim],
        DocumentEvent::DocumentSweepBegun(_) | DocumentEvent::DocumentSweepAbandoned => {
            &[Table::DocumentSweep]
        }
        DocumentEvent::Swept => &[Table::EntityTrim, Table::DocumentSweep],
    };
    rows.extend(tables.iter().map(|&table| key(table, document)));
}

pub(super) fn row(state: &Document, document: &DocumentId, table: Table) -> Option<Row> {
    let id = Value::Text(document.shared());
    match table {
        Table::EntityTrim => state.trim.as_ref().map(|trim| {
            let values = vec![
                id,
                Value::Text(trim.owner.shared()),
                Value::Text(trim.connector.shared()),
                Value::Text(trim.trimmed_fields.shared()),
                Value::Int(trim.updated_at.as_millis()),
            ];
            Row::new(table, values)
        }),
        Table::DocumentSweep => {
            state.sweep_begun_at.map(|at| Row::new(table, vec![id, Value::Int(at.as_millis())]))
        }
        _ => None,
    }
}

pub(super) fn rows(state: &Document, document: &DocumentId) -> Vec<RowKey> {
    let trim = state.trim.iter().map(|_| Table::EntityTrim);
    let sweep = state.sweep_begun_at.iter().map(|_| Table::DocumentSweep);
    trim.chain(sweep).map(|table| key(table, document)).collect()
}

fn key(table: Table, document: &DocumentId) -> RowKey {
    RowKey::new(table, vec![Value::Text(document.shared())])
}
