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

/// Before each text of a list that is written out, since no key holds it: of all control characters
/// the names of streams have U+001F alone.
const BEFORE_TEXT: u8 = 0x1e;

/// A statement. Without `Debug`, as a value may be a secret.
#[derive(Clone)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) arguments: PgArguments,
    /// Lists stand in the text.
    writes_out: bool,
}

impl Statement {
    pub(super) fn new(sql: &str) -> Self {
        Self { sql: sql.to_owned(), arguments: PgArguments::default(), writes_out: false }
    }

    /// One whose lists are written out in its text, without a NULL: values beside a text go with one
    /// statement only, but many texts go to the server in one round trip. They are written as
    /// hexadecimal digits, out of which no value breaks. A server may log a text, so none of them may be
    /// a secret.
    pub(super) fn written_out(sql: &str) -> Self {
        Self { writes_out: true, ..Self::new(sql) }
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
            ColumnType::Text => self.bind_texts(values.map(|value| value?.as_text()).collect()),
            ColumnType::Int => self.bind_ints(values.map(|value| value?.as_int()).collect()),
            ColumnType::Blob => self.bind_blobs(values.map(|value| blob(value?)).collect()),
        }
    }

    /// Adds an array of texts.
    pub(super) fn bind_texts(&mut self, texts: Vec<Option<&str>>) -> sqlx::Result<()> {
        if !self.writes_out {
            return self.bind(texts);
        }
        // Split between them, one empty text would be no text: so there is one more, before the first.
        self.push("(string_to_array(convert_from(decode('");
        for text in texts.into_iter().flatten() {
            self.push_hex(&[BEFORE_TEXT]);
            self.push_hex(text.as_bytes());
        }
        let _ = write!(self.sql, "', 'hex'), 'UTF8'), chr({BEFORE_TEXT})))[2:]");
        Ok(())
    }

    /// Adds an array of integers.
    pub(super) fn bind_ints(&mut self, numbers: Vec<Option<i64>>) -> sqlx::Result<()> {
        if !self.writes_out {
            return self.bind(numbers);
        }
        self.push("'{");
        for (at, number) in numbers.into_iter().flatten().enumerate() {
            let _ = write!(self.sql, "{}{number}", if at == 0 { "" } else { "," });
        }
        self.push("}'::bigint[]");
        Ok(())
    }

    /// Adds an array of bytes.
    pub(super) fn bind_blobs(&mut self, blobs: Vec<Option<&[u8]>>) -> sqlx::Result<()> {
        if !self.writes_out {
            return self.bind(blobs);
        }
        self.push("ARRAY(SELECT decode(v, 'hex') FROM unnest(string_to_array('");
        for (at, blob) in blobs.into_iter().flatten().enumerate() {
            self.push(if at == 0 { "" } else { "," });
            self.push_hex(blob);
        }
        self.push("', ',')) AS v)");
        Ok(())
    }

    fn push_hex(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                self.sql.push(char::from(DIGITS[usize::from(digit)]));
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

    /// Adds `SELECT …, more FROM … WHERE key = ANY (…)`.
    pub(super) fn push_rows(
        &mut self,
        table: Table,
        keys: &[&RowKey],
        more: &str,
    ) -> sqlx::Result<()> {
        self.push("SELECT ");
        push_names(&mut self.sql, table.spec().columns.iter());
        let _ = write!(self.sql, "{more} FROM {} WHERE ", table.spec().name);
        self.push_key_match(table, keys)
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
