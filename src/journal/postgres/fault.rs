//! What an error of the server or the library means: by its code, never by its text.

use std::sync::Arc;

use crate::base::{Error, StorageFault};

/// What a caller may do about a failed statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Other transactions are in the way: the same one may pass when begun anew.
    Busy,
    /// The statement took too long and was cancelled.
    Slow,
    /// No room on the medium, or no memory.
    Full,
    /// The server takes no writes from this connection: a standby, or a user without the right.
    ReadOnly,
    /// The server takes no more connections, or none yet.
    Crowded,
    /// The connection is gone: whether a commit that was under way has happened is not known.
    Lost,
    /// The database is damaged, or the statement does not fit it.
    Damaged,
}

impl Cause {
    /// The cause of an error, by its SQLSTATE.
    pub(super) fn of(error: &sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code());
        let Some(code) = code else {
            return match error {
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_) => Self::Damaged,
                _ => Self::Lost,
            };
        };
        Self::of_code(&code)
    }

    fn of_code(code: &str) -> Self {
        match code {
            // serialization_failure, statement_completion_unknown, deadlock_detected,
            // lock_not_available
            "40001" | "40003" | "40P01" | "55P03" => Self::Busy,
            // query_canceled
            "57014" => Self::Slow,
            // disk_full, out_of_memory
            "53100" | "53200" => Self::Full,
            // read_only_sql_transaction, insufficient_privilege
            "25006" | "42501" => Self::ReadOnly,
            // too_many_connections, configuration_limit_exceeded, cannot_connect_now
            "53300" | "53400" | "57P03" => Self::Crowded,
            // idle_in_transaction_session_timeout, transaction_timeout
            "25P03" | "25P04" => Self::Lost,
            // connection, authorization and database name, operator intervention, system
            _ if ["08", "28", "3D", "57", "58"].iter().any(|class| code.starts_with(class)) => {
                Self::Lost
            }
            _ => Self::Damaged,
        }
    }

    const fn fault(self) -> StorageFault {
        match self {
            Self::Busy | Self::Slow | Self::Crowded | Self::Lost => StorageFault::Unavailable,
            Self::Full => StorageFault::Full,
            Self::ReadOnly => StorageFault::ReadOnly,
            Self::Damaged => StorageFault::Damaged,
        }
    }

    /// The connection is of no use any more.
    pub(super) const fn ends_connection(self) -> bool {
        matches!(self, Self::Lost | Self::ReadOnly | Self::Crowded)
    }
}

/// What the server said, without the details that quote rows.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {message}")]
struct ServerError {
    code: String,
    message: String,
}

/// The store's error for a failed statement; `context` says what was being done.
pub(super) fn storage_error(error: sqlx::Error, context: &str) -> Error {
    // An error of the store that came between two statements is told as it is.
    if let sqlx::Error::Decode(source) = &error
        && let Some(own) = source.downcast_ref::<Error>()
    {
        return own.clone();
    }
    let fault = Cause::of(&error).fault();
    let source: Arc<dyn std::error::Error + Send + Sync> = match error.as_database_error() {
        Some(said) => Arc::new(ServerError {
            code: said.code().unwrap_or_default().into_owned(),
            message: said.message().to_owned(),
        }),
        None => Arc::new(error),
    };
    Error::Storage { fault, context: context.to_owned(), source: Some(source) }
}

/// The store's error for what did not end in time.
pub(super) fn timed_out(context: &str) -> Error {
    Error::storage(StorageFault::Unavailable, format_args!("{context}: no answer in time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_by_their_codes() {
        let cases = [
            ("40001", Cause::Busy),
            ("40P01", Cause::Busy),
            ("55P03", Cause::Busy),
            ("57014", Cause::Slow),
            ("53100", Cause::Full),
            ("53200", Cause::Full),
            ("25006", Cause::ReadOnly),
            ("53300", Cause::Crowded),
            ("57P03", Cause::Crowded),
            ("08006", Cause::Lost),
            ("57P01", Cause::Lost),
            ("57P02", Cause::Lost),
            ("25P03", Cause::Lost),
            ("23505", Cause::Damaged),
            ("42P01", Cause::Damaged),
            ("XX001", Cause::Damaged),
        ];
        for (code, cause) in cases {
            assert_eq!(Cause::of_code(code), cause, "{code}");
        }
        let gone = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(Cause::of(&gone), Cause::Lost);
    }
}
