//! A connector's state, and how events change it.
//!
//! No rule is here: what an event says has happened.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{ReceiptKey, ReceiptKind, SyncStatus};
use super::event::{ConnectorEvent, ReceiptBegun, ReceiptCommitted, ReceiptForgotten};
use super::view::{CommitResult, SweepCheckpoint};
use crate::base::{
    DocumentId, Json, ModelId, PartitionId, Provenance, Rfc3339, SourceId, Timestamp,
};
use crate::domain::{ContentRef, Lease};
use crate::records::Hlc;

/// The state of one connector's stream. It is snapshot format: golden files hold its bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connector {
    /// The sync state.
    pub(super) sync: Option<SyncRecord>,
    /// The content of the sync state's `recovery`, which lives in its row.
    #[serde(skip)]
    pub(super) recovery: Option<Json>,
    /// The sync lease that was acquired last and not released.
    pub(super) lease: Option<Lease>,
    /// What is known of each partition.
    pub(super) partitions: BTreeMap<PartitionId, Partition>,
    /// The forgetting that has begun and not ended.
    pub(super) forgetting: Option<Forgetting>,
    /// The mark of the newest forgetting that went through; 0 before the first.
    pub(super) forgotten: i64,
}

/// A forgetting that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgetting {
    /// The stream version of its begin, which tells it from earlier and later ones.
    pub mark: i64,
    /// When it began.
    pub begun_at: Timestamp,
}

/// The sync state as events hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncRecord {
    /// Where the sync goes on.
    pub checkpoint: Option<Json>,
    /// What was fetched but not applied: its digest and length.
    pub recovery: Option<ContentRef>,
    /// When the source was last in sync.
    pub last_synced_at: Rfc3339,
    /// How many entities are mirrored.
    pub entity_count: i64,
    /// What the sync is doing.
    pub status: SyncStatus,
    /// What failed.
    pub error: Option<String>,
    /// Grows by one with each progress update, from 0.
    pub version: i64,
    /// Tells this state from earlier ones that were deleted.
    pub incarnation: Uuid,
}

/// What is known of one partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    /// The newest era.
    pub(super) era: Option<Era>,
    /// The current receipt of each lineage; its sequence is the newest one given.
    pub(super) receipts: BTreeMap<Provenance, Receipt>,
    /// What the commits of the newest era that has one left behind.
    pub(super) swept: Option<SweptEra>,
    /// The newest receipt behind which nothing is left to do.
    pub(super) checkpoint: Option<SweepCheckpoint>,
    /// A sweep is owed.
    pub(super) owed: Option<Owed>,
}

/// A span of receipts of one lineage. Sequences compare within an era alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Era {
    /// Counts the eras of the partition, from 1.
    pub number: i64,
    /// The lineage.
    pub provenance: Provenance,
}

/// The current receipt of a partition and lineage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// What is fixed from the start.
    pub(super) facts: ReceiptFacts,
    /// The list of each page.
    pub(super) pages: Vec<ContentRef>,
    /// How many ids the pages list.
    pub(super) ids: u64,
    /// How many bytes these ids have.
    pub(super) id_bytes: u64,
    /// How far it is.
    pub(super) phase: ReceiptPhase,
}

/// What is fixed of a receipt from the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptFacts {
    /// The era that it was begun in.
    pub era: i64,
    /// The place in its lineage.
    pub sequence: i64,
    /// The stream version of its begin.
    pub begun_version: i64,
    /// The documents' model.
    pub model_id: ModelId,
    /// Which documents it speaks for.
    pub scope: String,
    /// The clock when the enumeration began.
    pub source_fetch_hlc: Hlc,
    /// The restriction of the enumeration.
    pub predicate: Option<Json>,
    /// Whether the whole partition is enumerated.
    pub kind: ReceiptKind,
    /// What the enumeration depends on.
    pub fingerprint: String,
    /// When.
    pub created_at: Timestamp,
}

/// How far a receipt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiptPhase {
    /// Pages may come.
    Open,
    /// The provider gave its last page.
    Complete(Completion),
    /// It counts.
    Committed(Completion, CommitResult, Timestamp),
    /// It was begun before its database was adopted and has no pages here, only this unfinished
    /// list: it can only be begun anew.
    Abandoned(ContentRef),
}

/// What the end of an enumeration fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// How many entities the provider said there are.
    pub expected_count: Option<u64>,
    /// How many distinct ids were seen.
    pub distinct: u64,
    /// The list of them.
    pub keep: ContentRef,
}

/// What the commits of an era left behind. A commit of a newer era ends it, so all standing
/// candidates of a partition are of one lineage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweptEra {
    /// The era.
    pub(super) era: Era,
    /// The sequence of the newest committed receipt.
    pub(super) committed: i64,
    /// The standing candidates.
    pub(super) candidates: BTreeMap<DocumentId, Candidate>,
    /// How many pending and confirmed candidates each receipt has, none of them 0.
    pub(super) open: BTreeMap<i64, u64>,
    /// Committed receipts that the checkpoint may still move to.
    pub(super) awaiting: BTreeSet<i64>,
}

/// A document whose entity an enumeration lacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its entity.
    pub source_id: SourceId,
    /// Its model.
    pub model_id: ModelId,
    /// The sequence of the receipt that made it.
    pub sequence: i64,
    /// How far it is.
    pub state: CandidateState,
    /// How often the provider did not say.
    pub attempts: u32,
    /// How often it could not be applied.
    pub apply_failures: u32,
    /// Why it could not be applied the last time.
    pub last_error: Option<Box<str>>,
    /// When it is due.
    pub next_attempt_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// How far a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CandidateState {
    /// The provider was not asked yet, or did not say.
    Pending,
    /// The provider says that the entity is gone.
    Confirmed,
    /// It could not be applied too often.
    Dead,
}

impl CandidateState {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Confirmed => "confirmed",
            Self::Dead => "dead",
        }
    }

    /// The state of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Confirmed, Self::Dead];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

/// A sweep is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// When the cursor was first lost.
    pub since: Timestamp,
    /// The stream version at which it was lost last.
    pub version: i64,
}

impl ReceiptPhase {
    pub(super) const fn completion(&self) -> Option<&Completion> {
        match self {
            Self::Open | Self::Abandoned(_) => None,
            Self::Complete(completion) | Self::Committed(completion, ..) => Some(completion),
        }
    }
}

impl Connector {
    pub(super) fn apply_event(&mut self, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::SyncStateSet(record) | ConnectorEvent::SyncProgressUpdated(record) => {
                self.sync = Some(record.clone());
                self.recovery = None;
            }
            ConnectorEvent::SyncStateDeleted => {
                self.sync = None;
                self.recovery = None;
            }
            ConnectorEvent::LeaseAcquired(lease) => self.lease = Some(lease.clone()),
            ConnectorEvent::LeaseRenewed(renewed) => {
                if let Some(lease) = &mut self.lease {
                    lease.expires_at = renewed.expires_at;
                }
            }
            ConnectorEvent::LeaseReleased => self.lease = None,
            ConnectorEvent::ReceiptBegun(begun) => self.partition(&begun.partition).begin(begun),
            ConnectorEvent::ReceiptExtended(extended) => {
                if let Some(receipt) = self.receipt_mut(&extended.key) {
                    receipt.pages.push(extended.content);
                    receipt.ids = receipt.ids.saturating_add(extended.ids);
                    receipt.id_bytes = receipt.id_bytes.saturating_add(extended.id_bytes);
                }
            }
            ConnectorEvent::ReceiptCompleted(completed) => {
                if let Some(receipt) = self.receipt_mut(&completed.key) {
                    receipt.phase = ReceiptPhase::Complete(Completion {
                        expected_count: completed.expected_count,
                        distinct: completed.distinct,
                        keep: completed.keep,
                    });
                }
            }
            ConnectorEvent::ReceiptCommitted(committed) => {
                self.partition(&committed.key.partition).commit(committed);
            }
            ConnectorEvent::ReceiptAdopted(adopted) => {
                self.partition(&adopted.partition).adopt_receipt(adopted);
            }
            ConnectorEvent::CursorLost(lost) => {
                let owed = &mut self.partition(&lost.partition).owed;
                let since = owed.map_or(lost.at, |owed| owed.since);
                *owed = Some(Owed { since, version: lost.version });
            }
            ConnectorEvent::CheckpointMoved(moved) => {
                self.partition(&moved.key.partition).move_checkpoint(moved);
            }
            ConnectorEvent::ConnectionForgetBegun(begun) => {
                self.lease = None;
                self.forgetting = Some(begun.forgetting);
            }
            ConnectorEvent::ConnectionForgetAbandoned => self.forgetting = None,
            ConnectorEvent::ConnectionForgotten(forgotten) => {
                *self = Self { forgotten: forgotten.mark, ..Self::default() };
            }
            ConnectorEvent::PartitionForgotten(forgotten) => {
                self.partitions.remove(&forgotten.partition);
            }
            ConnectorEvent::ReceiptForgotten(forgotten) => self.forget_receipt(forgotten),
            _ => self.apply_candidate_event(event),
        }
    }

    fn forget_receipt(&mut self, forgotten: &ReceiptForgotten) {
        let key = &forgotten.key;
        if forgotten.is_whole {
            self.partition(&key.partition).receipts.remove(&key.provenance);
        } else if let Some(receipt) = self.receipt_mut(key) {
            let kept = usize::try_from(forgotten.pages_kept).unwrap_or(usize::MAX);
            receipt.pages.truncate(kept);
        }
    }

    fn apply_candidate_event(&mut self, event: &ConnectorEvent) {
        match event {
            ConnectorEvent::CandidatesCreated(created) => {
                if let Some(swept) = self.swept_mut(&created.key.partition) {
                    swept.create(created);
                }
            }
            ConnectorEvent::CandidatesWithdrawn(withdrawn) => {
                if let Some(swept) = self.swept_mut(&withdrawn.partition) {
                    for document in &withdrawn.documents {
                        swept.remove(document);
                    }
                }
            }
            ConnectorEvent::CandidateConfirmed(confirmed) => {
                self.change_candidate(&confirmed.candidate, |candidate| {
                    candidate.state = CandidateState::Confirmed;
                    candidate.next_attempt_at = confirmed.at;
                    candidate.updated_at = confirmed.at;
                });
            }
            ConnectorEvent::CandidateDeferred(deferred) => {
                self.change_candidate(&deferred.candidate, |candidate| {
                    candidate.attempts = deferred.attempts;
                    candidate.next_attempt_at = deferred.next_attempt_at;
                    candidate.updated_at = deferred.at;
                });
            }
            ConnectorEvent::CandidateApplyFailed(failed) => {
                self.change_candidate(&failed.candidate, |candidate| {
                    candidate.apply_failures = failed.apply_failures;
                    candidate.last_error = Some(failed.error.as_str().into());
                    candidate.next_attempt_at = failed.next_attempt_at;
                    candidate.updated_at = failed.at;
                    if failed.is_dead {
                        candidate.state = CandidateState::Dead;
                    }
                });
            }
            ConnectorEvent::CandidateAdopted(adopted) => {
                self.partition(&adopted.partition).adopt_candidate(adopted);
            }
            ConnectorEvent::CandidateApplied(gone) | ConnectorEvent::CandidateDropped(gone) => {
                if let Some(swept) = self.swept_mut(&gone.candidate.partition) {
                    swept.remove(&gone.candidate.document_id);
                }
            }
            _ => {}
        }
    }

    fn partition(&mut self, partition: &PartitionId) -> &mut Partition {
        self.partitions.entry(partition.clone()).or_default()
    }

    fn receipt_mut(&mut self, key: &ReceiptKey) -> Option<&mut Receipt> {
        self.partitions.get_mut(&key.partition)?.receipts.get_mut(&key.provenance)
    }

    fn swept_mut(&mut self, partition: &PartitionId) -> Option<&mut SweptEra> {
        self.partitions.get_mut(partition)?.swept.as_mut()
    }

    fn change_candidate(
        &mut self,
        key: &super::command::CandidateKey,
        change: impl FnOnce(&mut Candidate),
    ) {
        if let Some(swept) = self.swept_mut(&key.partition) {
            swept.change(&key.document_id, change);
        }
    }
}

impl Partition {
    fn begin(&mut self, begun: &ReceiptBegun) {
        self.era = Some(Era { number: begun.receipt.era, provenance: begun.provenance.clone() });
        let receipt = Receipt {
            facts: begun.receipt.clone(),
            pages: Vec::new(),
            ids: 0,
            id_bytes: 0,
            phase: ReceiptPhase::Open,
        };
        self.receipts.insert(begun.provenance.clone(), receipt);
    }

    fn commit(&mut self, committed: &ReceiptCommitted) {
        if let Some(receipt) = self.receipts.get_mut(&committed.key.provenance)
            && let ReceiptPhase::Complete(completion) = receipt.phase
        {
            receipt.phase = ReceiptPhase::Committed(completion, committed.result, committed.at);
        }
        if committed.settles_owed {
            self.owed = None;
        }
        if self.swept.as_ref().is_none_or(|swept| swept.era.number != committed.era) {
            let provenance = committed.key.provenance.clone();
            self.swept = Some(SweptEra::new(Era { number: committed.era, provenance }));
        }
        if let Some(swept) = &mut self.swept {
            swept.committed = committed.key.sequence;
            swept.wait_for(committed.key.sequence);
        }
    }
}
