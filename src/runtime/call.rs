//! A caller's way to a key: room in the mailbox, room in the store, the actor, the answer, each
//! within the command's time.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::clock::within;
use super::request::{Intent, Reply, Request};
use super::ticket::known_answer;
use super::{Directories, Routed};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Digest, Error, OwnerDid, Result, StreamKey};
use crate::domain::Fence;
use crate::journal::encode_value;

/// How a command is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallOptions {
    /// The lease under which it is sent.
    pub(crate) fence: Option<Fence>,
    /// Whose share of the store it takes.
    pub(crate) owner: Option<OwnerDid>,
    /// The caller's own id for it.
    pub(crate) command_id: Option<Uuid>,
    /// A full mailbox is an error rather than a wait.
    pub(crate) no_wait: bool,
}

/// The callers' ids of commands under way in this process.
#[derive(Clone, Default)]
pub(crate) struct IdsUnderWay(Arc<Mutex<HashSet<Uuid>>>);

/// An id that is under way until this is dropped: with the request, not with the caller's future.
pub(super) struct IdUnderWay {
    ids: IdsUnderWay,
    id: Uuid,
}

impl IdsUnderWay {
    fn enter(&self, id: Uuid) -> Result<IdUnderWay> {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.insert(id) {
            Ok(IdUnderWay { ids: self.clone(), id })
        } else {
            Err(Error::InFlight { command_id: id })
        }
    }
}

impl Drop for IdUnderWay {
    fn drop(&mut self) {
        self.ids.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Directories {
    /// Sends a command to its key and waits for the answer.
    ///
    /// Cancel safety: a dropped call is carried out whole or not at all.
    pub(crate) async fn call<A: Routed>(
        &self,
        key: &StreamKey,
        intent: Intent<A>,
        options: CallOptions,
    ) -> Result<A::Reply> {
        let env = &self.env;
        env.check_open()?;
        let sent_at = env.time.elapsed();
        let is_read = intent.is_read();
        let command_id = options.command_id.unwrap_or_else(|| env.ids.id(env.time.now()));
        let (mut reply, answered) = Reply::new();
        let under_way = match (&intent, options.command_id) {
            (Intent::Plain(command), Some(id)) => {
                let digest = Digest::of(&encode_value(&(key, A::command_name(command), command))?);
                let under_way = self.ids_under_way.enter(id)?;
                if let Some(record) = env.answer_in_time(env.storage.command(id)).await?
                    && !is_planted(PlantedBug::KnownCommandRunsAgain)
                {
                    return known_answer::<A>(&record, Some(digest), id);
                }
                Some((digest, under_way))
            }
            _ => None,
        };
        let name = intent.name();
        let room = self.room::<A>(key, &options, self.time_left(sent_at)).await?;
        env.check_open()?;
        let span = tracing::debug_span!(
            "command",
            stream = %key,
            command = name,
            queue_wait_us = tracing::field::Empty,
            decide_us = tracing::field::Empty,
            commit_us = tracing::field::Empty,
            outcome = tracing::field::Empty,
        );
        let (digest, id_under_way) = under_way.unzip();
        reply.keep_under_way(id_under_way);
        let request = Request {
            intent,
            command_id,
            digest,
            fence: options.fence,
            reply,
            conflicts: 0,
            sent_at,
            span,
            room,
        };
        env.counters.commands.fetch_add(1, Ordering::Relaxed);
        A::directory(self).send(key, request)?;
        match within(&env.time, self.time_left(sent_at), answered).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::ActorStopped),
            None if is_read => Err(Error::TimedOut),
            None => Err(Error::OutcomeUnknown { command_id }),
        }
    }

    /// What is left of the time of a call.
    fn time_left(&self, sent_at: Duration) -> Duration {
        let took = self.env.time.elapsed().saturating_sub(sent_at);
        self.env.bounds.command_timeout.saturating_sub(took)
    }

    async fn room<A: Routed>(
        &self,
        key: &StreamKey,
        options: &CallOptions,
        limit: Duration,
    ) -> Result<super::request::Room> {
        let env = &self.env;
        let directory = A::directory(self);
        let owner = options.owner.clone();
        if let Ok(mailbox) = directory.try_room(key)
            && let Some(store) = env.limiter.try_acquire(owner.clone(), 1)
        {
            return Ok((mailbox, store));
        }
        if options.no_wait {
            return Err(Error::MailboxFull);
        }
        let wait = async {
            let mailbox = directory.wait_for_room(key).await?;
            Ok((mailbox, env.limiter.acquire(owner, 1).await))
        };
        within(&env.time, limit, wait).await.ok_or(Error::TimedOut)?
    }
}
