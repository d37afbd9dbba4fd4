//! What can be wrong with what is stored, by name.
//!
//! It holds no payload and no secret: a pending authorization's row is named by its stream.

use std::fmt;

use crate::base::{Digest, StreamKey, StreamName};
use crate::domain::{RowKey, Table, Value};

/// The name of a row that may be shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowName {
    /// The table's SQL name.
    pub table: &'static str,
    /// The primary key's values; for a pending authorization its stream's name instead.
    pub key: Vec<String>,
}

impl RowName {
    /// The name of the row with this key.
    #[must_use]
    pub fn of(key: &RowKey) -> Self {
        let show = |value: &Value| match value {
            Value::Text(text) if key.table == Table::PendingAuth => {
                StreamKey::Auth(Digest::of(text.as_bytes())).stream_name().to_string()
            }
            Value::Text(text) => text.to_string(),
            Value::Int(int) => int.to_string(),
            Value::Null | Value::Keep | Value::Stamp | Value::Blob(_) => "?".to_owned(),
        };
        Self { table: key.table.spec().name, key: key.values.iter().map(show).collect() }
    }

    /// The row that a pending authorization's stream must have.
    pub(super) fn of_auth_stream(stream: &StreamName) -> Self {
        Self { table: Table::PendingAuth.spec().name, key: vec![stream.to_string()] }
    }
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.table, self.key)
    }
}

/// One thing that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The stream's kind, or its name, is none that this program knows.
    UnknownKind {
        /// The stream.
        stream: StreamName,
        /// The stored number.
        kind: i64,
    },
    /// An event or a snapshot was written by a program that knows more kinds than this one.
    UnknownSchema {
        /// The stream.
        stream: StreamName,
        /// `event` or `snapshot`.
        what: &'static str,
        /// The stored type number.
        number: u16,
        /// The stored schema number.
        schema: u16,
    },
    /// The event is not what was written.
    EventChanged {
        /// The stream.
        stream: StreamName,
        /// The event's version.
        version: i64,
    },
    /// Events are missing from the middle of the stream.
    EventsMissing {
        /// The stream.
        stream: StreamName,
        /// The first missing version.
        version: i64,
    },
    /// The stream does not reach back to its start, and no snapshot stands in for it.
    HistoryMissing {
        /// The stream.
        stream: StreamName,
        /// The first version that is there, or that the head names.
        version: i64,
    },
    /// The stream does not end as its head says: the newest events, or the head, were changed.
    HeadDiffers {
        /// The stream.
        stream: StreamName,
        /// The version that the head names.
        version: i64,
    },
    /// The snapshot is not what was written.
    SnapshotChanged {
        /// The stream.
        stream: StreamName,
        /// The snapshot's version.
        version: i64,
    },
    /// The snapshot is whole but is not what the events come to.
    SnapshotDiffers {
        /// The stream.
        stream: StreamName,
        /// The snapshot's version.
        version: i64,
    },
    /// The state has the row, the table does not.
    RowMissing {
        /// The row.
        row: RowName,
    },
    /// The table has the row, no state does.
    RowSurplus {
        /// The row.
        row: RowName,
    },
    /// Columns are not as the state has them.
    RowDiffers {
        /// The row.
        row: RowName,
        /// The names of the columns.
        columns: Vec<&'static str>,
    },
    /// Content that is in the row alone is not what was written.
    ContentDiffers {
        /// The row.
        row: RowName,
        /// The name of the column; none when the whole row is such content.
        column: Option<&'static str>,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind { stream, kind } => {
                write!(f, "stream {stream:?}: unknown kind {kind}")
            }
            Self::UnknownSchema { stream, what, number, schema } => {
                write!(f, "stream {stream:?}: unknown {what} type {number}, schema {schema}")
            }
            Self::EventChanged { stream, version } => {
                write!(f, "stream {stream:?}: event {version} was changed")
            }
            Self::EventsMissing { stream, version } => {
                write!(f, "stream {stream:?}: events from {version} are missing")
            }
            Self::HistoryMissing { stream, version } => {
                write!(f, "stream {stream:?}: what was before {version} is missing")
            }
            Self::HeadDiffers { stream, version } => {
                write!(f, "stream {stream:?}: it does not end at {version} as its head says")
            }
            Self::SnapshotChanged { stream, version } => {
                write!(f, "stream {stream:?}: snapshot {version} was changed")
            }
            Self::SnapshotDiffers { stream, version } => {
                write!(f, "stream {stream:?}: snapshot {version} is not what the events come to")
            }
            Self::RowMissing { row } => write!(f, "{row} is missing"),
            Self::RowSurplus { row } => write!(f, "{row} belongs to no state"),
            Self::RowDiffers { row, columns } => write!(f, "{row} differs in {columns:?}"),
            Self::ContentDiffers { row, column: Some(column) } => {
                write!(f, "{row}: the content of {column} is not what was written")
            }
            Self::ContentDiffers { row, column: None } => {
                write!(f, "{row} is not what was written")
            }
        }
    }
}
