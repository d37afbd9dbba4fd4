//! From the end of an append to the answer of the request that waits for it.
//!
//! A request whose append lost goes back to its actor, to be decided again. It knows no batch.

use std::sync::PoisonError;

use actix::Addr;
use uuid::Uuid;

use super::key_actor::{KeyActor, Returned, Wake};
use super::repository::{Failure, Ticket};
use super::request::Request;
use super::telemetry;
use crate::base::limits::MAX_ANSWER_BYTES;
use crate::base::{Digest, Error, Result};
use crate::domain::{Aggregate, Row, exists_refusal};
use crate::journal::{CommandRecord, decode_value, encode_value};

/// How often a command may lose to another writer. On a key that other hosts write to all the time
/// the loser of one round is likely to lose the next, since it has to load first.
const MAX_CONFLICTS: u32 = 256;

pub(super) fn answer<A: Aggregate>(request: Request<A>, result: Result<A::Reply>) {
    telemetry::answered(request.intent.name(), &result, &request.span);
    let Request { reply, room, .. } = request;
    // Room is given back first, so that a caller that sends again at once finds it.
    drop(room);
    reply.send(result);
}

pub(super) fn answer_error<A: Aggregate>(request: Request<A>, error: &Error) {
    answer::<A>(request, Err(error.clone()));
}

pub(super) fn record<A: Aggregate>(
    request: &Request<A>,
    reply: &A::Reply,
) -> Result<Option<CommandRecord>> {
    let (Some(digest), Some(reply)) = (request.digest, A::recorded(reply)) else {
        return Ok(None);
    };
    let answer = encode_value(&reply)?;
    if answer.len() > MAX_ANSWER_BYTES {
        let reason =
            format!("expected a command whose answer has at most {MAX_ANSWER_BYTES} bytes");
        return Err(Error::invalid("command_id", reason));
    }
    Ok(Some(CommandRecord { digest, answer }))
}

/// The answer of a repeated command: the first one, if it is the same command.
pub(super) fn known_answer<A: Aggregate>(
    record: &CommandRecord,
    digest: Option<Digest>,
    command_id: Uuid,
) -> Result<A::Reply> {
    if digest == Some(record.digest) {
        decode_value(&record.answer)
    } else {
        Err(Error::CommandMismatch { command_id })
    }
}

/// A request whose answer waits for the end of an append.
pub(super) struct KeyTicket<A: Aggregate> {
    pub(super) request: Request<A>,
    pub(super) result: Result<A::Reply>,
    pub(super) returned: Returned<A>,
    pub(super) actor: Addr<KeyActor<A>>,
}

impl<A: Aggregate> Ticket for KeyTicket<A> {
    fn committed(self: Box<Self>, taken: Vec<Row>) {
        let result = self.result.map(|reply| A::with_taken(reply, taken));
        answer::<A>(self.request, result);
    }

    fn failed(self: Box<Self>, failure: Failure) {
        let Self { mut request, returned, actor, .. } = *self;
        let command_id = request.command_id;
        match failure {
            Failure::Conflict if request.conflicts >= MAX_CONFLICTS => {
                answer_error::<A>(request, &Error::Contention);
            }
            Failure::Conflict | Failure::Stale => {
                if matches!(failure, Failure::Conflict) {
                    request.conflicts += 1;
                }
                returned.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            }
            Failure::Fence(fence) => answer_error::<A>(request, &fence.scope.lost()),
            Failure::Exists(key) => answer_error::<A>(request, &exists_refusal(&key)),
            Failure::Known(record) => {
                let digest = request.digest;
                answer::<A>(request, known_answer::<A>(&record, digest, command_id));
            }
            Failure::Storage(error) => answer_error::<A>(request, &error),
            Failure::Unknown => {
                answer_error::<A>(request, &Error::OutcomeUnknown { command_id });
            }
        }
        actor.do_send(Wake);
    }
}
