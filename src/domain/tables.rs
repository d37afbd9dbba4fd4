//! The read tables: their names and columns, rows and keys, as plain data.
//!
//! It knows no SQL and no state; `rows.rs` of each aggregate derives rows, a backend writes them.
//! Names and columns of the `kubun_…` tables are those that existing hosts read.

use std::sync::Arc;

use crate::base::{ConnectorName, Digest, Error, OperationId, OwnerDid, Timestamp};

/// A column's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// An integer column.
    Int(i64),
    /// A text column.
    Text(Arc<str>),
    /// A bytes column.
    Blob(Arc<[u8]>),
    /// In a row to be written: the column keeps what it has. Only for row-only columns.
    Keep,
    /// In a row to be written: the column gets the time of the transaction, which is greater than
    /// every one given this way before. Only for stamped columns.
    Stamp,
}

impl Value {
    /// A text value.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// A text value or NULL.
    pub fn text_or_null(text: Option<impl Into<Arc<str>>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text, compared by bytes.
    Text,
    /// A 64-bit integer.
    Int,
    /// Bytes.
    Blob,
}

/// A column of a read table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// How it is stored.
    pub kind: ColumnType,
    /// The content is in the row alone; the journal holds its digest.
    pub row_only: bool,
    /// The transaction's time, filled in by whoever writes the row; no state holds it.
    pub stamped: bool,
    /// No row is without it, although a write may keep it.
    pub required: bool,
}

const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind, row_only: false, stamped: false, required: false }
}

const fn text(name: &'static str) -> Column {
    column(name, ColumnType::Text)
}

const fn int(name: &'static str) -> Column {
    column(name, ColumnType::Int)
}

const fn blob(name: &'static str) -> Column {
    column(name, ColumnType::Blob)
}

const fn stamped(column: Column) -> Column {
    Column { stamped: true, ..column }
}

const fn row_only(column: Column) -> Column {
    Column { row_only: true, ..column }
}

const fn required(column: Column) -> Column {
    Column { required: true, ..column }
}

/// A read table's name, columns and primary key.
#[derive(Debug)]
pub struct TableSpec {
    /// The SQL name.
    pub name: &'static str,
    /// The columns, in the order of a row's values.
    pub columns: &'static [Column],
    /// The places of the primary key's columns in `columns`, in key order.
    pub key: &'static [usize],
}

/// The read tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Leases with their fencing tokens. First, because leases are locked first.
    Lease,
    /// Sync states.
    SyncState,
    /// Pending authorizations: every column is row-only.
    PendingAuth,
    /// Sweep receipts.
    SweepReceipt,
    /// Pages of source ids of receipts.
    ReceiptPage,
    /// Sweep candidates.
    SweepCandidate,
    /// Sweep checkpoints.
    SweepCheckpoint,
    /// Partitions that owe a sweep.
    OwedSweep,
    /// Entity trims.
    EntityTrim,
    /// Begun document sweeps.
    DocumentSweep,
    /// Provider-write operations.
    Operation,
    /// The document of each operation id.
    OperationId,
    /// Projection watches.
    ProjectionWatch,
    /// Copies of signed observation records.
    ObservationRecords,
    /// Repair obligations.
    ObservationRepair,
    /// Connections that are being forgotten.
    Forgetting,
}

static LEASE: TableSpec = TableSpec {
    name: "connector_lease",
    columns: &[text("scope"), text("holder"), text("token"), int("expires_at")],
    key: &[0],
};
static SYNC_STATE: TableSpec = TableSpec {
    name: "kubun_connector_sync_state",
    columns: &[
        text("connector_name"),
        text("owner_did"),
        text("checkpoint"),
        text("last_synced_at"),
        int("entity_count"),
        text("status"),
        text("error"),
        int("lease_expires_at"),
        row_only(text("recovery")),
        int("version"),
        text("incarnation"),
    ],
    key: &[0, 1],
};
static PENDING_AUTH: TableSpec = TableSpec {
    name: "kubun_connector_pending_auth",
    columns: &[
        row_only(text("state")),
        row_only(text("code_verifier")),
        row_only(text("provider")),
        row_only(text("owner_did")),
        row_only(text("owner_wrappable_did")),
        row_only(text("controller_wrappable_did")),
        row_only(int("created_at")),
        row_only(text("redirect_url")),
        row_only(text("scopes")),
        row_only(int("is_incremental")),
        row_only(int("expires_at")),
    ],
    key: &[0],
};
static SWEEP_RECEIPT: TableSpec = TableSpec {
    name: "kubun_connector_sweep_receipt",
    columns: &[
        text("owner_did"),
        text("connector_name"),
        text("partition"),
        text("provenance"),
        int("sequence"),
        text("model_id"),
        text("scope"),
        required(row_only(text("keep"))),
        text("source_fetch_hlc"),
        text("predicate"),
        text("kind"),
        int("complete"),
        int("created_at"),
        int("committed_at"),
    ],
    key: &[0, 1, 2, 3],
};
static RECEIPT_PAGE: TableSpec = TableSpec {
    name: "connector_receipt_page",
    columns: &[
        text("owner_did"),
        text("connector_name"),
        text("partition"),
        text("provenance"),
        int("sequence"),
        int("page"),
        required(row_only(text("source_ids"))),
    ],
    key: &[0, 1, 2, 3, 4, 5],
};
static SWEEP_CANDIDATE: TableSpec = TableSpec {
    name: "kubun_connector_sweep_candidate",
    columns: &[
        text("owner_did"),
        text("connector_name"),
        text("partition"),
        text("provenance"),
        text("document_id"),
        text("source_id"),
        text("model_id"),
        text("state"),
        int("attempts"),
        int("apply_failures"),
        text("last_error"),
        int("next_attempt_at"),
        int("updated_at"),
    ],
    key: &[0, 1, 2, 3, 4],
};
static SWEEP_CHECKPOINT: TableSpec = TableSpec {
    name: "kubun_connector_sweep_checkpoint",
    columns: &[
        text("owner_did"),
        text("connector_name"),
        text("partition"),
        text("provenance"),
        int("receipt_sequence"),
        int("updated_at"),
    ],
    key: &[0, 1, 2],
};
static OWED_SWEEP: TableSpec = TableSpec {
    name: "connector_owed_sweep",
    columns: &[text("owner_did"), text("connector_name"), text("partition"), int("owed_since")],
    key: &[0, 1, 2],
};
static ENTITY_TRIM: TableSpec = TableSpec {
    name: "kubun_connector_entity_trim",
    columns: &[
        text("document_id"),
        text("owner_did"),
        text("connector_name"),
        text("trimmed_fields"),
        int("updated_at"),
    ],
    key: &[0],
};
static DOCUMENT_SWEEP: TableSpec = TableSpec {
    name: "connector_document_sweep",
    columns: &[text("document_id"), int("begun_at")],
    key: &[0],
};

static OPERATION: TableSpec = TableSpec {
    name: "kubun_connector_operation",
    columns: &[
        text("operation_id"),
        text("document_id"),
        text("owner_did"),
        text("connector_name"),
        text("op"),
        text("version"),
        text("request_digest"),
        text("state"),
        int("attempts"),
        int("send_started_at"),
        int("send_until"),
        int("visibility_delay"),
        int("reconcile_read_at"),
        text("defer_reason"),
        int("not_before"),
        text("lease_holder"),
        text("lease_token"),
        int("lease_expires_at"),
        text("source_id"),
        text("source_version"),
        text("error"),
        int("sequence"),
        int("created_at"),
        int("updated_at"),
        int("due_at"),
    ],
    key: &[0],
};
static OPERATION_ID: TableSpec = TableSpec {
    name: "connector_operation_id",
    columns: &[text("operation_id"), text("document_id")],
    key: &[0],
};
static PROJECTION_WATCH: TableSpec = TableSpec {
    name: "kubun_connector_projection_watch",
    columns: &[
        text("document_id"),
        text("owner_did"),
        text("connector_name"),
        text("source_id"),
        text("reason"),
        text("expected_digest"),
        text("written_hlc"),
        int("armed_at"),
        int("deadline"),
        text("status"),
        int("mismatches"),
        text("last_fetch_hlc"),
    ],
    key: &[0],
};
static OBSERVATION_RECORDS: TableSpec = TableSpec {
    name: "kubun_connector_observation_records",
    columns: &[
        text("type"),
        text("owner"),
        text("id"),
        text("op_hash"),
        text("hlc"),
        required(row_only(text("op_jwt"))),
        row_only(blob("payload")),
    ],
    key: &[0, 1, 2, 3],
};
static OBSERVATION_REPAIR: TableSpec = TableSpec {
    name: "kubun_connector_observation_repair",
    columns: &[
        text("document_id"),
        text("owner"),
        text("fetch_hlc"),
        text("decision_hlc"),
        int("present"),
        text("value_digest"),
        required(stamped(int("written_at"))),
    ],
    key: &[0],
};
static FORGETTING: TableSpec = TableSpec {
    name: "connector_forgetting",
    columns: &[text("owner_did"), text("connector_name"), int("begun_at")],
    key: &[0, 1],
};

/// The key of the row that stands while a connection is being forgotten. What begins work for the
/// connection commits only if the row is not there.
#[must_use]
pub fn forgetting_key(owner: &OwnerDid, connector: &ConnectorName) -> RowKey {
    let values = vec![Value::Text(owner.shared()), Value::Text(connector.shared())];
    RowKey::new(Table::Forgetting, values)
}

/// The refusal of an append that must not find this row, and did.
#[must_use]
pub fn exists_refusal(key: &RowKey) -> Error {
    let text = |at: usize| key.values.get(at).and_then(Value::as_text).unwrap_or_default();
    match key.table {
        Table::OperationId => OperationId::new(text(0))
            .map_or_else(|error| error, |operation_id| Error::OperationMismatch { operation_id }),
        Table::Forgetting => match (OwnerDid::new(text(0)), ConnectorName::new(text(1))) {
            (Ok(owner), Ok(connector)) => Error::ConnectionForgotten { owner, connector },
            (Err(error), _) | (_, Err(error)) => error,
        },
        _ => Error::AlreadyExists { what: key.table.spec().name },
    }
}

impl Table {
    /// All of them, in the order in which a batch writes them.
    pub const ALL: [Self; 16] = [
        Self::Lease,
        Self::SyncState,
        Self::PendingAuth,
        Self::SweepReceipt,
        Self::ReceiptPage,
        Self::SweepCandidate,
        Self::SweepCheckpoint,
        Self::OwedSweep,
        Self::EntityTrim,
        Self::DocumentSweep,
        Self::Operation,
        Self::OperationId,
        Self::ProjectionWatch,
        Self::ObservationRecords,
        Self::ObservationRepair,
        Self::Forgetting,
    ];

    /// Name, columns and key.
    #[must_use]
    pub fn spec(self) -> &'static TableSpec {
        match self {
            Self::Lease => &LEASE,
            Self::SyncState => &SYNC_STATE,
            Self::PendingAuth => &PENDING_AUTH,
            Self::SweepReceipt => &SWEEP_RECEIPT,
            Self::ReceiptPage => &RECEIPT_PAGE,
            Self::SweepCandidate => &SWEEP_CANDIDATE,
            Self::SweepCheckpoint => &SWEEP_CHECKPOINT,
            Self::OwedSweep => &OWED_SWEEP,
            Self::EntityTrim => &ENTITY_TRIM,
            Self::DocumentSweep => &DOCUMENT_SWEEP,
            Self::Operation => &OPERATION,
            Self::OperationId => &OPERATION_ID,
            Self::ProjectionWatch => &PROJECTION_WATCH,
            Self::ObservationRecords => &OBSERVATION_RECORDS,
            Self::ObservationRepair => &OBSERVATION_REPAIR,
            Self::Forgetting => &FORGETTING,
        }
    }
}

/// The primary key of one row: its values in key order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The table.
    pub table: Table,
    /// The key columns' values.
    pub values: Vec<Value>,
}

impl RowKey {
    /// The key of one row.
    #[must_use]
    pub const fn new(table: Table, values: Vec<Value>) -> Self {
        Self { table, values }
    }
}

impl std::fmt::Debug for RowKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.table == Table::PendingAuth {
            write!(f, "{}(…)", self.table.spec().name)
        } else {
            write!(f, "{}{:?}", self.table.spec().name, self.values)
        }
    }
}

/// A row: one value for each column of its table.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// The table.
    pub table: Table,
    /// The values, in column order.
    pub values: Vec<Value>,
}

impl Row {
    /// A row.
    #[must_use]
    pub const fn new(table: Table, values: Vec<Value>) -> Self {
        Self { table, values }
    }

    /// This row with the time of the transaction where it is to be stamped.
    #[must_use]
    pub fn stamped(&self, at: Timestamp) -> Self {
        let values = self.values.iter().map(|value| match value {
            Value::Stamp => Value::Int(at.as_millis()),
            other => other.clone(),
        });
        Self::new(self.table, values.collect())
    }

    /// The row's primary key.
    #[must_use]
    pub fn key(&self) -> RowKey {
        let columns = self.table.spec().key;
        RowKey::new(self.table, columns.iter().map(|&at| self.values[at].clone()).collect())
    }
}

/// Row-only content may be secret, so only the key is shown.
impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Row({:?})", self.key())
    }
}

/// One change of the read tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowChange {
    /// The row is created or replaced; [`Value::Keep`] leaves a column as it is.
    Put(Row),
    /// The row is removed, if it is there.
    Delete(RowKey),
    /// The row is removed and handed back with the acknowledgement.
    Take(RowKey),
}

impl RowChange {
    /// The table of its row.
    #[must_use]
    pub const fn table(&self) -> Table {
        match self {
            Self::Put(row) => row.table,
            Self::Delete(key) | Self::Take(key) => key.table,
        }
    }

    /// The key of its row.
    #[must_use]
    pub fn key(&self) -> RowKey {
        match self {
            Self::Put(row) => row.key(),
            Self::Delete(key) | Self::Take(key) => key.clone(),
        }
    }

    /// It writes a row that gets the time of the transaction.
    #[must_use]
    pub fn stamps(&self) -> bool {
        match self {
            Self::Put(row) => row.values.contains(&Value::Stamp),
            Self::Delete(_) | Self::Take(_) => false,
        }
    }
}

/// What the journal holds of row-only content: enough to tell whether a row is still what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContentRef {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Its length in bytes.
    pub bytes: u64,
}

impl ContentRef {
    /// The reference of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self::of_bytes(text.as_bytes())
    }

    /// The reference of bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self { digest: Digest::of(bytes), bytes: bytes.len() as u64 }
    }

    /// The reference of a row all of whose columns are row-only: over the values, each with its
    /// type and length before it.
    #[must_use]
    pub fn of_row(row: &Row) -> Self {
        let mut bytes = Vec::new();
        for value in &row.values {
            let (tag, content): (u8, &[u8]) = match value {
                Value::Null | Value::Keep | Value::Stamp => (0, &[]),
                Value::Int(int) => (1, &int.to_be_bytes()),
                Value::Text(text) => (2, text.as_bytes()),
                Value::Blob(blob) => (3, blob),
            };
            bytes.push(tag);
            bytes.extend_from_slice(&(content.len() as u64).to_be_bytes());
            bytes.extend_from_slice(content);
        }
        Self { digest: Digest::of(&bytes), bytes: bytes.len() as u64 }
    }
}
