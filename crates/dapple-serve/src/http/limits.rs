//! The limits of one connection.

use std::time::Duration;

use dapple_http::HeadLimits;

/// The limits of a connection. With the defaults, a slow or silent client is dropped within 30 s.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The limits on a request's head: bytes, bytes of the target, fields.
    pub head: HeadLimits,
    /// How long a head may take from its first byte to its last; then the reply is `408`.
    pub head_timeout: Duration,
    /// How long a connection may wait for its first or next request; then it is closed silently.
    pub idle_timeout: Duration,
    /// How long the whole head of the first request may take from the start of the connection;
    /// `None` treats it like all others. If no byte has arrived by then, the connection is closed
    /// silently.
    pub first_timeout: Option<Duration>,
    /// Whether the connection checks the pace of a request's body; otherwise the handler does,
    /// until it has replied.
    pub paces_bodies: bool,
    /// The most streams of one HTTP/2 connection at a time; RFC 9113 asks for at least 100.
    pub streams_max: u32,
    /// How many HTTP/2 streams a client may reset before the server read them ("rapid reset");
    /// beyond that its connection ends.
    pub resets_max: usize,
    /// How many bytes of a body may wait in an HTTP/2 stream: of a request to be read, of a reply
    /// to be sent. A connection has room for four times as many.
    pub window: u32,
    /// How long a body may pause in the middle, in either direction.
    pub pause_timeout: Duration,
    /// The lowest average rate at which a client may send a body, in bytes per second, after
    /// `rate_grace`; 0 is no limit.
    pub receive_rate_min: u64,
    /// The lowest average rate at which a client may take a reply, in bytes per second, after
    /// `rate_grace`; 0 is no limit. Only time spent waiting for the client counts.
    pub send_rate_min: u64,
    /// How long a body or a reply may be slow before the rates count.
    pub rate_grace: Duration,
    /// How long a request may take in total, from its first byte to the last of its reply.
    pub request_timeout: Option<Duration>,
    /// How many bytes of an unread body are read and discarded to keep the connection.
    pub drain_len_max: u64,
    /// How long a client may take to read a reply that ends the connection, before a reset could
    /// destroy it.
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
