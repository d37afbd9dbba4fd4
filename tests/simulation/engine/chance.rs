//! Chance from a seed (SplitMix64). It knows nothing.

use std::time::Duration;

#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// 0 up to, and without, `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() >> 1).unwrap() % bound.max(1)
    }

    /// In so many of a thousand cases.
    pub fn per_mille(&mut self, chance: usize) -> bool {
        self.below(1_000) < chance
    }

    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.draw() % (to - from).max(1))
    }

    /// One of several, by their weights.
    pub fn weighted<T: Copy>(&mut self, of: &[(usize, T)]) -> T {
        let mut drawn = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in of {
            match drawn.checked_sub(*weight) {
                Some(rest) => drawn = rest,
                None => return *one,
            }
        }
        unreachable!("it is below the sum")
    }
}
