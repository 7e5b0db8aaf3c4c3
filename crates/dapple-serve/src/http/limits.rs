//! What one connection may cost.

use std::time::Duration;

use dapple_http::HeadLimits;

/// The limits of a connection. The defaults see to it that whoever is slow or silent is gone within 30 s.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How much of a request's head is taken: bytes, bytes of the target, fields.
    pub head: HeadLimits,
    /// How long a head may take from its first byte to its last. Answered with `408`.
    pub head_timeout: Duration,
    /// How long a connection may wait for its next request, or its first. Closed without a word.
    pub idle_timeout: Duration,
    /// How long the whole head of the first request may take from the connection's beginning on; `None` is as for all others. Nothing
    /// came by then: closed without a word.
    pub first_timeout: Option<Duration>,
    /// Whether the pace of a request's body is looked at here; otherwise the handler does, until it has replied.
    pub paces_bodies: bool,
    /// The most streams of one connection of HTTP/2 at a time; RFC 9113 asks for at least 100.
    pub streams_max: u32,
    /// Streams of HTTP/2 that a client may reset before they were looked at ("rapid reset"); beyond that its connection ends.
    pub resets_max: usize,
    /// Bytes of a body by HTTP/2 that wait: of a request to be read, of a reply to be sent. A connection has room for four times as many.
    pub window: u32,
    /// How long nothing may move in the middle of a body, in either direction.
    pub pause_timeout: Duration,
    /// The fewest bytes a second in which a client may send a body, after `rate_grace` on average; 0 is no limit.
    pub receive_rate_min: u64,
    /// The fewest bytes a second in which a client may take a reply, after `rate_grace` on average; 0 is no limit. Counted while the
    /// client is waited for.
    pub send_rate_min: u64,
    /// How long a body or a reply may be slow before the rates count.
    pub rate_grace: Duration,
    /// How long a request may take in all, from its first byte to the last of its reply.
    pub request_timeout: Option<Duration>,
    /// How many bytes of a body that nobody read are taken, and dropped, to keep the connection.
    pub drain_len_max: u64,
    /// How long a client may take to read a reply that ends the connection, so that it is not lost in a reset.
    pub linger_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: HeadLimits::default(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(25),
            first_timeout: None,
            paces_bodies: true,
            streams_max: 128,
            resets_max: 20,
            window: 64 << 10,
            pause_timeout: Duration::from_secs(20),
            receive_rate_min: 256,
            send_rate_min: 256,
            rate_grace: Duration::from_secs(10),
            request_timeout: None,
            drain_len_max: 256 << 10,
            linger_timeout: Duration::from_secs(2),
        }
    }
}
