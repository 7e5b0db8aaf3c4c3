//! The limits and their defaults.

use std::time::Duration;

use dapple_http::HeadLimits;

use crate::http::Limits;

/// See the methods of [`Serve`](crate::Serve) of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connections_max: Option<usize>,
    pub(crate) header_timeout: Duration,
    pub(crate) header_bytes_max: usize,
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) send_timeout: Duration,
    pub(crate) rate_min: u64,
    pub(crate) idle_timeout: Duration,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
    pub(crate) stream_window: u32,
    pub(crate) shares_listener: bool,
    pub(crate) leave_timeout: Duration,
    pub(crate) last_reply_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections_max: None,
            header_timeout: Duration::from_secs(10),
            header_bytes_max: 64 << 10,
            body_timeout: Some(Duration::from_secs(30)),
            body_bytes_max: Some(16 << 20),
            send_timeout: Duration::from_secs(30),
            rate_min: 1 << 10,
            idle_timeout: Duration::from_secs(75),
            streams_max: 128,
            resets_max: 20,
            stream_window: 64 << 10,
            shares_listener: false,
            leave_timeout: Duration::ZERO,
            last_reply_timeout: Duration::from_millis(500),
            shutdown_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// The limits of each connection.
    pub(crate) fn limits(&self) -> Limits {
        let head = HeadLimits {
            len_max: self.header_bytes_max,
            target_len_max: self.header_bytes_max,
            ..HeadLimits::default()
        };
        Limits {
            head,
            head_timeout: self.header_timeout,
            first_timeout: Some(self.header_timeout),
            idle_timeout: self.idle_timeout,
            paces_bodies: false,
            streams_max: self.streams_max,
            resets_max: self.resets_max,
            window: self.stream_window,
            pause_timeout: self.send_timeout,
            receive_rate_min: self.rate_min,
            send_rate_min: self.rate_min,
            rate_grace: self.send_timeout,
            linger_timeout: Duration::from_secs(1),
            ..Limits::default()
        }
    }
}

/// The least that hyper accepts.
pub(crate) const HEADER_BYTES_MIN: usize = 8 << 10;

/// The range of HTTP/2's windows: about the protocol's default, and its maximum.
pub(crate) const STREAM_WINDOW_MIN: u32 = 16 << 10;
pub(crate) const STREAM_WINDOW_MAX: u32 = (1 << 31) - 1;
