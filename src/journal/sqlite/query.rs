//! A [`RowQuery`] as SQL. It knows no connection.

use std::fmt::Write as _;

use sqlx::sqlite::SqliteArguments;

use super::fault::storage_error;
use super::script::add_value;
use super::statements::{write_list, write_names};
use crate::base::{Error, Result};
use crate::domain::{Column, TableSpec, Value};
use crate::journal::{Compare, Filter, RowQuery};

/// Most values of one list: with the rest of a query far below SQLite's 32,766 variables.
const MAX_LIST_VALUES: usize = 16_384;

/// A query's text and its values.
pub(super) struct Built {
    pub(super) sql: String,
    pub(super) arguments: SqliteArguments,
}

impl Built {
    pub(super) fn new(sql: &str) -> Self {
        Self { sql: sql.to_owned(), arguments: SqliteArguments::default() }
    }

    pub(super) fn bind(&mut self, value: &Value) -> Result<()> {
        add_value(value, &mut self.arguments)
            .map_err(|error| storage_error(error, "binding a value"))
    }
}

/// The SQL of a page of rows.
pub(super) fn build(query: &RowQuery) -> Result<Built> {
    let spec = query.table.spec();
    let mut built = Built::new("SELECT ");
    write_names(&mut built.sql, spec.columns.iter());
    let _ = write!(built.sql, " FROM {} WHERE 1", spec.name);
    for filter in &query.filters {
        add_filter(&mut built, spec, filter)?;
    }
    if let Some(after) = &query.after {
        add_after(&mut built, spec, &query.order, after)?;
    }
    for (at, &column) in query.order.iter().enumerate() {
        built.sql.push_str(if at == 0 { " ORDER BY " } else { ", " });
        built.sql.push_str(column_of(spec, column)?.name);
    }
    built.sql.push_str(" LIMIT ?");
    built.bind(&Value::Int(query.limit.into()))?;
    Ok(built)
}

fn column_of(spec: &TableSpec, at: usize) -> Result<&'static Column> {
    spec.columns.get(at).ok_or_else(|| {
        Error::invalid("query", format!("expected a column of {}, got place {at}", spec.name))
    })
}

fn add_filter(built: &mut Built, spec: &TableSpec, filter: &Filter) -> Result<()> {
    let name = column_of(spec, filter.column)?.name;
    built.sql.push_str(" AND ");
    match &filter.compare {
        Compare::Equal(Value::Null) => {
            let _ = write!(built.sql, "{name} IS NULL");
            Ok(())
        }
        Compare::Equal(value) => {
            let _ = write!(built.sql, "{name} = ?");
            built.bind(value)
        }
        Compare::Less(value) => {
            let _ = write!(built.sql, "{name} < ?");
            built.bind(value)
        }
        Compare::AtMost(value) => {
            let _ = write!(built.sql, "{name} <= ?");
            built.bind(value)
        }
        Compare::In(values) => add_list(built, name, values),
    }
}

fn add_list(built: &mut Built, name: &str, values: &[Value]) -> Result<()> {
    if values.len() > MAX_LIST_VALUES {
        let reason = format!("expected at most {MAX_LIST_VALUES} values, got {}", values.len());
        return Err(Error::invalid("query", reason));
    }
    let set: Vec<&Value> = values.iter().filter(|value| **value != Value::Null).collect();
    let Some(last) = set.last() else {
        built.sql.push_str(if values.is_empty() { "0" } else { name });
        built.sql.push_str(if values.is_empty() { "" } else { " IS NULL" });
        return Ok(());
    };
    // The last value is repeated up to a power of two, so that prepared texts are found again.
    let places = set.len().next_power_of_two();
    let _ = write!(built.sql, "({name} IN ");
    write_list(&mut built.sql, places);
    if set.len() < values.len() {
        let _ = write!(built.sql, " OR {name} IS NULL");
    }
    built.sql.push(')');
    let padding = std::iter::repeat_n(last, places - set.len());
    set.iter().chain(padding).try_for_each(|value| built.bind(value))
}

fn add_after(built: &mut Built, spec: &TableSpec, order: &[usize], after: &[Value]) -> Result<()> {
    if after.len() != order.len() || after.is_empty() {
        let reason = format!("expected {} values to go on after, got {}", order.len(), after.len());
        return Err(Error::invalid("after", reason));
    }
    built.sql.push_str(" AND (");
    for (at, &column) in order.iter().enumerate() {
        built.sql.push_str(if at == 0 { "" } else { ", " });
        built.sql.push_str(column_of(spec, column)?.name);
    }
    built.sql.push_str(") > ");
    write_list(&mut built.sql, order.len());
    after.iter().try_for_each(|value| built.bind(value))
}
