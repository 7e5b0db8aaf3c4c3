//! Random numbers that can be repeated.

/// Random numbers from a seed (xorshift).
pub struct Dice(u64);

impl Dice {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed | 1);
        (0..8).for_each(|_| _ = dice.roll(2));
        dice
    }

    /// One of `0..sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll(256) as u8).collect()
    }
}
