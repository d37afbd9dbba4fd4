//! Leases: one holder at a time by the database's time, and nothing under a lease that was lost.
//!
//! Where a call bears an id, or writes a number of its own, what it wrote is held against the token that
//! it was sent with. What the holder of an operation does bears neither: there each event needs a call
//! that was made with the token in force, and for each call there is one at most.

use std::collections::{BTreeMap, BTreeSet};

use connector_store::domain::connector::ConnectorEvent;
use connector_store::domain::document::DocumentEvent;
use connector_store::domain::{Fence, Lease};
use connector_store::{
    CommandId, DocumentId, Event, FencingToken, LeaseScope, OperationId, StreamKey, Timestamp,
};

use super::Written;
use crate::engine::world::World;

const ONE_HOLDER: &str = "a lease has one holder at a time";
const FENCED: &str = "nothing is written under a lost lease";
/// Leases are asked for shorter, and the hosts' clocks are farther apart.
const LONGEST_MILLIS: i64 = 300_000;

/// What the holder of a lease does with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Mark,
    Defer,
    Record,
    Read,
    Finalize,
    Renew,
    Release,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Leases {
    standing: BTreeMap<LeaseScope, Lease>,
    fenced: BTreeMap<CommandId, Fence>,
    numbers: BTreeMap<u64, Fence>,
    /// Scopes all of whose holders tell their calls.
    told: BTreeSet<LeaseScope>,
    /// Calls that were made and have not written yet.
    calls: BTreeMap<(LeaseScope, Step, FencingToken), u32>,
}

impl Leases {
    /// The command is sent under this lease.
    pub fn fence(&mut self, id: CommandId, fence: Fence) {
        self.fenced.insert(id, fence);
    }

    /// A trim of this number is written under this lease.
    pub fn fence_number(&mut self, number: u64, fence: Fence) {
        self.numbers.insert(number, fence);
    }

    /// All holders of this lease tell their calls.
    pub fn is_told(&mut self, scope: &LeaseScope) {
        self.told.insert(scope.clone());
    }

    /// Somebody has asked for this lease.
    pub fn is_known(&self, scope: &LeaseScope) -> bool {
        self.told.contains(scope)
    }

    /// A holder makes a call.
    pub fn call(&mut self, scope: &LeaseScope, step: Step, token: FencingToken) {
        *self.calls.entry((scope.clone(), step, token)).or_default() += 1;
    }

    /// Those that stand now.
    pub fn standing(&self) -> impl Iterator<Item = (&LeaseScope, &Lease)> {
        self.standing.iter()
    }

    pub(super) fn judge(&mut self, world: &World, written: &Written) {
        self.judge_fence(world, written, self.fenced.get(&written.command_id));
        match (&written.key, &written.event) {
            (StreamKey::Connector(owner, connector), Event::Connector(event)) => {
                let (owner, connector) = (owner.clone(), connector.clone());
                self.sync(world, written, LeaseScope::Sync { owner, connector }, event);
            }
            (StreamKey::Document(document), Event::Document(event)) => {
                self.document(world, written, document, event);
            }
            _ => {}
        }
    }

    fn judge_fence(&self, world: &World, written: &Written, fence: Option<&Fence>) {
        let Some(fence) = fence else { return };
        let standing = self.standing.get(&fence.scope);
        world.hold(FENCED, standing.is_some_and(|lease| lease.token == fence.token), || {
            format!(
                "{} at {} under {fence:?}: {standing:?}",
                written.key.stream_name(),
                written.position
            )
        });
    }

    fn sync(
        &mut self,
        world: &World,
        written: &Written,
        scope: LeaseScope,
        event: &ConnectorEvent,
    ) {
        match event {
            ConnectorEvent::LeaseAcquired(lease) => {
                self.acquired(world, written, written.at, scope, lease)
            }
            ConnectorEvent::LeaseRenewed(renewed) => {
                self.used(world, written, &scope, Step::Renew);
                if let Some(lease) = self.standing.get_mut(&scope) {
                    lease.expires_at = renewed.expires_at;
                }
            }
            ConnectorEvent::LeaseReleased => {
                self.used(world, written, &scope, Step::Release);
                self.standing.remove(&scope);
            }
            ConnectorEvent::ConnectionForgetBegun(_) => {
                self.standing.remove(&scope);
            }
            _ => {}
        }
    }

    fn document(
        &mut self,
        world: &World,
        written: &Written,
        document: &DocumentId,
        event: &DocumentEvent,
    ) {
        let scope = |operation: &OperationId| LeaseScope::Operation {
            document_id: document.clone(),
            operation_id: operation.clone(),
        };
        match event {
            DocumentEvent::EntityTrimSet(set) => {
                let number = set.trimmed_fields.as_str().parse().ok();
                let fence = number.and_then(|number: u64| self.numbers.get(&number));
                self.judge_fence(world, written, fence);
            }
            DocumentEvent::OperationCreated(created) => {
                let scope = scope(&created.operation_id);
                self.acquired(world, written, created.at, scope, &created.lease);
            }
            DocumentEvent::OperationClaimed(claimed) => {
                let scope = scope(&claimed.operation_id);
                self.acquired(world, written, claimed.at, scope, &claimed.lease);
            }
            DocumentEvent::SendStarted(started) => {
                self.used(world, written, &scope(&started.operation_id), Step::Mark);
            }
            DocumentEvent::OperationRecorded(recorded) => {
                self.used(world, written, &scope(&recorded.operation_id), Step::Record);
            }
            DocumentEvent::ReconcileReadBegun(begun) => {
                self.used(world, written, &scope(&begun.operation_id), Step::Read);
            }
            DocumentEvent::OperationDeferred(deferred) => {
                let scope = scope(&deferred.operation_id);
                self.used(world, written, &scope, Step::Defer);
                self.standing.remove(&scope);
            }
            DocumentEvent::OperationFinalized(finalized) => {
                let scope = scope(&finalized.operation_id);
                self.used(world, written, &scope, Step::Finalize);
                self.standing.remove(&scope);
            }
            DocumentEvent::OperationLeaseChanged(changed) => {
                let scope = scope(&changed.operation_id);
                let step = if changed.lease.is_some() { Step::Renew } else { Step::Release };
                self.used(world, written, &scope, step);
                match (&changed.lease, self.standing.get_mut(&scope)) {
                    (Some(lease), Some(standing)) => {
                        world.hold(FENCED, lease.token == standing.token, || {
                            format!("{scope} is renewed for {lease:?}: {standing:?}")
                        });
                        *standing = lease.clone();
                    }
                    _ => drop(self.standing.remove(&scope)),
                }
            }
            _ => {}
        }
    }

    fn acquired(
        &mut self,
        world: &World,
        written: &Written,
        at: Timestamp,
        scope: LeaseScope,
        lease: &Lease,
    ) {
        let before = self.standing.get(&scope);
        let is_free =
            before.is_none_or(|before| before.holder == lease.holder || before.expires_at <= at);
        world.hold(ONE_HOLDER, is_free, || {
            format!("{scope} at {at:?}: {lease:?}, after {before:?}")
        });
        world.hold(ONE_HOLDER, lease.token.version == written.version, || {
            format!("{scope} with {lease:?} at version {}", written.version)
        });
        let longest = written.at.plus_millis(LONGEST_MILLIS);
        let is_ours = lease.expires_at <= longest && at <= written.at;
        world.hold("leases go by the database's time", is_ours, || {
            format!("{scope} from {at:?} written at {:?}: {lease:?}", written.at)
        });
        self.standing.insert(scope, lease.clone());
    }

    /// An event that takes the token in force.
    fn used(&mut self, world: &World, written: &Written, scope: &LeaseScope, step: Step) {
        let standing = self.standing.get(scope);
        let is_called = match standing {
            None => false,
            Some(_) if !self.told.contains(scope) => true,
            Some(lease) => match self.calls.get_mut(&(scope.clone(), step, lease.token)) {
                Some(calls) if *calls > 0 => {
                    *calls -= 1;
                    true
                }
                _ => false,
            },
        };
        world.hold(FENCED, is_called, || {
            format!("{step:?} of {scope} at {}: {standing:?}", written.position)
        });
    }
}
