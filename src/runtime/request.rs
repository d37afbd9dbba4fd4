//! A command on its way: what is asked, under which id and lease, and who waits for the answer.
//!
//! Whoever holds a request holds the duty to answer it; dropping it answers that nothing happened.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::call::IdUnderWay;
use super::limiter::Permit;
use crate::base::{Digest, Error, Result};
use crate::domain::{Aggregate, Fence};

/// Computes a command from the state in the actor's turn. It may run again after a failed append, or
/// where it refuses before the state is confirmed.
pub(crate) type Compute<A> = Arc<dyn Fn(&A) -> Result<<A as Aggregate>::Command> + Send + Sync>;

/// What is asked.
pub(crate) enum Intent<A: Aggregate> {
    /// A plain-data command.
    Plain(A::Command),
    /// A caller's closure makes the command.
    Compute {
        /// The command's name, for spans and metrics.
        name: &'static str,
        /// The closure.
        make: Compute<A>,
    },
}

impl<A: Aggregate> Intent<A> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Plain(command) => A::command_name(command),
            Self::Compute { name, .. } => name,
        }
    }

    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Plain(command) => A::is_read(command),
            Self::Compute { .. } => false,
        }
    }
}

/// A command in an actor's mailbox.
pub(super) struct Request<A: Aggregate> {
    pub(super) intent: Intent<A>,
    pub(super) command_id: Uuid,
    /// SHA-256 of the encoded command, when the caller gave the id.
    pub(super) digest: Option<Digest>,
    pub(super) fence: Option<Fence>,
    pub(super) reply: Reply<A::Reply>,
    /// How often it was decided and lost to another writer.
    pub(super) conflicts: u32,
    pub(super) sent_at: Duration,
    pub(super) span: tracing::Span,
    /// Held until the answer.
    pub(super) room: Room,
}

/// Room in the mailbox and in the store.
pub(super) type Room = (OwnedSemaphorePermit, Permit);

/// The way back to a caller. Dropped unanswered, it says that the actor stopped.
pub(super) struct Reply<R> {
    sender: Option<oneshot::Sender<Result<R>>>,
    /// Given back before the answer leaves: who has the answer may repeat the id at once.
    id_under_way: Option<IdUnderWay>,
}

impl<R> Reply<R> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<R>>) {
        let (sender, receiver) = oneshot::channel();
        (Self { sender: Some(sender), id_under_way: None }, receiver)
    }

    /// Keeps a caller's id under way until the answer.
    pub(super) fn keep_under_way(&mut self, id: Option<IdUnderWay>) {
        self.id_under_way = id;
    }

    /// Answers. A caller that went away is not an error.
    pub(super) fn send(mut self, result: Result<R>) {
        self.answer(result);
    }

    fn answer(&mut self, result: Result<R>) {
        drop(self.id_under_way.take());
        if let Some(sender) = self.sender.take() {
            let _ = sender.send(result);
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        self.answer(Err(Error::ActorStopped));
    }
}
