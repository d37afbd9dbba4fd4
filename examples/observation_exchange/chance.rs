//! Chance from a seed: the same seed, the same play.

/// A small generator (SplitMix64).
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, and without, `limit`; 0 where that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        // What is below a `usize` is one.
        usize::try_from(self.next() % limit).unwrap_or_default()
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < usize::from(percent)
    }
}
