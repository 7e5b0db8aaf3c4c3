//! The options that limit one connection.

use std::time::Duration;

use dapple_http::HeadLimits;

use crate::config::{number, seconds};
use crate::http::Limits;

/// The limits of a connection. By default, a slow or silent one ends after 30 s.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits of a connection")]
pub(crate) struct ConnectionArgs {
    /// The most bytes of a request's head, in KiB; more gets 431
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number::<u16>(1..=1024))]
    head_kb: u16,

    /// The most bytes of a request's target, in KiB; longer ones get 414
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<u16>(1..=1024))]
    uri_kb: u16,

    /// The most header fields of a request; more get 431
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number::<u16>(1..=10_000))]
    headers: u16,

    /// How long a request's head may take, in seconds; then the reply is 408
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    head_timeout_s: Duration,

    /// How long a connection may wait for its next request, in seconds
    #[arg(long, value_name = "S", default_value = "25", value_parser = seconds)]
    idle_timeout_s: Duration,

    /// How long a body may pause in the middle, in either direction, in seconds
    #[arg(long, value_name = "S", default_value = "20", value_parser = seconds)]
    pause_timeout_s: Duration,

    /// How long a request may take in total, from its head to the end of its response, in seconds
    /// [default: no limit]
    #[arg(long, value_name = "S", value_parser = seconds)]
    request_timeout_s: Option<Duration>,

    /// The lowest rate at which a client may send a body, in bytes per second; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::<u64>(0..=1 << 40))]
    receive_rate_min: u64,

    /// The lowest rate at which a client may take a response, in bytes per second; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = number::<u64>(0..=1 << 40))]
    send_rate_min: u64,

    /// How long a client may be slower than these rates, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    rate_grace_s: Duration,
}

impl ConnectionArgs {
    /// The limits that the options set.
    pub(crate) fn limits(&self) -> Limits {
        let head = HeadLimits {
            len_max: usize::from(self.head_kb) << 10,
            target_len_max: usize::from(self.uri_kb) << 10,
            fields_max: usize::from(self.headers),
        };
        Limits {
            head,
            head_timeout: self.head_timeout_s,
            idle_timeout: self.idle_timeout_s,
            pause_timeout: self.pause_timeout_s,
            receive_rate_min: self.receive_rate_min,
            send_rate_min: self.send_rate_min,
            rate_grace: self.rate_grace_s,
            request_timeout: self.request_timeout_s,
            ..Limits::default()
        }
    }
}
