//! What hyper is told.

use std::sync::Arc;
use std::time::Duration;

use dapple_io::hyper_rt::Timer;
use hyper_util::server::conn::auto;

use super::link::Link;
use super::streams::Streams;
use crate::options::Options;

/// For one connection.
pub(super) fn http(options: &Arc<Options>, link: &Arc<Link>) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams::new(options.clone(), link.clone()));
    builder
        .http1()
        .timer(Timer::new())
        // The connection's own task sees to that.
        .header_read_timeout(None)
        .max_buf_size(options.header_bytes_max);
    builder
        .http2()
        .timer(Timer::new())
        .max_concurrent_streams(options.streams_max)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_header_list_size(u32::try_from(options.header_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX);
    builder
}

/// Streams that were reset before anybody looked at them ("rapid reset"), and those that were reset for an error of the peer.
const RESETS_MAX: usize = 20;
const ERRORS_MAX: usize = 128;

/// What of one stream waits in hyper's buffer to be sent.
const SEND_BUFFER_MAX: usize = 64 << 10;

/// What of a request's body the peer may send before somebody reads it.
const WINDOW: u32 = 64 << 10;

/// A peer that answers no PING is gone.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);
