//! The limits of one connection.

use dapple_http::HeadLimits;
use dapple_serve::command_line::{LimitArgs, LimitOption, Rows, limits};

use crate::http::Limits;

/// The limits of a connection. By default, one that is slow or silent for 30 s ends.
#[derive(Debug)]
pub(crate) struct ConnectionRows;

impl Rows for ConnectionRows {
    const HEADING: &'static str = "Limits of a connection";
    const ROWS: &'static [LimitOption] = &[
        limits::HEAD_MAX,
        limits::TARGET_MAX,
        limits::FIELDS_MAX,
        limits::HEAD_TIMEOUT,
        limits::IDLE_TIMEOUT,
        limits::PAUSE_TIMEOUT,
        limits::REQUEST_TIMEOUT,
        limits::RECEIVE_RATE_MIN,
        limits::SEND_RATE_MIN,
        limits::RATE_GRACE,
    ];
}

/// Those of a proxy's clients, which are patient.
#[derive(Debug)]
pub(crate) struct ProxyConnectionRows;

impl Rows for ProxyConnectionRows {
    const HEADING: &'static str = ConnectionRows::HEADING;
    const ROWS: &'static [LimitOption] = &[
        limits::HEAD_MAX,
        limits::TARGET_MAX,
        limits::FIELDS_MAX,
        limits::HEAD_TIMEOUT,
        limits::IDLE_TIMEOUT.or(60_000),
        limits::PAUSE_TIMEOUT,
        limits::REQUEST_TIMEOUT,
        limits::RECEIVE_RATE_MIN,
        limits::SEND_RATE_MIN,
        limits::RATE_GRACE,
    ];
}

/// The limits that `args` ask for.
pub(crate) fn connection_limits<R: Rows>(args: &LimitArgs<R>) -> Limits {
    let head = HeadLimits {
        len_max: args.bytes(&limits::HEAD_MAX),
        target_len_max: args.bytes(&limits::TARGET_MAX),
        fields_max: args.number(&limits::FIELDS_MAX) as usize,
    };
    Limits {
        head,
        head_timeout: args.time(&limits::HEAD_TIMEOUT),
        idle_timeout: args.time(&limits::IDLE_TIMEOUT),
        pause_timeout: args.time(&limits::PAUSE_TIMEOUT),
        receive_rate_min: args.number(&limits::RECEIVE_RATE_MIN),
        send_rate_min: args.number(&limits::SEND_RATE_MIN),
        rate_grace: args.time(&limits::RATE_GRACE),
        request_timeout: args.time_given(&limits::REQUEST_TIMEOUT),
        ..Limits::default()
    }
}
