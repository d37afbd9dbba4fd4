//! A whole deployment in one thread, on simulated time, from a seed: hosts that share a database, the
//! people who use them, the accounts that they mirror, and all that goes wrong.
//!
//! [`run`] plays one seed and stops at the first broken rule. Nothing in it depends on anything but
//! its [`Config`]: no clock, no map's order, no thread. It knows the store as its users do, and looks
//! at the tables of the memory journal only to check.

pub mod audit;
pub mod chance;
pub mod checks;
pub mod graph;
pub mod history;
pub mod host;
pub mod nemesis;
pub mod promises;
pub mod samples;
pub mod tamper;
pub mod work;
pub mod world;

use std::rc::Rc;
use std::time::Duration;

use connector_store::Clock as _;
use connector_store::testing::{PlantedBug, SimRuntime};

pub use history::{History, Violation};
pub use nemesis::Faults;
use samples::keys::ActiveKeys;
use samples::{Recorder, Samples};
use world::World;

/// What a run depends on.
#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    /// Hosts that share the database.
    pub hosts: usize,
    /// Owners, each with one account.
    pub owners: usize,
    /// Commands after which no new work begins.
    pub commands: u64,
    pub faults: Faults,
    /// What is wrong with the store.
    pub bug: Option<PlantedBug>,
}

impl Config {
    /// A run that is small and has everything in it.
    pub fn small(seed: u64) -> Self {
        Self { seed, hosts: 3, owners: 3, commands: 1_000, faults: Faults::ALL, bug: None }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    pub history: History,
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    pub commands: u64,
    /// Simulated time that it took.
    pub took: Duration,
    pub samples: Samples,
}

/// Longest simulated time of a run: what takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Plays a seed.
pub fn run(config: &Config) -> Report {
    run_watched(config, |_| {})
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// There were so many calls, and the work goes on.
    Commands(u64),
    /// The work is over, and this is done; of so many parts so many are.
    End { what: &'static str, done: usize, of: usize },
}

/// Plays a seed, and tells how far it is.
pub fn run_watched(config: &Config, progress: impl Fn(Progress) + 'static) -> Report {
    let keys = ActiveKeys::default();
    metrics::with_local_recorder(&keys.clone(), || run_measured(config, keys, Box::new(progress)))
}

fn run_measured(config: &Config, keys: ActiveKeys, progress: Box<dyn Fn(Progress)>) -> Report {
    let _planted = config.bug.map(PlantedBug::plant);
    let runtime = SimRuntime::new().unwrap();
    let clock = runtime.clock().clone();
    let samples = Recorder::new(clock.clone(), keys);
    let world = World::new(config.clone(), clock.clone(), samples, progress);
    let play = async {
        let over = play(Rc::clone(&world));
        tokio::select! {
            biased;
            () = over => {}
            () = clock.sleep(LIMIT) => world.violate("every call ends", "the run hangs"),
        }
    };
    if runtime.block_on(play).is_err() {
        world.violate("every call ends", "everybody waits and nobody sleeps");
    }
    let took = clock.monotonic();
    // What is left of it ends with the runtime, before the world that it looks at.
    drop(runtime);
    world.report(took)
}

/// Work under faults, then none, then the checks of the end.
async fn play(world: Rc<World>) {
    work::observations::begin(&world, &world.config).await;
    host::start_all(&world).await;
    let nemesis = tokio::task::spawn_local(nemesis::haunt(Rc::clone(&world)));
    tokio::task::spawn_local(work::remote::live(Rc::clone(&world)));
    world.until_worked().await;
    nemesis.abort();
    if world.is_broken() {
        return;
    }
    world.stage("the blows end", 0, 1);
    nemesis::heal(&world).await;
    work::finish(&world).await;
    checks::at_the_end(&world).await;
}
