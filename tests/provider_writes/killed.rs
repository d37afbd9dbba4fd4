//! A host that is killed after any step of any path, once and again, and started anew over what it
//! had stored: one effective write.

use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{MemoryJournal, Store};

use crate::common::*;
use crate::host::{GAPS, Host, Task, assert_finished, manners};
use crate::provider::{Condition, Manner, Mode, Provider};

/// How a host comes to life again over what is stored.
enum Restart {
    /// Another store opens the journal.
    Journal(MemoryJournal),
    /// The store forgets what it has in memory: cheaper, for the many schedules with two kills.
    Store(Store),
}

impl Restart {
    async fn open(&self, clock: &SimClock, seed: u64) -> Store {
        match self {
            Self::Journal(journal) => builder(clock, seed).memory(journal).open().await.unwrap(),
            Self::Store(store) => store.clone(),
        }
    }

    async fn kill(&self, store: Store) {
        match self {
            Self::Journal(_) => store.close().await.unwrap(),
            Self::Store(_) => store.passivate_all(),
        }
    }
}

/// One way for things to go.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    mode: Mode,
    manner: Manner,
    /// Steps before each kill.
    kills: [u32; 2],
    gap: Duration,
    names: [&'static str; 3],
}

/// Plays a schedule. Says which lives ended by themselves, before they could be killed: later kills
/// of them are the same schedule.
async fn play(restart: &Restart, clock: &SimClock, name: u64, schedule: Schedule) -> [bool; 2] {
    let Schedule { mode, manner, kills, gap, names } = schedule;
    let provider = Provider::new(clock, manner);
    let task = Task::new(name, manner.hides_for);
    let id = &task.request.operation_id;
    provider.set_mode(id, mode);
    let mut ended = [true; 2];
    for life in [0, 1] {
        let store = restart.open(clock, life as u64).await;
        let mut host = Host::new(&store, clock, &provider, names[life], &task);
        ended[life] = !host.make(kills[life]).await;
        // What a host has in hand dies with it; what it was answered is stored.
        drop(host);
        restart.kill(store).await;
        clock.advance(gap);
    }
    let store = restart.open(clock, 2).await;
    let mut host = Host::new(&store, clock, &provider, names[2], &task);
    let record = host.finish().await;
    assert_eq!(provider.writes(id), mode.writes(), "effective writes of {schedule:?}");
    assert_finished(&host, mode, &record).await;
    drop(host);
    if matches!(restart, Restart::Journal(_)) {
        store.close().await.unwrap();
    }
    ended
}

/// The same host each time, or another one.
const NAMES: [[&str; 3]; 2] = [["a"; 3], ["a", "b", "c"]];
/// Steps after which no host is still under way.
const MAX_KILL: u32 = 40;

#[tokio::test]
async fn a_host_killed_after_any_step_and_opened_anew_writes_once() {
    let mut count = 0;
    for manner in manners(Condition::None) {
        for mode in Mode::ALL {
            for (gap, names) in GAPS.into_iter().flat_map(|gap| NAMES.map(|names| (gap, names))) {
                for first in 1..MAX_KILL {
                    count += 1;
                    let clock = SimClock::default();
                    let restart = Restart::Journal(MemoryJournal::new());
                    // The second life ends before its first step: time passes, no more.
                    let schedule = Schedule { mode, manner, kills: [first, 0], gap, names };
                    if play(&restart, &clock, count, schedule).await[0] {
                        break;
                    }
                }
            }
        }
    }
    assert!(count > 1_000, "only {count} schedules were played");
}

#[tokio::test]
async fn a_host_killed_after_any_step_twice_writes_once() {
    let mut count = 0;
    for manner in manners(Condition::None) {
        for mode in Mode::ALL {
            let (store, clock, _journal) = store().await;
            let restart = Restart::Store(store.clone());
            for (gap, names) in [(GAPS[0], NAMES[0]), (GAPS[2], NAMES[1])] {
                for first in 1..MAX_KILL {
                    let mut ended = [false; 2];
                    for second in [1, 2, 3, 5, 8, 13] {
                        count += 1;
                        let schedule =
                            Schedule { mode, manner, kills: [first, second], gap, names };
                        ended = play(&restart, &clock, count, schedule).await;
                        if ended[1] {
                            break;
                        }
                    }
                    if ended[0] {
                        break;
                    }
                }
            }
        }
    }
    assert!(count > 2_000, "only {count} schedules were played");
}

/// Hosts on one file: each is killed after some steps, and all are started anew twice.
#[cfg(feature = "sqlite")]
async fn kill_on_a_file(path: &std::path::Path, manner: Manner, gap: Duration, names: [&str; 3]) {
    const KILLS: u32 = 12;
    let clock = SimClock::default();
    let provider = Provider::new(&clock, manner);
    let open = |seed| {
        let builder = builder(&clock, seed).sqlite(path);
        builder.synchronous(connector_store::Synchronous::Normal).open()
    };
    let kills = Mode::ALL.into_iter().flat_map(|mode| (0..KILLS).map(move |steps| (mode, steps)));
    let tasks: Vec<(Mode, u32, Task)> = kills
        .map(|(mode, steps)| {
            let task = Task::new(format!("{mode:?}-{steps}"), manner.hides_for);
            provider.set_mode(&task.request.operation_id, mode);
            (mode, steps, task)
        })
        .collect();
    for (life, name) in names[..2].iter().enumerate() {
        let store = open(life as u64).await.unwrap();
        for (_, steps, task) in &tasks {
            // The second life ends after other steps than the first.
            let steps = if life == 0 { *steps } else { 1 + steps * 7 % KILLS };
            Host::new(&store, &clock, &provider, name, task).make(steps).await;
        }
        store.close().await.unwrap();
        clock.advance(gap);
    }
    let store = open(2).await.unwrap();
    for (mode, steps, task) in &tasks {
        let mut host = Host::new(&store, &clock, &provider, names[2], task);
        let record = host.finish().await;
        let writes = provider.writes(&task.request.operation_id);
        assert_eq!(writes, mode.writes(), "{mode:?}, killed after {steps}");
        assert_finished(&host, *mode, &record).await;
    }
    assert_sound(&store).await;
    store.close().await.unwrap();
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_host_on_a_file_killed_after_any_step_writes_once() {
    for manner in manners(Condition::None) {
        for (gap, names) in [(GAPS[0], ["a"; 3]), (GAPS[2], ["a", "b", "c"])] {
            let dir = tempfile::tempdir().unwrap();
            kill_on_a_file(&dir.path().join("store.db"), manner, gap, names).await;
        }
    }
}
