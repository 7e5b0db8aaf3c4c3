//! The time at which a connection's last input reached this machine.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dapple_io::Connection;
use dapple_sched::environment;

use crate::admission::Gate;

/// The arrival time of a connection's last input. While every worker is in a handler, a request may
/// wait in its socket for long; admission control counts that time.
///
/// Uses the environment's clock and not that of the runtime, because it is compared with the kernel's.
#[derive(Debug)]
pub(crate) struct Arrival {
    accepted: Instant,
    /// Nanoseconds since `accepted`; negative if the input arrived before the connection was
    /// accepted.
    arrived_ns: AtomicI64,
    /// Whether the last read asked the kernel.
    is_asked: AtomicBool,
}

impl Arrival {
    /// Starts with a connection that was just accepted.
    pub(crate) fn new() -> Arrival {
        Arrival { accepted: environment::now(), arrived_ns: AtomicI64::new(0), is_asked: AtomicBool::new(false) }
    }

    /// Asks the kernel for arrival times if requests are expensive: each answer costs the kernel
    /// some time.
    pub(crate) fn before_read(&self, stream: &impl Connection, gate: &Gate) {
        let is_busy = gate.is_busy();
        if is_busy != self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(is_busy, Ordering::Relaxed);
            stream.note_arrivals(is_busy);
        }
    }

    /// Notes when the input that was just read had arrived.
    pub(crate) fn after_read(&self, stream: &impl Connection) {
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        self.set(if is_asked { stream.read_waited() } else { Duration::ZERO });
    }

    /// Notes that the input that was just read reached this machine `ago`.
    fn set(&self, ago: Duration) {
        let [age_ns, ago_ns] = [environment::now() - self.accepted, ago].map(|time| time.as_nanos() as i64);
        self.arrived_ns.store(age_ns - ago_ns, Ordering::Relaxed);
    }

    /// When the last input reached this machine.
    pub(crate) fn at(&self) -> Instant {
        let since_ns = self.arrived_ns.load(Ordering::Relaxed);
        let distance = Duration::from_nanos(since_ns.unsigned_abs());
        let arrived = if since_ns < 0 { self.accepted.checked_sub(distance) } else { Some(self.accepted + distance) };
        // `None` only if the machine is younger than its input.
        arrived.unwrap_or(self.accepted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Arrival;

    #[test]
    fn bytes_that_waited_to_be_accepted_have_waited() {
        let begin = Instant::now();
        let arrival = Arrival::new();
        arrival.set(Duration::from_millis(50));
        assert!(begin - arrival.at() >= Duration::from_millis(50) - begin.elapsed(), "before it was accepted");
        arrival.set(Duration::ZERO);
        assert!(arrival.at() >= begin, "just now");
    }
}
