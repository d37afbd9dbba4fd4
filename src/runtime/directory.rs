//! The directory of one kind of keys: activates an actor on first use, passivates idle ones, and
//! never loses or reorders a message between two lives of a key.
//!
//! Every message goes to its actor under the lock of the key's shard, and an entry leaves the map
//! under the same lock; so all messages to an old actor lie before its stop, and its successor
//! loads only once it has ended. It knows no command.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use actix::{Actor, Addr};
use actix_rt::ArbiterHandle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::env::Env;
use super::key_actor::{Birth, Hold, KeyActor, Passivate};
use super::life::{Life, Standing};
use super::request::Request;
use super::telemetry;
use crate::base::{Error, Result, StreamKey};
use crate::domain::Aggregate;

/// Shards of the map: enough that callers on many threads rarely meet.
const SHARDS: usize = 64;
/// Panics in a row after which a key backs off.
const PANICS_BEFORE_BACKOFF: u32 = 3;
/// First backoff of a key that panics again and again; it doubles.
const PANIC_BACKOFF: Duration = Duration::from_secs(1);
/// Longest backoff.
const PANIC_BACKOFF_CAP: Duration = Duration::from_secs(60);
/// A key that has not panicked for so long has a clean record again.
const PANICS_FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// The part of a shard that leaves at once when too many keys are in memory, so that the search for
/// the least recently used is paid once for many.
const EVICTED_PART: usize = 16;

struct Entry<A: Aggregate> {
    id: u64,
    addr: Addr<KeyActor<A>>,
    room: Arc<Semaphore>,
    life: Arc<Life>,
    last_used: Duration,
    stopping: bool,
    /// Ends when the actor has ended.
    finished: Option<oneshot::Receiver<()>>,
}

#[derive(Clone, Copy)]
struct Panics {
    count: u32,
    last: Duration,
}

pub(crate) struct Directory<A: Aggregate> {
    this: Weak<Self>,
    env: Arc<Env>,
    arbiters: Vec<ArbiterHandle>,
    /// Nobody who chooses names of keys knows it, so nobody can bring them together on one shard.
    seed: u128,
    shards: Vec<Mutex<HashMap<StreamKey, Entry<A>>>>,
    active: AtomicUsize,
    next_id: AtomicU64,
    panics: Mutex<HashMap<StreamKey, Panics>>,
}

type Shard<'a, A> = MutexGuard<'a, HashMap<StreamKey, Entry<A>>>;

impl<A: Aggregate> Directory<A> {
    pub(super) fn new(env: Arc<Env>, arbiters: Vec<ArbiterHandle>) -> Arc<Self> {
        let seed = env.ids.id(env.time.now()).as_u128();
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            env,
            arbiters,
            seed,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            active: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            panics: Mutex::default(),
        })
    }

    fn slot(&self, key: &StreamKey) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        usize::try_from(hasher.finish() >> 1).unwrap_or(0)
    }

    fn shard(&self, key: &StreamKey) -> Shard<'_, A> {
        lock(&self.shards[self.slot(key) % SHARDS])
    }

    /// How many keys are in memory.
    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// Room in the key's mailbox, if there is some now.
    pub(super) fn try_room(&self, key: &StreamKey) -> Result<OwnedSemaphorePermit> {
        let room = self.room(key)?;
        room.try_acquire_owned().map_err(|_| Error::MailboxFull)
    }

    /// Waits for room in the key's mailbox. A dropped wait takes nothing.
    pub(super) async fn wait_for_room(&self, key: &StreamKey) -> Result<OwnedSemaphorePermit> {
        let room = self.room(key)?;
        room.acquire_owned().await.map_err(|_| Error::ActorStopped)
    }

    fn room(&self, key: &StreamKey) -> Result<Arc<Semaphore>> {
        self.with_entry(key, |entry| Arc::clone(&entry.room))
    }

    pub(super) fn send(&self, key: &StreamKey, request: Request<A>) -> Result<()> {
        self.with_entry(key, |entry| entry.addr.do_send(request))
    }

    pub(super) fn hold(&self, key: &StreamKey, hold: Hold<A>) -> Result<()> {
        self.with_entry(key, |entry| entry.addr.do_send(hold))
    }

    /// What is told from now on of the key stands while this holds; none on a storage where others
    /// may take it back.
    pub(super) fn standing(&self, key: &StreamKey) -> Result<Option<Standing>> {
        if self.env.storage.is_shared() {
            return Ok(None);
        }
        self.with_entry(key, |entry| entry.life.standing())
    }

    /// Runs `use_it` on the key's live entry, which is made if there is none. The bound of the
    /// mailbox is the permit that a request holds, so the unbounded send is safe.
    fn with_entry<R>(&self, key: &StreamKey, use_it: impl FnOnce(&mut Entry<A>) -> R) -> Result<R> {
        let now = self.env.time.elapsed();
        let mut shard = self.shard(key);
        if let Some(entry) = shard.get_mut(key)
            && !entry.stopping
            && entry.addr.connected()
        {
            entry.last_used = now;
            return Ok(use_it(entry));
        }
        self.check_backoff(key, now)?;
        let predecessor = shard.get_mut(key).and_then(|entry| entry.finished.take());
        let mut entry = self.activate(key, predecessor, now);
        let used = use_it(&mut entry);
        if shard.insert(key.clone(), entry).is_none() {
            let active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
            telemetry::active(A::KIND, 1.0);
            if active > self.env.bounds.max_active_keys {
                self.evict(&mut shard, key);
            }
        }
        Ok(used)
    }

    fn activate(
        &self,
        key: &StreamKey,
        predecessor: Option<oneshot::Receiver<()>>,
        now: Duration,
    ) -> Entry<A> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (finished, has_finished) = oneshot::channel();
        let life = Arc::new(Life::default());
        let birth = Birth {
            key: key.clone(),
            env: Arc::clone(&self.env),
            directory: Weak::clone(&self.this),
            id,
            life: Arc::clone(&life),
            predecessor,
            finished,
        };
        let arbiter = &self.arbiters[self.slot(key) / SHARDS % self.arbiters.len()];
        let addr = KeyActor::start_in_arbiter(arbiter, move |_| KeyActor::new(birth));
        let room = Arc::new(Semaphore::new(self.env.bounds.mailbox_commands));
        let finished = Some(has_finished);
        Entry { id, addr, room, life, last_used: now, stopping: false, finished }
    }

    /// Too many keys are in memory: the least recently used of this shard leave.
    fn evict(&self, shard: &mut Shard<'_, A>, newest: &StreamKey) {
        let mut ages: Vec<(Duration, StreamKey)> = shard
            .iter()
            .filter(|(key, entry)| !entry.stopping && *key != newest)
            .map(|(key, entry)| (entry.last_used, key.clone()))
            .collect();
        ages.sort_unstable();
        let leaving = (ages.len() / EVICTED_PART).max(1);
        for (_, key) in ages.into_iter().take(leaving) {
            if let Some(entry) = shard.get_mut(&key) {
                stop(entry);
            }
        }
    }

    /// Passivates what was idle too long, and forgets old panics.
    pub(super) fn sweep(&self) {
        let now = self.env.time.elapsed();
        let idle_time = self.env.bounds.idle_time;
        self.stop_where(|entry| now.saturating_sub(entry.last_used) >= idle_time);
        lock(&self.panics)
            .retain(|_, panics| now.saturating_sub(panics.last) < PANICS_FORGOTTEN_AFTER);
        self.give_memory_back();
    }

    fn give_memory_back(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            if shard.capacity() > 64 && shard.len() * 4 < shard.capacity() {
                shard.shrink_to_fit();
            }
        }
    }

    /// Passivates everything.
    pub(super) fn stop_all(&self) {
        self.stop_where(|_| true);
    }

    /// In the order of the keys, so that nothing depends on the order of a map.
    fn stop_where(&self, is_wanted: impl Fn(&Entry<A>) -> bool) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let mut leaving: Vec<_> =
                shard.iter_mut().filter(|(_, entry)| !entry.stopping && is_wanted(entry)).collect();
            leaving.sort_unstable_by_key(|(key, _)| *key);
            leaving.into_iter().for_each(|(_, entry)| stop(entry));
        }
    }

    /// The store has ended, and its actors with it: they are counted out, whether or not they live
    /// to say so themselves.
    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            for _ in lock(shard).drain() {
                telemetry::active(A::KIND, -1.0);
                self.active.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// An actor has ended; a later life of the key stays.
    pub(super) fn ended(&self, key: &StreamKey, id: u64, panicked: bool) {
        if panicked {
            telemetry::count(telemetry::PANICS, A::KIND);
            tracing::error!(%key, "an actor panicked; the key is loaded anew");
            let now = self.env.time.elapsed();
            let mut panics = lock(&self.panics);
            let record = panics.entry(key.clone()).or_insert(Panics { count: 0, last: now });
            *record = Panics { count: record.count.saturating_add(1), last: now };
        }
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|entry| entry.id == id) {
            shard.remove(key);
            telemetry::active(A::KIND, -1.0);
            self.active.fetch_sub(1, Ordering::Release);
        }
    }

    /// An actor of the key panicked lately.
    pub(super) fn has_panicked(&self, key: &StreamKey) -> bool {
        lock(&self.panics).contains_key(key)
    }

    /// Passivates one key, whose stream was changed behind its actor's back.
    pub(super) fn stop_key(&self, key: &StreamKey) {
        if let Some(entry) = self.shard(key).get_mut(key).filter(|entry| !entry.stopping) {
            stop(entry);
        }
    }

    /// A key that panics again and again is not loaded for a while.
    fn check_backoff(&self, key: &StreamKey, now: Duration) -> Result<()> {
        let Some(panics) = lock(&self.panics).get(key).copied() else { return Ok(()) };
        let Some(doublings) = panics.count.checked_sub(PANICS_BEFORE_BACKOFF) else {
            return Ok(());
        };
        let pause = PANIC_BACKOFF.saturating_mul(1 << doublings.min(16)).min(PANIC_BACKOFF_CAP);
        if now.saturating_sub(panics.last) < pause { Err(Error::ActorStopped) } else { Ok(()) }
    }
}

fn stop<A: Aggregate>(entry: &mut Entry<A>) {
    entry.stopping = true;
    entry.addr.do_send(Passivate);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
