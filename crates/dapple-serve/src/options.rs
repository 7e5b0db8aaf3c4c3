//! The limits and their defaults.

use std::time::Duration;

use dapple_http::HeadLimits;

use crate::command_line::{LimitOption, limits};
use crate::http::Limits;

/// See the methods of [`Serve`](crate::Serve) of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) connections_max: Option<usize>,
    pub(crate) head_timeout: Duration,
    pub(crate) head_max_bytes: usize,
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) body_max_bytes: Option<u64>,
    pub(crate) pause_timeout: Duration,
    pub(crate) receive_rate_min: u64,
    pub(crate) send_rate_min: u64,
    pub(crate) idle_timeout: Duration,
    pub(crate) streams_max: u32,
    pub(crate) resets_max: usize,
    pub(crate) stream_window_bytes: u32,
    pub(crate) shares_listener: bool,
    pub(crate) leave_timeout: Duration,
    pub(crate) last_reply_timeout: Duration,
    pub(crate) drain: Duration,
}

impl Default for Options {
    /// Those of the [table](limits), but for a client of a program's own, which may be far away and slow, or another program.
    fn default() -> Options {
        let kb = |row: LimitOption| row.default_number() << 10;
        Options {
            connections_max: None,
            head_timeout: limits::HEAD_TIMEOUT.default_time(),
            head_max_bytes: kb(limits::HEAD_MAX.or(64)) as usize,
            body_timeout: Some(limits::BODY_TIMEOUT.default_time()),
            body_max_bytes: Some(16 << 20),
            pause_timeout: limits::PAUSE_TIMEOUT.or(30_000).default_time(),
            receive_rate_min: limits::RECEIVE_RATE_MIN.or(1 << 10).default_number(),
            send_rate_min: limits::SEND_RATE_MIN.or(1 << 10).default_number(),
            idle_timeout: limits::IDLE_TIMEOUT.or(75_000).default_time(),
            streams_max: limits::STREAMS_MAX.default_number() as u32,
            resets_max: limits::RESETS_MAX.default_number() as usize,
            stream_window_bytes: kb(limits::STREAM_WINDOW) as u32,
            shares_listener: false,
            leave_timeout: Duration::ZERO,
            last_reply_timeout: Duration::from_millis(500),
            drain: limits::DRAIN.or(30_000).default_time(),
        }
    }
}

impl Options {
    /// The limits of each connection.
    pub(crate) fn limits(&self) -> Limits {
        let head =
            HeadLimits { len_max: self.head_max_bytes, target_len_max: self.head_max_bytes, ..HeadLimits::default() };
        Limits {
            head,
            head_timeout: self.head_timeout,
            first_timeout: Some(self.head_timeout),
            idle_timeout: self.idle_timeout,
            paces_bodies: false,
            streams_max: self.streams_max,
            resets_max: self.resets_max,
            window: self.stream_window_bytes,
            pause_timeout: self.pause_timeout,
            receive_rate_min: self.receive_rate_min,
            send_rate_min: self.send_rate_min,
            rate_grace: self.pause_timeout,
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

#[cfg(test)]
mod tests {
    use crate::command_line::limits::*;

    #[test]
    fn methods_are_called_as_the_options_of_the_programs() {
        let rows = [
            CONNECTIONS_MAX,
            CONNECTIONS_PER_CLIENT,
            DRAIN,
            HEAD_MAX,
            HEAD_TIMEOUT,
            BODY_MAX,
            BODY_TIMEOUT,
            PAUSE_TIMEOUT,
            RECEIVE_RATE_MIN,
            SEND_RATE_MIN,
            IDLE_TIMEOUT,
            STREAMS_MAX,
            RESETS_MAX,
            STREAM_WINDOW,
            TARGET_DELAY,
        ];
        let builder = include_str!("builder.rs");
        for row in rows {
            assert!(builder.contains(&format!("    pub fn {}(", row.method())), "Serve has no {}", row.method());
        }
    }
}
