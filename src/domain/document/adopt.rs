//! The genesis of a document whose rows were written before there was a journal: one event for each
//! row.
//!
//! A copy's token says what it is of; whether its issuer signed it is judged when the document is
//! loaded, as of every copy.

use std::collections::BTreeMap;

use super::event::{DocumentEvent, EntityTrimSet, ObservationCopyPut, RepairAdopted};
use super::observation::{PAYLOAD_COLUMN, TOKEN_COLUMN};
use super::repair::{ObservationRepair, WRITTEN_AT_COLUMN};
use crate::base::{ConnectorName, Digest, DocumentId, Json, OwnerDid, RecordFault};
use crate::domain::{BadColumn, Columns, ContentRef, Row, Table, Unfit, Value};
use crate::records::{
    Hlc, OBSERVATION_TYPE, RecordCopy, RecordKey, RecordLimits, SignedRecord, parse,
};

/// A token and a payload that are stored already are not too large.
const NO_LIMITS: RecordLimits =
    RecordLimits { max_token_bytes: usize::MAX, max_payload_bytes: usize::MAX };

/// The events of a document's rows, an event for each.
///
/// # Errors
/// The row that no state can have.
pub fn adopt(rows: &[Row]) -> Result<Vec<DocumentEvent>, Unfit> {
    let mut claims: BTreeMap<OwnerDid, (Hlc, Digest)> = BTreeMap::new();
    let mut events = Vec::with_capacity(rows.len());
    for row in rows {
        let event = event(row).map_err(|bad| bad.of(row))?;
        if let DocumentEvent::ObservationCopyPut(put) = &event {
            // All copies of an owner's record are of one claim.
            let claim = (put.copy.version.clone(), put.copy.claim_digest);
            if *claims.entry(put.owner.clone()).or_insert_with(|| claim.clone()) != claim {
                return Err(Unfit::new(row, TOKEN_COLUMN));
            }
        }
        events.push(event);
    }
    Ok(events)
}

fn event(row: &Row) -> Result<DocumentEvent, BadColumn> {
    let columns = Columns(row);
    match row.table {
        Table::EntityTrim => Ok(DocumentEvent::EntityTrimSet(EntityTrimSet {
            owner: columns.name(1, OwnerDid::new)?,
            connector: columns.name(2, ConnectorName::new)?,
            trimmed_fields: columns.name(3, |text| Json::parse("trimmed_fields", text))?,
            updated_at: columns.time(4)?,
        })),
        Table::ObservationRecords => {
            copy_put(columns).map(|put| DocumentEvent::ObservationCopyPut(Box::new(put)))
        }
        Table::ObservationRepair => {
            let repair = ObservationRepair::from_row(row)?;
            let written_at = columns.time(WRITTEN_AT_COLUMN)?;
            Ok(DocumentEvent::RepairAdopted(Box::new(RepairAdopted { repair, written_at })))
        }
        _ => Err(columns.bad(0)),
    }
}

fn copy_put(columns: Columns<'_>) -> Result<ObservationCopyPut, BadColumn> {
    if columns.text(0)? != OBSERVATION_TYPE {
        return Err(columns.bad(0));
    }
    let owner = columns.name(1, OwnerDid::new)?;
    let payload = match columns.0.values.get(PAYLOAD_COLUMN) {
        Some(Value::Blob(payload)) => Some(payload.clone()),
        Some(Value::Null) => None,
        _ => return Err(columns.bad(PAYLOAD_COLUMN)),
    };
    let record = SignedRecord {
        key: RecordKey::observation(&owner, &columns.name(2, DocumentId::new)?),
        op_hash: columns.word(3, Digest::from_hex)?,
        hlc: columns.hlc(4)?,
        op_jwt: columns.text(TOKEN_COLUMN)?.into(),
        payload,
    };
    let parsed = parse(&record, &NO_LIMITS).map_err(|fault| bad_column(columns, &fault))?;
    Ok(ObservationCopyPut {
        owner,
        copy: RecordCopy::of(parsed.claims(), &record.op_jwt),
        payload: record.payload.as_deref().map(ContentRef::of_bytes),
        dropped: Vec::new(),
        token: None,
    })
}

/// The column that says something else than the token, or the token's.
fn bad_column(columns: Columns<'_>, fault: &RecordFault) -> BadColumn {
    let field = match fault {
        RecordFault::Mismatch { field } => *field,
        _ => "op_jwt",
    };
    let names = columns.0.table.spec().columns;
    columns.bad(names.iter().position(|column| column.name == field).unwrap_or(TOKEN_COLUMN))
}
