//! What waits for a time, and what is stuck: which rows of which tables, by which column, and the
//! names of the work.
//!
//! Plain data. It knows no SQL and no clock: a backend finds the rows, the store gives them types.

use super::tables::{Row, Table, Value};
use crate::base::Timestamp;

/// The kinds of rows that have a time, in the order in which those of one time are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DueSource {
    /// Unfinished operations: deferred, claimed until a lease ends, or to be claimed.
    Operation,
    /// Leases on a sync.
    SyncLease,
    /// Pending and confirmed sweep candidates whose document has no unfinished operation.
    SweepCandidate,
    /// Projection watches, also those that have expired.
    ProjectionWatch,
    /// Document sweeps that have begun and not ended.
    DocumentSweep,
    /// Partitions that owe a sweep.
    OwedSweep,
    /// Connections that are being forgotten.
    Forgetting,
    /// Stuck: dead sweep candidates, by when they last changed.
    DeadCandidate,
    /// Stuck: operations whose outcome is unknown, by when they were sent.
    UnknownOutcome,
    /// Stuck: receipts that were begun and not committed, by when they were begun.
    OpenReceipt,
    /// Operations that have ended without a write, by when they ended.
    DeadOperation,
}

/// Which rows of a table wait.
#[derive(Clone, Copy, Debug)]
pub enum DueFilter {
    /// Those whose due column is set.
    IsSet,
    /// Those whose column is not set.
    IsNull(usize),
    /// Those whose text in the column is one of these.
    OneOf(usize, &'static [&'static str]),
    /// Those whose text in the column starts with this, in ASCII.
    StartsWith(usize, &'static str),
}

/// Where a source's rows are.
#[derive(Debug)]
pub struct DueSpec {
    /// The table.
    pub table: Table,
    /// The column of the time.
    pub due: usize,
    /// Which rows of the table.
    pub filter: DueFilter,
    /// The column of a document whose unfinished operation goes first: the row does not wait for
    /// its time meanwhile.
    pub yields_for: Option<usize>,
    /// Of the rows that are the same in these columns, those before the newest do not wait; all do
    /// where there are none.
    pub newest_of: &'static [usize],
    /// The columns that name the work, those of the primary key first.
    pub names: &'static [usize],
}

/// Most names of a source.
pub const MAX_DUE_NAMES: usize = 6;
/// The column of an operation's row that holds its document.
pub const OPERATION_DOCUMENT_COLUMN: usize = 1;
/// The column of an operation's row that holds when it is due; NULL once it is finished.
pub const OPERATION_DUE_COLUMN: usize = 24;

static OPERATION: DueSpec = DueSpec {
    table: Table::Operation,
    due: OPERATION_DUE_COLUMN,
    filter: DueFilter::IsSet,
    yields_for: None,
    newest_of: &[],
    names: &[0, OPERATION_DOCUMENT_COLUMN, 2, 3],
};
/// The rows of operations' leases are left out: the operations themselves wait.
static SYNC_LEASE: DueSpec = DueSpec {
    table: Table::Lease,
    due: 3,
    filter: DueFilter::StartsWith(0, "sync:"),
    yields_for: None,
    newest_of: &[],
    names: &[0],
};
static SWEEP_CANDIDATE: DueSpec = DueSpec {
    table: Table::SweepCandidate,
    due: 11,
    filter: DueFilter::OneOf(7, &["pending", "confirmed"]),
    yields_for: Some(4),
    newest_of: &[],
    names: &[0, 1, 2, 3, 4, 5],
};
static PROJECTION_WATCH: DueSpec = DueSpec {
    table: Table::ProjectionWatch,
    due: 8,
    filter: DueFilter::IsSet,
    yields_for: None,
    newest_of: &[],
    names: &[0, 1, 2, 3],
};
static DOCUMENT_SWEEP: DueSpec = DueSpec {
    table: Table::DocumentSweep,
    due: 1,
    filter: DueFilter::IsSet,
    yields_for: None,
    newest_of: &[],
    names: &[0],
};
static OWED_SWEEP: DueSpec = DueSpec {
    table: Table::OwedSweep,
    due: 3,
    filter: DueFilter::IsSet,
    yields_for: None,
    newest_of: &[],
    names: &[0, 1, 2],
};
static FORGETTING: DueSpec = DueSpec {
    table: Table::Forgetting,
    due: 2,
    filter: DueFilter::IsSet,
    yields_for: None,
    newest_of: &[],
    names: &[0, 1],
};

static DEAD_CANDIDATE: DueSpec = DueSpec {
    table: Table::SweepCandidate,
    due: 12,
    filter: DueFilter::OneOf(7, &["dead"]),
    yields_for: None,
    newest_of: &[],
    names: &[0, 1, 2, 3, 4, 5],
};
static UNKNOWN_OUTCOME: DueSpec = DueSpec {
    table: Table::Operation,
    due: 9,
    filter: DueFilter::OneOf(7, &["reconcile_only"]),
    yields_for: None,
    newest_of: &[],
    names: &[0, OPERATION_DOCUMENT_COLUMN, 2, 3],
};
/// A receipt of an older lineage can't be committed any more, so nothing is to be done for it.
static OPEN_RECEIPT: DueSpec = DueSpec {
    table: Table::SweepReceipt,
    due: 12,
    filter: DueFilter::IsNull(13),
    yields_for: None,
    newest_of: &[0, 1, 2],
    names: &[0, 1, 2, 3],
};
static DEAD_OPERATION: DueSpec = DueSpec {
    table: Table::Operation,
    due: 23,
    filter: DueFilter::OneOf(7, &["dead"]),
    yields_for: None,
    newest_of: &[],
    names: &[0, OPERATION_DOCUMENT_COLUMN, 2, 3],
};

impl DueSource {
    /// All of them, in their order.
    pub const ALL: [Self; 11] = [
        Self::Operation,
        Self::SyncLease,
        Self::SweepCandidate,
        Self::ProjectionWatch,
        Self::DocumentSweep,
        Self::OwedSweep,
        Self::Forgetting,
        Self::DeadCandidate,
        Self::UnknownOutcome,
        Self::OpenReceipt,
        Self::DeadOperation,
    ];
    /// Those that wait for their time.
    pub const WAITING: &[Self] = Self::ALL.split_at(7).0;

    /// Where its rows are.
    #[must_use]
    pub fn spec(self) -> &'static DueSpec {
        match self {
            Self::Operation => &OPERATION,
            Self::SyncLease => &SYNC_LEASE,
            Self::SweepCandidate => &SWEEP_CANDIDATE,
            Self::ProjectionWatch => &PROJECTION_WATCH,
            Self::DocumentSweep => &DOCUMENT_SWEEP,
            Self::OwedSweep => &OWED_SWEEP,
            Self::Forgetting => &FORGETTING,
            Self::DeadCandidate => &DEAD_CANDIDATE,
            Self::UnknownOutcome => &UNKNOWN_OUTCOME,
            Self::OpenReceipt => &OPEN_RECEIPT,
            Self::DeadOperation => &DEAD_OPERATION,
        }
    }
}

/// A row of a source. The order is that in which rows are given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueRow {
    /// When it is due; of what is stuck, since when.
    pub due_at: Timestamp,
    /// What it is.
    pub source: DueSource,
    /// What names it: the values of [`DueSpec::names`].
    pub names: Vec<Value>,
}

impl DueRow {
    /// What the source says of a row of its table, if the row is one of its. Whether other rows keep
    /// it from waiting is not asked.
    #[must_use]
    pub fn of(source: DueSource, row: &Row) -> Option<Self> {
        let spec = source.spec();
        let due_at = row.values.get(spec.due)?.as_int().map(Timestamp::from_millis)?;
        let text = |column: usize| row.values.get(column).and_then(Value::as_text);
        let is_one = match spec.filter {
            DueFilter::IsSet => true,
            DueFilter::IsNull(column) => row.values.get(column) == Some(&Value::Null),
            DueFilter::OneOf(column, texts) => text(column).is_some_and(|at| texts.contains(&at)),
            DueFilter::StartsWith(column, start) => {
                text(column).is_some_and(|at| at.starts_with(start))
            }
        };
        let names = spec.names.iter().filter_map(|&at| row.values.get(at)).cloned().collect();
        is_one.then_some(Self { due_at, source, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_those_of_the_tables() {
        for source in DueSource::ALL {
            let DueSpec { table, due, names, yields_for, .. } = source.spec();
            let spec = table.spec();
            let name = |at: usize| spec.columns[at].name;
            let expected = match source {
                DueSource::Operation => "due_at",
                DueSource::SyncLease => "expires_at",
                DueSource::SweepCandidate => "next_attempt_at",
                DueSource::ProjectionWatch => "deadline",
                DueSource::DocumentSweep | DueSource::Forgetting => "begun_at",
                DueSource::OwedSweep => "owed_since",
                DueSource::DeadCandidate | DueSource::DeadOperation => "updated_at",
                DueSource::UnknownOutcome => "send_started_at",
                DueSource::OpenReceipt => "created_at",
            };
            assert_eq!(name(*due), expected);
            assert!(names.starts_with(spec.key), "{source:?}: the key's columns come first");
            assert!(names.len() <= MAX_DUE_NAMES);
            assert!(yields_for.is_none_or(|at| name(at) == "document_id"));
        }
        assert_eq!(DueSource::WAITING.last(), Some(&DueSource::Forgetting));
        let operation = Table::Operation.spec();
        assert_eq!(operation.columns[OPERATION_DUE_COLUMN].name, "due_at");
        assert_eq!(operation.columns[OPERATION_DOCUMENT_COLUMN].name, "document_id");
    }
}
