//! When what a connection read last had reached this machine.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use dapple_io::Connection;

use crate::admission::Gate;

/// See the module. While every worker is in a handler, a request may wait in its socket for long; admission control counts that.
///
/// By the real clock, as it is compared with the kernel's.
#[derive(Debug)]
pub(crate) struct Arrival {
    accepted: Instant,
    /// Nanoseconds from `accepted` on; negative if it waited to be accepted, too.
    arrived_ns: AtomicI64,
    /// Whether the kernel was asked, at the last read.
    is_asked: AtomicBool,
}

impl Arrival {
    /// For a connection that was accepted just now.
    pub(crate) fn new() -> Arrival {
        Arrival { accepted: Instant::now(), arrived_ns: AtomicI64::new(0), is_asked: AtomicBool::new(false) }
    }

    /// Asks the kernel for times of arrival, where requests are dear: each answer costs it some time.
    pub(crate) fn before_read(&self, stream: &impl Connection, gate: &Gate) {
        let is_busy = gate.is_busy();
        if is_busy != self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(is_busy, Ordering::Relaxed);
            stream.note_arrivals(is_busy);
        }
    }

    /// Notes when what was read just now had arrived.
    pub(crate) fn after_read(&self, stream: &impl Connection) {
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        self.set(if is_asked { stream.read_waited() } else { Duration::ZERO });
    }

    /// What was read just now reached this machine so long ago.
    fn set(&self, ago: Duration) {
        let [age_ns, ago_ns] = [self.accepted.elapsed(), ago].map(|time| time.as_nanos() as i64);
        self.arrived_ns.store(age_ns - ago_ns, Ordering::Relaxed);
    }

    /// When what was read last reached this machine.
    pub(crate) fn at(&self) -> Instant {
        let since_ns = self.arrived_ns.load(Ordering::Relaxed);
        let distance = Duration::from_nanos(since_ns.unsigned_abs());
        let arrived = if since_ns < 0 { self.accepted.checked_sub(distance) } else { Some(self.accepted + distance) };
        // None only if the machine is younger than what it has received.
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
