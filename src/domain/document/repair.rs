//! Repair obligations: the owner's records decided something newer than what was last applied, and
//! the host has to bring the document there.

use serde::{Deserialize, Serialize};

use super::command::DocumentReply;
use super::event::DocumentEvent;
use super::state::Document;
use crate::base::{DocumentId, OwnerDid, ValueDigest};
use crate::domain::{BadColumn, Columns, Decision, Row, RowKey, Table, Value};
use crate::records::Hlc;

/// The column of a repair's row that holds when it was written.
pub(super) const WRITTEN_AT_COLUMN: usize = 6;

/// What has to be brought to a document. Its row says besides when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservationRepair {
    /// Whose decision.
    pub owner: OwnerDid,
    /// When the fetch began that the document shows.
    pub fetch_hlc: Hlc,
    /// The version that decided.
    pub decision_hlc: Hlc,
    /// The decided value is present.
    pub present: bool,
    /// The digest of the decided value, in the host's form.
    pub value_digest: Option<ValueDigest>,
}

impl ObservationRepair {
    /// The obligation of its row.
    ///
    /// # Errors
    /// The column that does not hold what it should.
    pub fn from_row(row: &Row) -> Result<Self, BadColumn> {
        let columns = Columns(row);
        let value_digest = match columns.optional_text(5)? {
            Some(_) => Some(columns.name(5, ValueDigest::new)?),
            None => None,
        };
        Ok(Self {
            owner: columns.name(1, OwnerDid::new)?,
            fetch_hlc: columns.hlc(2)?,
            decision_hlc: columns.hlc(3)?,
            present: columns.flag(4)?,
            value_digest,
        })
    }
}

impl Document {
    pub(super) fn put_repair(
        &self,
        document: &DocumentId,
        repair: &ObservationRepair,
    ) -> Decision<Self> {
        let event = DocumentEvent::RepairPut(Box::new(repair.clone()));
        let mut decision = Decision::events(DocumentReply::RepairPut(None), vec![event]);
        decision.content.push((repair_key(document), WRITTEN_AT_COLUMN, Value::Stamp));
        decision
    }

    pub(super) fn clear_repair(&self) -> Decision<Self> {
        let event = self.repair.iter().map(|_| DocumentEvent::RepairCleared);
        Decision::events(DocumentReply::Done, event.collect())
    }

    pub(super) fn repair_row(&self, document: &DocumentId) -> Option<Row> {
        self.repair.as_ref().map(|repair| {
            let values = vec![
                Value::Text(document.shared()),
                Value::Text(repair.owner.shared()),
                Value::text(repair.fetch_hlc.as_str()),
                Value::text(repair.decision_hlc.as_str()),
                Value::Int(i64::from(repair.present)),
                Value::text_or_null(repair.value_digest.as_ref().map(ValueDigest::shared)),
                Value::Keep,
            ];
            Row::new(Table::ObservationRepair, values)
        })
    }
}

/// The key of a repair's row.
pub(super) fn repair_key(document: &DocumentId) -> RowKey {
    RowKey::new(Table::ObservationRepair, vec![Value::Text(document.shared())])
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
