//! The actor of one key: decides its commands in turn and answers after the commit.
//!
//! The handler decides and applies at once, hands its append to the repository and takes the next
//! message. When an append fails, the state is dropped and loaded anew, and the commands behind it
//! are decided again in their order. It holds no lock while it waits and asks no other actor.

mod decide;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context as ActorScope, Handler, Message,
    WrapFuture,
};
use tokio::sync::oneshot;

use self::decide::Drawn;
use super::clock::within;
use super::decided::Held;
use super::directory::Directory;
use super::env::{Activation, Env};
use super::life::Life;
use super::repository::{Ticket, Work, unavailable};
use super::request::Request;
use super::telemetry;
use super::ticket::{KeyTicket, answer, answer_error};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, Result, StreamKey, StreamName, Timestamp};
use crate::domain::Aggregate;
use crate::journal::{Expected, LoadedState, load_state};

/// How long a stop waits for its snapshot to be written. The write itself goes on to its end.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// Events since the snapshot from which a passivation writes one.
const LONG_TAIL_EVENTS: u64 = 32;

/// What waits in the actor, in its order of arrival.
#[allow(clippy::large_enum_variant, reason = "nearly all that waits is the large one")]
enum Waiting<A: Aggregate> {
    Request(Request<A>),
    Hold(Hold<A>),
    Passivate,
}

/// Requests whose append failed, in order, on their way back to their actor.
pub(super) type Returned<A> = Arc<Mutex<Vec<Request<A>>>>;

pub(super) struct KeyActor<A: Aggregate> {
    key: StreamKey,
    stream: StreamName,
    env: Arc<Env>,
    directory: Weak<Directory<A>>,
    id: u64,
    held: Option<Held<A>>,
    life: Arc<Life>,
    activation: Arc<Activation>,
    returned: Returned<A>,
    waiting: VecDeque<Waiting<A>>,
    /// On a shared storage: a sample of the time and the head is under way.
    sampling: bool,
    /// On a shared storage: no other host was seen to write to the stream lately.
    is_alone: bool,
    /// What was drawn for a decision that must be made again.
    drawn: Option<Drawn>,
    /// On a shared storage: the heads that this activation knows, from the newest durable one on.
    heads: VecDeque<Expected>,
    predecessor: Option<oneshot::Receiver<()>>,
    /// Dropped with the actor; the next activation of the key waits for it.
    _finished: oneshot::Sender<()>,
}

/// What a new actor is told.
pub(super) struct Birth<A: Aggregate> {
    pub(super) key: StreamKey,
    pub(super) env: Arc<Env>,
    pub(super) directory: Weak<Directory<A>>,
    pub(super) id: u64,
    pub(super) life: Arc<Life>,
    pub(super) predecessor: Option<oneshot::Receiver<()>>,
    pub(super) finished: oneshot::Sender<()>,
}

impl<A: Aggregate> Message for Request<A> {
    type Result = ();
}

/// Pauses the key and lends its state to a unit of work.
pub(super) struct Hold<A: Aggregate> {
    pub(super) lend: oneshot::Sender<Lent<A>>,
}

impl<A: Aggregate> Message for Hold<A> {
    type Result = ();
}

/// A key's state in the hands of a unit of work. Dropped, the key goes back: with its state if the
/// unit changed nothing, else without, so that it is loaded anew.
pub(super) struct Lent<A: Aggregate> {
    pub(super) held: Option<Held<A>>,
    pub(super) activation: Arc<Activation>,
    pub(super) changed: bool,
    give_back: Option<oneshot::Sender<Held<A>>>,
}

impl<A: Aggregate> Lent<A> {
    /// Gives the key back with the state that the unit's append has handed over.
    pub(super) fn give_back(&mut self) {
        if let (Some(held), Some(give_back)) = (self.held.take(), self.give_back.take()) {
            let _ = give_back.send(held);
        }
    }
}

impl<A: Aggregate> Drop for Lent<A> {
    fn drop(&mut self) {
        if !self.changed {
            self.give_back();
        }
    }
}

/// The key is no longer in the directory: stop once all is durable.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Passivate;

/// An append of this key failed.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Wake;

impl<A: Aggregate> KeyActor<A> {
    pub(super) fn new(birth: Birth<A>) -> Self {
        Self {
            stream: birth.key.stream_name(),
            key: birth.key,
            env: birth.env,
            directory: birth.directory,
            id: birth.id,
            held: None,
            activation: Activation::loaded_at(0, &birth.life),
            life: birth.life,
            returned: Arc::default(),
            waiting: VecDeque::new(),
            sampling: false,
            is_alone: true,
            drawn: None,
            heads: VecDeque::new(),
            predecessor: birth.predecessor,
            _finished: birth.finished,
        }
    }

    fn accept(&mut self, waiting: Waiting<A>, scope: &mut ActorScope<Self>) {
        self.waiting.push_back(waiting);
        self.proceed(scope);
    }

    /// Takes what waits as far as it goes without waiting for anything.
    fn proceed(&mut self, scope: &mut ActorScope<Self>) {
        if self.sampling {
            return;
        }
        if matches!(self.waiting.front(), Some(Waiting::Passivate)) {
            self.waiting.pop_front();
            return self.passivate(scope);
        }
        if self.held.is_none() || self.activation.has_failed() {
            self.reload(scope);
        } else if self.env.storage.is_shared() {
            self.take_unconfirmed(scope);
            // Should it have failed meanwhile, it is loaded anew behind the sample.
            if self.held.is_some() {
                self.sample(scope);
            }
        } else {
            let now = self.env.time.now();
            self.take_waiting(usize::MAX, now, scope);
        }
    }

    /// On a shared storage: takes what waits as far as it becomes appends, without asking for the head,
    /// since the transaction that writes an append confirms it; and none of which the time decides. What
    /// answers from the state, or refuses by it, has to wait for a sample.
    fn take_unconfirmed(&mut self, scope: &mut ActorScope<Self>) {
        while self.is_alone
            && self.held.is_some()
            && let Some(now) = self.env.sampler.estimate()
            && matches!(self.waiting.front(), Some(Waiting::Request(_)))
            && let Some(Waiting::Request(request)) = self.waiting.pop_front()
        {
            if let Some(undecided) = self.decide_unconfirmed(request, now, scope) {
                return self.waiting.push_front(Waiting::Request(undecided));
            }
        }
    }

    /// Takes up to `count` waiting items; stops at one that pauses the mailbox.
    fn take_waiting(&mut self, count: usize, now: Timestamp, scope: &mut ActorScope<Self>) {
        for _ in 0..count {
            if self.held.is_none() {
                return;
            }
            match self.waiting.pop_front() {
                Some(Waiting::Request(request)) => self.decide(request, now, scope),
                Some(Waiting::Hold(hold)) => self.lend(hold, scope),
                Some(Waiting::Passivate) => return self.passivate(scope),
                None => return,
            }
        }
    }

    /// Drops the state and loads it anew, after all that was handed over has come to its end; then
    /// goes on with what came back and what waits. The mailbox waits meanwhile. An actor that ended
    /// by a panic may have left appends under way: they end first too, or the new state would lack
    /// them.
    fn reload(&mut self, scope: &mut ActorScope<Self>) {
        let predecessor = self.predecessor.take();
        let was_active = self.held.take().is_some() || self.activation.has_failed();
        self.is_alone = !was_active;
        let (env, key) = (Arc::clone(&self.env), self.key.clone());
        let directory = Weak::clone(&self.directory);
        let load = async move {
            // It ends once the storage has answered what it handed over; its stop has a deadline.
            if let Some(predecessor) = predecessor {
                let _ = predecessor.await;
            }
            if was_active || directory.upgrade().is_some_and(|at| at.has_panicked(&key)) {
                flush(&env).await;
            }
            let load = async {
                if !env.storage.is_shared() {
                    return Ok((load_state::<A>(&*env.storage, &key).await?, None));
                }
                // The time first, so that as little as may be lies between the state and an append. It
                // comes with the head, for all that ask at once; where there is none, nothing is to be loaded.
                let (now, head) = env.sampler.sample(key.stream_name()).await?;
                let loaded = match head {
                    Some(_) => load_state::<A>(&*env.storage, &key).await?,
                    None => LoadedState::of_none(),
                };
                Ok((loaded, Some(now)))
            };
            match within(&env.time, env.bounds.command_timeout, load).await {
                Some(loaded) => loaded,
                None => Err(unavailable("loading a stream took too long")),
            }
        };
        telemetry::count(
            if was_active { telemetry::RELOADS } else { telemetry::ACTIVATIONS },
            A::KIND,
        );
        scope.wait(load.into_actor(self).map(|loaded, actor, scope| {
            actor.take_returned();
            match loaded {
                Ok((loaded, now)) => {
                    let head = loaded.expected;
                    actor.activation = Activation::loaded_at(head.version, &actor.life);
                    actor.heads = VecDeque::from([head]);
                    actor.held = Some(Held { state: loaded.state, head, tail: loaded.tail_len });
                    // What waits came before the load began, which thus confirms its head.
                    if let Some(now) = now {
                        actor.take_waiting(actor.waiting.len(), now, scope);
                    } else {
                        actor.proceed(scope);
                    }
                }
                Err(error) => actor.refuse_all(&error, scope),
            }
        }));
    }

    fn take_returned(&mut self) {
        let returned =
            std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner));
        for request in returned.into_iter().rev() {
            self.waiting.push_front(Waiting::Request(request));
        }
    }

    /// The state can't be loaded: everyone who waits is told, the next message tries again.
    fn refuse_all(&mut self, error: &Error, scope: &mut ActorScope<Self>) {
        tracing::warn!(key = %self.key, %error, "a key can't be loaded");
        self.activation = Activation::loaded_at(0, &self.life);
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Request(request) => answer::<A>(request, Err(error.clone())),
                Waiting::Hold(_) => {}
                Waiting::Passivate => scope.stop(),
            }
        }
    }

    /// On a shared storage: asks for the database's time and this stream's head, by a statement
    /// begun after everything that waits had come.
    fn sample(&mut self, scope: &mut ActorScope<Self>) {
        if self.waiting.is_empty() {
            return;
        }
        self.sampling = true;
        let covered = self.waiting.len();
        self.drop_old_heads();
        let (env, stream) = (Arc::clone(&self.env), Arc::clone(&self.stream));
        let wait = async move { env.sampler.sample(stream).await };
        scope.spawn(wait.into_actor(self).map(move |confirmed, actor, scope| {
            actor.sampling = false;
            match confirmed {
                Ok((now, head)) => actor.confirmed(covered, now, head, scope),
                Err(error) => {
                    for waiting in actor.waiting.drain(..covered).collect::<Vec<_>>() {
                        match waiting {
                            Waiting::Request(request) => answer_error::<A>(request, &error),
                            Waiting::Hold(_) => {}
                            Waiting::Passivate => actor.waiting.push_front(Waiting::Passivate),
                        }
                    }
                    actor.proceed(scope);
                }
            }
        }));
    }

    /// Keeps the heads that the storage may have: the durable one, and those on their way.
    fn drop_old_heads(&mut self) {
        let durable = self.activation.durable();
        while self.heads.len() > 1 && self.heads.get(1).is_some_and(|head| head.version <= durable)
        {
            self.heads.pop_front();
        }
    }

    fn confirmed(
        &mut self,
        covered: usize,
        now: Timestamp,
        head: Option<Expected>,
        scope: &mut ActorScope<Self>,
    ) {
        let known = self.heads.contains(&head.unwrap_or(Expected::NONE))
            || is_planted(PlantedBug::HeadNotConfirmed);
        if !known || self.activation.has_failed() {
            self.activation.fail();
            self.reload(scope);
            return;
        }
        self.is_alone = true;
        self.take_waiting(covered, now, scope);
        if !self.waiting.is_empty() && self.held.is_some() {
            self.proceed(scope);
        }
    }

    /// Takes the key out of the directory, once.
    fn leave(&mut self, panicked: bool) {
        self.life.end();
        if let Some(directory) = std::mem::take(&mut self.directory).upgrade() {
            directory.ended(&self.key, self.id, panicked);
        }
    }

    /// Answers once everything that the answer was decided on is durable.
    fn after_durable(
        &mut self,
        request: Request<A>,
        result: Result<A::Reply>,
        scope: &mut ActorScope<Self>,
    ) {
        let accepted = self.held.as_ref().map_or(0, |held| held.head.version);
        if self.activation.durable() >= accepted && !self.activation.has_failed() {
            answer::<A>(request, result);
        } else {
            let ticket = self.ticket(request, result, scope);
            let activation = Arc::clone(&self.activation);
            self.env.repository.hand_over(Work::Barrier { activation, ticket });
        }
    }

    fn ticket(
        &self,
        request: Request<A>,
        result: Result<A::Reply>,
        scope: &ActorScope<Self>,
    ) -> Box<dyn Ticket> {
        let returned = Arc::clone(&self.returned);
        Box::new(KeyTicket { request, result, returned, actor: scope.address() })
    }

    /// Lends the state to a unit of work. The mailbox waits until it comes back, or the hold limit
    /// passes; without the state, the next message loads it.
    fn lend(&mut self, hold: Hold<A>, scope: &mut ActorScope<Self>) {
        let Some(held) = self.held.take() else { return };
        let (give_back, given_back) = oneshot::channel();
        let activation = Arc::clone(&self.activation);
        let lent =
            Lent { held: Some(held), activation, changed: false, give_back: Some(give_back) };
        if let Err(mut unwanted) = hold.lend.send(lent) {
            self.held = unwanted.held.take();
            return;
        }
        let (time, limit) = (self.env.time.clone(), self.env.bounds.hold_limit);
        let wait = async move { within(&time, limit, given_back).await };
        scope.wait(wait.into_actor(self).map(|given_back, actor, scope| {
            match given_back {
                Some(Ok(held)) => {
                    if actor.env.storage.is_shared() {
                        actor.heads.push_back(held.head);
                    }
                    actor.held = Some(held);
                }
                _ => actor.activation.fail(),
            }
            if !actor.waiting.is_empty() {
                actor.proceed(scope);
            }
        }));
    }

    fn passivate(&mut self, scope: &mut ActorScope<Self>) {
        // What came back from a failed append is decided first.
        if self.activation.has_failed() {
            self.waiting.push_back(Waiting::Passivate);
            return self.reload(scope);
        }
        let Some(held) = self.held.as_ref() else { return scope.stop() };
        let durable = self.activation.durable() >= held.head.version;
        let env = Arc::clone(&self.env);
        if !durable {
            self.waiting.push_back(Waiting::Passivate);
            let wait = async move { flush(&env).await };
            return scope.wait(wait.into_actor(self).map(|(), actor, scope| actor.proceed(scope)));
        }
        telemetry::count(telemetry::PASSIVATIONS, A::KIND);
        let snapshot = (held.tail >= LONG_TAIL_EVENTS).then(|| held.snapshot(&self.key)).flatten();
        let Some(snapshot) = snapshot else { return scope.stop() };
        let (stream, head) = (Arc::clone(&self.stream), held.head);
        let storage = Arc::clone(&env.storage);
        // A task of its own, so that the deadline never drops a write half-way.
        let written = actix_rt::spawn(async move {
            if let Err(error) = storage.write_snapshot(&stream, head, snapshot).await {
                tracing::warn!(%error, "no snapshot was written at passivation");
            }
        });
        let wait = async move { within(&env.time, STOP_DEADLINE, written).await };
        scope.wait(wait.into_actor(self).map(|_, _, scope| scope.stop()));
    }
}

/// Waits until all that was handed to the repository before has come to its end.
async fn flush(env: &Env) {
    let (done, flushed) = oneshot::channel();
    env.repository.hand_over(Work::Flush(done));
    let _ = flushed.await;
}

/// Nothing of an actor is pinned in place.
impl<A: Aggregate> Unpin for KeyActor<A> {}

impl<A: Aggregate> Actor for KeyActor<A> {
    type Context = ActorScope<Self>;
}

impl<A: Aggregate> Handler<Request<A>> for KeyActor<A> {
    type Result = ();

    fn handle(&mut self, request: Request<A>, scope: &mut ActorScope<Self>) {
        self.accept(Waiting::Request(request), scope);
    }
}

impl<A: Aggregate> Handler<Hold<A>> for KeyActor<A> {
    type Result = ();

    fn handle(&mut self, hold: Hold<A>, scope: &mut ActorScope<Self>) {
        self.accept(Waiting::Hold(hold), scope);
    }
}

impl<A: Aggregate> Handler<Passivate> for KeyActor<A> {
    type Result = ();

    fn handle(&mut self, _: Passivate, scope: &mut ActorScope<Self>) {
        if self.held.is_none() && self.waiting.is_empty() && !self.activation.has_failed() {
            scope.stop();
        } else {
            self.accept(Waiting::Passivate, scope);
        }
    }
}

impl<A: Aggregate> Handler<Wake> for KeyActor<A> {
    type Result = ();

    fn handle(&mut self, _: Wake, scope: &mut ActorScope<Self>) {
        if self.activation.has_failed() && !self.sampling {
            self.reload(scope);
        }
    }
}

impl<A: Aggregate> Drop for KeyActor<A> {
    fn drop(&mut self) {
        self.leave(std::thread::panicking());
    }
}
