//! Counts over time, in a bounded number of bins: when there is no room for more, each two become one.

use std::time::Duration;

use super::{Outcome, Sweep};

/// Most bins of a timeline: as many as a page shows apart.
pub const MAX_BINS: usize = 300;
/// What a bin spans at first.
const FIRST_WIDTH: Duration = Duration::from_millis(50);

/// What happened in a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    pub calls: [u64; Outcome::ALL.len()],
    pub batches: u64,
    /// Commands in all batches.
    pub appends: u64,
    pub largest_batch: u64,
    pub faults: u64,
    /// Commands whose outcome was unknown and that were brought to an end.
    pub settled: u64,
    pub sweeps: [u64; Sweep::ALL.len()],
    /// Most keys in memory, over all hosts.
    pub active_keys: u64,
}

impl Bin {
    fn add(&mut self, other: &Self) {
        self.calls.iter_mut().zip(other.calls).for_each(|(sum, more)| *sum += more);
        self.sweeps.iter_mut().zip(other.sweeps).for_each(|(sum, more)| *sum += more);
        self.batches += other.batches;
        self.appends += other.appends;
        self.largest_batch = self.largest_batch.max(other.largest_batch);
        self.faults += other.faults;
        self.settled += other.settled;
        self.active_keys = self.active_keys.max(other.active_keys);
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Timeline {
    pub width: Duration,
    pub bins: Vec<Bin>,
    /// What happened once nothing went wrong any more, which takes long and is of little interest.
    pub afterwards: Option<Box<Bin>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { width: FIRST_WIDTH, bins: Vec::new(), afterwards: None }
    }
}

impl Timeline {
    /// The bin of a time.
    pub fn at(&mut self, time: Duration) -> &mut Bin {
        if self.afterwards.is_some() {
            return self.afterwards.get_or_insert_default();
        }
        let mut number = self.number(time);
        while number >= MAX_BINS {
            self.halve();
            number = self.number(time);
        }
        if self.bins.len() <= number {
            self.bins.resize(number + 1, Bin::default());
        }
        &mut self.bins[number]
    }

    /// All of it.
    pub fn sum(&self) -> Bin {
        let mut sum = Bin::default();
        self.bins.iter().for_each(|bin| sum.add(bin));
        self.afterwards.iter().for_each(|bin| sum.add(bin));
        sum
    }

    fn number(&self, time: Duration) -> usize {
        usize::try_from(time.as_millis() / self.width.as_millis()).unwrap_or(usize::MAX)
    }

    fn halve(&mut self) {
        self.width *= 2;
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut sum = pair[0].clone();
            pair[1..].iter().for_each(|bin| sum.add(bin));
            sum
        });
        self.bins = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_all_counts_in_few_bins() {
        let mut timeline = Timeline::default();
        for second in 0..5_000 {
            let bin = timeline.at(Duration::from_secs(second));
            bin.appends += second;
            bin.largest_batch = bin.largest_batch.max(second % 70);
        }
        assert!((MAX_BINS / 2..=MAX_BINS).contains(&timeline.bins.len()));
        assert_eq!(timeline.sum().appends, 4_999 * 5_000 / 2);
        assert_eq!(timeline.sum().largest_batch, 69);
        // Each count is in the bin of its time.
        let number = |second| {
            let width = timeline.width.as_millis();
            usize::try_from(Duration::from_secs(second).as_millis() / width).unwrap()
        };
        let same = (0..5_000).filter(|second| number(*second) == number(1_000));
        assert_eq!(timeline.bins[number(1_000)].appends, same.sum::<u64>());
    }
}
