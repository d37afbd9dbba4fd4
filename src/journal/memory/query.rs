//! Pages of rows: filters, orders and keyset cursors over plain values.
//!
//! NULL equals NULL alone and is less than nothing; in an order it comes first.

use super::tables::Tables;
use crate::domain::{Row, RowKey, Value};
use crate::journal::port::{Compare, Filter, RowQuery};

impl Tables {
    pub(super) fn query(&self, query: &RowQuery) -> Vec<Row> {
        let first = RowKey::new(query.table, Vec::new());
        let table = self.rows.range(first..).take_while(|(key, _)| key.table == query.table);
        let mut found: Vec<(Vec<&Value>, &Row)> = table
            .map(|(_, row)| row)
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
