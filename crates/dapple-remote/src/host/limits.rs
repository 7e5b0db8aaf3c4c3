//! The limits of a host.

use std::sync::Arc;
use std::time::Duration;

use dapple_serve::command_line::{LimitOption, limits};
use dapple_sync::sync::Semaphore;

/// The limits of a host, in number, size and time.
///
/// ```
/// use dapple_remote::HostLimits;
///
/// let mut limits = HostLimits::default();
/// limits.body_max_bytes = 64 << 10;
/// limits.requests_max = 100;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The longest request and the longest reply, in bytes; 4 MiB by default.
    pub body_max_bytes: usize,
    /// Requests that are read or run at the same time, of all clients; 1,024 by default. Further
    /// ones are refused.
    pub requests_max: usize,
    /// The memory for messages that are read or run, in bytes; 256 MiB by default. Requests beyond
    /// it are refused.
    pub requests_memory_bytes: usize,
    /// The most connections; 1,024 by default. A further client gets a refusal, and its connection
    /// closes.
    pub connections_max: usize,
    /// The most requests on one connection at the same time; 256 by default. A client knows the
    /// limit, and waits.
    pub streams_max: u32,
    /// The headers of a request, in bytes; 16 KiB by default.
    pub head_max_bytes: usize,
    /// How long a client may take to begin: the TLS handshake, the first bytes, the headers of
    /// HTTP/1.1; 10 s by default.
    pub head_timeout: Duration,
    /// How long a request may take to arrive; 30 s by default.
    pub body_timeout: Duration,
    /// How long a connection may be idle before it is closed, unless its client waits to hear that
    /// the host ends, as a [`Peer`](crate::Peer) does; 2 min by default.
    pub idle_timeout: Duration,
    /// How long the end may take; 30 s by default.
    pub drain: Duration,
}

impl HostLimits {
    /// The host's rows in the table of limits.
    #[doc(hidden)]
    pub const ROWS: &[LimitOption] = &[
        limits::CONNECTIONS_MAX.or(1_024),
        limits::STREAMS_MAX.or(256),
        limits::REQUESTS_MAX,
        limits::REQUESTS_MEMORY,
        limits::HEAD_MAX,
        limits::HEAD_TIMEOUT,
        // The same as the memory for all of them: each body is in one piece.
        limits::BODY_MAX.or(4 << 20).at_most(1 << 30),
        limits::BODY_TIMEOUT,
        limits::IDLE_TIMEOUT.or(120_000),
        limits::DRAIN.or(30_000),
    ];

    /// Sets the limit of `row`, one of [`ROWS`](HostLimits::ROWS), in its base unit.
    ///
    /// # Panics
    ///
    /// If `row` is none of them.
    #[doc(hidden)]
    pub fn set(&mut self, row: &LimitOption, value: u64) {
        let number = usize::try_from(value).unwrap_or(usize::MAX);
        let time = Duration::from_millis(value);
        match row.method().as_str() {
            "connections_max" => self.connections_max = number,
            "streams_max" => self.streams_max = u32::try_from(value).unwrap_or(u32::MAX),
            "requests_max" => self.requests_max = number,
            "requests_memory_bytes" => self.requests_memory_bytes = number.saturating_mul(1 << 20),
            "head_max_bytes" => self.head_max_bytes = number.saturating_mul(1 << 10),
            "head_timeout" => self.head_timeout = time,
            "body_max_bytes" => self.body_max_bytes = number,
            "body_timeout" => self.body_timeout = time,
            "idle_timeout" => self.idle_timeout = time,
            "drain" => self.drain = time,
            name => panic!("a host of stages has no limit {name}"),
        }
    }
}

impl Default for HostLimits {
    fn default() -> Self {
        let (none, zero) = (0, Duration::ZERO);
        let mut limits = HostLimits {
            body_max_bytes: none,
            requests_max: none,
            requests_memory_bytes: none,
            connections_max: none,
            streams_max: 0,
            head_max_bytes: none,
            head_timeout: zero,
            body_timeout: zero,
            idle_timeout: zero,
            drain: zero,
        };
        HostLimits::ROWS.iter().for_each(|row| limits.set(row, row.default_number()));
        limits
    }
}

/// The current use of the limits.
pub(crate) struct Gauges {
    pub(crate) requests: Arc<Semaphore>,
    /// In units of [`UNIT_LEN`].
    pub(crate) memory: Arc<Semaphore>,
}

impl Gauges {
    pub(crate) fn new(limits: &HostLimits) -> Gauges {
        Gauges {
            requests: Arc::new(Semaphore::new(limits.requests_max.min(Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new((limits.requests_memory_bytes / UNIT_LEN).min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// The unit in which memory is counted, in bytes.
pub(crate) const UNIT_LEN: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::HostLimits;

    #[test]
    fn every_row_is_a_field_of_its_own() {
        let before = format!("{:?}", HostLimits::default());
        for row in HostLimits::ROWS {
            let mut limits = HostLimits::default();
            limits.set(row, row.default_number() + 1);
            let after = format!("{limits:?}");
            assert!(after != before && after.contains(&format!("{}:", row.method())), "{}: {after}", row.name);
        }
    }
}
