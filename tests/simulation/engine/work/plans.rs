//! What people want written to the provider, and the wire there.
//!
//! A request is on its way by itself: a host that is killed does not call it back. It arrives within its
//! permit, but for a host that is stopped between its last look at the clock and the socket. What such a
//! host sends is beyond any store, so its requests bear a condition of the provider's; those of all other
//! writes bear none, and the store alone must see to it that they are done once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use connector_store::testing::{
    Condition, Provider, ProviderError, ProviderFault, SimClock, Version, Write,
};
use connector_store::{
    Clock as _, ConnectorName, Digest, DocumentId, Hlc, HlcClock, Json, OperationId, OperationKind,
    OperationRequest, OwnerDid, PartitionId, SourceId, Timestamp,
};
use tokio::sync::oneshot;

use crate::engine::Config;
use crate::engine::world::World;

pub const CONNECTOR: &str = "writes";
/// Documents that people edit.
const DOCUMENTS: usize = 6;
/// The provider may hide a write for so long.
const HIDES_FOR: Duration = Duration::from_secs(2);
/// How often in a thousand calls which fault strikes.
const FAULTS: [(ProviderFault, u32); 7] = [
    (ProviderFault::WriteTimedOut, 100),
    (ProviderFault::WriteLost, 100),
    (ProviderFault::UnavailableButDone, 80),
    (ProviderFault::WriteVisibleLater { after: HIDES_FOR }, 200),
    (ProviderFault::WriteNormalised, 80),
    (ProviderFault::RateLimitStorm { lasts: Duration::from_secs(5) }, 30),
    (ProviderFault::GoneAlready, 200),
];
const ONCE: &str = "an operation writes once";

pub type Answer = Result<Option<Version>, ProviderError>;

/// A write that somebody wants.
#[derive(Debug)]
pub struct Plan {
    pub document: DocumentId,
    pub request: OperationRequest,
    pub write: Write,
    /// Requests that are held up between the clock and the socket.
    stopped: Cell<usize>,
    /// How many are at it now.
    pursued: Cell<usize>,
    /// Its document is swept, perhaps: the operation's row, by which a replay is known, goes with it.
    is_closed: Cell<bool>,
}

impl Plan {
    /// Its document is swept, or about to be: nothing of it may be sent any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    pub fn id(&self) -> &OperationId {
        &self.request.operation_id
    }

    /// A request of it may leave late.
    pub fn has_condition(&self) -> bool {
        self.write.condition != Condition::None
    }

    /// What is read once it is done; none when nothing is.
    pub fn expected(&self) -> Option<Digest> {
        self.write.content.as_ref().map(|content| Digest::of(content.as_str().as_bytes()))
    }
}

/// While it lives, somebody is at the operation.
pub struct Pursuit(Rc<Plan>);

impl Pursuit {
    /// None when there is nothing more to be done for it.
    pub fn of(plan: &Rc<Plan>) -> Option<Self> {
        plan.pursued.set(plan.pursued.get() + 1);
        let pursuit = Self(Rc::clone(plan));
        (!plan.is_closed.get()).then_some(pursuit)
    }
}

impl Drop for Pursuit {
    fn drop(&mut self) {
        self.0.pursued.set(self.0.pursued.get() - 1);
    }
}

/// While it lives, a request may still leave.
pub struct Stopped(Rc<Plan>);

impl Stopped {
    pub fn new(plan: &Rc<Plan>) -> Self {
        plan.stopped.set(plan.stopped.get() + 1);
        Self(Rc::clone(plan))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stopped.set(self.0.stopped.get() - 1);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Edits {
    pub provider: Provider,
    pub connector: ConnectorName,
    partition: PartitionId,
    stamps: RefCell<HlcClock>,
    plans: RefCell<BTreeMap<OperationId, Rc<Plan>>>,
    /// The newest of each document.
    newest: RefCell<BTreeMap<DocumentId, Rc<Plan>>>,
}

impl Edits {
    pub fn new(config: &Config, clock: &SimClock) -> Self {
        let provider = Provider::new(Arc::new(clock.clone()), config.seed);
        let faults = config.faults;
        if faults.kills + faults.pauses + faults.cuts > 0 {
            provider.chances(&FAULTS);
        }
        Self {
            provider,
            connector: ConnectorName::new(CONNECTOR).unwrap(),
            partition: PartitionId::new("edits").unwrap(),
            stamps: RefCell::new(HlcClock::new("people", Duration::from_secs(60)).unwrap()),
            plans: RefCell::default(),
            newest: RefCell::default(),
        }
    }

    pub fn stamp(&self, world: &World) -> Hlc {
        self.stamps.borrow_mut().now(world.clock.wall().as_millis()).unwrap()
    }

    pub fn knows(&self, operation: &OperationId) -> bool {
        self.plans.borrow().contains_key(operation)
    }

    pub fn plan(&self, operation: &OperationId) -> Option<Rc<Plan>> {
        self.plans.borrow().get(operation).cloned()
    }

    pub fn all(&self) -> Vec<Rc<Plan>> {
        self.plans.borrow().values().cloned().collect()
    }

    pub fn newest(&self, document: &DocumentId) -> Option<Rc<Plan>> {
        self.newest.borrow().get(document).cloned()
    }

    /// How often one of ours was written.
    pub fn writes(&self, operation: &OperationId) -> Option<u32> {
        self.knows(operation).then(|| self.provider.effective_writes(operation))
    }

    pub fn read(&self, document: &DocumentId) -> Result<Json, ProviderError> {
        self.provider.get(&self.partition, &source(document)).map(|item| item.content)
    }

    /// The provider shows what is wanted.
    pub fn is_written(&self, plan: &Plan) -> Result<bool, ProviderError> {
        let shown = match self.read(&plan.document) {
            Err(ProviderError::Gone) => None,
            shown => Some(shown?),
        };
        Ok(match (&plan.write.content, shown) {
            (None, shown) => shown.is_none(),
            // In whatever spelling it is kept.
            (Some(_), Some(shown)) => {
                shown.to_value().get("op").and_then(|op| op.as_str()) == Some(plan.id().as_str())
            }
            (Some(_), None) => false,
        })
    }

    /// Closes all that was wanted of a document. False while one is under way.
    pub fn close(&self, world: &World, document: &DocumentId) -> bool {
        let plans = self.plans.borrow();
        let of: Vec<_> = plans.values().filter(|plan| plan.document == *document).collect();
        if !of.iter().all(|plan| plan.pursued.get() == 0 && has_ended(world, plan)) {
            return false;
        }
        of.iter().for_each(|plan| plan.is_closed.set(true));
        true
    }

    /// The document was swept, maybe long after somebody decided to: what was done of it is known to nobody
    /// any more, and must not be done again.
    pub fn swept(&self, document: &DocumentId) {
        let plans = self.plans.borrow();
        plans
            .values()
            .filter(|plan| plan.document == *document)
            .for_each(|plan| plan.is_closed.set(true));
    }

    /// What is wanted of a document: what was wanted last, and something new once that has ended and is
    /// shown. What people do not see yet they do not edit; and a delete could not tell an entity that is gone
    /// from one that is not shown yet.
    pub fn wanted(&self, world: &World, document: &DocumentId, owner: &OwnerDid) -> Rc<Plan> {
        let truth = self.provider.truth(&self.partition);
        let stands = truth.into_iter().find(|item| item.source_id == source(document));
        if let Some(newest) = self.newest(document) {
            let shown = match self.read(document) {
                Err(ProviderError::Gone) => Some(None),
                shown => shown.ok().map(Some),
            };
            let is_shown = shown == Some(stands.as_ref().map(|item| item.content.clone()));
            if !is_shown || !has_ended(world, &newest) {
                return newest;
            }
        }
        let (draw, with_condition) =
            world.chance(|chance| (chance.below(3), chance.per_mille(300)));
        let (op, condition) = match &stands {
            None => (OperationKind::Create, Condition::IfNoneMatch),
            Some(item) if draw == 0 => {
                (OperationKind::Delete, Condition::IfMatch(item.version.clone()))
            }
            Some(item) => (OperationKind::Update, Condition::IfMatch(item.version.clone())),
        };
        let condition = match (with_condition, draw) {
            (false, _) => Condition::None,
            (true, 1) => Condition::IdempotencyKey,
            (true, _) => condition,
        };
        let plan = Rc::new(self.new_plan(world, document, owner, op, condition));
        self.plans.borrow_mut().insert(plan.id().clone(), Rc::clone(&plan));
        self.newest.borrow_mut().insert(document.clone(), Rc::clone(&plan));
        plan
    }

    fn new_plan(
        &self,
        world: &World,
        document: &DocumentId,
        owner: &OwnerDid,
        op: OperationKind,
        condition: Condition,
    ) -> Plan {
        let id = format!("{document}-{}", self.plans.borrow().len());
        let text = format!(r#"{{"op":"{id}"}}"#);
        let content = (op != OperationKind::Delete).then(|| Json::parse("content", &text).unwrap());
        let operation_id = OperationId::new(id).unwrap();
        let request = OperationRequest {
            operation_id: operation_id.clone(),
            owner: owner.clone(),
            connector: self.connector.clone(),
            op,
            version: self.stamp(world),
            request_digest: Digest::of(text.as_bytes()),
            visibility_delay: HIDES_FOR,
        };
        let (partition, source_id) = (self.partition.clone(), source(document));
        let write = Write { operation_id, partition, op, source_id, content, condition };
        Plan {
            document: document.clone(),
            request,
            write,
            stopped: Cell::new(0),
            pursued: Cell::new(0),
            is_closed: Cell::new(false),
        }
    }
}

/// It has come to its end, and nothing of it is on its way.
fn has_ended(world: &World, plan: &Plan) -> bool {
    let stage = world.audit.borrow().operations.stage(plan.id());
    plan.stopped.get() == 0 && stage.is_some_and(|stage| stage.is_final())
}

pub fn documents() -> impl Iterator<Item = DocumentId> {
    (0..DOCUMENTS).map(|at| DocumentId::new(format!("e{at}")).unwrap())
}

pub fn source(document: &DocumentId) -> SourceId {
    SourceId::new(document.as_str()).unwrap()
}

/// Puts a request on the wire, where it is for so long. Gives what comes back.
pub fn send(
    world: &Rc<World>,
    plan: &Rc<Plan>,
    latency: Duration,
    send_until: Timestamp,
) -> oneshot::Receiver<Answer> {
    let (answer, receiver) = oneshot::channel();
    let (world, plan) = (Rc::clone(world), Rc::clone(plan));
    let stopped = Stopped::new(&plan);
    tokio::task::spawn_local(async move {
        world.clock.sleep(latency).await;
        arrive(&world, &plan, send_until, answer);
        drop(stopped);
    });
    receiver
}

fn arrive(world: &World, plan: &Plan, send_until: Timestamp, to: oneshot::Sender<Answer>) {
    world.audit();
    let id = plan.id();
    let is_late = world.clock.wall() > send_until;
    world.hold("a request leaves within its permit", !is_late || plan.has_condition(), || {
        format!("{id} arrives behind {send_until:?}")
    });
    let stage = world.audit.borrow().operations.stage(id);
    let mark = stage.and_then(|stage| stage.mark());
    let is_marked = mark.is_some_and(|mark| mark.until == send_until);
    world.hold(ONCE, is_late || is_marked, || {
        format!("{id} is on the wire until {send_until:?}, and stands at {stage:?}")
    });
    let edits = &world.accounts.edits;
    let answer = edits.provider.write(&plan.write);
    let writes = edits.provider.effective_writes(id);
    let late = if is_late { ", late" } else { "" };
    world.note("PROVIDER", format_args!("{id}: {answer:?}, written {writes} times{late}"));
    world.hold(ONCE, writes <= 1, || format!("{id} was written {writes} times"));
    // Its sender may be gone.
    let _ = to.send(answer);
}
