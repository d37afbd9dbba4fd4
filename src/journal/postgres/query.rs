//! A [`RowQuery`] as SQL. It knows no connection.

use std::fmt::Write as _;

use super::fault::storage_error;
use super::statement::{NULLABLE, Statement, push_names};
use crate::base::{Error, Result};
use crate::domain::{Column, TableSpec, Value};
use crate::journal::{Compare, Filter, RowQuery};

/// The SQL of a page of rows.
pub(super) fn build(query: &RowQuery) -> Result<Statement> {
    let spec = query.table.spec();
    let mut built = Statement::new("SELECT ");
    push_names(&mut built.sql, spec.columns.iter());
    let _ = write!(built.sql, " FROM {} WHERE TRUE", spec.name);
    for filter in &query.filters {
        add_filter(&mut built, column_of(spec, filter.column)?, filter)?;
    }
    if let Some(after) = &query.after {
        add_after(&mut built, spec, &query.order, after)?;
    }
    for (at, &column) in query.order.iter().enumerate() {
        let name = column_of(spec, column)?.name;
        built.push(if at == 0 { " ORDER BY " } else { ", " });
        built.push(name);
        if NULLABLE.contains(&name) && !spec.key.contains(&column) {
            built.push(" NULLS FIRST");
        }
    }
    built.push(" LIMIT ");
    bound(built.bind(i64::from(query.limit)))?;
    Ok(built)
}

/// The store's error for a value that could not be bound.
pub(super) fn bound<T>(result: sqlx::Result<T>) -> Result<T> {
    result.map_err(|error| storage_error(error, "binding a value"))
}

fn column_of(spec: &TableSpec, at: usize) -> Result<&'static Column> {
    spec.columns.get(at).ok_or_else(|| {
        Error::invalid("query", format!("expected a column of {}, got place {at}", spec.name))
    })
}

fn add_filter(built: &mut Statement, column: &Column, filter: &Filter) -> Result<()> {
    let name = column.name;
    built.push(" AND ");
    let (sign, value) = match &filter.compare {
        Compare::Equal(Value::Null) => {
            let _ = write!(built.sql, "{name} IS NULL");
            return Ok(());
        }
        Compare::In(values) => {
            // A NULL equals nothing in a list.
            let _ = write!(built.sql, "{name} = ANY (");
            let values = values.iter().filter(|value| **value != Value::Null).map(Some);
            bound(built.bind_column(column.kind, values))?;
            built.push(")");
            return Ok(());
        }
        Compare::Equal(value) => ("=", value),
        Compare::Less(value) => ("<", value),
        Compare::AtMost(value) => ("<=", value),
    };
    let _ = write!(built.sql, "{name} {sign} ");
    bound(built.bind_value(column.kind, value))
}

fn add_after(
    built: &mut Statement,
    spec: &TableSpec,
    order: &[usize],
    after: &[Value],
) -> Result<()> {
    if after.len() != order.len() || after.is_empty() {
        let reason = format!("expected {} values to go on after, got {}", order.len(), after.len());
        return Err(Error::invalid("after", reason));
    }
    built.push(" AND (");
    for (at, &column) in order.iter().enumerate() {
        built.push(if at == 0 { "" } else { ", " });
        built.push(column_of(spec, column)?.name);
    }
    built.push(") > (");
    for (at, (&column, value)) in order.iter().zip(after).enumerate() {
        built.push(if at == 0 { "" } else { ", " });
        bound(built.bind_value(column_of(spec, column)?.kind, value))?;
    }
    built.push(")");
    Ok(())
}
