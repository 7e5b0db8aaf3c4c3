//! A worker that is stepped, in place of one with a thread of its own: see [`crate::Stepped`].

use crate::worker::Worker;

impl Worker {
    /// One round of [`Worker::run`]; false if it found no work, so that the worker would sleep now.
    pub(crate) fn round(&self) -> bool {
        // A callback that panics counts as work.
        let mut found = true;
        self.catching(|| {
            found = self.try_step()
                || self.policed_step()
                || self.find_work()
                || self.blocks.give_back_some()
                || self.free_tasks.give_back_some(&self.shared);
        });
        found
    }

    /// Nothing else runs while this worker searches for work, so waiting is useless; `seed` decides
    /// where it searches first.
    pub(crate) fn prepare_for_steps(&self, seed: u32) {
        self.spin_rounds.set(0);
        // Zero would stay zero.
        self.random.set(seed.max(1));
    }
}
