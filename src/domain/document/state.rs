//! A document's state, and how events change it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::event::{DocumentEvent, OperationClaimed, OperationCreated};
use super::observation::Observation;
use super::repair::ObservationRepair;
use super::watch::WatchIdentity;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{
    ConnectorName, Digest, DocumentId, Json, OperationId, OwnerDid, SourceId, Timestamp,
};
use crate::domain::{Context, Lease};
use crate::records::Hlc;

/// The state of one document's stream. It is snapshot format: golden files hold its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The standing trim.
    pub trim: Option<Box<EntityTrim>>,
    /// When the sweep began that is not ended.
    pub sweep_begun_at: Option<Timestamp>,
    /// The stream holds events that a sweep must erase.
    pub has_history: bool,
    /// The operations whose rows exist.
    pub operations: BTreeMap<OperationId, Operation>,
    /// The newest operation's place.
    pub operation_sequence: i64,
    /// The standing watch.
    pub watch: Option<Box<Watch>>,
    /// The copies of observation records, by owner.
    pub observations: BTreeMap<OwnerDid, Observation>,
    /// The standing repair obligation.
    pub repair: Option<Box<ObservationRepair>>,
}

/// Which fields were fitted to the model's caps when the document was last written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityTrim {
    /// Whose document, as the first write said.
    pub owner: OwnerDid,
    /// Which connector's, as the first write said.
    pub connector: ConnectorName,
    /// The trimmed fields.
    pub trimmed_fields: Json,
    /// When it was last set.
    pub updated_at: Timestamp,
}

/// An [`EntityTrim`] with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntityTrimRecord {
    /// The document.
    pub document_id: DocumentId,
    /// Whose document.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// The trimmed fields.
    pub trimmed_fields: Json,
    /// When it was last set.
    pub updated_at: Timestamp,
}

/// What an operation does at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperationKind {
    /// Makes the entity.
    Create,
    /// Changes it.
    Update,
    /// Removes it.
    Delete,
}

impl OperationKind {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// The one of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Create, Self::Update, Self::Delete];
        all.into_iter().find(|one| one.as_str() == text)
    }
}

/// Why an operation is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DeferReason {
    /// The provider wants fewer requests.
    RateLimited,
    /// The provider can't be reached.
    Offline,
    /// The account must be authorized anew.
    AuthRequired,
    /// The entity changed at the provider.
    Conflict,
    /// Another operation must be done first.
    Dependency,
}

impl DeferReason {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::Offline => "offline",
            Self::AuthRequired => "auth_required",
            Self::Conflict => "conflict",
            Self::Dependency => "dependency",
        }
    }

    /// The one of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [
            Self::RateLimited,
            Self::Offline,
            Self::AuthRequired,
            Self::Conflict,
            Self::Dependency,
        ];
        all.into_iter().find(|one| one.as_str() == text)
    }
}

/// When a request left, and until when it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendMark {
    /// When the mark was set.
    pub started_at: Timestamp,
    /// Nothing is sent after it.
    pub until: Timestamp,
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationPhase {
    /// It may be sent, once.
    Attempted {
        /// It was sent, perhaps.
        sent: Option<SendMark>,
    },
    /// The provider must be asked what happened.
    ReconcileOnly {
        /// When it was sent.
        sent: SendMark,
        /// When the provider was asked under the present claim.
        read_at: Option<Timestamp>,
    },
    /// The provider has the write.
    Committed {
        /// The entity at the provider.
        source_id: SourceId,
        /// The provider's version of it.
        source_version: Option<String>,
    },
    /// The write will never be made.
    Dead {
        /// Why.
        error: String,
    },
}

impl OperationPhase {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Attempted { .. } => "attempted",
            Self::ReconcileOnly { .. } => "reconcile_only",
            Self::Committed { .. } => "committed",
            Self::Dead { .. } => "dead",
        }
    }

    /// Nothing leads out of it.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Committed { .. } | Self::Dead { .. })
    }
}

/// When an operation that was given back may be claimed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeferredUntil {
    /// Why.
    pub reason: DeferReason,
    /// When.
    pub not_before: Timestamp,
}

/// One intended write to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Whose account.
    pub owner: OwnerDid,
    /// Which connector's.
    pub connector: ConnectorName,
    /// What is done.
    pub op: OperationKind,
    /// The stamp of the local change.
    pub version: Hlc,
    /// The digest of the request.
    pub request_digest: Digest,
    /// How long the provider may take to show a write.
    pub visibility_delay_ms: i64,
    /// Its place among the document's operations, from 1.
    pub sequence: i64,
    /// How far it is.
    pub phase: OperationPhase,
    /// How often it was claimed to be sent.
    pub attempts: u32,
    /// The standing claim.
    pub lease: Option<Lease>,
    /// When it may be claimed again.
    pub deferral: Option<DeferredUntil>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// An [`Operation`] with its names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Unique over the store.
    pub operation_id: OperationId,
    /// The document.
    pub document_id: DocumentId,
    /// The operation.
    pub operation: Operation,
}

impl Operation {
    pub(super) const fn is_final(&self) -> bool {
        self.phase.is_final()
    }

    pub(super) fn view(&self, document: &DocumentId, id: &OperationId) -> OperationRecord {
        OperationRecord {
            operation_id: id.clone(),
            document_id: document.clone(),
            operation: self.clone(),
        }
    }

    /// The standing claim. One of another generation is void: it was made in a future that a
    /// restored store never saw.
    pub(super) fn standing_lease(&self, context: &Context) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.token.generation == context.generation)
    }

    /// When somebody must look at it; none once it is finished.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        let is_forgotten = self.deferral.is_some() && is_planted(PlantedBug::DeferredIsNeverDue);
        if self.is_final() || is_forgotten {
            return None;
        }
        let lease_ends = self.lease.as_ref().map(|lease| lease.expires_at);
        let waits = self.deferral.map(|deferral| deferral.not_before);
        lease_ends.or(waits).or(Some(self.updated_at))
    }

    fn created(created: &OperationCreated) -> Self {
        Self {
            owner: created.owner.clone(),
            connector: created.connector.clone(),
            op: created.op,
            version: created.version.clone(),
            request_digest: created.request_digest,
            visibility_delay_ms: created.visibility_delay_ms,
            sequence: created.sequence,
            phase: match created.sent {
                None => OperationPhase::Attempted { sent: None },
                Some(sent) => OperationPhase::ReconcileOnly { sent, read_at: None },
            },
            attempts: u32::from(created.sent.is_none()),
            lease: Some(created.lease.clone()),
            deferral: None,
            created_at: created.at,
            updated_at: created.at,
        }
    }

    fn claimed(&mut self, claimed: &OperationClaimed) {
        self.lease = Some(claimed.lease.clone());
        self.deferral = None;
        self.attempts = claimed.attempts;
        if claimed.reconcile {
            let sent = match self.phase {
                OperationPhase::Attempted { sent } => sent,
                OperationPhase::ReconcileOnly { sent, .. } => Some(sent),
                OperationPhase::Committed { .. } | OperationPhase::Dead { .. } => None,
            };
            if let Some(sent) = sent {
                self.phase = OperationPhase::ReconcileOnly { sent, read_at: None };
            }
        }
    }
}

/// Why a document is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WatchReason {
    /// It was written.
    Write,
    /// It was repaired.
    Repair,
    /// A conflict was settled.
    Conflict,
}

impl WatchReason {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Repair => "repair",
            Self::Conflict => "conflict",
        }
    }

    /// The one of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Write, Self::Repair, Self::Conflict];
        all.into_iter().find(|one| one.as_str() == text)
    }
}

/// How far a watch is. One that is verified is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WatchStatus {
    /// Nothing was read that counts.
    Pending,
    /// Another value was read.
    Mismatched,
    /// Another value was read behind the deadline.
    Expired,
}

impl WatchStatus {
    /// The word of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Mismatched => "mismatched",
            Self::Expired => "expired",
        }
    }

    /// The one of a word of the table.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Mismatched, Self::Expired];
        all.into_iter().find(|one| one.as_str() == text)
    }
}

/// A watch that a write is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// What is watched.
    pub identity: WatchIdentity,
    /// Why.
    pub reason: WatchReason,
    /// What must be read; none when the entity must be absent.
    pub expected_digest: Option<Digest>,
    /// The stamp of the write.
    pub written_hlc: Hlc,
    /// When it was armed.
    pub armed_at: Timestamp,
    /// From then on a different value expires it.
    pub deadline: Timestamp,
    /// How far it is.
    pub status: WatchStatus,
    /// How often another value was read.
    pub mismatches: u32,
    /// When the newest fetch that counted began.
    pub last_fetch_hlc: Option<Hlc>,
}

/// A [`Watch`] with its document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectionWatch {
    /// The document.
    pub document_id: DocumentId,
    /// The watch.
    pub watch: Watch,
}

impl Document {
    pub(super) fn apply_event(&mut self, event: &DocumentEvent) {
        self.has_history = true;
        match event {
            DocumentEvent::Swept => *self = Self::default(),
            DocumentEvent::EntityTrimSet(set) => {
                self.trim = Some(Box::new(EntityTrim {
                    owner: set.owner.clone(),
                    connector: set.connector.clone(),
                    trimmed_fields: set.trimmed_fields.clone(),
                    updated_at: set.updated_at,
                }));
            }
            DocumentEvent::EntityTrimCleared => self.trim = None,
            DocumentEvent::DocumentSweepBegun(begun) => self.sweep_begun_at = Some(begun.at),
            DocumentEvent::DocumentSweepAbandoned => self.sweep_begun_at = None,
            DocumentEvent::WatchArmed(armed) => self.watch = Some(Box::new(Watch::armed(armed))),
            DocumentEvent::WatchVerified | DocumentEvent::WatchDisarmed => self.watch = None,
            DocumentEvent::WatchMismatched(mismatched) => {
                if let Some(watch) = &mut self.watch {
                    watch.status = WatchStatus::Mismatched;
                    watch.mismatches = mismatched.mismatches;
                    watch.last_fetch_hlc = Some(mismatched.fetch_hlc.clone());
                }
            }
            DocumentEvent::WatchExpired(expired) => {
                if let Some(watch) = &mut self.watch {
                    watch.status = WatchStatus::Expired;
                    watch.last_fetch_hlc = Some(expired.fetch_hlc.clone());
                }
            }
            DocumentEvent::DocumentConnectionForgotten(forgotten) => {
                self.forget(&forgotten.owner, &forgotten.connector);
            }
            DocumentEvent::ObservationCopyPut(put) => self.apply_copy_put(put),
            DocumentEvent::ObservationCopiesDropped(event) => self.apply_copies_dropped(event),
            DocumentEvent::RepairPut(repair) => self.repair = Some(repair.clone()),
            DocumentEvent::RepairCleared => self.repair = None,
            DocumentEvent::RepairAdopted(adopted) => {
                self.repair = Some(Box::new(adopted.repair.clone()));
            }
            _ => self.apply_to_operation(event),
        }
    }

    fn apply_to_operation(&mut self, event: &DocumentEvent) {
        if let DocumentEvent::OperationCreated(created) = event {
            self.operation_sequence = created.sequence;
            self.operations.insert(created.operation_id.clone(), Operation::created(created));
            return;
        }
        let (id, at) = match event {
            DocumentEvent::OperationClaimed(event) => (&event.operation_id, event.at),
            DocumentEvent::SendStarted(event) => (&event.operation_id, event.mark.started_at),
            DocumentEvent::OperationDeferred(event) => (&event.operation_id, event.at),
            DocumentEvent::OperationRecorded(event) => (&event.operation_id, event.at),
            DocumentEvent::ReconcileReadBegun(event) => (&event.operation_id, event.at),
            DocumentEvent::OperationFinalized(event) => (&event.operation_id, event.at),
            DocumentEvent::OperationLeaseChanged(event) => (&event.operation_id, event.at),
            _ => return,
        };
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.updated_at = at;
        match event {
            DocumentEvent::OperationClaimed(claimed) => operation.claimed(claimed),
            DocumentEvent::SendStarted(started) => {
                operation.phase = OperationPhase::Attempted { sent: Some(started.mark) };
            }
            DocumentEvent::OperationDeferred(deferred) => {
                let (reason, not_before) = (deferred.reason, deferred.not_before);
                operation.deferral = Some(DeferredUntil { reason, not_before });
                operation.lease = None;
                if deferred.clears_mark {
                    operation.phase = OperationPhase::Attempted { sent: None };
                }
            }
            DocumentEvent::OperationRecorded(recorded) => operation.phase = recorded.phase.clone(),
            DocumentEvent::ReconcileReadBegun(begun) => {
                if let OperationPhase::ReconcileOnly { read_at, .. } = &mut operation.phase {
                    *read_at = Some(begun.at);
                }
            }
            DocumentEvent::OperationFinalized(finalized) => {
                operation.phase = finalized.phase.clone();
                operation.lease = None;
                operation.deferral = None;
            }
            DocumentEvent::OperationLeaseChanged(changed) => {
                operation.lease.clone_from(&changed.lease);
            }
            _ => {}
        }
    }

    /// Operations stay: their rows keep a replay from writing again once the account is back.
    fn forget(&mut self, owner: &OwnerDid, connector: &ConnectorName) {
        if self.trim.as_ref().is_some_and(|t| &t.owner == owner && &t.connector == connector) {
            self.trim = None;
        }
        let watched = self.watch.as_ref().map(|watch| &watch.identity);
        if watched.is_some_and(|at| &at.owner == owner && &at.connector == connector) {
            self.watch = None;
        }
    }
}
