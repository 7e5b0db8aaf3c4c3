//! What hyper asks of a runtime, beside the streams, which implement its `Read` and `Write`.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::time;

/// Runs hyper's background futures, each as a task with a color of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl Executor {
    /// The executor of whichever runtime is current when it is used.
    pub fn new() -> Self {
        Executor
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        // Hyper does not wait for it.
        let _detached = dapple_sched::spawn(future);
    }
}

/// Gives hyper our timers, for its timeouts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl Timer {
    /// The timer of whichever runtime is current when it is used.
    pub fn new() -> Self {
        Timer
    }
}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        time::Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<time::Sleep>() {
            Some(sleep) => sleep.get_mut().reset(new_deadline),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

impl hyper::rt::Sleep for time::Sleep {}
