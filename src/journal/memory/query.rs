//! Pages of rows: filters, orders and keyset cursors over plain values.
//!
//! NULL equals NULL alone and is less than nothing; in an order it comes first. A query whose filters
//! name the first columns of the key reads no other rows than those.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

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
        let names = vec![Value::Text(page.owner.shared()), Value::Text(page.connector.shared())];
        let busy = self.busy_documents();
        let mut found: Vec<&Row> = self
            .beginning_with(Table::SweepCandidate, names)
            .filter(|row| {
                let due = DueRow::of(DueSource::SweepCandidate, row);
                due.is_some_and(|due| due.due_at <= page.until)
                    && DueSource::SweepCandidate
                        .spec()
                        .yields_for
                        .is_none_or(|document| !busy.contains(&row.values[document]))
            })
            .collect();
        let order = [DueSource::SweepCandidate.spec().due, 4, 2, 3];
        found.sort_by(|one, other| place(one, &order).cmp(&place(other, &order)));
        found.truncate(usize::try_from(page.limit).unwrap_or(usize::MAX));
        found.into_iter().cloned().collect()
    }

    /// The rows of a table whose keys begin with these values, in the order of their keys.
    fn beginning_with(&self, table: Table, names: Vec<Value>) -> impl Iterator<Item = &Row> {
        let first = RowKey::new(table, names.clone());
        let rows = self.rows.range(first..);
        let own =
            rows.take_while(move |(key, _)| key.table == table && key.values.starts_with(&names));
        own.map(|(_, row)| row)
    }

    pub(super) fn query(&self, query: &RowQuery) -> Vec<Row> {
        let span = Span::of(query);
        let rows = self.rows.range((span.from, Bound::Unbounded));
        let rows = rows.take_while(|(key, _)| {
            key.table == query.table && span.ends.iter().all(|end| holds_key(end, key))
        });
        let mut found = rows
            .map(|(_, row)| row)
            .filter(|row| query.filters.iter().all(|filter| holds(filter, row)))
            .map(|row| (place(row, &query.order), row))
            .filter(|(place, _)| is_behind(place, query.after.as_deref()));
        let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
        if query.order == query.table.spec().key {
            return found.take(limit).map(|(_, row)| row.clone()).collect();
        }
        let mut found: Vec<_> = found.by_ref().collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.into_iter().take(limit).map(|(_, row)| row.clone()).collect()
    }
}

/// Where in the order of the keys the rows of a query can be.
struct Span<'a> {
    from: Bound<RowKey>,
    /// The rows end where one of these does not hold.
    ends: Vec<End<'a>>,
}

/// What a column of the key is at most, or is.
enum End<'a> {
    Is(usize, &'a Value),
    AtMost(usize, &'a Value),
}

impl<'a> Span<'a> {
    fn of(query: &'a RowQuery) -> Self {
        let key = query.table.spec().key;
        let (mut names, mut ends) = (Vec::new(), Vec::new());
        for (at, column) in key.iter().enumerate() {
            let mut filters = query.filters.iter().filter(|filter| filter.column == *column);
            match filters.next().map(|filter| &filter.compare) {
                Some(Compare::Equal(value)) => {
                    names.push(value.clone());
                    ends.push(End::Is(at, value));
                    continue;
                }
                Some(Compare::In(values)) => {
                    names.extend(values.iter().min().cloned());
                    ends.extend(values.iter().max().map(|most| End::AtMost(at, most)));
                }
                Some(Compare::Less(most) | Compare::AtMost(most)) => {
                    ends.push(End::AtMost(at, most));
                }
                None => {}
            }
            break;
        }
        let first = RowKey::new(query.table, names);
        let behind = query.after.as_ref().filter(|_| query.order == key);
        let behind = behind.map(|after| RowKey::new(query.table, after.clone()));
        let from = match behind.filter(|behind| *behind >= first) {
            Some(behind) => Bound::Excluded(behind),
            None => Bound::Included(first),
        };
        Self { from, ends }
    }
}

fn holds_key(end: &End<'_>, key: &RowKey) -> bool {
    match end {
        End::Is(at, value) => key.values.get(*at) == Some(value),
        End::AtMost(at, most) => key.values.get(*at) <= Some(most),
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
