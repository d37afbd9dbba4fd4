//! The unit of work: holds several keys in sorted order, runs commands on their states, and commits
//! all their events in one append or none.
//!
//! Sorted order makes a deadlock impossible. The keys go back when the append is handed over, not
//! after the disk.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::clock::within;
use super::decided::Pending;
use super::env::{Activation, Env};
use super::key_actor::{Hold, Lent};
use super::limiter::Permit;
use super::repository::{Failure, Reach, Ticket, Work, Write};
use super::request::Reply;
use super::{Directories, Routed};
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::{Error, OwnerDid, Result, StreamKey, StreamName, Timestamp};
use crate::domain::auth::PendingAuth;
use crate::domain::connector::Connector;
use crate::domain::document::Document;
use crate::domain::{Aggregate, Context, Fence, Row, RowKey, exists_refusal};
use crate::journal::{Append, Expected, Part};

/// One held key, whatever its kind.
pub(crate) enum AnyKey {
    Document(HeldKey<Document>),
    Connector(HeldKey<Connector>),
    Auth(HeldKey<PendingAuth>),
}

/// A held key and what the unit did to it.
pub(crate) struct HeldKey<A: Aggregate> {
    lent: Lent<A>,
    /// The head when it was held.
    expected: Expected,
    pending: Pending,
}

/// A running unit of work.
pub(crate) struct Unit {
    env: Arc<Env>,
    fence: Option<Fence>,
    command_id: Uuid,
    now: Timestamp,
    /// Given back once it has committed: a handle may be kept for longer.
    room: Mutex<Option<Permit>>,
    keys: Mutex<Option<BTreeMap<StreamKey, AnyKey>>>,
}

/// Holds the keys. Takes its room in the store before the first of them, so that it never waits
/// behind the commands that wait for it.
///
/// A dropped call gives everything back.
pub(crate) async fn begin(
    directories: &Directories,
    keys: impl IntoIterator<Item = StreamKey>,
    owner: Option<OwnerDid>,
    fence: Option<Fence>,
) -> Result<Unit> {
    let env = Arc::clone(&directories.env);
    env.check_open()?;
    let mut names: Vec<(StreamName, StreamKey)> =
        keys.into_iter().map(|key| (key.stream_name(), key)).collect();
    names.sort_unstable();
    names.dedup();
    let limit = env.bounds.command_timeout;
    let room = within(&env.time, limit, env.limiter.acquire(owner, names.len())).await;
    let room = room.ok_or(Error::TimedOut)?;
    let mut held = BTreeMap::new();
    for (_, key) in names {
        let any = match &key {
            StreamKey::Document(_) => {
                AnyKey::Document(hold::<Document>(directories, &env, &key).await?)
            }
            StreamKey::Connector(..) => {
                AnyKey::Connector(hold::<Connector>(directories, &env, &key).await?)
            }
            StreamKey::Auth(_) => AnyKey::Auth(hold::<PendingAuth>(directories, &env, &key).await?),
        };
        held.insert(key, any);
    }
    let now = confirm(&env, &held).await?;
    let command_id = env.ids.id(now);
    let (room, keys) = (Mutex::new(Some(room)), Mutex::new(Some(held)));
    Ok(Unit { env, fence, command_id, now, room, keys })
}

async fn hold<A: Routed>(
    directories: &Directories,
    env: &Env,
    key: &StreamKey,
) -> Result<HeldKey<A>> {
    let (lend, lent) = oneshot::channel();
    A::directory(directories).hold(key, Hold { lend })?;
    let lent = within(&env.time, env.bounds.command_timeout, lent).await;
    let lent = lent.ok_or(Error::TimedOut)?.map_err(|_| Error::ActorStopped)?;
    let expected = lent.held.as_ref().ok_or(Error::ActorStopped)?.head;
    Ok(HeldKey { lent, expected, pending: Pending::default() })
}

/// The time of the unit. On a shared storage it is the database's, and the heads must be those held.
async fn confirm(env: &Env, held: &BTreeMap<StreamKey, AnyKey>) -> Result<Timestamp> {
    let mut now = env.time.now();
    if !env.storage.is_shared() {
        return Ok(now);
    }
    // All are asked before the first answer is waited for.
    let samples: Vec<_> = held.keys().map(|key| env.sampler.sample(key.stream_name())).collect();
    for (any, sample) in held.values().zip(samples) {
        let (at, head) = sample.await?;
        now = at;
        let (expected, activation) = any.base();
        let durable = activation.durable() >= expected.version;
        if durable && head.unwrap_or(Expected::NONE) != expected {
            activation.fail();
            return Err(Error::Contention);
        }
    }
    Ok(now)
}

impl AnyKey {
    fn base(&self) -> (Expected, &Arc<Activation>) {
        match self {
            Self::Document(key) => (key.expected, &key.lent.activation),
            Self::Connector(key) => (key.expected, &key.lent.activation),
            Self::Auth(key) => (key.expected, &key.lent.activation),
        }
    }

    fn part(&mut self, key: &StreamKey, every: u32) -> Option<(Part, Reach)> {
        match self {
            Self::Document(held) => held.part(key, every),
            Self::Connector(held) => held.part(key, every),
            Self::Auth(held) => held.part(key, every),
        }
    }

    fn absent(&mut self) -> &mut Vec<RowKey> {
        match self {
            Self::Document(held) => &mut held.pending.absent,
            Self::Connector(held) => &mut held.pending.absent,
            Self::Auth(held) => &mut held.pending.absent,
        }
    }

    fn give_back(&mut self) {
        match self {
            Self::Document(held) => held.lent.give_back(),
            Self::Connector(held) => held.lent.give_back(),
            Self::Auth(held) => held.lent.give_back(),
        }
    }
}

impl<A: Aggregate> HeldKey<A> {
    fn run(
        &mut self,
        key: &StreamKey,
        command: &A::Command,
        context: impl FnOnce(i64) -> Context,
        command_id: Uuid,
    ) -> Result<A::Reply> {
        let held = self.lent.held.as_mut().ok_or_else(|| not_held(key))?;
        let context = context(held.head.version + 1);
        let reply = held.run(key, command, &context, command_id, &mut self.pending)?;
        self.lent.changed |= !self.pending.events.is_empty() || !self.pending.rows.is_empty();
        Ok(reply)
    }

    fn part(&mut self, key: &StreamKey, every: u32) -> Option<(Part, Reach)> {
        let held = self.lent.held.as_mut()?;
        let pending = std::mem::take(&mut self.pending);
        let retracts = pending.retracts;
        let part = held.part(key, &key.stream_name(), self.expected, pending, every);
        let (activation, version) = (Arc::clone(&self.lent.activation), held.head.version);
        Some((part, Reach { activation, version, retracts }))
    }
}

fn not_held(key: &StreamKey) -> Error {
    Error::NotHeld { key: key.to_string() }
}

impl Unit {
    fn keys(&self) -> MutexGuard<'_, Option<BTreeMap<StreamKey, AnyKey>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command on a held key. Its answer holds once the unit is committed.
    pub(crate) fn run<A: Routed>(&self, key: &StreamKey, command: &A::Command) -> Result<A::Reply> {
        let mut keys = self.keys();
        let held = keys.as_mut().and_then(|keys| keys.get_mut(key)).and_then(A::held);
        let held = held.ok_or_else(|| not_held(key))?;
        let context = |next_version| Context {
            now: self.now,
            id: self.env.ids.id(self.now),
            jitter: self.env.jitter.unit(),
            generation: self.env.storage.generation(),
            restored_at: self.env.storage.restored_at(),
            next_version,
            fence: self.fence.clone(),
            records_epoch: self.env.records_epoch(),
        };
        held.run(key, command, context, self.command_id)
    }

    /// What the caller's closure makes of the held state. Should it panic, the unit goes on as if it
    /// had not been called.
    pub(crate) fn with_state<A: Routed, R>(
        &self,
        key: &StreamKey,
        read: impl FnOnce(&A) -> R,
    ) -> Result<R> {
        let mut keys = self.keys();
        let held = keys.as_mut().and_then(|keys| keys.get_mut(key)).and_then(A::held);
        let held = held.and_then(|held| held.lent.held.as_ref()).ok_or_else(|| not_held(key))?;
        catch_unwind(AssertUnwindSafe(|| read(&held.state))).map_err(|_| Error::ClosurePanicked)
    }

    /// Refuses a key that is not held.
    pub(crate) fn check_held(&self, key: &StreamKey) -> Result<()> {
        let is_held = self.keys().as_ref().is_some_and(|keys| keys.contains_key(key));
        if is_held { Ok(()) } else { Err(not_held(key)) }
    }

    /// Commits everything in one append. It goes through or not whether or not the call is awaited
    /// to its end.
    pub(crate) async fn commit(&self) -> Result<()> {
        let keys = self.keys().take();
        let mut keys =
            keys.ok_or_else(|| Error::NotHeld { key: "anything any more".to_owned() })?;
        let _room = self.room.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (mut parts, mut reaches, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for (key, any) in &mut keys {
            absent.append(any.absent());
            if let Some((part, reach)) = any.part(key, self.env.bounds.snapshot_every_events) {
                parts.push(part);
                reaches.push(reach);
            }
        }
        if is_planted(PlantedBug::UnitWritesFirstKeyAlone) {
            parts.truncate(1);
        }
        let fences = self.fence.iter().cloned().collect();
        let append = Append { command_id: self.command_id, record: None, parts, fences, absent };
        let (reply, answered) = Reply::new();
        let ticket = Box::new(UnitTicket { reply, command_id: self.command_id });
        self.env.repository.hand_over(Work::Write(Write { append, reaches, ticket }));
        keys.values_mut().for_each(AnyKey::give_back);
        drop(keys);
        match within(&self.env.time, self.env.bounds.command_timeout, answered).await {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err(Error::OutcomeUnknown { command_id: self.command_id }),
        }
    }
}

struct UnitTicket {
    reply: Reply<()>,
    command_id: Uuid,
}

impl Ticket for UnitTicket {
    fn committed(self: Box<Self>, _: Vec<Row>, _: Duration) {
        self.reply.send(Ok(()));
    }

    fn failed(self: Box<Self>, failure: Failure) {
        let error = match failure {
            Failure::Conflict | Failure::Stale | Failure::Known(_) => Error::Contention,
            Failure::Fence(fence) => fence.scope.lost(),
            Failure::Exists(key) => exists_refusal(&key),
            Failure::Storage(error) => error,
            Failure::Unknown => Error::OutcomeUnknown { command_id: self.command_id },
        };
        self.reply.send(Err(error));
    }
}
