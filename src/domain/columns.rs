//! The columns of a row read back as what they stand for. A value that no column of its kind holds is
//! named by its column, never shown.

use super::tables::{Row, RowKey, Table, Value};
use crate::base::{Error, Json, Timestamp};
use crate::records::Hlc;

/// A column that does not hold what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadColumn {
    /// The table.
    pub table: Table,
    /// The column's place.
    pub at: usize,
}

impl BadColumn {
    /// The column's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.table.spec().columns.get(self.at).map_or("?", |column| column.name)
    }
}

/// A row of a database that is to be adopted, and that no state can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The row.
    pub row: RowKey,
    /// The name of the column that does not fit.
    pub column: &'static str,
}

impl Unfit {
    /// The row does not fit for what it holds at `column`.
    #[must_use]
    pub fn new(row: &Row, column: usize) -> Self {
        BadColumn { table: row.table, at: column }.of(row)
    }
}

impl BadColumn {
    /// It is this row's.
    #[must_use]
    pub fn of(self, row: &Row) -> Unfit {
        Unfit { row: row.key(), column: self.name() }
    }
}

/// In a store's own table it is damage.
impl From<BadColumn> for Error {
    fn from(bad: BadColumn) -> Self {
        let (column, table) = (bad.name(), bad.table.spec().name);
        Self::damaged(format_args!("column {column} of a row of {table}"))
    }
}

/// The columns of a row that may hold anything, by their places.
#[derive(Clone, Copy)]
pub struct Columns<'a>(pub &'a Row);

impl<'a> Columns<'a> {
    /// The column does not hold what it should.
    #[must_use]
    pub const fn bad(self, at: usize) -> BadColumn {
        BadColumn { table: self.0.table, at }
    }

    /// A text.
    ///
    /// # Errors
    /// When it is none. So do all others.
    pub fn text(self, at: usize) -> Result<&'a str, BadColumn> {
        self.0.values.get(at).and_then(Value::as_text).ok_or_else(|| self.bad(at))
    }

    /// A text or NULL.
    ///
    /// # Errors
    /// When it is neither.
    pub fn optional_text(self, at: usize) -> Result<Option<&'a str>, BadColumn> {
        if self.0.values.get(at) == Some(&Value::Null) {
            return Ok(None);
        }
        self.text(at).map(Some)
    }

    /// A text that `parse` takes.
    ///
    /// # Errors
    /// When it is no text, or `parse` does not take it.
    pub fn name<T>(
        self,
        at: usize,
        parse: impl FnOnce(&'a str) -> Result<T, Error>,
    ) -> Result<T, BadColumn> {
        parse(self.text(at)?).map_err(|_| self.bad(at))
    }

    /// A text that `parse` knows.
    ///
    /// # Errors
    /// When it is no text, or `parse` does not know it.
    pub fn word<T>(
        self,
        at: usize,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, BadColumn> {
        parse(self.text(at)?).ok_or_else(|| self.bad(at))
    }

    /// A JSON value or NULL.
    ///
    /// # Errors
    /// When it is neither.
    pub fn optional_json(self, at: usize) -> Result<Option<Json>, BadColumn> {
        match self.optional_text(at)? {
            Some(_) => self.name(at, |text| Json::parse("json", text)).map(Some),
            None => Ok(None),
        }
    }

    /// A clock stamp.
    ///
    /// # Errors
    /// When it is none.
    pub fn hlc(self, at: usize) -> Result<Hlc, BadColumn> {
        self.word(at, Hlc::parse)
    }

    /// An integer.
    ///
    /// # Errors
    /// When it is none.
    pub fn int(self, at: usize) -> Result<i64, BadColumn> {
        self.0.values.get(at).and_then(Value::as_int).ok_or_else(|| self.bad(at))
    }

    /// A count.
    ///
    /// # Errors
    /// When it is no integer from 0 to `u32::MAX`.
    pub fn count(self, at: usize) -> Result<u32, BadColumn> {
        u32::try_from(self.int(at)?).map_err(|_| self.bad(at))
    }

    /// A truth value, as 0 or 1.
    ///
    /// # Errors
    /// When it is neither.
    pub fn flag(self, at: usize) -> Result<bool, BadColumn> {
        match self.int(at)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad(at)),
        }
    }

    /// A time.
    ///
    /// # Errors
    /// When it is no integer.
    pub fn time(self, at: usize) -> Result<Timestamp, BadColumn> {
        self.int(at).map(Timestamp::from_millis)
    }

    /// A time or NULL.
    ///
    /// # Errors
    /// When it is neither.
    pub fn optional_time(self, at: usize) -> Result<Option<Timestamp>, BadColumn> {
        if self.0.values.get(at) == Some(&Value::Null) {
            return Ok(None);
        }
        self.time(at).map(Some)
    }
}
