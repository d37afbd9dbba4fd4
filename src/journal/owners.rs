//! Which stream a row of a read table belongs to, where a stream's rows are, and how they are read
//! page by page.
//!
//! It knows keys and columns, no state.

use std::collections::BTreeSet;

use super::port::{Compare, Filter, RowQuery, Storage};
use crate::base::{ConnectorName, Digest, DocumentId, OwnerDid, Result, StreamKey};
use crate::domain::{LeaseScope, Row, Table, Value};

/// The stream that the row belongs to; none for a row that no stream can have.
pub(super) fn owner_of(row: &Row) -> Option<StreamKey> {
    let text = |column: usize| row.values.get(column)?.as_text();
    match row.table {
        Table::Lease => {
            let scope = text(0)?;
            if let Some(rest) = scope.strip_prefix("sync:") {
                return StreamKey::from_stream_name(&format!("connector:{rest}"));
            }
            let (document, _) = scope.strip_prefix("operation:")?.split_once('\u{1f}')?;
            DocumentId::new(document).ok().map(StreamKey::Document)
        }
        Table::PendingAuth => Some(StreamKey::Auth(Digest::of(text(0)?.as_bytes()))),
        Table::EntityTrim
        | Table::DocumentSweep
        | Table::ProjectionWatch
        | Table::ObservationRepair => DocumentId::new(text(0)?).ok().map(StreamKey::Document),
        Table::ObservationRecords => DocumentId::new(text(2)?).ok().map(StreamKey::Document),
        Table::Operation | Table::OperationId => {
            DocumentId::new(text(1)?).ok().map(StreamKey::Document)
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

/// The tables of a document's rows but its leases, each with the place of the document's name.
const DOCUMENT_TABLES: [(Table, usize); 7] = [
    (Table::EntityTrim, 0),
    (Table::DocumentSweep, 0),
    (Table::ProjectionWatch, 0),
    (Table::ObservationRecords, 2),
    (Table::ObservationRepair, 0),
    (Table::Operation, 1),
    (Table::OperationId, 1),
];

/// Queries for all rows of a stream, one for each table. A pending authorization's row can't be
/// asked for: its key is a secret that the stream does not hold.
pub(super) fn rows_of(key: &StreamKey) -> Vec<RowQuery> {
    let query = |table: Table, columns: &[usize], values: Vec<Value>| {
        let filters = columns.iter().zip(values);
        let filters =
            filters.map(|(&column, value)| Filter { column, compare: Compare::Equal(value) });
        RowQuery { filters: filters.collect(), ..all_rows(table) }
    };
    match key {
        StreamKey::Auth(_) => Vec::new(),
        StreamKey::Document(document) => {
            let by_name = DOCUMENT_TABLES.map(|(table, column)| {
                query(table, &[column], vec![Value::Text(document.shared())])
            });
            std::iter::once(leases_of(document)).chain(by_name).collect()
        }
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

/// Queries for all rows of these documents, one for each table, with perhaps a lease of another one.
pub(super) fn rows_of_documents(documents: &BTreeSet<DocumentId>) -> Vec<RowQuery> {
    let (Some(first), Some(last)) = (documents.first(), documents.last()) else {
        return Vec::new();
    };
    let (mut leases, until) = (leases_of(first), leases_of(last));
    leases.filters = until.filters;
    let names = documents.iter().map(|document| Value::Text(document.shared())).collect();
    let by_name = Compare::In(names);
    let tables = DOCUMENT_TABLES.map(|(table, column)| RowQuery {
        filters: vec![Filter { column, compare: by_name.clone() }],
        ..all_rows(table)
    });
    std::iter::once(leases).chain(tables).collect()
}

/// The leases of a document's operations: a document's name and what divides it from an
/// operation's begin their scopes, and no name holds the dividing character or a lesser one.
fn leases_of(document: &DocumentId) -> RowQuery {
    let from = Value::text(format!("operation:{document}\u{1f}"));
    let behind = Value::text(format!("operation:{document}\u{20}"));
    RowQuery {
        filters: vec![Filter { column: 0, compare: Compare::Less(behind) }],
        after: Some(vec![from]),
        ..all_rows(Table::Lease)
    }
}

/// A query for all rows of a table, in key order.
pub(super) fn all_rows(table: Table) -> RowQuery {
    let order = table.spec().key.to_vec();
    RowQuery { table, filters: Vec::new(), order, after: None, limit: page_rows(table) }
}

/// Rows read at once: few queries, and little memory even where each row holds a large value.
const fn page_rows(table: Table) -> u32 {
    if matches!(table, Table::ObservationRecords) { 16 } else { 256 }
}

/// A walk over the rows of a query, page by page.
pub(super) struct RowPages {
    query: RowQuery,
    is_over: bool,
}

impl RowPages {
    pub(super) const fn new(query: RowQuery) -> Self {
        Self { query, is_over: false }
    }

    /// No row is left.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next page, never an empty one.
    pub(super) async fn next(&mut self, storage: &dyn Storage) -> Result<Option<Vec<Row>>> {
        if self.is_over {
            return Ok(None);
        }
        let page = storage.rows(&self.query).await?;
        self.is_over = u64::from(self.query.limit) > page.len() as u64;
        let Some(last) = page.last() else { return Ok(None) };
        self.query.after =
            Some(self.query.order.iter().map(|&column| last.values[column].clone()).collect());
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{OperationId, Result};

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
                "document_id" | "id" => Value::text("d"),
                "scope" if table == Table::Lease => scope.row_key().values.remove(0),
                _ => Value::text("x"),
            };
            let columns = table.spec().columns.iter();
            let row = Row::new(table, columns.map(|of| column(of.name)).collect());
            let expected = match table {
                Table::PendingAuth => StreamKey::Auth(Digest::of(b"x")),
                Table::EntityTrim
                | Table::DocumentSweep
                | Table::Operation
                | Table::OperationId
                | Table::ObservationRecords
                | Table::ObservationRepair
                | Table::ProjectionWatch => document.clone(),
                _ => connector.clone(),
            };
            assert_eq!(owner_of(&row), Some(expected.clone()), "{table:?}");
            let queries = rows_of(&expected);
            let found = queries.iter().find(|query| query.table == table);
            assert_eq!(found.is_some(), table != Table::PendingAuth, "{table:?}");
            for Filter { column, compare } in found.into_iter().flat_map(|query| &query.filters) {
                assert_eq!(*compare, Compare::Equal(row.values[*column].clone()), "{table:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn many_documents_are_asked_for_in_every_table_that_one_is_asked_for_in() -> Result<()> {
        let names = ["d", "d 1", "e"];
        let documents = names.map(DocumentId::new).into_iter().collect::<Result<BTreeSet<_>>>()?;
        let of_all = rows_of_documents(&documents);
        for document in &documents {
            for of_one in rows_of(&StreamKey::Document(document.clone())) {
                let found = of_all.iter().find(|query| query.table == of_one.table);
                let Some(found) = found else { panic!("{:?}", of_one.table) };
                for filter in &of_one.filters {
                    let asked =
                        found.filters.iter().any(|all| match (&filter.compare, &all.compare) {
                            (Compare::Equal(one), Compare::In(all)) => all.contains(one),
                            (Compare::Less(one), Compare::Less(all)) => one <= all,
                            _ => false,
                        });
                    assert!(asked && found.after <= of_one.after, "{:?}", of_one.table);
                }
            }
        }
        assert!(rows_of_documents(&BTreeSet::new()).is_empty());
        Ok(())
    }

    #[test]
    fn the_lease_of_an_operation_is_among_the_rows_of_its_document_alone() -> Result<()> {
        let (before, of, behind) = ("d", "d 1", "d 2");
        let operation_id = OperationId::new("\u{10ffff}")?;
        for document in [before, of, behind] {
            let document_id = DocumentId::new(document)?;
            let scope = LeaseScope::Operation { document_id, operation_id: operation_id.clone() };
            let [Value::Text(text)] = &scope.row_key().values[..] else { return Ok(()) };
            let row = Row::new(Table::Lease, vec![Value::Text(text.clone()); 4]);
            assert_eq!(owner_of(&row), Some(StreamKey::Document(DocumentId::new(document)?)));
            let query = leases_of(&DocumentId::new(of)?);
            let after = query.after.iter().flatten().all(|after| *after < row.values[0]);
            let held = query.filters.iter().all(|filter| match &filter.compare {
                Compare::Less(bound) => row.values[filter.column] < *bound,
                _ => false,
            });
            assert_eq!(after && held, document == of, "{document}");
        }
        Ok(())
    }
}
