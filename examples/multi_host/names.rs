//! What the accounts and documents of a run are called.

use connector_store::{ConnectorName, DocumentId, OwnerDid};

use crate::Failure;

/// An owner is this and the number of the account.
const OWNER: &str = "did:web:example.org:owner:";

/// The owner of an account.
pub fn owner(key: u32) -> Result<OwnerDid, Failure> {
    Ok(OwnerDid::new(format!("{OWNER}{key}"))?)
}

/// The account of an owner.
pub fn key_of(owner: &OwnerDid) -> Option<u32> {
    owner.as_str().strip_prefix(OWNER)?.parse().ok()
}

/// A document of an account. The connector is in its name, so that two runs on one database share none.
pub fn document(connector: &ConnectorName, key: u32, part: u32) -> Result<DocumentId, Failure> {
    Ok(DocumentId::new(format!("{connector}-{key}-{part}"))?)
}

/// The name of a host, under which it holds its leases.
pub fn host(number: u32) -> String {
    format!("host-{number}")
}
