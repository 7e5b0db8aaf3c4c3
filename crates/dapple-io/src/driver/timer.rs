//! One deadline that can be waited for, moved and given up.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::current;
use super::slot::Slot;
use super::wheel::Key;

/// A place in some slot's wheel, or none. Dropping it disarms.
#[derive(Default)]
pub(crate) struct Timer {
    armed: Option<(Arc<Slot>, Key)>,
}

impl Timer {
    /// Makes the waker run at the deadline, or earlier if that is days away: whoever is woken looks at the clock.
    /// Arming again with the same deadline only changes the waker, and stays with the slot that has it. Once the runtime
    /// has shut down, nothing is armed.
    ///
    /// # Errors
    ///
    /// There is no runtime with an epoll driver here.
    pub(crate) fn arm(&mut self, deadline: Instant, waker: &Waker) -> io::Result<()> {
        if let Some((slot, key)) = &self.armed
            && slot.rewire(*key, waker)
        {
            return Ok(());
        }
        let (slot, from_owner) = current::slot_for_timer()?;
        self.armed = slot.arm(deadline, waker.clone(), from_owner).map(|key| (slot, key));
        Ok(())
    }

    /// Disarms; a deadline that differs must be armed anew.
    pub(crate) fn disarm(&mut self) {
        if let Some((slot, key)) = self.armed.take() {
            slot.disarm(key);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.disarm();
    }
}
