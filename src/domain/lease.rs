//! Leases: what can be leased, and the fencing token that says who has it.
//!
//! It knows no clock: whether a lease has expired is judged where `now` is given.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::tables::{Row, RowKey, Table, Value};
use crate::base::{
    ConnectorName, DocumentId, Error, Holder, OperationId, OwnerDid, Result, Timestamp,
};

/// What a lease is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LeaseScope {
    /// The sync of an owner's connector.
    Sync {
        /// Whose.
        owner: OwnerDid,
        /// Which connector's.
        connector: ConnectorName,
    },
    /// One operation on a document.
    Operation {
        /// The document.
        document_id: DocumentId,
        /// The operation.
        operation_id: OperationId,
    },
}

impl fmt::Display for LeaseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync { owner, connector } => write!(f, "sync of {connector} of {owner}"),
            Self::Operation { document_id, operation_id } => {
                write!(f, "operation {operation_id} on document {document_id}")
            }
        }
    }
}

impl LeaseScope {
    /// The key of this lease's row.
    #[must_use]
    pub fn row_key(&self) -> RowKey {
        let scope = match self {
            Self::Sync { owner, connector } => format!("sync:{owner}\u{1f}{connector}"),
            Self::Operation { document_id, operation_id } => {
                format!("operation:{document_id}\u{1f}{operation_id}")
            }
        };
        RowKey::new(Table::Lease, vec![Value::text(scope)])
    }

    /// The refusal of a token that is not the current one.
    #[must_use]
    pub fn lost(&self) -> Error {
        Error::LeaseLost { scope: self.to_string() }
    }
}

/// A fencing token: grows over all hosts, and survives erasure and restored backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FencingToken {
    /// The store's generation when the lease was acquired.
    pub generation: i64,
    /// The stream version of the event that acquired it.
    pub version: i64,
}

impl FencingToken {
    /// The token as its row holds it.
    #[must_use]
    pub fn to_value(self) -> Value {
        Value::text(self.to_string())
    }

    /// The token of a row's text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (generation, version) = text.split_once('-')?;
        let token = Self { generation: generation.parse().ok()?, version: version.parse().ok()? };
        (token.to_string() == text).then_some(token)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.version)
    }
}

/// A lease that was acquired or renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub holder: Holder,
    /// Proves it.
    pub token: FencingToken,
    /// From then on anyone may take it; until someone does, the token stays good.
    pub expires_at: Timestamp,
}

impl Lease {
    /// The row of this lease.
    #[must_use]
    pub fn row(&self, scope: &LeaseScope) -> Row {
        let mut values = scope.row_key().values;
        values.extend([
            Value::Text(self.holder.shared()),
            self.token.to_value(),
            Value::Int(self.expires_at.as_millis()),
        ]);
        Row::new(Table::Lease, values)
    }
}

/// A condition of an append: it commits only if this token is current in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// What is leased.
    pub scope: LeaseScope,
    /// The token that must be current.
    pub token: FencingToken,
}

impl Fence {
    /// Refuses when the lease that stands is not this fence's.
    ///
    /// # Errors
    /// [`Error::LeaseLost`].
    pub fn check(&self, standing: Option<&Lease>) -> Result<()> {
        match standing {
            Some(lease) if lease.token == self.token => Ok(()),
            _ => Err(self.scope.lost()),
        }
    }
}
