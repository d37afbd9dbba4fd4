//! Whole deployments, from seeds: see `engine`. A failure prints how it is replayed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[allow(dead_code, reason = "the example of that name needs the rest of it")]
mod engine;
#[cfg(feature = "sqlite")]
mod on_disk;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use connector_store::testing::PlantedBug;
use engine::{Config, Report, Violation, run};

/// Seeds of a short run.
const SEEDS: u64 = 30;
/// Seeds of the gate.
const SEEDS_OF_THE_GATE: u64 = 1_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// How the seed broke a rule, if it did.
fn broken(seed: u64, report: &Report) -> Option<String> {
    let violation = report.violation.as_ref()?;
    let lines: Vec<_> = report.history.as_str().lines().collect();
    let tail = lines[lines.len().saturating_sub(40)..].join("\n");
    Some(format!("{tail}\n{violation}\nSIM_SEED={seed} cargo test --test simulation"))
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seed) = number("SIM_SEED") {
        let report = run(&Config::small(seed));
        println!("{}", report.history.as_str());
        if let Some(how) = broken(seed, &report) {
            panic!("{how}");
        }
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let found = Mutex::new(Vec::new());
    in_turn(seeds, |seed| {
        if let Some(how) = broken(seed, &run(&Config::small(seed))) {
            println!("{how}");
            found.lock().unwrap().push(seed);
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "of {seeds} seeds {found:?} break a rule");
}

/// Calls it for each number below `count`, on as many threads as there are cores.
fn in_turn(count: u64, call: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    call(number);
                }
            });
        }
    });
}

/// Each check is checked: with a rule of the store broken on purpose, a seed of the gate says so.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes minutes without optimization: use --release")]
fn every_planted_bug_is_caught() {
    let seeds = number("SIM_BUG_SEEDS").unwrap_or(SEEDS_OF_THE_GATE);
    let missed = Mutex::new(Vec::new());
    in_turn(PlantedBug::ALL.len() as u64, |at| {
        let bug = PlantedBug::ALL[usize::try_from(at).unwrap()];
        match catch(bug, seeds) {
            Some((seed, Violation { rule, how })) => {
                println!("{bug:?}: seed {seed}: {rule}: {how}")
            }
            None => missed.lock().unwrap().push(bug),
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "no seed below {seeds} catches {missed:?}");
}

/// The first seed that finds the bug, and what it finds.
fn catch(bug: PlantedBug, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| {
        let report = run(&Config { bug: Some(bug), ..Config::small(seed) });
        report.violation.map(|violation| (seed, violation))
    })
}

#[test]
fn a_seed_has_one_history() {
    let [first, again, other] = [1, 1, 2].map(|seed| run(&Config::small(seed)));
    assert_eq!(first.history.as_str(), again.history.as_str());
    assert_ne!(first.history.digest(), other.history.digest());
}
