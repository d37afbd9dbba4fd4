//! The sweeps of an owner's connector: receipts, candidates, checkpoints.
//!
//! What is large stays out of the actor: pages are read and compared here, on the caller's task.

use super::{ConnectorRef, equal, rows, unexpected};
use crate::base::limits::MAX_PAGE_ROWS;
use crate::base::{DocumentId, Error, PartitionId, Provenance, Result, SourceId};
use crate::domain::connector::{
    BeginReceipt, CandidateKey, CandidateState, CommitReceipt, CommitResult, Comparer, Comparison,
    CompleteReceipt, ConnectorCommand, ConnectorReply, ExtendReceipt, KnownDocument,
    MassDeleteGuard, OwedSweep, ReceiptKey, SourceIdList, StandingCandidate, SweepCandidate,
    SweepCheckpoint, SweepOutcome, SweepReceipt, keep_content, pages_digest,
};
use crate::domain::{Columns, Row, Table, Value};
use crate::journal::{DueCandidates, RowQuery};
use crate::runtime::telemetry;

/// Pages of a receipt that are read at once.
const PAGES_PER_READ: u32 = 16;
/// Columns of a receipt page's row.
const PAGE_COLUMN: usize = 5;
const SOURCE_IDS_COLUMN: usize = 6;
/// Columns of a receipt's row.
const SEQUENCE_COLUMN: usize = 4;
const KEEP_COLUMN: usize = 7;

impl ConnectorRef {
    /// Begins an enumeration of a partition: the next sequence of its provenance. An unfinished one
    /// of the same partition and provenance is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidInput`]; retryable errors.
    pub async fn begin_receipt(&self, receipt: BeginReceipt) -> Result<SweepReceipt> {
        self.sender.store.check_json("predicate", receipt.predicate.as_ref())?;
        let (partition, provenance) = (receipt.partition.clone(), receipt.provenance.clone());
        let reply = self.send(ConnectorCommand::BeginReceipt(receipt)).await?;
        let ConnectorReply::ReceiptBegun { sequence } = reply else { return Err(unexpected()) };
        let key = ReceiptKey { partition, provenance, sequence };
        self.receipt_of(&key).await
    }

    /// The current receipt of a partition and provenance, so that an enumeration can go on at its
    /// `next_page` after a restart.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn receipt(
        &self,
        partition: &PartitionId,
        provenance: &Provenance,
    ) -> Result<Option<SweepReceipt>> {
        let (partition, provenance) = (partition.clone(), provenance.clone());
        match self.send(ConnectorCommand::Receipt { partition, provenance }).await? {
            ConnectorReply::Receipt(receipt) => Ok(receipt),
            _ => Err(unexpected()),
        }
    }

    async fn receipt_of(&self, key: &ReceiptKey) -> Result<SweepReceipt> {
        let receipt = self.without_id().receipt(&key.partition, &key.provenance).await?;
        let receipt = receipt.ok_or(Error::NotFound { what: "receipt" })?;
        if receipt.sequence == key.sequence {
            Ok(receipt)
        } else {
            let (partition, sequence) = (key.partition.clone(), key.sequence);
            Err(Error::ReceiptSuperseded { partition, sequence })
        }
    }

    /// Adds page `page` (from 0) of an enumeration. The same page with the same ids again is fine.
    ///
    /// # Errors
    /// [`Error::PageMismatch`], [`Error::PageGap`], [`Error::ScopeChanged`],
    /// [`Error::ReceiptSuperseded`], [`Error::ReceiptTooLarge`], [`Error::NotFound`]; retryable
    /// errors.
    pub async fn extend_receipt(
        &self,
        key: &ReceiptKey,
        page: u32,
        source_ids: Vec<SourceId>,
        fingerprint: &str,
    ) -> Result<()> {
        let command = ExtendReceipt {
            key: key.clone(),
            page,
            source_ids,
            fingerprint: fingerprint.to_owned(),
        };
        match self.send(ConnectorCommand::ExtendReceipt(command)).await? {
            ConnectorReply::NextPage(_) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Completes an enumeration of `pages` pages. To be called only when the provider said "last
    /// page". `expected_count` is how many entities the provider says there are; 0 is its word that
    /// the partition is empty.
    ///
    /// # Errors
    /// [`Error::ReceiptIncomplete`] when pages are missing or the count differs: the receipt stays
    /// open; [`Error::ScopeChanged`], [`Error::ReceiptSuperseded`], [`Error::NotFound`]; retryable
    /// errors.
    pub async fn complete_receipt(
        &self,
        key: &ReceiptKey,
        pages: u32,
        expected_count: Option<u64>,
        fingerprint: &str,
    ) -> Result<()> {
        self.receipt_of(key).await?;
        let (mut digests, mut lists) = (Vec::new(), Vec::new());
        self.each_page(key, |text, ids| {
            digests.push(crate::base::Digest::of(text.as_bytes()));
            lists.push(ids);
        })
        .await?;
        let (distinct, keep) = keep_content(&lists);
        self.done(ConnectorCommand::CompleteReceipt(CompleteReceipt {
            key: key.clone(),
            pages,
            expected_count,
            fingerprint: fingerprint.to_owned(),
            distinct,
            pages_digest: pages_digest(&digests),
            keep,
        }))
        .await
    }

    /// What [`Self::commit_receipt`] would come to. Nothing is changed.
    ///
    /// # Errors
    /// As [`Self::commit_receipt`].
    pub async fn plan_receipt(
        &self,
        key: &ReceiptKey,
        known: Vec<(DocumentId, SourceId)>,
        guard: MassDeleteGuard,
    ) -> Result<CommitResult> {
        let comparison = self.compare(key, known).await?;
        let command = CommitReceipt { key: key.clone(), comparison, guard };
        committed(&self.without_id().send(ConnectorCommand::PlanReceipt(command)).await?)
    }

    /// Commits a complete receipt. Of `known`, the documents in the receipt's scope, those that the
    /// enumeration lacks become sweep candidates; candidates that it has are withdrawn. The same
    /// receipt again answers its first result.
    ///
    /// # Errors
    /// [`Error::SweepTooLarge`] by the mass-delete guard: nothing is changed;
    /// [`Error::ReceiptIncomplete`], [`Error::ReceiptSuperseded`], [`Error::NotFound`],
    /// [`Error::InvalidInput`]; retryable errors.
    pub async fn commit_receipt(
        &self,
        key: &ReceiptKey,
        known: Vec<(DocumentId, SourceId)>,
        guard: MassDeleteGuard,
    ) -> Result<CommitResult> {
        let comparison = self.compare(key, known).await?;
        let command = CommitReceipt { key: key.clone(), comparison, guard };
        // The receipt names the command already: the same one again gets its first result, although
        // it may compare with other candidates by then.
        committed(&self.without_id().send(ConnectorCommand::CommitReceipt(command)).await?)
    }

    async fn compare(
        &self,
        key: &ReceiptKey,
        known: Vec<(DocumentId, SourceId)>,
    ) -> Result<Comparison> {
        // Pages that come later would count as missing by the time the command is decided.
        let receipt = self.receipt_of(key).await?;
        if !receipt.complete {
            return Err(incomplete(key));
        }
        let known = known
            .into_iter()
            .map(|(document_id, source_id)| KnownDocument { document_id, source_id })
            .collect();
        let mut comparer = Comparer::new(known, self.standing(&key.partition).await?);
        if receipt.next_page == 0 {
            // It is empty, or was completed before its database was adopted.
            comparer.page(&self.kept(key).await?);
        } else {
            self.each_page(key, |_, ids| comparer.page(&ids)).await?;
        }
        Ok(comparer.finish())
    }

    /// The list of a complete receipt.
    async fn kept(&self, key: &ReceiptKey) -> Result<Vec<SourceId>> {
        let filters = vec![
            equal(0, Value::Text(self.owner.shared())),
            equal(1, Value::Text(self.connector.shared())),
            equal(2, Value::Text(key.partition.shared())),
            equal(3, Value::Text(key.provenance.shared())),
        ];
        let (table, order, limit) = (Table::SweepReceipt, vec![0], 1);
        let query = RowQuery { table, filters, order, after: None, limit };
        let rows = self.sender.store.rows(&query).await?;
        let row = rows.first().ok_or_else(|| Error::damaged("the row of a receipt is missing"))?;
        let columns = Columns(row);
        if columns.int(SEQUENCE_COLUMN)? != key.sequence {
            let (partition, sequence) = (key.partition.clone(), key.sequence);
            return Err(Error::ReceiptSuperseded { partition, sequence });
        }
        SourceIdList::ids(columns.text(KEEP_COLUMN)?)
    }

    async fn standing(&self, partition: &PartitionId) -> Result<Vec<StandingCandidate>> {
        let mut standing: Vec<StandingCandidate> = Vec::new();
        let handle = self.without_id();
        loop {
            let after = standing.last().map(|last| last.document.document_id.clone());
            let page = handle.candidates(partition, after.as_ref(), MAX_PAGE_ROWS).await?;
            let is_last = page.len() < usize::try_from(MAX_PAGE_ROWS).unwrap_or(usize::MAX);
            standing.extend(page.into_iter().map(|candidate| StandingCandidate {
                provenance: candidate.provenance,
                document: KnownDocument {
                    document_id: candidate.document_id,
                    source_id: candidate.source_id,
                },
            }));
            if is_last {
                return Ok(standing);
            }
        }
    }

    /// Reads the stored pages of a receipt in order, a few at a time.
    async fn each_page(
        &self,
        key: &ReceiptKey,
        mut take: impl FnMut(&str, Vec<SourceId>),
    ) -> Result<()> {
        let filters = vec![
            equal(0, Value::Text(self.owner.shared())),
            equal(1, Value::Text(self.connector.shared())),
            equal(2, Value::Text(key.partition.shared())),
            equal(3, Value::Text(key.provenance.shared())),
            equal(4, Value::Int(key.sequence)),
        ];
        let mut query = RowQuery {
            table: Table::ReceiptPage,
            filters,
            order: vec![PAGE_COLUMN],
            after: None,
            limit: PAGES_PER_READ,
        };
        loop {
            let rows = self.sender.store.rows(&query).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            query.after = Some(vec![last.values[PAGE_COLUMN].clone()]);
            for row in &rows {
                let text = page_text(row)?;
                take(text, SourceIdList::ids(text)?);
            }
        }
    }

    /// The candidates that are due, by their time, then document. Those whose document has an
    /// unfinished operation are left out: local intent goes first. A hint for whom to ask next, not
    /// a permission to delete.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn due_candidates(&self, limit: u32) -> Result<Vec<SweepCandidate>> {
        let now = self.sender.store.now().await?;
        let page = DueCandidates {
            owner: self.owner.clone(),
            connector: self.connector.clone(),
            until: now,
            limit: limit.min(MAX_PAGE_ROWS),
        };
        let store = &self.sender.store;
        store.env().check_open()?;
        let rows = store.env().answer_in_time(store.storage().due_candidates(&page)).await?;
        telemetry::level(telemetry::DUE_CANDIDATES, rows.len());
        rows.iter().map(rows::candidate).collect()
    }

    /// One page of a partition's candidates in any state, by document, behind `after`.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn candidates(
        &self,
        partition: &PartitionId,
        after: Option<&DocumentId>,
        limit: u32,
    ) -> Result<Vec<SweepCandidate>> {
        let command = ConnectorCommand::Candidates {
            partition: partition.clone(),
            after: after.cloned(),
            limit: limit.min(MAX_PAGE_ROWS),
        };
        match self.send(command).await? {
            ConnectorReply::Candidates(candidates) => Ok(candidates),
            _ => Err(unexpected()),
        }
    }

    /// Records what the provider said of a candidate: absent confirms it, present withdraws it,
    /// unknown lets it wait. Gives the state that it has now; none when it was withdrawn. One that
    /// was confirmed stays confirmed when the next answer is unknown, while the entity may have come
    /// back: delete on an answer of your own that says absent, not on the state alone.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone; retryable errors.
    pub async fn record_sweep_outcome(
        &self,
        candidate: &CandidateKey,
        outcome: SweepOutcome,
    ) -> Result<Option<CandidateState>> {
        let candidate = candidate.clone();
        let command = ConnectorCommand::RecordSweepOutcome { candidate, outcome };
        candidate_now(&self.send(command).await?)
    }

    /// Records that a confirmed candidate could not be applied. At the fifth time it is dead.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone; [`Error::InvalidInput`]; retryable errors.
    pub async fn record_sweep_apply_failure(
        &self,
        candidate: &CandidateKey,
        error: &str,
    ) -> Result<Option<CandidateState>> {
        let (candidate, error) = (candidate.clone(), error.to_owned());
        let command = ConnectorCommand::RecordSweepApplyFailure { candidate, error };
        candidate_now(&self.send(command).await?)
    }

    /// Says that the host has applied a candidate: it is removed. One that is gone is fine.
    ///
    /// # Errors
    /// Retryable errors. No state of the candidate refuses it: it reports what has happened.
    pub async fn sweep_applied(&self, candidate: &CandidateKey) -> Result<()> {
        self.done(ConnectorCommand::SweepApplied { candidate: candidate.clone() }).await
    }

    /// Says that the provider lost the partition's cursor, so that a full list follows that has no
    /// tombstones: the partition owes a sweep until a receipt that begins later is committed.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn cursor_lost(&self, partition: &PartitionId) -> Result<()> {
        self.done(ConnectorCommand::CursorLost { partition: partition.clone() }).await
    }

    /// The partitions that owe a sweep, by name.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn owed_sweeps(&self) -> Result<Vec<OwedSweep>> {
        match self.send(ConnectorCommand::OwedSweeps).await? {
            ConnectorReply::OwedSweeps(owed) => Ok(owed),
            _ => Err(unexpected()),
        }
    }

    /// The newest committed receipt of a partition behind which nothing is left to do.
    ///
    /// # Errors
    /// Retryable errors.
    pub async fn sweep_checkpoint(
        &self,
        partition: &PartitionId,
    ) -> Result<Option<SweepCheckpoint>> {
        let partition = partition.clone();
        match self.send(ConnectorCommand::SweepCheckpoint { partition }).await? {
            ConnectorReply::SweepCheckpoint(checkpoint) => Ok(checkpoint),
            _ => Err(unexpected()),
        }
    }
}

fn incomplete(key: &ReceiptKey) -> Error {
    let reason = "the last page is not here".to_owned();
    Error::ReceiptIncomplete { partition: key.partition.clone(), reason }
}

fn page_text(row: &Row) -> Result<&str> {
    let text = row.values.get(SOURCE_IDS_COLUMN).and_then(Value::as_text);
    text.ok_or_else(|| Error::damaged("a page of a receipt"))
}

fn committed(reply: &ConnectorReply) -> Result<CommitResult> {
    match reply {
        ConnectorReply::Committed(result) => Ok(*result),
        _ => Err(unexpected()),
    }
}

fn candidate_now(reply: &ConnectorReply) -> Result<Option<CandidateState>> {
    match reply {
        ConnectorReply::CandidateNow(state) => Ok(*state),
        _ => Err(unexpected()),
    }
}
