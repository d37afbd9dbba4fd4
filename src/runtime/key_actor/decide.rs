//! How the actor of a key decides a request, before or behind the confirmation of its head, and hands
//! its append over.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use actix::Context as ActorScope;
use uuid::Uuid;

use super::KeyActor;
use crate::base::{Error, Result, Timestamp};
use crate::domain::{Aggregate, Context};
use crate::journal::{Append, Expected};
use crate::runtime::decided::Pending;
use crate::runtime::repository::{Reach, Work, Write};
use crate::runtime::request::{Intent, Request};
use crate::runtime::telemetry;
use crate::runtime::ticket::{answer_error, record};

/// What a request comes to.
enum Decided<A: Aggregate> {
    /// It is answered once this is durable.
    Appends { reply: A::Reply, expected: Expected, pending: Pending },
    /// It is answered from the state.
    Answers { result: Result<A::Reply>, drawn: Option<Drawn> },
    /// The decision has panicked.
    Panicked(Box<dyn Any + Send>),
}

/// The id and the jitter of a decision.
pub(super) type Drawn = (Uuid, f64);

impl<A: Aggregate> Decided<A> {
    /// The closure that was to make the command refuses.
    const fn refusal(error: Error) -> Self {
        Self::Answers { result: Err(error), drawn: None }
    }
}

impl<A: Aggregate> KeyActor<A> {
    pub(super) fn decide(
        &mut self,
        request: Request<A>,
        now: Timestamp,
        scope: &mut ActorScope<Self>,
    ) {
        let begun = self.env.time.elapsed();
        match self.run(&request, now, true) {
            Some(decided) => self.carry_on(request, decided, begun, scope),
            // Its state is lent or gone: dropped, it is answered that nothing happened.
            None => drop(request),
        }
    }

    /// The same before the head is confirmed. Gives back what must wait for that.
    pub(super) fn decide_unconfirmed(
        &mut self,
        request: Request<A>,
        now: Timestamp,
        scope: &mut ActorScope<Self>,
    ) -> Option<Request<A>> {
        let begun = self.env.time.elapsed();
        match self.run(&request, now, false) {
            Some(decided @ (Decided::Appends { .. } | Decided::Panicked(_))) => {
                self.carry_on(request, decided, begun, scope);
                None
            }
            Some(Decided::Answers { drawn, .. }) => {
                self.drawn = drawn;
                Some(request)
            }
            None => Some(request),
        }
    }

    /// Runs a request's command on the state. `None`: there is no state, or `now` is an estimate, as
    /// before the head is confirmed, and the command compares with it.
    fn run(
        &mut self,
        request: &Request<A>,
        now: Timestamp,
        is_confirmed: bool,
    ) -> Option<Decided<A>> {
        let held = self.held.as_mut()?;
        let made;
        let command = match &request.intent {
            Intent::Plain(command) => command,
            Intent::Compute { make, .. } => {
                match catch_unwind(AssertUnwindSafe(|| make(&held.state))) {
                    Ok(Ok(command)) => {
                        made = command;
                        &made
                    }
                    Ok(Err(error)) => return Some(Decided::refusal(error)),
                    Err(_) => return Some(Decided::refusal(Error::ClosurePanicked)),
                }
            }
        };
        if !is_confirmed && !A::is_timeless(command) {
            return None;
        }
        let expected = held.head;
        let drawn = self.drawn.take();
        // Caught so that the key is free again before the caller hears of it: what it sends next
        // must not go to the actor that ends.
        let run = catch_unwind(AssertUnwindSafe(|| {
            let (id, jitter) =
                drawn.unwrap_or_else(|| (self.env.ids.id(now), self.env.jitter.unit()));
            let context = Context {
                now,
                id,
                jitter,
                generation: self.env.storage.generation(),
                restored_at: self.env.storage.restored_at(),
                next_version: expected.version + 1,
                fence: request.fence.clone(),
                records_epoch: self.env.records_epoch(),
            };
            let mut pending = Pending::default();
            let result = held.run(&self.key, command, &context, request.command_id, &mut pending);
            (result, pending, (id, jitter))
        }));
        Some(match run {
            Ok((Ok(reply), pending, drawn)) => {
                let changes = !pending.events.is_empty() || !pending.rows.is_empty();
                // A lease is judged where its row is, also for a command that changes nothing.
                if changes || request.digest.is_some() || request.fence.is_some() {
                    Decided::Appends { reply, expected, pending }
                } else {
                    Decided::Answers { result: Ok(reply), drawn: Some(drawn) }
                }
            }
            Ok((Err(refusal), _, drawn)) => {
                Decided::Answers { result: Err(refusal), drawn: Some(drawn) }
            }
            Err(panic) => Decided::Panicked(panic),
        })
    }

    /// Goes on with a request that was decided from the store's time `begun` on.
    fn carry_on(
        &mut self,
        request: Request<A>,
        decided: Decided<A>,
        begun: Duration,
        scope: &mut ActorScope<Self>,
    ) {
        telemetry::waited(&request.span, begun.saturating_sub(request.sent_at));
        if !request.span.is_disabled() {
            let took = self.env.time.elapsed().saturating_sub(begun);
            telemetry::spent(&request.span, "decide_us", took);
        }
        match decided {
            Decided::Appends { reply, expected, pending } => {
                self.hand_over(request, reply, expected, pending, scope);
            }
            Decided::Answers { result, .. } => self.after_durable(request, result, scope),
            Decided::Panicked(panic) => {
                self.leave(true);
                drop(request);
                resume_unwind(panic);
            }
        }
    }

    fn hand_over(
        &mut self,
        request: Request<A>,
        reply: A::Reply,
        expected: Expected,
        mut pending: Pending,
        scope: &mut ActorScope<Self>,
    ) {
        let Some(held) = self.held.as_mut() else { return };
        let record = match record::<A>(&request, &reply) {
            Ok(record) => record,
            Err(error) => {
                // The state has the events already, and they must not count.
                self.activation.fail();
                answer_error::<A>(request, &error);
                return self.reload(scope);
            }
        };
        let every = self.env.bounds.snapshot_every_events;
        let absent = std::mem::take(&mut pending.absent);
        let retracts = pending.retracts;
        let part = held.part(&self.key, &self.stream, expected, pending, every);
        let version = held.head.version;
        if self.env.storage.is_shared() && version > expected.version {
            self.heads.push_back(held.head);
            self.drop_old_heads();
        }
        let append = Append {
            command_id: request.command_id,
            record,
            parts: vec![part],
            fences: request.fence.iter().cloned().collect(),
            absent,
        };
        let ticket = self.ticket(request, Ok(reply), scope);
        let activation = Arc::clone(&self.activation);
        let reaches = vec![Reach { activation, version, retracts }];
        self.env.repository.hand_over(Work::Write(Write { append, reaches, ticket }));
    }
}
