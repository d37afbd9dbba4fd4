//! What came of one seed or several, counted, and as text for a terminal.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::engine::Report;
use crate::engine::samples::timeline::Bin;
use crate::engine::samples::{Blow, Outcome};

pub const OUTCOMES: [&str; Outcome::ALL.len()] =
    ["done", "refused", "to be tried again", "outcome unknown"];
pub const SWEEPS: [&str; 5] =
    ["swept", "confirmed gone", "there after all", "deferred", "could not be applied"];
pub const BLOWS: [&str; Blow::ALL.len()] = ["killed", "paused", "cut off"];

/// See the module.
#[derive(Debug, Default)]
pub struct Summary {
    /// Real time.
    pub took: Duration,
    pub simulated: Duration,
    pub commands: u64,
    pub calls: BTreeMap<String, [u64; Outcome::ALL.len()]>,
    pub held: BTreeMap<&'static str, u64>,
    /// Of all bins.
    pub sum: SumOfBins,
    pub blows: [u64; Blow::ALL.len()],
    pub recovered: u64,
    pub settled: u64,
    pub leases: u64,
    pub takeovers: u64,
}

/// What the bins of all seeds come to.
#[derive(Debug, Default)]
pub struct SumOfBins {
    pub batches: u64,
    pub appends: u64,
    pub largest_batch: u64,
    pub faults: u64,
    pub sweeps: [u64; SWEEPS.len()],
    pub active_keys: u64,
}

impl Summary {
    /// Counts a seed, too.
    pub fn add(&mut self, report: &Report) {
        let samples = &report.samples;
        self.simulated += report.took;
        self.commands += report.commands;
        for (kind, counts) in &samples.calls {
            let sums = self.calls.entry(kind.clone()).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        for (rule, count) in &samples.held {
            *self.held.entry(rule).or_default() += count;
        }
        let Bin { batches, appends, largest_batch, faults, sweeps, active_keys, .. } =
            samples.timeline.sum();
        let sum = &mut self.sum;
        sum.batches += batches;
        sum.appends += appends;
        sum.largest_batch = sum.largest_batch.max(largest_batch);
        sum.faults += faults;
        sum.sweeps.iter_mut().zip(sweeps).for_each(|(sum, more)| *sum += more);
        sum.active_keys = sum.active_keys.max(active_keys);
        for band in &samples.bands {
            self.blows[band.blow as usize] += 1;
            self.recovered += u64::from(band.to.is_some());
        }
        self.settled += samples.settled;
        self.leases += samples.leases.spans.len() as u64;
        self.takeovers += samples.leases.takeovers() as u64;
    }

    /// Commands in a second of real time.
    pub fn per_second(&self) -> u64 {
        let millis = self.took.as_millis().max(1);
        u64::try_from(u128::from(self.commands) * 1_000 / millis).unwrap_or(u64::MAX)
    }

    /// What is told beside the tables: name and value.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let sum = &self.sum;
        let [killed, paused, cut] = self.blows;
        vec![
            (
                "commands",
                format!("{}, {} in a second of real time", self.commands, self.per_second()),
            ),
            ("took", format!("{:.1} s for {}", self.took.as_secs_f64(), clock(self.simulated))),
            (
                "batches",
                format!(
                    "{} of {} commands, the largest of {}",
                    sum.batches, sum.appends, sum.largest_batch
                ),
            ),
            ("faults of the storage", sum.faults.to_string()),
            ("hosts", format!("{killed} killed, {paused} paused, {cut} cut off")),
            (
                "recoveries",
                format!("{} of hosts, {} of unknown outcomes", self.recovered, self.settled),
            ),
            ("leases", format!("{}, {} taken over", self.leases, self.takeovers)),
            (
                "sweeps",
                SWEEPS
                    .iter()
                    .zip(sum.sweeps)
                    .map(|(name, n)| format!("{n} {name}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
            ("keys in memory", format!("at most {}", sum.active_keys)),
        ]
    }
}

/// A span of simulated time, for a person.
pub fn clock(time: Duration) -> String {
    let (all, millis) = (time.as_secs(), time.subsec_millis());
    let (hours, minutes, seconds) = (all / 3_600, all / 60 % 60, all % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}.{:01} s", millis / 100),
        (0, _) => format!("{minutes} min {seconds} s"),
        _ => format!("{hours} h {minutes} min"),
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header.to_vec());
    table
}

fn row(name: &str, numbers: &[u64]) -> Vec<Cell> {
    let right = |number: &u64| Cell::new(number).set_alignment(CellAlignment::Right);
    std::iter::once(Cell::new(name)).chain(numbers.iter().map(right)).collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut header = vec!["command"];
        header.extend(OUTCOMES);
        let mut calls = table(&header);
        let mut sums = [0; OUTCOMES.len()];
        for (kind, counts) in &self.calls {
            calls.add_row(row(kind, counts));
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        calls.add_row(row("all", &sums));
        writeln!(f, "{calls}\n")?;
        for (name, value) in self.facts() {
            writeln!(f, " {name}: {value}")?;
        }
        let mut rules = table(&["rule", "held"]);
        for (rule, count) in &self.held {
            rules.add_row(row(rule, &[*count]));
        }
        writeln!(f, "\n{rules}")
    }
}
