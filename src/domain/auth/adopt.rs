//! The genesis of a pending authorization whose row was written before there was a journal.

use super::event::{PendingAuthCreated, PendingAuthEvent};
use super::record::row_to_record;
use crate::base::Error;
use crate::domain::{ContentRef, Row, Unfit};

/// The event of a row.
///
/// # Errors
/// The row, when it is none that a record can have; no column's content is told.
pub fn adopt(row: &Row) -> Result<PendingAuthEvent, Unfit> {
    let record = row_to_record(row).map_err(|bad| bad.of(row))?;
    if let Err(Error::InvalidInput { field, .. }) = record.check() {
        return Err(Unfit { row: row.key(), column: field });
    }
    Ok(PendingAuthEvent::PendingAuthCreated(PendingAuthCreated {
        provider: record.provider,
        owner: record.owner,
        created_at: record.created_at,
        expires_at: record.expires_at,
        row: ContentRef::of_row(row),
    }))
}
