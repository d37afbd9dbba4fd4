//! Which stream a row of a read table belongs to, and where a stream's rows are.
//!
//! It knows keys and columns, no state.

use super::port::{Compare, Filter, RowQuery};
use crate::base::{ConnectorName, Digest, DocumentId, OwnerDid, StreamKey};
use crate::domain::{LeaseScope, Row, Table, Value};

/// The stream that the row belongs to; none for a row that no stream can have.
pub(super) fn owner_of(row: &Row) -> Option<StreamKey> {
    let text = |column: usize| row.values.get(column)?.as_text();
    match row.table {
        Table::Lease => {
            let rest = text(0)?.strip_prefix("sync:")?;
            StreamKey::from_stream_name(&format!("connector:{rest}"))
        }
        Table::PendingAuth => Some(StreamKey::Auth(Digest::of(text(0)?.as_bytes()))),
        Table::EntityTrim | Table::DocumentSweep => {
            DocumentId::new(text(0)?).ok().map(StreamKey::Document)
        }
        table => {
            let [owner, connector] = connector_columns(table);
            let owner = OwnerDid::new(text(owner)?).ok()?;
            Some(StreamKey::Connector(owner, ConnectorName::new(text(connector)?).ok()?))
        }
    }
}

/// The places of owner and connector in a table of connectors' rows.
const fn connector_columns(table: Table) -> [usize; 2] {
    if matches!(table, Table::SyncState) { [1, 0] } else { [0, 1] }
}

/// Queries for all rows of a stream, one for each table. A pending authorization's row can't be
/// asked for: its key is a secret that the stream does not hold.
pub(super) fn rows_of(key: &StreamKey, limit: u32) -> Vec<RowQuery> {
    let query = |table: Table, columns: &[usize], values: Vec<Value>| {
        let filters = columns.iter().zip(values);
        let filters =
            filters.map(|(&column, value)| Filter { column, compare: Compare::Equal(value) });
        RowQuery { filters: filters.collect(), ..all_rows(table, limit) }
    };
    match key {
        StreamKey::Auth(_) => Vec::new(),
        StreamKey::Document(document) => [Table::EntityTrim, Table::DocumentSweep]
            .map(|table| query(table, &[0], vec![Value::Text(document.shared())]))
            .into(),
        StreamKey::Connector(owner, connector) => {
            let scope = LeaseScope::Sync { owner: owner.clone(), connector: connector.clone() };
            let tables = [
                Table::SyncState,
                Table::SweepReceipt,
                Table::ReceiptPage,
                Table::SweepCandidate,
                Table::SweepCheckpoint,
                Table::OwedSweep,
                Table::Forgetting,
            ];
            let by_names = tables.into_iter().map(|table| {
                let values = vec![Value::Text(owner.shared()), Value::Text(connector.shared())];
                query(table, &connector_columns(table), values)
            });
            let lease = query(Table::Lease, &[0], scope.row_key().values);
            std::iter::once(lease).chain(by_names).collect()
        }
    }
}

/// A query for all rows of a table, in key order.
pub(super) fn all_rows(table: Table, limit: u32) -> RowQuery {
    let order = table.spec().key.to_vec();
    RowQuery { table, filters: Vec::new(), order, after: None, limit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Result;

    #[test]
    fn every_table_has_an_owner_and_is_among_its_rows() -> Result<()> {
        let (owner, connector) = (OwnerDid::new("did:web:o")?, ConnectorName::new("c")?);
        let scope = LeaseScope::Sync { owner: owner.clone(), connector: connector.clone() };
        let connector = StreamKey::Connector(owner, connector);
        let document = StreamKey::Document(DocumentId::new("d")?);
        for table in Table::ALL {
            let column = |name: &str| match name {
                "owner_did" => Value::text("did:web:o"),
                "connector_name" => Value::text("c"),
                "document_id" => Value::text("d"),
                "scope" if table == Table::Lease => scope.row_key().values.remove(0),
                _ => Value::text("x"),
            };
            let columns = table.spec().columns.iter();
            let row = Row::new(table, columns.map(|of| column(of.name)).collect());
            let expected = match table {
                Table::PendingAuth => StreamKey::Auth(Digest::of(b"x")),
                Table::EntityTrim | Table::DocumentSweep => document.clone(),
                _ => connector.clone(),
            };
            assert_eq!(owner_of(&row), Some(expected.clone()), "{table:?}");
            let queries = rows_of(&expected, 1);
            let found = queries.iter().find(|query| query.table == table);
            assert_eq!(found.is_some(), table != Table::PendingAuth, "{table:?}");
            for Filter { column, compare } in found.into_iter().flat_map(|query| &query.filters) {
                assert_eq!(*compare, Compare::Equal(row.values[*column].clone()), "{table:?}");
            }
        }
        Ok(())
    }
}
