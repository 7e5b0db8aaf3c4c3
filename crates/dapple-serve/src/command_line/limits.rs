//! The limits of all programs: one row each, with one name, one range and one sentence.
//!
//! A program takes the rows that it has, and may give one another default: `CONNECTIONS_MAX.or(1_024)`. Its `--help`, its environment and its
//! TOML file have the names of this table, and so have the methods of [`Serve`](crate::Serve) and the fields of the limits of hosts of
//! stages.

use super::limit::{LimitOption, Unit};

macro_rules! limits {
    ($($row:ident: $name:literal $(was $before:literal)?, $unit:ident, $range:expr, $default:expr, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $row: LimitOption = LimitOption {
                name: $name,
                names_before: &[$($before)?],
                unit: Unit::$unit,
                range: $range,
                default: $default,
                default_note: None,
                help: $help,
            };
        )*

        /// All rows.
        pub const ALL: &[LimitOption] = &[$($row),*];
    };
}

// The unit of ranges and defaults is that of the row; milliseconds instead of seconds.
limits! {
    // Clients.
    CONNECTIONS_MAX: "connections_max" was "connections", Count, (1, COUNT), None,
        "The most connections of clients at a time; at the limit resting ones make room, or newcomers are refused";
    CONNECTIONS_PER_CLIENT: "connections_per_client" was "connections_per_address", Count, (0, COUNT), None,
        "The most connections of one client, an address or a /64 of IPv6; 0 is no limit";
    TUNNELS_MAX: "tunnels_max" was "tunnels", Count, (1, COUNT), Some(4_000),
        "The most connections of clients that are tunnels or speak another protocol";
    DRAIN: "drain_s", Seconds, (0, HOUR), Some(9_000),
        "How long what is in flight may take after the signal to stop, in seconds";

    // A request's head.
    HEAD_MAX: "head_max_kb" was "head_kb", KiB, (1, 1 << 10), Some(16),
        "The most bytes of a request's head, in KiB; more gets 431";
    TARGET_MAX: "target_max_kb" was "uri_kb", KiB, (1, 1 << 10), Some(8),
        "The most bytes of a request's target, in KiB; longer ones get 414";
    FIELDS_MAX: "fields_max" was "headers", Count, (1, 10_000), Some(100),
        "The most fields of a request's head; more get 431";
    HEAD_TIMEOUT: "head_timeout_s", Seconds, TIME, Some(10_000),
        "How long a request's head may take, in seconds; then the reply is 408";

    // A request's body and its response.
    BODY_MAX: "body_max_bytes" was "task_bytes_max", Bytes, (0, u64::MAX), None,
        "The most bytes of a request's body; longer ones are refused";
    BODY_TIMEOUT: "body_timeout_s", Seconds, TIME, Some(30_000),
        "How long a request's body may take to come in, in seconds";
    PAUSE_TIMEOUT: "pause_timeout_s", Seconds, TIME, Some(20_000),
        "How long a body may pause in the middle, in either direction, in seconds";
    REQUEST_TIMEOUT: "request_timeout_s", Seconds, TIME, None,
        "How long a request may take in total, from its head to the end of its response, in seconds";
    FRAME_TIMEOUT: "frame_timeout_s", Seconds, TIME, Some(10_000),
        "How long a client may take to complete a frame, or to take its answers, in seconds";
    RECEIVE_RATE_MIN: "receive_rate_min", BytesPerSecond, (0, 1 << 40), Some(256),
        "The lowest rate at which a client may send a body, in bytes per second; 0 is no limit";
    SEND_RATE_MIN: "send_rate_min", BytesPerSecond, (0, 1 << 40), Some(256),
        "The lowest rate at which a client may take a response, in bytes per second; 0 is no limit";
    RATE_GRACE: "rate_grace_s", Seconds, TIME, Some(10_000),
        "How long a client may be slower than these rates, in seconds";

    // Between requests, and many at a time.
    IDLE_TIMEOUT: "idle_timeout_s" was "idle_s", Seconds, TIME, Some(25_000),
        "How long a connection may wait for its next request, in seconds";
    IN_FLIGHT_MAX: "in_flight_max", Count, (1, 65_536), Some(1_024),
        "The most unanswered requests of one connection; beyond that the server stops reading from it";
    STREAMS_MAX: "streams_max", Count, (1, u32::MAX as u64), Some(128),
        "The most streams of one connection of HTTP/2 at a time; more are refused by the protocol";
    RESETS_MAX: "resets_max", Count, (0, u32::MAX as u64), Some(20),
        "The most streams that a client of HTTP/2 may reset before the server looks at them; beyond that its connection ends";
    STREAM_WINDOW: "stream_window_kb", KiB, (16, (1 << 21) - 1), Some(64),
        "How much of a body waits in one stream of HTTP/2, in each direction, in KiB";
    REQUESTS_MAX: "requests_max", Count, (1, COUNT), Some(1_024),
        "The most requests of all clients that are read or answered at a time; more are refused";

    // Memory, and time in queues.
    MEMORY_LIMIT: "memory_limit_mb", MiB, (1, 1 << 24), None,
        "The most memory to use, in MiB; close to it caches shrink, and new connections get 503";
    REQUESTS_MEMORY: "requests_memory_mb" was "tasks_mib", MiB, (1, 1 << 20), Some(256),
        "The most memory for requests of all clients that are read or answered, in MiB, and for answers that are not yet taken";
    SUBSCRIBER_WAITING_MAX: "subscriber_waiting_max_kb", KiB, (64, 1 << 20), Some(32 << 10),
        "The most bytes of messages that wait for one subscriber, in KiB; beyond that its connection ends";
    TARGET_DELAY: "target_delay_ms", Milliseconds, (0, HOUR), None,
        "Refuse a request that could not be answered within this time, in milliseconds; 0 never refuses";

    // Servers that are asked.
    CONNECT_TIMEOUT: "connect_timeout_s", Seconds, (1, HOUR), Some(10_000),
        "How long finding and reaching a server may take, in seconds";
    RESPONSE_TIMEOUT: "response_timeout_s", Seconds, (1, HOUR), Some(60_000),
        "How long a server may take to begin its response, and for each further piece, in seconds";
    TUNNEL_TIMEOUT: "tunnel_timeout_s", Seconds, TIME, Some(600_000),
        "How long a tunnel may be idle, in seconds";
    UPSTREAM_CONNECTIONS_MAX: "upstream_connections_max" was "upstream_connections", Count, (1, 100_000), Some(1_024),
        "The most connections to one upstream; by HTTP/2 each carries up to 100 requests";
    UPSTREAM_IDLE_TIMEOUT: "upstream_idle_timeout_s" was "upstream_idle_s", Seconds, TIME, Some(30_000),
        "How long a connection to an upstream may wait for its next request, in seconds; use less than the upstream's own limit";
    RETRIES: "retries", Count, (0, 16), Some(2),
        "How many times to retry a request, at other upstreams, if that is safe; 0 for never";
    RETRY_PERCENT: "retry_percent", Count, (0, 100), Some(20),
        "The most retries, in percent of all requests, so that retries make no overload worse";
}

/// An hour, and the range of times, up to a day; in milliseconds.
const HOUR: u64 = 3_600_000;
const TIME: (u64, u64) = (1, 86_400_000);

/// More than a machine can have.
const COUNT: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ALL, BODY_MAX, HEAD_TIMEOUT, REQUESTS_MEMORY, STREAMS_MAX, TARGET_DELAY};

    #[test]
    fn a_name_means_one_thing_and_ends_with_its_unit() {
        let mut names = BTreeSet::new();
        for row in ALL {
            let all = row.names_before.iter().chain([&row.name]);
            assert!(all.into_iter().all(|name| names.insert(*name)), "{} is there twice", row.name);
            assert!(row.name.ends_with(row.unit.suffix()), "{} does not end with its unit", row.name);
            let ends = row.default.is_none_or(|default| row.range.0 <= default && default <= row.range.1);
            assert!(ends && row.range.0 < row.range.1, "{}: {:?} is not in {:?}", row.name, row.default, row.range);
        }
    }

    #[test]
    fn a_wrong_value_hears_of_the_range_and_an_example() {
        let wrong = HEAD_TIMEOUT.read_time("0").unwrap_err();
        assert!(wrong.ends_with("write seconds from 0.001 to 86400, for example 10"), "{wrong}");
        let wrong = STREAMS_MAX.or(7).read_number("many").unwrap_err();
        assert!(wrong.ends_with("write a number from 1 to 4294967295, for example 7"), "{wrong}");
        let wrong = TARGET_DELAY.read_time("3600001").unwrap_err();
        assert!(wrong.ends_with("write a number from 0 to 3600000, for example 100"), "{wrong}");
        for row in ALL {
            let example = row.example();
            assert!(row.read_number(&example).is_ok() || row.read_time(&example).is_ok(), "{}: {example}", row.name);
        }
    }

    #[test]
    fn methods_are_named_without_units_but_bytes() {
        let methods = [HEAD_TIMEOUT, BODY_MAX, REQUESTS_MEMORY, STREAMS_MAX].map(|row| row.method());
        assert_eq!(methods, ["head_timeout", "body_max_bytes", "requests_memory_bytes", "streams_max"]);
        assert_eq!(REQUESTS_MEMORY.flag(), "--requests-memory-mb");
    }
}
