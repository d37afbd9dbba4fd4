//! The texts of the writing statements, many rows each, in a few fixed sizes so that prepared
//! statements are found again. It knows the tables, not what is written to them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::domain::{Column, ColumnType, Table};

/// Most rows of one statement. Beyond that a wider statement is no faster, and its values stay
/// far below SQLite's 32,766 variables.
pub(super) const MAX_STATEMENT_ROWS: usize = 256;
/// Most texts kept.
const MAX_CACHED_TEXTS: usize = 1_024;

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// Begins the transaction, as a writer at once: a reader that turns writer may find itself busy.
    Begin,
    /// Ends it.
    Commit,
    /// Deletes events of a stream up to a version.
    EraseEvents,
    /// Deletes snapshots.
    EraseSnapshots,
    /// Says that events up to a position may have been trimmed.
    Trimmed,
    /// Says which time rows were stamped with.
    Stamped,
    /// Creates or moves heads, and their bases if events before them go.
    Streams {
        /// The base is written too.
        is_cut: bool,
    },
    /// Writes events.
    Journal,
    /// Writes snapshots.
    Snapshots,
    /// Records outcomes of callers' command ids.
    Commands,
    /// Creates or replaces rows; a bit of `kept` leaves that column as it is.
    Put {
        /// The table.
        table: Table,
        /// A bit for each column that is kept.
        kept: u32,
    },
    /// Deletes rows by their keys.
    Delete {
        /// The table.
        table: Table,
    },
}

impl Shape {
    /// The variables of one row.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Begin | Self::Commit => 0,
            Self::EraseSnapshots | Self::Trimmed | Self::Stamped => 1,
            Self::EraseEvents => 2,
            Self::Commands => 4,
            Self::Streams { is_cut: false } | Self::Snapshots => 6,
            Self::Streams { is_cut: true } => 8,
            Self::Journal => 9,
            Self::Put { table, kept } => {
                (0..table.spec().columns.len()).filter(|&at| !is_kept(kept, at)).count()
            }
            Self::Delete { table } => table.spec().key.len(),
        }
    }

    /// Doing it twice for one row is doing it once, so that a statement may repeat its last row to
    /// fill a size.
    pub(super) const fn is_repeatable(self) -> bool {
        matches!(self, Self::EraseEvents | Self::EraseSnapshots | Self::Delete { .. })
    }

    /// It deletes what may be written anew by a later statement of the same transaction.
    pub(super) const fn is_erasure(self) -> bool {
        matches!(self, Self::EraseEvents | Self::EraseSnapshots)
    }

    fn write_text(self, rows: usize, sql: &mut String) {
        match self {
            Self::Begin => sql.push_str("BEGIN IMMEDIATE"),
            Self::Commit => sql.push_str("COMMIT"),
            Self::EraseEvents => {
                sql.push_str(
                    "DELETE FROM connector_journal WHERE position IN (SELECT j.position FROM (",
                );
                write_values(sql, rows, "(?,?)");
                sql.push_str(
                    ") AS v CROSS JOIN connector_journal AS j \
                     ON j.stream = v.column1 AND j.stream_version <= v.column2)",
                );
            }
            Self::EraseSnapshots => {
                sql.push_str("DELETE FROM connector_snapshot WHERE stream IN ");
                write_list(sql, rows);
            }
            Self::Trimmed => sql.push_str(
                "UPDATE connector_meta SET value = max(value, ?) WHERE key = 'trimmed_up_to'",
            ),
            Self::Stamped => {
                sql.push_str("UPDATE connector_meta SET value = ? WHERE key = 'stamped_at'");
            }
            Self::Streams { is_cut } => write_heads(sql, is_cut, rows),
            Self::Journal => {
                sql.push_str(
                    "INSERT INTO connector_journal (position, stream, stream_version, event_type, \
                     event_schema, payload, command_id, recorded_at, hash) ",
                );
                write_values(sql, rows, "(?,?,?,?,?,?,?,?,?)");
            }
            Self::Snapshots => {
                sql.push_str(
                    "INSERT INTO connector_snapshot \
                     (stream, stream_version, schema, payload, hash, checksum) ",
                );
                write_values(sql, rows, "(?,?,?,?,?,?)");
                sql.push_str(
                    " ON CONFLICT (stream) DO UPDATE SET stream_version = excluded.stream_version, \
                     schema = excluded.schema, payload = excluded.payload, hash = excluded.hash, \
                     checksum = excluded.checksum",
                );
            }
            Self::Commands => {
                sql.push_str("INSERT INTO connector_command (command_id, digest, answer, at) ");
                write_values(sql, rows, "(?,?,?,?)");
            }
            Self::Put { table, kept } => write_put(sql, table, kept, rows),
            Self::Delete { table } => {
                let _ = write!(sql, "DELETE FROM {} WHERE ", table.spec().name);
                write_key_match(sql, table, rows);
            }
        }
    }
}

/// The column at `at` is kept as it is.
pub(super) const fn is_kept(kept: u32, at: usize) -> bool {
    kept & (1 << at) != 0
}

fn write_values(sql: &mut String, rows: usize, row: &str) {
    sql.push_str("VALUES ");
    for at in 0..rows {
        sql.push_str(if at == 0 { "" } else { "," });
        sql.push_str(row);
    }
}

fn write_heads(sql: &mut String, is_cut: bool, rows: usize) {
    sql.push_str(
        "INSERT INTO connector_stream (stream, name, kind, version, last_command_id, hash",
    );
    sql.push_str(if is_cut { ", base_version, base_hash) " } else { ") " });
    write_values(sql, rows, if is_cut { "(?,?,?,?,?,?,?,?)" } else { "(?,?,?,?,?,?)" });
    sql.push_str(
        " ON CONFLICT (stream) DO UPDATE SET version = excluded.version, \
         last_command_id = excluded.last_command_id, hash = excluded.hash",
    );
    if is_cut {
        sql.push_str(", base_version = excluded.base_version, base_hash = excluded.base_hash");
    }
}

/// `(?,?,…)`, one variable for each row.
pub(super) fn write_list(sql: &mut String, rows: usize) {
    sql.push('(');
    for at in 0..rows {
        sql.push_str(if at == 0 { "?" } else { ",?" });
    }
    sql.push(')');
}

/// `key IN (…)`, for keys of one or many columns.
pub(super) fn write_key_match(sql: &mut String, table: Table, rows: usize) {
    let spec = table.spec();
    if let [key] = spec.key {
        sql.push_str(spec.columns[*key].name);
        sql.push_str(" IN ");
        write_list(sql, rows);
        return;
    }
    sql.push('(');
    write_names(sql, spec.key.iter().map(|&at| &spec.columns[at]));
    sql.push_str(") IN (");
    let mut row = String::from("(");
    for at in 0..spec.key.len() {
        row.push_str(if at == 0 { "?" } else { ",?" });
    }
    row.push(')');
    write_values(sql, rows, &row);
    sql.push(')');
}

/// Column names with commas between them.
pub(super) fn write_names<'a>(sql: &mut String, columns: impl Iterator<Item = &'a Column>) {
    for (at, column) in columns.enumerate() {
        sql.push_str(if at == 0 { "" } else { ", " });
        sql.push_str(column.name);
    }
}

fn write_put(sql: &mut String, table: Table, kept: u32, rows: usize) {
    let spec = table.spec();
    let _ = write!(sql, "INSERT INTO {} (", spec.name);
    write_names(sql, spec.columns.iter());
    sql.push_str(") ");
    let mut row = String::from("(");
    for (at, column) in spec.columns.iter().enumerate() {
        row.push_str(if at == 0 { "" } else { "," });
        row.push_str(if is_kept(kept, at) { stand_in(column) } else { "?" });
    }
    row.push(')');
    write_values(sql, rows, &row);
    sql.push_str(" ON CONFLICT (");
    write_names(sql, spec.key.iter().map(|&at| &spec.columns[at]));
    sql.push_str(") DO ");
    let mut set = 0;
    for (at, column) in spec.columns.iter().enumerate() {
        if !spec.key.contains(&at) && !is_kept(kept, at) {
            sql.push_str(if set == 0 { "UPDATE SET " } else { ", " });
            let _ = write!(sql, "{0} = excluded.{0}", column.name);
            set += 1;
        }
    }
    if set == 0 {
        sql.push_str("NOTHING");
    }
}

/// What the row to be inserted holds in a column that is kept. SQLite checks NOT NULL before it
/// sees that the row is there, so such a column needs a value that is never stored.
const fn stand_in(column: &Column) -> &'static str {
    match column.kind {
        _ if !column.required => "NULL",
        ColumnType::Text => "''",
        ColumnType::Int => "0",
        ColumnType::Blob => "x''",
    }
}

/// The sizes of statements besides the largest: few, so that prepared ones are found again, and
/// close enough that most counts of rows need two.
const SIZES: [usize; 15] = [192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1];

/// How many rows of `left` the next statement takes, and how many it has place for.
pub(super) fn next_size(left: usize, is_repeatable: bool) -> (usize, usize) {
    if left >= MAX_STATEMENT_ROWS {
        return (MAX_STATEMENT_ROWS, MAX_STATEMENT_ROWS);
    }
    if is_repeatable {
        let place = SIZES.iter().rev().find(|size| **size >= left);
        return (left, place.copied().unwrap_or(MAX_STATEMENT_ROWS));
    }
    let size = SIZES.iter().find(|size| **size <= left).copied().unwrap_or(1);
    (size, size)
}

/// The texts that were made before.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: HashMap<Vec<(Shape, usize)>, Arc<str>>,
}

impl Texts {
    /// The text of these statements, one behind the other.
    pub(super) fn of(&mut self, statements: &[(Shape, usize)]) -> Arc<str> {
        if let Some(text) = self.known.get(statements) {
            return Arc::clone(text);
        }
        let mut sql = String::new();
        for (at, (shape, rows)) in statements.iter().enumerate() {
            sql.push_str(if at == 0 { "" } else { ";" });
            shape.write_text(*rows, &mut sql);
        }
        let text: Arc<str> = sql.into();
        if self.known.len() >= MAX_CACHED_TEXTS {
            self.known.clear();
        }
        self.known.insert(statements.to_vec(), Arc::clone(&text));
        text
    }
}
