//! What a host takes at most.

use std::sync::Arc;
use std::time::Duration;

use dapple_sync::sync::Semaphore;

/// What a host takes at most, and for how long it waits.
///
/// ```
/// use dapple_remote::HostLimits;
///
/// let mut limits = HostLimits::default();
/// limits.message_len_max = 64 << 10;
/// limits.requests_max = 100;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostLimits {
    /// The longest request and the longest reply, in bytes; 4 MiB if not set.
    pub message_len_max: usize,
    /// Requests that are read or run at the same time, of all clients; 1,024 if not set. More are refused.
    pub requests_max: usize,
    /// The memory for messages that are read or run, in bytes; 256 MiB if not set. Who does not fit in is refused.
    pub messages_len_max: usize,
    /// Connections; 1,024 if not set. Who comes then is told so, and closed.
    pub connections_max: usize,
    /// Requests on one connection at the same time; 256 if not set. A client learns of it, and waits.
    pub streams_max: u32,
    /// The headers of a request, in bytes; 16 KiB if not set.
    pub headers_len_max: u32,
    /// How long a client may take to begin: the handshake of TLS, the first bytes, the headers of HTTP/1.1; 10 s if not set.
    pub header_timeout: Duration,
    /// How long a request may take to come in; 30 s if not set.
    pub body_timeout: Duration,
    /// A connection on which nothing happens for so long is closed, unless its client waits to hear that the host ends, as a
    /// [`Peer`](crate::Peer) does; 2 min if not set.
    pub idle_timeout: Duration,
    /// How long the end may take; 30 s if not set.
    pub drain: Duration,
}

impl Default for HostLimits {
    fn default() -> Self {
        HostLimits {
            message_len_max: 4 << 20,
            requests_max: 1024,
            messages_len_max: 256 << 20,
            connections_max: 1024,
            streams_max: 256,
            headers_len_max: 16 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            drain: Duration::from_secs(30),
        }
    }
}

/// What is taken at present.
pub(crate) struct Gauges {
    pub(crate) requests: Arc<Semaphore>,
    /// In units of [`UNIT_LEN`].
    pub(crate) memory: Arc<Semaphore>,
}

impl Gauges {
    pub(crate) fn new(limits: &HostLimits) -> Gauges {
        Gauges {
            requests: Arc::new(Semaphore::new(limits.requests_max.min(Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new((limits.messages_len_max / UNIT_LEN).min(Semaphore::MAX_PERMITS))),
        }
    }
}

/// Memory is counted in pieces of so many bytes.
pub(crate) const UNIT_LEN: usize = 1 << 10;
