//! The store's own actix system: its thread, its arbiters, its end.
//!
//! A plain tokio program of any flavour can embed it, because nothing of it runs on the caller's
//! executor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use actix_rt::{Arbiter, ArbiterHandle, System};
use tokio::sync::{oneshot, watch};

use super::clock::{
    Clock, CountedIds, IdSource, Jitter, RandomJitter, StoreTime, SystemClock, within,
};
use super::env::{Bounds, Counters, Env, Threads};
use super::limiter::Limiter;
use super::repository::{Repository, Work};
use super::sampler::Sampler;
use super::verifier::{RecordRules, Verifier};
use super::{Directories, unavailable};
use crate::base::{Error, Result, StorageFault, Timestamp};
use crate::journal::{BoxFuture, Storage};

/// Opens the storage, given the wall clock, on one of the store's threads.
pub(crate) type StorageOpener =
    Box<dyn FnOnce(Timestamp) -> BoxFuture<'static, Result<Arc<dyn Storage>>> + Send>;

/// Time, ids and chance, where a caller gives them.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) ids: Option<Arc<dyn IdSource>>,
    pub(crate) jitter: Option<Arc<dyn Jitter>>,
}

/// Who runs what of a store.
struct Crew {
    /// None when the threads are not the store's own.
    system: Option<System>,
    keys: Vec<ArbiterHandle>,
    verifiers: Vec<ArbiterHandle>,
    repository: ArbiterHandle,
    /// No caller's code runs there, which might keep every key waiting.
    answers: ArbiterHandle,
}

/// A running store.
pub(crate) struct Runtime {
    pub(crate) directories: Arc<Directories>,
    system: Option<System>,
    background: ArbiterHandle,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Runtime {
    pub(crate) async fn start(
        bounds: Bounds,
        rules: RecordRules,
        sources: Sources,
        open_storage: StorageOpener,
    ) -> Result<Self> {
        let clock = match sources.clock {
            Some(clock) => clock,
            None => Arc::new(SystemClock::start().map_err(no_thread)?),
        };
        let (crew, ended) = match bounds.threads {
            Threads::Own(count) => start_threads(count.max(1)).await?,
            #[cfg(feature = "testing")]
            Threads::Here => join_thread()?,
        };
        let stop = StopOnDrop(crew.system.clone());
        let mut time = StoreTime::new(clock);
        let (opened, storage) = oneshot::channel();
        let open = open_storage(time.now());
        crew.repository.spawn(async move {
            let _ = opened.send(open.await);
        });
        let storage = storage.await.map_err(|_| unavailable("opening the storage panicked"))??;
        time.hold_at_least(newest_time(&*storage).await?);
        let counters = Arc::new(Counters::default());
        let repository = Repository::start_on(
            &crew.repository,
            crew.answers.clone(),
            Arc::clone(&storage),
            time.clone(),
            Arc::clone(&counters),
            bounds.command_timeout,
        );
        let limit = bounds.command_timeout;
        let sampler = Sampler::start_on(&crew.answers, Arc::clone(&storage), time.clone(), limit);
        let verifier = Verifier::new(rules, time.clone(), limit, crew.verifiers);
        let env = Arc::new(Env {
            storage,
            repository,
            sampler,
            time,
            ids: sources.ids.unwrap_or_else(|| Arc::new(CountedIds::new())),
            jitter: sources.jitter.unwrap_or_else(|| Arc::new(RandomJitter::new())),
            limiter: Limiter::new(bounds.in_flight_commands.max(1)),
            bounds,
            verifier,
            counters,
            closing: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        });
        let directories = Arc::new(Directories::new(env, &crew.keys));
        sweep_for_ever(&crew.repository, &directories);
        stop.disarm();
        Ok(Self {
            directories,
            system: crew.system,
            background: crew.repository,
            ended: Mutex::new(Some(ended)),
        })
    }

    /// Runs something on the store's own threads until it ends or the store does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(task);
    }

    /// No new commands, mailboxes drain, the last batch commits, files are checkpointed. A second
    /// call answers [`Error::Closed`].
    pub(crate) async fn close(&self) -> Result<()> {
        let env = &self.directories.env;
        if env.closing.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        env.closed.send_replace(true);
        let limit = env.bounds.command_timeout;
        let all = env.limiter.acquire(None, env.bounds.in_flight_commands);
        let drained = within(&env.time, limit, all).await.is_some();
        let (done, closed) = oneshot::channel();
        env.repository.hand_over(Work::Close(done));
        let closed = within(&env.time, limit, closed).await;
        self.stop();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            let _ = within(&env.time, limit, ended).await;
        }
        self.directories.forget_all();
        match closed {
            Some(Ok(result)) => result?,
            _ => return Err(unavailable("the storage did not close in time")),
        }
        if drained { Ok(()) } else { Err(unavailable("commands were still under way")) }
    }

    fn stop(&self) {
        if let Some(system) = &self.system {
            system.stop();
        }
    }
}

impl Drop for Runtime {
    /// Never blocks: what is under way is dropped as if the process had been killed.
    fn drop(&mut self) {
        self.directories.env.closing.store(true, Ordering::Release);
        self.stop();
        self.directories.forget_all();
    }
}

struct StopOnDrop(Option<System>);

impl StopOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(system) = self.0.take() {
            system.stop();
        }
    }
}

/// When the newest event was written, on a storage that has no time of its own.
async fn newest_time(storage: &dyn Storage) -> Result<Timestamp> {
    if storage.is_shared() {
        return Ok(Timestamp::default());
    }
    let before_newest = storage.last_position().await?.saturating_sub(1);
    let newest = storage.events(before_newest, 1).await?;
    Ok(newest.first().map_or_else(Timestamp::default, |event| event.recorded_at))
}

async fn start_threads(count: usize) -> Result<(Crew, oneshot::Receiver<()>)> {
    let (ready, started) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let run = move || {
        let runner = System::new();
        let threads = runner.block_on(async move {
            Crew {
                system: Some(System::current()),
                keys: (0..count).map(|_| Arbiter::new().handle()).collect(),
                verifiers: (0..count).map(|_| Arbiter::new().handle()).collect(),
                repository: Arbiter::new().handle(),
                answers: Arbiter::new().handle(),
            }
        });
        if ready.send(threads).is_ok()
            && let Err(error) = runner.run()
        {
            tracing::error!(%error, "the actor system ended with an error");
        }
        let _ = end.send(());
    };
    thread::Builder::new().name("connector-store".to_owned()).spawn(run).map_err(no_thread)?;
    let crew = started.await.map_err(|_| unavailable("the store's thread ended"))?;
    Ok((crew, ended))
}

/// All on the thread that this is called on, which goes on when the store ends.
#[cfg(feature = "testing")]
fn join_thread() -> Result<(Crew, oneshot::Receiver<()>)> {
    let here = Arbiter::try_current()
        .ok_or_else(|| Error::invalid("on_this_thread", "expected a simulated runtime"))?;
    let (_, ended) = oneshot::channel();
    let crew = Crew {
        system: None,
        keys: vec![here.clone()],
        verifiers: vec![here.clone()],
        repository: here.clone(),
        answers: here,
    };
    Ok((crew, ended))
}

fn no_thread(error: std::io::Error) -> Error {
    Error::Storage {
        fault: StorageFault::Unavailable,
        context: "starting a thread of the store".to_owned(),
        source: Some(Arc::new(error)),
    }
}

/// Passivates idle keys for as long as the store lives.
fn sweep_for_ever(arbiter: &ArbiterHandle, directories: &Arc<Directories>) {
    let weak = Arc::downgrade(directories);
    let time = directories.env.time.clone();
    let pause = directories.env.bounds.idle_time / 4;
    arbiter.spawn(async move {
        loop {
            time.sleep(pause.max(std::time::Duration::from_millis(1))).await;
            let Some(directories) = weak.upgrade() else { return };
            directories.sweep();
        }
    });
}
