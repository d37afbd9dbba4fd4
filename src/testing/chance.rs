//! Ids and chance from a seed: the same for the same seed and the same calls.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::{Builder, Uuid};

use crate::base::Timestamp;
use crate::runtime::{IdSource, Jitter};

/// What one step of the generator adds (SplitMix64).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The next number of a state.
pub(super) fn draw(state: &AtomicU64) -> u64 {
    let mut bits = state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Ids from a seed. Stores that write to one journal must have different seeds.
#[derive(Debug)]
pub struct SeededIds(AtomicU64);

impl SeededIds {
    /// The ids of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl IdSource for SeededIds {
    fn id(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&draw(&self.0).to_be_bytes());
        random[8..].copy_from_slice(&draw(&self.0).to_be_bytes()[..2]);
        let millis = u64::try_from(now.as_millis()).unwrap_or(0);
        Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

/// Chance from a seed.
#[derive(Debug)]
pub struct SeededJitter(AtomicU64);

impl SeededJitter {
    /// The chance of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Jitter for SeededJitter {
    fn unit(&self) -> f64 {
        let high = u32::try_from(draw(&self.0) >> 32).unwrap_or(0);
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_unique_ids_again() {
        let now = Timestamp::from_millis(1_750_000_000_000);
        let ids = |seed| {
            let source = SeededIds::new(seed);
            (0..1_000).map(|_| source.id(now)).collect::<Vec<_>>()
        };
        let first = ids(1);
        assert_eq!(first, ids(1));
        assert_eq!(first.iter().chain(&ids(2)).collect::<HashSet<_>>().len(), 2_000);
        assert!(first.iter().all(|id| id.get_version_num() == 7));
    }

    #[test]
    fn a_seed_gives_the_same_chance_again_and_all_of_it() {
        let units = |seed| {
            let jitter = SeededJitter::new(seed);
            (0..1_000).map(|_| jitter.unit()).collect::<Vec<_>>()
        };
        let first = units(1);
        assert_eq!(first, units(1));
        assert!(first.iter().all(|unit| (0.0..1.0).contains(unit)));
        let low = first.iter().filter(|unit| **unit < 0.5).count();
        assert!((400..600).contains(&low), "{low}");
    }
}
