//! The same syncs, with one host, over a real SQLite file: what was erased is in no byte of it. The file's
//! threads take their own time, so no two runs are alike.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use connector_store::journal::{SqliteOptions, SqliteStorage, Synchronous};
use connector_store::testing::{FaultyStorage, SeededIds, SeededJitter, SimClock};
use connector_store::{Clock, Store};
use tokio::task::{JoinSet, LocalSet};

use crate::engine::audit::erasure::Mark;
use crate::engine::samples::Recorder;
use crate::engine::samples::keys::ActiveKeys;
use crate::engine::work::{Worker, remote, sync};
use crate::engine::world::World;
use crate::engine::{Config, Faults};

const WORKERS: usize = 3;
/// Work ends after so many commands and erased marks: how much is erased is up to the machine.
const COMMANDS: u64 = 500;
const ERASED: usize = 20;
/// Of simulated time, for each of real time.
const SPEED: u32 = 60;

/// Every mark in the files of a folder.
fn marks(folder: &Path) -> BTreeSet<Mark> {
    let files = std::fs::read_dir(folder).unwrap();
    files.flat_map(|file| all_in(&std::fs::read(file.unwrap().path()).unwrap())).collect()
}

fn all_in(bytes: &[u8]) -> Vec<Mark> {
    Mark::all_in(bytes).collect()
}

async fn open(world: &World, path: &Path) -> (Store, Arc<FaultyStorage>) {
    let options = SqliteOptions::new(path, world.clock.wall()).synchronous(Synchronous::Normal);
    let file = Arc::new(SqliteStorage::open(options).await.unwrap());
    let (seed, chances) = (world.config.seed, world.config.faults.storage);
    let faults = Arc::new(FaultyStorage::random(file, seed, chances));
    let store = Store::builder()
        .storage(Arc::clone(&faults) as _)
        .clock(Arc::new(world.clock.clone()))
        .ids(Arc::new(SeededIds::new(seed)))
        .jitter(Arc::new(SeededJitter::new(seed)))
        .snapshot_every_events(4)
        .idle_time(Duration::from_secs(5))
        .open()
        .await
        .unwrap();
    (store, faults)
}

fn is_wanting(world: &World) -> bool {
    let erased = world.audit.borrow().erasure.erased.len();
    !world.is_broken() && (world.commands() < COMMANDS || erased < ERASED)
}

/// Syncs under faults, then once more each account without.
async fn play(world: &Rc<World>, path: &Path) {
    let (store, faults) = open(world, path).await;
    tokio::task::spawn_local(remote::live(Rc::clone(world)));
    let host = Rc::clone(&world.hosts[0]);
    let worker = |number| Worker {
        world: Rc::clone(world),
        host: Rc::clone(&host),
        store: store.clone(),
        name: format!("on-disk.{number}"),
    };
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let worker = worker(number);
        workers.spawn_local(async move {
            while is_wanting(&worker.world) {
                worker.world.rest(1, 200).await;
                sync::work(&worker).await;
            }
        });
    }
    workers.join_all().await;
    faults.heal();
    for at in 0..world.accounts.all.len() {
        world.accounts.all[at].provider.chances(&[]);
        world.rest(31_000, 31_001).await;
        sync::visit(&worker(0), at, true).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn erased_content_is_in_no_byte_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let clock = SimClock::default();
    let (end, ended) = channel::<()>();
    let passing = clock.clone();
    let time = std::thread::spawn(move || {
        let step = Duration::from_millis(1);
        while ended.recv_timeout(step) == Err(RecvTimeoutError::Timeout) {
            passing.advance(step * SPEED);
        }
    });
    let config = Config { hosts: 1, owners: 2, commands: u64::MAX, ..Config::small(1) };
    let faults = Faults { kills: 0, pauses: 0, cuts: 0, ..config.faults };
    let samples = Recorder::new(clock.clone(), ActiveKeys::default());
    let world = World::new(Config { faults, ..config }, clock, samples, Box::new(|_| {}));
    LocalSet::new().run_until(play(&world, &folder.path().join("store.db"))).await;
    drop(end);
    time.join().unwrap();

    let audit = world.audit.borrow();
    let erased: BTreeSet<Mark> = audit.erasure.erased.keys().copied().collect();
    assert!(erased.len() >= ERASED, "only {} marks were erased", erased.len());
    let there = marks(folder.path());
    assert!(there.len() >= 20, "only {} marks are there at all", there.len());
    assert_eq!(there.intersection(&erased).collect::<Vec<_>>(), Vec::<&Mark>::new());
    drop(audit);
    assert_eq!(world.report(Duration::ZERO).violation, None);
}
