//! Pages of rows: filters, orders and keyset cursors over plain values.
//!
//! NULL equals NULL alone and is less than nothing; in an order it comes first.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::Tables;
use crate::base::{DocumentId, OwnerDid, Result};
use crate::domain::{
    DueRow, DueSource, DueSpec, OPERATION_DOCUMENT_COLUMN, OPERATION_DUE_COLUMN, Row, RowKey,
    Table, Value,
};
use crate::journal::port::{Compare, DueCandidates, DuePage, Filter, RowQuery};
use crate::records::OBSERVATION_TYPE;

impl Tables {
    fn table(&self, table: Table) -> impl Iterator<Item = &Row> {
        let first = RowKey::new(table, Vec::new());
        let rows = self.rows.range(first..).take_while(move |(key, _)| key.table == table);
        rows.map(|(_, row)| row)
    }

    pub(super) fn due(&self, page: &DuePage) -> Vec<DueRow> {
        let rows = self.of_sources(page.sources).filter(|row| row.due_at <= page.until);
        let mut rows: Vec<_> =
            rows.filter(|row| page.after.as_ref().is_none_or(|after| row > after)).collect();
        rows.sort();
        rows.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        rows
    }

    /// The rows of these sources, in no order.
    pub(super) fn of_sources(&self, sources: &[DueSource]) -> impl Iterator<Item = DueRow> {
        let busy = self.busy_documents();
        sources.iter().flat_map(move |&source| {
            let spec = source.spec();
            let newest = self.newest(spec);
            let rows = self.table(spec.table).filter(|row| {
                let is_newest = newest
                    .get(&place(row, spec.newest_of))
                    .is_none_or(|at| &row.values[spec.due] >= *at);
                is_newest
                    && spec.yields_for.is_none_or(|document| !busy.contains(&row.values[document]))
            });
            rows.filter_map(|row| DueRow::of(source, row)).collect::<Vec<_>>()
        })
    }

    /// The newest time of the rows that are the same in the source's columns.
    fn newest(&self, spec: &DueSpec) -> BTreeMap<Vec<&Value>, &Value> {
        let mut newest = BTreeMap::new();
        if !spec.newest_of.is_empty() {
            for row in self.table(spec.table) {
                let at = newest.entry(place(row, spec.newest_of)).or_insert(&row.values[spec.due]);
                *at = (*at).max(&row.values[spec.due]);
            }
        }
        newest
    }

    /// The documents that have an unfinished operation.
    fn busy_documents(&self) -> BTreeSet<&Value> {
        let operations = self.table(Table::Operation);
        let unfinished = operations.filter(|row| row.values[OPERATION_DUE_COLUMN] != Value::Null);
        unfinished.map(|row| &row.values[OPERATION_DOCUMENT_COLUMN]).collect()
    }

    pub(super) fn observed(
        &self,
        after: Option<&(OwnerDid, DocumentId)>,
        limit: u32,
    ) -> Result<Vec<(OwnerDid, DocumentId)>> {
        let names = self.table(Table::ObservationRecords).filter_map(|row| {
            let [kind, owner, id, ..] = row.values.as_slice() else { return None };
            let is_observation = kind.as_text() == Some(OBSERVATION_TYPE);
            is_observation.then_some((owner.as_text()?, id.as_text()?))
        });
        let behind: BTreeSet<(&str, &str)> = names
            .filter(|(owner, id)| {
                after.is_none_or(|after| (*owner, *id) > (after.0.as_str(), after.1.as_str()))
            })
            .collect();
        let page = behind.into_iter().take(usize::try_from(limit).unwrap_or(usize::MAX));
        page.map(|(owner, id)| Ok((OwnerDid::new(owner)?, DocumentId::new(id)?))).collect()
    }

    pub(super) fn due_candidates(&self, page: &DueCandidates) -> Vec<Row> {
        let names = [Value::Text(page.owner.shared()), Value::Text(page.connector.shared())];
        let mut found: Vec<&Row> = self
            .of_sources(&[DueSource::SweepCandidate])
            .filter(|row| row.due_at <= page.until && row.names.starts_with(&names))
            .filter_map(|mut row| {
                row.names.truncate(Table::SweepCandidate.spec().key.len());
                self.rows.get(&RowKey::new(Table::SweepCandidate, row.names))
            })
            .collect();
        let order = [DueSource::SweepCandidate.spec().due, 4, 2, 3];
        found.sort_by(|one, other| place(one, &order).cmp(&place(other, &order)));
        found.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        found.into_iter().cloned().collect()
    }

    pub(super) fn query(&self, query: &RowQuery) -> Vec<Row> {
        let mut found: Vec<(Vec<&Value>, &Row)> = self
            .table(query.table)
            .filter(|row| query.filters.iter().all(|filter| holds(filter, row)))
            .map(|row| (place(row, &query.order), row))
            .filter(|(place, _)| is_behind(place, query.after.as_deref()))
            .collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        found.into_iter().take(limit).map(|(_, row)| row.clone()).collect()
    }
}

/// The row's place in the order.
fn place<'a>(row: &'a Row, order: &[usize]) -> Vec<&'a Value> {
    order.iter().filter_map(|&at| row.values.get(at)).collect()
}

fn is_behind(place: &[&Value], after: Option<&[Value]>) -> bool {
    after.is_none_or(|after| place.iter().copied().cmp(after).is_gt())
}

fn holds(filter: &Filter, row: &Row) -> bool {
    let Some(value) = row.values.get(filter.column) else { return false };
    let is_ordered = |bound: &Value| *value != Value::Null && *bound != Value::Null;
    match &filter.compare {
        Compare::Equal(wanted) => value == wanted,
        Compare::In(wanted) => *value != Value::Null && wanted.contains(value),
        Compare::Less(bound) => is_ordered(bound) && value < bound,
        Compare::AtMost(bound) => is_ordered(bound) && value <= bound,
    }
}
