//! The rules of enumerations: begin, pages, the last page.

use super::command::{
    BeginReceipt, CompleteReceipt, ConnectorReply, ExtendReceipt, ReceiptKey, ReceiptKind,
};
use super::content::{SourceIdList, pages_digest};
use super::event::{
    ConnectorEvent, DroppedReceipt, ReceiptBegun, ReceiptCompleted, ReceiptExtended,
};
use super::rows::{KEEP_COLUMN, Naming, SOURCE_IDS_COLUMN};
use super::state::{Connector, Partition, Receipt, ReceiptFacts, ReceiptPhase};
use super::view::SweepReceipt;
use crate::base::limits::{
    MAX_RECEIPT_BYTES, MAX_RECEIPT_IDS, MAX_RECEIPT_PAGES, MAX_RECEIPT_TEXT_BYTES,
};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Digest, Error, PartitionId, Provenance, Result, check_nul};
use crate::domain::{Context, Decision};

impl Connector {
    /// The current receipt of a partition and lineage.
    #[must_use]
    pub fn sweep_receipt(
        &self,
        partition: &PartitionId,
        provenance: &Provenance,
    ) -> Option<SweepReceipt> {
        let receipt = self.partitions.get(partition)?.receipts.get(provenance)?;
        let facts = &receipt.facts;
        let (result, committed_at) = match receipt.phase {
            ReceiptPhase::Committed(_, result, at) => (Some(result), Some(at)),
            _ => (None, None),
        };
        Some(SweepReceipt {
            partition: partition.clone(),
            provenance: provenance.clone(),
            sequence: facts.sequence,
            model_id: facts.model_id.clone(),
            scope: facts.scope.clone(),
            source_fetch_hlc: facts.source_fetch_hlc.clone(),
            predicate: facts.predicate.clone(),
            kind: facts.kind,
            fingerprint: facts.fingerprint.clone(),
            next_page: receipt.next_page(),
            ids: receipt.ids,
            complete: receipt.phase.completion().is_some(),
            expected_count: receipt.phase.completion().and_then(|done| done.expected_count),
            created_at: facts.created_at,
            committed_at,
            result,
        })
    }

    /// Gives the next sequence of the key; what the key had before is dropped. A lineage that is
    /// not the newest era's opens a new era.
    pub(super) fn begin_receipt(
        &self,
        naming: &Naming<'_>,
        input: &BeginReceipt,
        context: &Context,
    ) -> Result<Decision<Self>> {
        check_text("scope", &input.scope)?;
        check_text("fingerprint", &input.fingerprint)?;
        check_predicate(input)?;
        let partition = self.partitions.get(&input.partition);
        let earlier = partition.and_then(|partition| partition.receipts.get(&input.provenance));
        let sequence = earlier.map_or(Ok(1), |earlier| next(earlier.facts.sequence))?;
        let era = match partition.and_then(|partition| partition.era.as_ref()) {
            Some(era) if era.provenance == input.provenance => era.number,
            Some(era) => next(era.number)?,
            None => 1,
        };
        let receipt = ReceiptFacts {
            era,
            sequence,
            begun_version: context.next_version,
            model_id: input.model_id.clone(),
            scope: input.scope.clone(),
            source_fetch_hlc: input.source_fetch_hlc.clone(),
            predicate: input.predicate.clone(),
            kind: input.kind,
            fingerprint: input.fingerprint.clone(),
            created_at: context.now,
        };
        let dropped = earlier.map(|earlier| DroppedReceipt {
            sequence: earlier.facts.sequence,
            pages: earlier.next_page(),
        });
        let event = ConnectorEvent::ReceiptBegun(ReceiptBegun {
            partition: input.partition.clone(),
            provenance: input.provenance.clone(),
            receipt,
            dropped,
        });
        let mut decision = Decision::events(ConnectorReply::ReceiptBegun { sequence }, vec![event]);
        let row = naming.receipt(&input.partition, &input.provenance);
        decision.content.push((row, KEEP_COLUMN, SourceIdList::of([]).to_value()));
        Ok(decision)
    }

    /// Adds the next page. A page that is there already is fine with the same ids. A complete
    /// receipt takes no further page: what the provider lists now is another enumeration.
    pub(super) fn extend_receipt(
        &self,
        naming: &Naming<'_>,
        input: &ExtendReceipt,
    ) -> Result<Decision<Self>> {
        let key = &input.key;
        let (_, receipt) = self.current_receipt(key)?;
        receipt.check_fingerprint(key, &input.fingerprint)?;
        let next_page = receipt.next_page();
        if input.page < next_page {
            return receipt.repeat_page(input);
        }
        if !matches!(receipt.phase, ReceiptPhase::Open) {
            return Err(superseded(key));
        }
        if input.page > next_page && !is_planted(PlantedBug::PageGapTaken) {
            return Err(Error::PageGap { partition: key.partition.clone(), expected: next_page });
        }
        let ids = input.source_ids.len() as u64;
        let id_bytes = input.source_ids.iter().map(|id| id.as_str().len() as u64).sum();
        receipt.check_room(key, ids, id_bytes)?;
        let list = SourceIdList::of(&input.source_ids);
        let event = ConnectorEvent::ReceiptExtended(ReceiptExtended {
            key: key.clone(),
            page: input.page,
            ids,
            id_bytes,
            content: list.content(),
        });
        let reply = ConnectorReply::NextPage(next_page + 1);
        let mut decision = Decision::events(reply, vec![event]);
        let row = naming.page(key, input.page);
        decision.content.push((row, SOURCE_IDS_COLUMN, list.to_value()));
        Ok(decision)
    }

    /// Ends the enumeration, when no page is missing and the provider's count is what was seen.
    pub(super) fn complete_receipt(
        &self,
        naming: &Naming<'_>,
        input: &CompleteReceipt,
    ) -> Result<Decision<Self>> {
        let key = &input.key;
        let (_, receipt) = self.current_receipt(key)?;
        receipt.check_fingerprint(key, &input.fingerprint)?;
        if input.pages != receipt.next_page() {
            let reason = format!("{} of {} pages are here", receipt.next_page(), input.pages);
            return Err(incomplete(key, reason));
        }
        if let Some(completion) = receipt.phase.completion() {
            if completion.expected_count == input.expected_count {
                return Ok(Decision::unchanged(ConnectorReply::Done));
            }
            let reason = "expected the count that the receipt was completed with";
            return Err(Error::invalid("expected_count", reason));
        }
        let digests: Vec<Digest> = receipt.pages.iter().map(|page| page.digest).collect();
        if pages_digest(&digests) != input.pages_digest {
            return Err(superseded(key));
        }
        if let Some(count) = input.expected_count.filter(|count| *count != input.distinct)
            && !is_planted(PlantedBug::ShortEnumerationCompletes)
        {
            let reason = format!("{} of {count} entities were seen", input.distinct);
            return Err(incomplete(key, reason));
        }
        let event = ConnectorEvent::ReceiptCompleted(ReceiptCompleted {
            key: key.clone(),
            expected_count: input.expected_count,
            distinct: input.distinct,
            keep: input.keep.content(),
        });
        let mut decision = Decision::events(ConnectorReply::Done, vec![event]);
        let row = naming.receipt(&key.partition, &key.provenance);
        decision.content.push((row, KEEP_COLUMN, input.keep.to_value()));
        Ok(decision)
    }

    /// The partition and the receipt that the key names.
    pub(super) fn current_receipt(&self, key: &ReceiptKey) -> Result<(&Partition, &Receipt)> {
        let partition = self.partitions.get(&key.partition);
        let found = partition.and_then(|partition| {
            partition.receipts.get(&key.provenance).map(|receipt| (partition, receipt))
        });
        let (partition, receipt) = found.ok_or(Error::NotFound { what: "receipt" })?;
        if receipt.facts.sequence != key.sequence {
            return Err(superseded(key));
        }
        Ok((partition, receipt))
    }
}

impl Receipt {
    /// The page that comes next. The number of pages is capped far below `u32`.
    pub(super) fn next_page(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    /// An empty one says that it is not known what the enumeration depends on, so it is never the same.
    fn check_fingerprint(&self, key: &ReceiptKey, fingerprint: &str) -> Result<()> {
        if self.facts.fingerprint == fingerprint && !fingerprint.is_empty() {
            return Ok(());
        }
        Err(Error::ScopeChanged { partition: key.partition.clone() })
    }

    fn repeat_page(&self, input: &ExtendReceipt) -> Result<Decision<Connector>> {
        let content = SourceIdList::of(&input.source_ids).content();
        let given = usize::try_from(input.page).ok().and_then(|page| self.pages.get(page));
        if given == Some(&content) {
            return Ok(Decision::unchanged(ConnectorReply::NextPage(self.next_page())));
        }
        Err(Error::PageMismatch { partition: input.key.partition.clone(), page: input.page })
    }

    fn check_room(&self, key: &ReceiptKey, ids: u64, id_bytes: u64) -> Result<()> {
        let reason = if self.ids.saturating_add(ids) > MAX_RECEIPT_IDS {
            format!("expected at most {MAX_RECEIPT_IDS} ids")
        } else if self.id_bytes.saturating_add(id_bytes) > MAX_RECEIPT_BYTES {
            format!("expected at most {MAX_RECEIPT_BYTES} bytes of ids")
        } else if self.next_page() >= MAX_RECEIPT_PAGES {
            format!("expected at most {MAX_RECEIPT_PAGES} pages")
        } else {
            return Ok(());
        };
        Err(Error::ReceiptTooLarge { partition: key.partition.clone(), reason })
    }
}

/// The refusal of a receipt whose place another took.
pub(super) fn superseded(key: &ReceiptKey) -> Error {
    Error::ReceiptSuperseded { partition: key.partition.clone(), sequence: key.sequence }
}

/// The refusal of a receipt that lacks something.
pub(super) fn incomplete(key: &ReceiptKey, reason: String) -> Error {
    Error::ReceiptIncomplete { partition: key.partition.clone(), reason }
}

fn next(counter: i64) -> Result<i64> {
    counter
        .checked_add(1)
        .ok_or_else(|| Error::invalid("sequence", "expected a sequence below 2^63"))
}

fn check_text(field: &'static str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_RECEIPT_TEXT_BYTES {
        let reason = format!("expected 1 to {MAX_RECEIPT_TEXT_BYTES} bytes, got {}", text.len());
        return Err(Error::invalid(field, reason));
    }
    check_nul(field, text)
}

fn check_predicate(input: &BeginReceipt) -> Result<()> {
    match (input.kind, &input.predicate) {
        (ReceiptKind::Full, None) | (ReceiptKind::Predicate, Some(_)) => Ok(()),
        (ReceiptKind::Full, Some(_)) => {
            Err(Error::invalid("predicate", "expected none for a full enumeration"))
        }
        (ReceiptKind::Predicate, None) => {
            Err(Error::invalid("predicate", "expected the restriction of the enumeration"))
        }
    }
}

#[cfg(test)]
#[path = "receipt_tests.rs"]
mod tests;
