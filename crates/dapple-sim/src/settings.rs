//! How the network and the machines of a simulation are.

use std::ops::Range;
use std::time::Duration;

/// Properties of the network. Chances are per million.
///
/// ```
/// use dapple_sim::Network;
///
/// let lossy = Network { loss: 100_000, ..Network::default() };
/// assert_eq!(lossy.loss, 100_000, "one datagram in ten");
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    /// How long a packet is on its way; 200 us to 2 ms if not set. One in 64 takes ten times as long.
    pub latency: Range<Duration>,
    /// Bytes a second that the line of a host carries; 100 MB if not set. All that the host sends to others goes over its line, one packet
    /// after the other: a packet leaves when the line is free, occupies it for its length, and is on its way for the latency after that.
    /// Headers have no length, and lines into a host no limit. A datagram that would wait longer than a second is lost.
    pub bandwidth: u64,
    /// Bytes of a connection that are on their way or wait to be read, at most; 64 KiB if not set.
    pub window: usize,
    /// Bytes of one segment of a connection, at most; random ones up to 1,460 if not set.
    pub segment: usize,
    /// Connections that wait to be accepted at one listener; 128 if not set. Further attempts are not answered, and repeated.
    pub backlog: usize,
    /// Datagrams that wait at one socket; 64 if not set. Further ones are lost.
    pub datagrams: usize,
    /// Chance of a datagram to be lost; 1,000 if not set.
    pub loss: u32,
    /// Chance of a datagram to come twice; 1,000 if not set.
    pub duplication: u32,
    /// Chance of a datagram to be overtaken by others; 10,000 if not set.
    pub reordering: u32,
    /// How long a connection tries to get a segment through before it breaks; 15 s if not set.
    pub patience: Duration,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            latency: Duration::from_micros(200)..Duration::from_millis(2),
            bandwidth: 100_000_000,
            window: 64 << 10,
            segment: 1_460,
            backlog: 128,
            datagrams: 64,
            loss: 1_000,
            duplication: 1_000,
            reordering: 10_000,
            patience: Duration::from_secs(15),
        }
    }
}

/// Properties of a simulation as a whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Between hosts.
    pub network: Network,
    /// When a simulation that has not ended is given up, in its own time; an hour if not set.
    pub time_max: Duration,
    /// When a simulation that has not ended is given up, in steps of workers; ten million if not set.
    pub steps_max: u64,
    /// How long one step of a worker takes, at most; 2 us if not set. Zero: time stands while anything can run.
    pub step_time_max: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            network: Network::default(),
            time_max: Duration::from_secs(3600),
            steps_max: 10_000_000,
            step_time_max: Duration::from_micros(2),
        }
    }
}
