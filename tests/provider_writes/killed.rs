//! A host that is killed after any step of any path, once and again, and started anew over what it
//! had stored: one effective write (R47).

use std::time::Duration;

use connector_store::testing::SimClock;
use connector_store::{MemoryJournal, Store};

use crate::common::*;
use crate::host::{GAPS, Host, Task, assert_finished, manners};
use crate::provider::{Condition, Manner, Mode, Provider};

/// Where a killed host's store lies.
enum Place {
    Memory(MemoryJournal),
    #[cfg(feature = "sqlite")]
    Sqlite(std::path::PathBuf),
}

impl Place {
    async fn open(&self, clock: &SimClock, seed: u64) -> Store {
        let builder = builder(clock, seed);
        match self {
            Self::Memory(journal) => builder.memory(journal),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => builder.sqlite(path),
        }
        .open()
        .await
        .unwrap()
    }
}

/// One way for things to go.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    mode: Mode,
    manner: Manner,
    /// Steps before the kill.
    first: u32,
    /// Steps of the restarted host before it is killed too.
    second: Option<u32>,
    gap: Duration,
    other_name: bool,
}

struct Played {
    /// The host was done before it could be killed: later kills are the same schedule.
    first_is_late: bool,
    second_is_late: bool,
}

/// Plays a schedule; every host is another process as far as the store can tell.
async fn play(place: &Place, clock: &SimClock, name: u64, schedule: Schedule) -> Played {
    let Schedule { mode, manner, first, second, gap, other_name } = schedule;
    let provider = Provider::new(clock, manner);
    let task = Task::new(name, manner.hides_for);
    let id = &task.request.operation_id;
    provider.set_mode(id, mode);
    let names = if other_name { ["a", "b", "c"] } else { ["a"; 3] };
    let mut played = Played { first_is_late: false, second_is_late: true };
    let kills = [Some(first), second];
    for (nth, steps) in kills.into_iter().enumerate() {
        let Some(steps) = steps else { continue };
        let store = place.open(clock, name * 3 + nth as u64).await;
        let mut host = Host::new(&store, clock, &provider, names[nth], &task);
        let is_late = !host.make(steps).await;
        if nth == 0 {
            played.first_is_late = is_late
        } else {
            played.second_is_late = is_late
        }
        // What a host has in hand dies with it; what it was answered is stored.
        drop(host);
        store.close().await.unwrap();
        clock.advance(gap);
    }
    let store = place.open(clock, name * 3 + 2).await;
    let mut host = Host::new(&store, clock, &provider, names[2], &task);
    let record = host.finish().await;
    assert_eq!(provider.writes(id), mode.writes(), "effective writes of {schedule:?}");
    assert_finished(&host, mode, &record).await;
    if name.is_multiple_of(16) {
        assert_sound(&store).await;
    }
    drop(host);
    store.close().await.unwrap();
    played
}

/// Steps after which no host is still under way.
const MAX_KILL: u32 = 40;

async fn kill_everywhere(twice: bool, mut place: impl FnMut(u64) -> Place) -> u64 {
    let (clock, mut count) = (SimClock::default(), 0);
    for manner in manners(Condition::None) {
        for mode in Mode::ALL {
            for (gap, other_name) in GAPS.into_iter().flat_map(|gap| [(gap, false), (gap, true)]) {
                for first in 0..MAX_KILL {
                    let mut schedule =
                        Schedule { mode, manner, first, second: None, gap, other_name };
                    count += 1;
                    let mut played = play(&place(count), &clock, count, schedule).await;
                    for steps in 1..MAX_KILL {
                        if !twice {
                            break;
                        }
                        schedule.second = Some(steps);
                        count += 1;
                        played = play(&place(count), &clock, count, schedule).await;
                        if played.second_is_late {
                            break;
                        }
                    }
                    if played.first_is_late {
                        break;
                    }
                }
            }
        }
    }
    count
}

#[tokio::test]
async fn a_host_killed_after_any_step_twice_writes_once() {
    let count = kill_everywhere(true, |_| Place::Memory(MemoryJournal::new())).await;
    assert!(count > 5_000, "only {count} schedules were played");
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_host_on_a_file_killed_after_any_step_writes_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let count = kill_everywhere(false, |_| Place::Sqlite(path.clone())).await;
    assert!(count > 500, "only {count} schedules were played");
}
