//! A statement's text and its values, and the parts that many statements share. It knows the
//! tables, not what is asked of them.

use std::fmt::Write as _;

use sqlx::postgres::PgArguments;
use sqlx::{Arguments as _, Encode, Postgres, Type};

use crate::domain::{Column, ColumnType, RowKey, Table, Value};

/// Columns that may be NULL, by their names: an order has to say where these come.
pub(super) const NULLABLE: &[&str] = &[
    "checkpoint",
    "committed_at",
    "controller_wrappable_did",
    "defer_reason",
    "due_at",
    "error",
    "expected_digest",
    "incarnation",
    "last_error",
    "last_fetch_hlc",
    "lease_expires_at",
    "lease_holder",
    "lease_token",
    "not_before",
    "owner_wrappable_did",
    "payload",
    "predicate",
    "reconcile_read_at",
    "recovery",
    "send_started_at",
    "send_until",
    "source_id",
    "source_version",
    "value_digest",
];

/// A statement. Without `Debug`, as a value may be a secret.
#[derive(Clone)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) arguments: PgArguments,
}

impl Statement {
    pub(super) fn new(sql: &str) -> Self {
        Self { sql: sql.to_owned(), arguments: PgArguments::default() }
    }

    pub(super) fn push(&mut self, sql: &str) {
        self.sql.push_str(sql);
    }

    /// Adds a value without a place: the text names it by its number already.
    pub(super) fn add<'t, T>(&mut self, value: T) -> sqlx::Result<()>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.arguments.add(value).map_err(sqlx::Error::Encode)
    }

    /// Adds a value and its place.
    pub(super) fn bind<'t, T>(&mut self, value: T) -> sqlx::Result<()>
    where
        T: Encode<'t, Postgres> + Type<Postgres>,
    {
        self.add(value)?;
        let _ = write!(self.sql, "${}", self.arguments.len());
        Ok(())
    }

    /// Adds a value of a column of this kind.
    pub(super) fn bind_value(&mut self, kind: ColumnType, value: &Value) -> sqlx::Result<()> {
        match kind {
            ColumnType::Text => self.bind(value.as_text()),
            ColumnType::Int => self.bind(value.as_int()),
            ColumnType::Blob => self.bind(blob(value)),
        }
    }

    /// Adds an array of one column's values.
    pub(super) fn bind_column<'v>(
        &mut self,
        kind: ColumnType,
        values: impl Iterator<Item = Option<&'v Value>>,
    ) -> sqlx::Result<()> {
        match kind {
            ColumnType::Text => {
                self.bind(values.map(|value| value?.as_text()).collect::<Vec<Option<&str>>>())
            }
            ColumnType::Int => {
                self.bind(values.map(|value| value?.as_int()).collect::<Vec<Option<i64>>>())
            }
            ColumnType::Blob => {
                self.bind(values.map(|value| blob(value?)).collect::<Vec<Option<&[u8]>>>())
            }
        }
    }

    /// `key = ANY (…)`, for keys of one or many columns.
    pub(super) fn push_key_match(&mut self, table: Table, keys: &[&RowKey]) -> sqlx::Result<()> {
        let spec = table.spec();
        let column = |at: usize| &spec.columns[at];
        let values = |place: usize| keys.iter().map(move |key| key.values.get(place));
        if let [key] = spec.key {
            let _ = write!(self.sql, "{} = ANY (", column(*key).name);
            self.bind_column(column(*key).kind, values(0))?;
            self.push(")");
            return Ok(());
        }
        self.push("(");
        push_names(&mut self.sql, spec.key.iter().map(|&at| column(at)));
        self.push(") IN (SELECT * FROM unnest(");
        for (place, &at) in spec.key.iter().enumerate() {
            self.push(if place == 0 { "" } else { ", " });
            self.bind_column(column(at).kind, values(place))?;
        }
        self.push("))");
        Ok(())
    }

    /// `SELECT … FROM … WHERE key = ANY (…)`.
    pub(super) fn of_rows(table: Table, keys: &[&RowKey]) -> sqlx::Result<Self> {
        let mut statement = Self::new("SELECT ");
        push_names(&mut statement.sql, table.spec().columns.iter());
        let _ = write!(statement.sql, " FROM {} WHERE ", table.spec().name);
        statement.push_key_match(table, keys)?;
        Ok(statement)
    }
}

fn blob(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Blob(blob) => Some(blob),
        _ => None,
    }
}

/// Column names with commas between them.
pub(super) fn push_names<'a>(sql: &mut String, columns: impl Iterator<Item = &'a Column>) {
    for (at, column) in columns.enumerate() {
        sql.push_str(if at == 0 { "" } else { ", " });
        sql.push_str(column.name);
    }
}
