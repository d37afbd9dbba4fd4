//! What an error of the library means: by its code, never by its text.

use std::sync::Arc;

use crate::base::{Error, StorageFault};

/// What a caller may do about a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Another program's connection holds a lock.
    Busy,
    /// No room on the medium.
    Full,
    /// File, directory or medium can't be written.
    ReadOnly,
    /// The medium failed, or the connection is gone: whether a commit that was under way is on the
    /// medium is not known.
    Io,
    /// The file is damaged, or the statement does not fit it.
    Damaged,
}

impl Cause {
    /// The cause of an error, by SQLite's extended result code.
    pub(super) fn of(error: &sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        let Some(code) = code.and_then(|code| code.parse::<i32>().ok()) else {
            return match error {
                sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Damaged,
                _ => Self::Io,
            };
        };
        match (code & 0xff, code) {
            // SQLITE_BUSY, SQLITE_LOCKED
            (5 | 6, _) => Self::Busy,
            // SQLITE_FULL; SQLITE_IOERR_SHMSIZE: the shared index of the log could not grow
            (13, _) | (_, 4874) => Self::Full,
            // SQLITE_PERM, SQLITE_READONLY, SQLITE_CANTOPEN
            (3 | 8 | 14, _) => Self::ReadOnly,
            // SQLITE_NOMEM, SQLITE_INTERRUPT, SQLITE_IOERR, SQLITE_PROTOCOL
            (7 | 9 | 10 | 15, _) => Self::Io,
            _ => Self::Damaged,
        }
    }

    const fn fault(self) -> StorageFault {
        match self {
            Self::Busy => StorageFault::Unavailable,
            Self::Full => StorageFault::Full,
            Self::ReadOnly => StorageFault::ReadOnly,
            Self::Io => StorageFault::Io,
            Self::Damaged => StorageFault::Damaged,
        }
    }
}

/// The store's error for a failed statement; `context` says what was being done.
pub(super) fn storage_error(error: sqlx::Error, context: &str) -> Error {
    let cause = Cause::of(&error);
    let context = match cause {
        Cause::ReadOnly => format!(
            "{context}: the file and its directory must be writable, the -wal, -shm and .lock files are kept beside it"
        ),
        _ => context.to_owned(),
    };
    Error::Storage { fault: cause.fault(), context, source: Some(Arc::new(error)) }
}
