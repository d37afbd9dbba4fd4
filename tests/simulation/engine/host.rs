//! A host: a process with a store, people who use it, and a connection that fails. It can be killed,
//! paused and cut off, and comes back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use connector_store::journal::BoxFuture;
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{Clock, Holder, Store, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::samples::{Blow, Recorder};
use super::work;
use super::world::World;

/// People who use one host at once.
const WORKERS: usize = 3;
/// Events after which a snapshot is written: few, so that a run has many.
const SNAPSHOT_EVERY: u32 = 4;

/// A host's wall clock is wrong by so much; time passes as elsewhere.
struct WrongClock {
    clock: SimClock,
    ahead_millis: i64,
}

impl Clock for WrongClock {
    fn wall(&self) -> Timestamp {
        self.clock.wall().plus_millis(self.ahead_millis)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

/// One life of a host.
#[derive(Clone)]
pub struct Life {
    pub store: Store,
    pub faults: Arc<FaultyStorage>,
    people: Rc<RefCell<JoinSet<()>>>,
}

/// See the module.
pub struct Host {
    pub number: usize,
    pub name: String,
    /// Begun so often.
    pub lives: Cell<u64>,
    life: RefCell<Option<Life>>,
    is_paused: Cell<bool>,
    /// It wakes in the order in which they came; a watch does not.
    goes_on: Notify,
}

impl Host {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            name: format!("host-{number}"),
            lives: Cell::new(0),
            life: RefCell::new(None),
            is_paused: Cell::new(false),
            goes_on: Notify::new(),
        }
    }

    /// Its present life, if it runs.
    pub fn life(&self) -> Option<Life> {
        self.life.borrow().clone()
    }

    /// Tells what its storage met.
    pub fn sample(&self, samples: &Recorder) {
        if let Some(life) = &*self.life.borrow() {
            samples.faults(self.number, self.lives.get(), life.faults.faults_done());
        }
    }

    /// Under this name it holds leases.
    pub fn holder(&self) -> Holder {
        Holder::new(&self.name).unwrap()
    }

    /// As a process that is stopped: its people do nothing until it goes on.
    pub fn pause(&self, is_paused: bool) {
        self.is_paused.set(is_paused);
        if !is_paused {
            self.goes_on.notify_waiters();
        }
    }

    /// Waits while the host is paused.
    pub async fn unpaused(&self) {
        while self.is_paused.get() {
            self.goes_on.notified().await;
        }
    }

    /// Begins a life.
    pub async fn start(self: &Rc<Self>, world: &Rc<World>) {
        let life = self.lives.get() + 1;
        self.lives.set(life);
        let seed = world.draw();
        let inner = Arc::new(world.journal.open().unwrap());
        let faults = FaultyStorage::random(inner, seed, world.config.faults.storage);
        let in_two_steps = self.number % 2 == 1;
        let faults = if in_two_steps { faults.in_two_steps(&world.journal, true) } else { faults };
        let faults = Arc::new(faults);
        world.watch(&faults);
        // Ten minutes from one host to the next.
        let ahead_millis = 600_000 * i64::try_from(self.number).unwrap();
        let clock = WrongClock { clock: world.clock.clone(), ahead_millis };
        let opened = Store::builder()
            .storage(Arc::clone(&faults) as _)
            .clock(Arc::new(clock))
            .ids(Arc::new(SeededIds::new(seed)))
            .jitter(Arc::new(SeededJitter::new(seed)))
            .snapshot_every_events(SNAPSHOT_EVERY)
            .idle_time(Duration::from_secs(20))
            .accept_foreign_owners()
            .signer_policy(world.observations.policy())
            .on_this_thread()
            .open()
            .await;
        let store = match opened {
            Ok(store) => store,
            Err(error) if error.is_retryable() => {
                world.note(&self.name, format_args!("does not start: {error}"));
                return;
            }
            Err(error) => {
                return world.violate("a host starts again", format!("{}: {error}", self.name));
            }
        };
        world.samples.up(self.number, Blow::Kill);
        world.note(&self.name, format_args!("starts, life {life}"));
        let people = Rc::new(RefCell::new(JoinSet::new()));
        for number in 0..WORKERS {
            let (world, host, store) = (Rc::clone(world), Rc::clone(self), store.clone());
            people.borrow_mut().spawn_local(work::labour(world, host, store, number));
        }
        *self.life.borrow_mut() = Some(Life { store, faults, people });
    }

    /// As `kill -9`: nothing of it goes on, and what was under way may be written or not.
    pub fn kill(&self, world: &World) {
        self.sample(&world.samples);
        let Some(life) = self.life.borrow_mut().take() else { return };
        world.samples.up(self.number, Blow::Pause);
        world.samples.up(self.number, Blow::Cut);
        world.samples.down(self.number, Blow::Kill);
        world.note(&self.name, format_args!("is killed"));
        life.faults.set_offline(true);
        life.people.borrow_mut().abort_all();
        self.pause(false);
    }
}

/// Begins the first life of every host.
pub async fn start_all(world: &Rc<World>) {
    for host in &world.hosts {
        host.start(world).await;
    }
}
