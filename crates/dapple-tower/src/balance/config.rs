//! What a balancer goes by.

use std::time::Duration;

use crate::Backoff;

/// Settings of a [`Balancer`](super::Balancer). The defaults need no number from anybody.
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
    /// By what two replicas are compared. Default: [`Load::Queue`].
    pub load: Load,
    /// After so many failures in a row a replica is out; at least 1. Default: 3.
    pub failures_max: u32,
    /// How long it stays out before it is tried again: longer each time that it fails its trial. Default: 0.5 s to 30 s, half of
    /// it left to chance.
    pub backoff: Backoff,
    /// What brings a replica back. Default: [`Probe::Trial`].
    pub probe: Probe,
    /// A check that is not answered after this time, nor by the next round, says that the replica is not well
    /// ([`Balancer::check`](super::Balancer::check)). Default: 5 s.
    pub check_timeout: Duration,
    /// Within this time a measured latency and a refusal fade to a third. Default: 10 s.
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

/// By what replicas are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Load {
    /// The requests in flight.
    #[default]
    Queue,
    /// How long the requests in flight and one more would take: their number times a moving average of the latency that
    /// follows a rise at once and a fall slowly ("peak EWMA"). Two of which one has not been measured are compared by what
    /// they have in flight.
    Latency,
}

/// What brings back a replica that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Probe {
    /// Its back-off over, it gets one request; if that succeeds, it is in.
    #[default]
    Trial,
    /// Somebody says that it is well: [`Balancer::check`](super::Balancer::check), or
    /// [`Balancer::set_health`](super::Balancer::set_health). No request is risked.
    Check,
}

/// How a request to a replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The replica did its work, whatever the answer was. Its latency counts.
    Success,
    /// The replica failed; after [`Config::failures_max`] of them in a row it is out.
    Failure,
    /// The replica is not there: it is out at once.
    Down,
    /// The replica is there, and refused for overload: it gets fewer requests for a while. Its latency does not count: who
    /// refuses is quick, and would draw ever more requests.
    Refused,
    /// Nobody waited for the end. Says nothing about the replica.
    Canceled,
}
