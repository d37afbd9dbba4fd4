//! The rows that a connector's state stands in.

use super::command::{CandidateKey, ReceiptKey};
use super::event::ConnectorEvent;
use super::state::{Candidate, Connector, Partition, Receipt, ReceiptPhase, SweptEra};
use crate::base::{ConnectorName, DocumentId, Json, OwnerDid, PartitionId, Provenance};
use crate::domain::{ContentRef, LeaseScope, Row, RowKey, Table, Value, forgetting_key};

/// The place of `recovery` in the sync state's row.
pub(super) const RECOVERY_COLUMN: usize = 8;
/// The place of `keep` in a receipt's row.
pub(super) const KEEP_COLUMN: usize = 7;
/// The place of `source_ids` in a page's row.
pub(super) const SOURCE_IDS_COLUMN: usize = 6;

/// Names the rows of one connector.
pub(super) struct Naming<'a> {
    pub(super) owner: &'a OwnerDid,
    pub(super) connector: &'a ConnectorName,
}

impl Naming<'_> {
    fn key<const N: usize>(
        &self,
        table: Table,
        partition: &PartitionId,
        rest: [Value; N],
    ) -> RowKey {
        let mut values = Vec::with_capacity(3 + N);
        values.push(Value::Text(self.owner.shared()));
        values.push(Value::Text(self.connector.shared()));
        values.push(Value::Text(partition.shared()));
        values.extend(rest);
        RowKey::new(table, values)
    }

    /// What the connector's lease is for.
    pub(super) fn lease(&self) -> LeaseScope {
        LeaseScope::Sync { owner: self.owner.clone(), connector: self.connector.clone() }
    }

    /// The sync state's row.
    pub(super) fn sync_state(&self) -> RowKey {
        let values = vec![Value::Text(self.connector.shared()), Value::Text(self.owner.shared())];
        RowKey::new(Table::SyncState, values)
    }

    /// A receipt's row.
    pub(super) fn receipt(&self, partition: &PartitionId, provenance: &Provenance) -> RowKey {
        self.key(Table::SweepReceipt, partition, [Value::Text(provenance.shared())])
    }

    /// The row of a page of a receipt.
    pub(super) fn page(&self, key: &ReceiptKey, page: u32) -> RowKey {
        self.page_of(&key.partition, &key.provenance, key.sequence, page)
    }

    fn page_of(
        &self,
        partition: &PartitionId,
        provenance: &Provenance,
        sequence: i64,
        page: u32,
    ) -> RowKey {
        let rest =
            [Value::Text(provenance.shared()), Value::Int(sequence), Value::Int(i64::from(page))];
        self.key(Table::ReceiptPage, partition, rest)
    }

    fn candidate(
        &self,
        partition: &PartitionId,
        provenance: &Provenance,
        document: &DocumentId,
    ) -> RowKey {
        let rest = [Value::Text(provenance.shared()), Value::Text(document.shared())];
        self.key(Table::SweepCandidate, partition, rest)
    }

    fn candidate_of(&self, key: &CandidateKey) -> RowKey {
        self.candidate(&key.partition, &key.provenance, &key.document_id)
    }

    /// The rows that the event may have changed.
    pub(super) fn touched(&self, event: &ConnectorEvent, rows: &mut Vec<RowKey>) {
        match event {
            ConnectorEvent::SyncStateSet(_)
            | ConnectorEvent::SyncProgressUpdated(_)
            | ConnectorEvent::SyncStateDeleted => rows.push(self.sync_state()),
            ConnectorEvent::LeaseAcquired(_)
            | ConnectorEvent::LeaseRenewed(_)
            | ConnectorEvent::LeaseReleased => {
                rows.extend([self.lease().row_key(), self.sync_state()]);
            }
            ConnectorEvent::ReceiptBegun(begun) => {
                rows.push(self.receipt(&begun.partition, &begun.provenance));
                if let Some(dropped) = begun.dropped {
                    rows.extend((0..dropped.pages).map(|page| {
                        self.page_of(&begun.partition, &begun.provenance, dropped.sequence, page)
                    }));
                }
            }
            ConnectorEvent::ReceiptExtended(extended) => {
                rows.push(self.page(&extended.key, extended.page));
            }
            ConnectorEvent::ReceiptCompleted(completed) => {
                rows.push(self.receipt(&completed.key.partition, &completed.key.provenance));
            }
            ConnectorEvent::ReceiptCommitted(committed) => {
                let key = &committed.key;
                rows.push(self.receipt(&key.partition, &key.provenance));
                rows.push(self.key(Table::OwedSweep, &key.partition, []));
            }
            ConnectorEvent::CandidatesCreated(created) => {
                let key = &created.key;
                let of = |document| self.candidate(&key.partition, &key.provenance, document);
                rows.extend(created.candidates.iter().map(|entry| of(&entry.document_id)));
            }
            ConnectorEvent::CandidatesWithdrawn(withdrawn) => {
                let of = |document| {
                    self.candidate(&withdrawn.partition, &withdrawn.provenance, document)
                };
                rows.extend(withdrawn.documents.iter().map(of));
            }
            ConnectorEvent::ReceiptAdopted(adopted) => {
                rows.push(self.receipt(&adopted.partition, &adopted.provenance));
            }
            ConnectorEvent::CandidateAdopted(adopted) => {
                let provenance = &adopted.era.provenance;
                rows.push(self.candidate(&adopted.partition, provenance, &adopted.document_id));
            }
            ConnectorEvent::CandidateConfirmed(event) => {
                rows.push(self.candidate_of(&event.candidate));
            }
            ConnectorEvent::CandidateDeferred(event) => {
                rows.push(self.candidate_of(&event.candidate));
            }
            ConnectorEvent::CandidateApplyFailed(event) => {
                rows.push(self.candidate_of(&event.candidate));
            }
            ConnectorEvent::CandidateApplied(event) | ConnectorEvent::CandidateDropped(event) => {
                rows.push(self.candidate_of(&event.candidate));
            }
            ConnectorEvent::CheckpointMoved(moved) => {
                rows.push(self.key(Table::SweepCheckpoint, &moved.key.partition, []));
            }
            ConnectorEvent::CursorLost(lost) => {
                rows.push(self.key(Table::OwedSweep, &lost.partition, []));
            }
            ConnectorEvent::ConnectionForgetBegun(_)
            | ConnectorEvent::ConnectionForgetAbandoned
            | ConnectorEvent::ConnectionForgotten(_) => {
                rows.extend([self.forgetting(), self.lease().row_key(), self.sync_state()]);
            }
            ConnectorEvent::ReceiptForgotten(forgotten) => {
                let (key, kept) = (&forgotten.key, forgotten.pages_kept);
                let gone = kept..kept.saturating_add(forgotten.pages_gone);
                rows.extend(gone.map(|page| self.page(key, page)));
                rows.push(self.receipt(&key.partition, &key.provenance));
            }
            ConnectorEvent::PartitionForgotten(forgotten) => {
                let tables = [Table::SweepCheckpoint, Table::OwedSweep];
                rows.extend(tables.map(|table| self.key(table, &forgotten.partition, [])));
            }
        }
    }

    fn forgetting(&self) -> RowKey {
        forgetting_key(self.owner, self.connector)
    }

    /// The row of a key as the state has it.
    pub(super) fn row(&self, state: &Connector, key: &RowKey) -> Option<Row> {
        match key.table {
            Table::Lease => state.lease.as_ref().map(|lease| lease.row(&self.lease())),
            Table::SyncState => self.sync_state_row(state),
            Table::SweepReceipt => {
                let (_, receipt) = receipt_of(state, key)?;
                let mut values = key.values.clone();
                values.extend(receipt_values(receipt));
                Some(Row::new(key.table, values))
            }
            Table::ReceiptPage => {
                page_of(state, key)?;
                let mut values = key.values.clone();
                values.push(Value::Keep);
                Some(Row::new(key.table, values))
            }
            Table::SweepCandidate => {
                let swept = partition_of(state, key)?.swept.as_ref()?;
                let is_of_lineage = text(key, 3)? == swept.era.provenance.as_str();
                let candidate = swept.candidates.get(text(key, 4)?).filter(|_| is_of_lineage)?;
                let mut values = key.values.clone();
                values.extend(candidate_values(candidate));
                Some(Row::new(key.table, values))
            }
            Table::SweepCheckpoint => {
                let checkpoint = partition_of(state, key)?.checkpoint.as_ref()?;
                let mut values = key.values.clone();
                values.extend([
                    Value::Text(checkpoint.provenance.shared()),
                    Value::Int(checkpoint.receipt_sequence),
                    Value::Int(checkpoint.updated_at.as_millis()),
                ]);
                Some(Row::new(key.table, values))
            }
            Table::OwedSweep => {
                let owed = partition_of(state, key)?.owed?;
                let mut values = key.values.clone();
                values.push(Value::Int(owed.since.as_millis()));
                Some(Row::new(key.table, values))
            }
            Table::Forgetting => {
                let forgetting = state.forgetting?;
                let mut values = self.forgetting().values;
                values.push(Value::Int(forgetting.begun_at.as_millis()));
                Some(Row::new(key.table, values))
            }
            _ => None,
        }
    }

    fn sync_state_row(&self, state: &Connector) -> Option<Row> {
        let sync = state.sync.as_ref()?;
        let lease_expires_at = state
            .lease
            .as_ref()
            .map_or(Value::Null, |lease| Value::Int(lease.expires_at.as_millis()));
        let values = vec![
            Value::Text(self.connector.shared()),
            Value::Text(self.owner.shared()),
            Value::text_or_null(sync.checkpoint.as_ref().map(Json::shared)),
            Value::text(sync.last_synced_at.as_str()),
            Value::Int(sync.entity_count),
            Value::text(sync.status.as_str()),
            Value::text_or_null(sync.error.as_deref()),
            lease_expires_at,
            sync.recovery.map_or(Value::Null, |_| Value::Keep),
            Value::Int(sync.version),
            Value::text(sync.incarnation.to_string()),
        ];
        Some(Row::new(Table::SyncState, values))
    }

    /// The keys of all rows that the state has.
    pub(super) fn rows(&self, state: &Connector) -> Vec<RowKey> {
        let mut rows = Vec::new();
        rows.extend(state.lease.iter().map(|_| self.lease().row_key()));
        rows.extend(state.sync.iter().map(|_| self.sync_state()));
        rows.extend(state.forgetting.iter().map(|_| self.forgetting()));
        for (partition, known) in &state.partitions {
            self.partition_rows(partition, known, &mut rows);
        }
        rows
    }

    fn partition_rows(&self, partition: &PartitionId, known: &Partition, rows: &mut Vec<RowKey>) {
        for (provenance, receipt) in &known.receipts {
            rows.push(self.receipt(partition, provenance));
            let sequence = receipt.facts.sequence;
            rows.extend(
                (0..receipt.next_page())
                    .map(|page| self.page_of(partition, provenance, sequence, page)),
            );
        }
        if let Some(SweptEra { era, candidates, .. }) = &known.swept {
            let of = |document| self.candidate(partition, &era.provenance, document);
            rows.extend(candidates.keys().map(of));
        }
        let checkpoint = known.checkpoint.iter().map(|_| Table::SweepCheckpoint);
        let owed = known.owed.iter().map(|_| Table::OwedSweep);
        rows.extend(checkpoint.chain(owed).map(|table| self.key(table, partition, [])));
    }

    /// What the row-only columns of the row must hold.
    pub(super) fn content(&self, state: &Connector, key: &RowKey) -> Vec<(usize, ContentRef)> {
        let found = match key.table {
            Table::SyncState => {
                let recovery = state.sync.as_ref().and_then(|sync| sync.recovery);
                recovery.map(|content| (RECOVERY_COLUMN, content))
            }
            Table::SweepReceipt => {
                receipt_of(state, key).map(|(_, receipt)| (KEEP_COLUMN, keep_of(receipt)))
            }
            Table::ReceiptPage => page_of(state, key).map(|page| (SOURCE_IDS_COLUMN, page)),
            _ => None,
        };
        found.into_iter().collect()
    }

    /// The rows whose content the state keeps in memory.
    pub(super) fn resident(&self, state: &Connector) -> Vec<RowKey> {
        let recovery = state.sync.as_ref().and_then(|sync| sync.recovery);
        recovery.iter().map(|_| self.sync_state()).collect()
    }
}

fn text(key: &RowKey, at: usize) -> Option<&str> {
    key.values.get(at)?.as_text()
}

fn partition_of<'a>(state: &'a Connector, key: &RowKey) -> Option<&'a Partition> {
    state.partitions.get(text(key, 2)?)
}

fn receipt_of<'a>(state: &'a Connector, key: &RowKey) -> Option<(&'a Partition, &'a Receipt)> {
    let partition = partition_of(state, key)?;
    partition.receipts.get(text(key, 3)?).map(|receipt| (partition, receipt))
}

fn page_of(state: &Connector, key: &RowKey) -> Option<ContentRef> {
    let (_, receipt) = receipt_of(state, key)?;
    if key.values.get(4)?.as_int()? != receipt.facts.sequence {
        return None;
    }
    let page = usize::try_from(key.values.get(5)?.as_int()?).ok()?;
    receipt.pages.get(page).copied()
}

/// A receipt that is not complete keeps nothing yet; the column takes no NULL.
fn keep_of(receipt: &Receipt) -> ContentRef {
    match receipt.phase {
        ReceiptPhase::Open => ContentRef::of("[]"),
        ReceiptPhase::Abandoned(keep) => keep,
        ReceiptPhase::Complete(completion) | ReceiptPhase::Committed(completion, ..) => {
            completion.keep
        }
    }
}

fn receipt_values(receipt: &Receipt) -> [Value; 10] {
    let facts = &receipt.facts;
    let committed_at = match receipt.phase {
        ReceiptPhase::Committed(_, _, at) => Value::Int(at.as_millis()),
        _ => Value::Null,
    };
    [
        Value::Int(facts.sequence),
        Value::Text(facts.model_id.shared()),
        Value::text(facts.scope.as_str()),
        Value::Keep,
        Value::text(facts.source_fetch_hlc.as_str()),
        Value::text_or_null(facts.predicate.as_ref().map(Json::shared)),
        Value::text(facts.kind.as_str()),
        Value::Int(i64::from(receipt.phase.completion().is_some())),
        Value::Int(facts.created_at.as_millis()),
        committed_at,
    ]
}

fn candidate_values(candidate: &Candidate) -> [Value; 8] {
    [
        Value::Text(candidate.source_id.shared()),
        Value::Text(candidate.model_id.shared()),
        Value::text(candidate.state.as_str()),
        Value::Int(i64::from(candidate.attempts)),
        Value::Int(i64::from(candidate.apply_failures)),
        Value::text_or_null(candidate.last_error.as_deref()),
        Value::Int(candidate.next_attempt_at.as_millis()),
        Value::Int(candidate.updated_at.as_millis()),
    ]
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
