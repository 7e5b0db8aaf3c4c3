//! The settings, requests and statistics of admission.

use std::time::{Duration, Instant};

/// The settings of admission. All have defaults, so no figure about the service is needed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The target: an admitted request should be done this long after its arrival, not counting its
    /// own waits, such as for a database. Default: 100 ms, which people perceive as "at once". From
    /// 1 ms to 1 h.
    ///
    /// A handler that takes longer by itself is still admitted; then the target limits its wait
    /// before that.
    pub target_delay: Duration,
    /// How many handlers run at the same time. Default: the number of workers of the Dapple runtime
    /// that the thread making the [`Admission`](super::Admission) works for or has entered. Without
    /// such a runtime: all cores, even if a runtime runs elsewhere in the process.
    ///
    /// On another executor, set it to the number of its worker threads if these are fewer than the
    /// cores, such as 1 on tokio's `current_thread`. Otherwise more is admitted than they can do in
    /// time.
    pub processors: Option<usize>,
    /// The limit of requests that wait to begin. Default: 1,024. This bounds memory; the target
    /// bounds the delay.
    pub queue_len_max: usize,
    /// The limit of requests that have begun and not ended. Default: 10,000. This bounds memory,
    /// too.
    pub in_service_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            target_delay: Duration::from_millis(100),
            processors: None,
            queue_len_max: 1_024,
            in_service_max: 10_000,
        }
    }
}

impl Config {
    /// The defaults with this target.
    pub fn with_target_delay(target_delay: Duration) -> Config {
        Config { target_delay, ..Config::default() }
    }
}

/// The importance of a request. Higher classes run first; lower ones are refused first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// Work that can wait: crawlers, prefetching, reports.
    pub const LOW: Class = Class(0);
    /// The default class.
    pub const NORMAL: Class = Class(1);
    /// Important work, such as paid requests.
    pub const HIGH: Class = Class(2);
    /// Work that keeps the service alive: health checks, the operator's requests. Runs before all
    /// others. Up to sixteen may wait under any load; more are judged like others, because any
    /// client can ask for a vital path.
    pub const VITAL: Class = Class(3);

    /// The number of classes.
    pub const COUNT: usize = 4;

    /// All classes, the lowest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Class> {
        (0..Self::COUNT as u8).map(Class)
    }

    /// From 0, the lowest, to 3.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Default for Class {
    fn default() -> Class {
        Class::NORMAL
    }
}

/// The facts about a request that admission uses.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Offer {
    /// When it reached the machine, as far as known. Its wait since then counts.
    pub arrived: Instant,
    /// How important it is.
    pub class: Class,
    /// Its client: clients share the capacity evenly. Any number that names the client, such as a
    /// hash of its address.
    pub client: u64,
    /// Its kind: requests of one kind are expected to cost the same. Any number, such as a hash of
    /// method and target.
    pub kind: u64,
    /// The time after which its result is useless.
    pub deadline: Option<Instant>,
}

impl Offer {
    /// A request that arrives now, without a special class, kind or client.
    pub fn now() -> Offer {
        Offer::arrived(crate::time::real_now())
    }

    /// As [`Offer::now`], for a request that arrived at a known time.
    ///
    /// ```
    /// use std::time::{Duration, Instant, SystemTime};
    /// use dapple_tower::admission::Offer;
    ///
    /// /// A request with a header that says when a proxy in front took it.
    /// fn offer(taken: SystemTime) -> Offer {
    ///     let waited = taken.elapsed().unwrap_or_default(); // clocks may differ
    ///     Offer::arrived(Instant::now().checked_sub(waited).unwrap_or_else(Instant::now))
    /// }
    /// let second = Duration::from_secs(1);
    /// assert!(offer(SystemTime::now() - second).arrived + second <= Instant::now());
    /// ```
    pub fn arrived(at: Instant) -> Offer {
        Offer { arrived: at, class: Class::NORMAL, client: 0, kind: 0, deadline: None }
    }

    /// Sets the class.
    pub fn class(mut self, class: Class) -> Offer {
        self.class = class;
        self
    }

    /// Sets the client.
    pub fn client(mut self, client: u64) -> Offer {
        self.client = client;
        self
    }

    /// Sets the kind.
    pub fn kind(mut self, kind: u64) -> Offer {
        self.kind = kind;
        self
    }

    /// Sets the time after which the result is useless.
    pub fn deadline(mut self, deadline: Instant) -> Offer {
        self.deadline = Some(deadline);
        self
    }
}

/// The counters and the state of an admission.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AdmissionStats {
    /// Offered requests.
    pub offered: u64,
    /// Requests refused when they were offered.
    pub refused: u64,
    /// Requests admitted, and dropped before they began: for a higher class, for another client, or
    /// for their deadline.
    pub dropped: u64,
    /// Requests that ran to their end.
    pub finished: u64,
    /// Requests given up by their callers.
    pub cancelled: u64,
    /// Requests that wait to begin.
    pub waiting: usize,
    /// Requests that have begun and not ended.
    pub in_service: usize,
    /// The mean cost of a request: processor time of its handler, over the recent mix; zero before
    /// the first.
    pub cost: Duration,
    /// The current delay of a request of class normal before it begins.
    pub delay: Duration,
}
