//! Whole deployments, from seeds: see `engine`. A failure prints how it is replayed.

#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod engine;
#[cfg(feature = "sqlite")]
mod on_disk;

use engine::{Config, Report, run};

/// Seeds of a short run.
const SEEDS: u64 = 30;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

fn assert_sound(seed: u64, report: &Report) {
    if let Some(violation) = &report.violation {
        let lines: Vec<_> = report.history.as_str().lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        panic!("{tail}\n{violation}\nSIM_SEED={seed} cargo test --test simulation");
    }
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seed) = number("SIM_SEED") {
        let report = run(&Config::small(seed));
        println!("{}", report.history.as_str());
        return assert_sound(seed, &report);
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let next = std::sync::atomic::AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    assert_sound(seed, &run(&Config::small(seed)));
                }
            });
        }
    });
}

#[test]
fn a_seed_has_one_history() {
    let [first, again, other] = [1, 1, 2].map(|seed| run(&Config::small(seed)));
    assert_eq!(first.history.as_str(), again.history.as_str());
    assert_ne!(first.history.digest(), other.history.digest());
}
