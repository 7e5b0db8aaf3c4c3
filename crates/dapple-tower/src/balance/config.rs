//! The settings of a balancer.

use std::time::Duration;

use crate::Backoff;

/// Settings of a [`Balancer`](super::Balancer). All have defaults.
///
/// ```
/// use dapple_tower::balance::{Config, Load};
///
/// let mut config = Config::default();
/// config.load = Load::Latency;
/// config.failures_max = 5;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The measure that compares two replicas. Default: [`Load::Queue`].
    pub load: Load,
    /// After this many failures in a row a replica is out; at least 1. Default: 3.
    pub failures_max: u32,
    /// How long it stays out before its trial: longer after each failed trial. Default: 0.5 s to 30
    /// s, half of it random.
    pub backoff: Backoff,
    /// How a replica returns. Default: [`Probe::Trial`].
    pub probe: Probe,
    /// A check without an answer after this time and by the next round counts as not healthy
    /// ([`Balancer::check`](super::Balancer::check)). Default: 5 s.
    pub check_timeout: Duration,
    /// Within this time a measured latency and a refusal decay to a third. Default: 10 s.
    pub decay: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            load: Load::Queue,
            failures_max: 3,
            backoff: Backoff::new(Duration::from_millis(500), Duration::from_secs(30)),
            probe: Probe::Trial,
            check_timeout: Duration::from_secs(5),
            decay: Duration::from_secs(10),
        }
    }
}

/// The measure that compares replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Load {
    /// The requests in flight.
    #[default]
    Queue,
    /// The expected time of the requests in flight plus one: their number times a moving average of
    /// the latency, which rises at once and falls slowly ("peak EWMA"). If one of two replicas has
    /// no measurement, their requests in flight are compared.
    Latency,
}

/// How a replica that is out returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Probe {
    /// After its backoff it gets one request; if that succeeds, it is in.
    #[default]
    Trial,
    /// [`Balancer::check`](super::Balancer::check) or
    /// [`Balancer::set_health`](super::Balancer::set_health) reports it healthy. No request is
    /// risked.
    Check,
}

/// The end of a request to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The replica did its work, whatever it answered. Its latency counts.
    Success,
    /// The replica failed; after [`Config::failures_max`] failures in a row it is out.
    Failure,
    /// The replica is down: it is out at once.
    Down,
    /// The replica is up, and refused for overload: it gets fewer requests for a while. Its latency
    /// does not count: refusals are quick, and would attract more requests.
    Refused,
    /// The caller did not wait for the end. Means nothing for the replica.
    Canceled,
}
