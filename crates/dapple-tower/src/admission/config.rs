//! What can be chosen, who asks, and what is counted.

use std::time::{Duration, Instant};

/// What can be chosen about admission. Nothing of it has to be: the defaults need no number about the service.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Within this time of its arrival a request that is admitted should be done, but for what it waits for by itself, such
    /// as a database: 100 ms unless set, which people take for "at once". From 1 ms to 1 h.
    ///
    /// A handler that takes longer by itself is admitted all the same: then this limits what it waits before.
    pub target_delay: Duration,
    /// How many handlers run at the same time. Unless set: the workers of the Dapple runtime that the thread which makes the
    /// [`Admission`](super::Admission) works for or has entered, or else, whatever runs elsewhere in the process, all cores.
    ///
    /// On another executor set it to that one's worker threads where these are fewer than the cores, such as 1 on tokio's
    /// `current_thread`: otherwise more is admitted than they can do in time.
    pub processors: Option<usize>,
    /// The most requests that wait to begin: 1,024 unless set. This bounds memory; the delay is bounded by the target.
    pub queue_len_max: usize,
    /// The most requests that have begun and not ended: 10,000 unless set. This bounds memory, too.
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
    /// The defaults, with this target.
    pub fn with_target_delay(target_delay: Duration) -> Config {
        Config { target_delay, ..Config::default() }
    }
}

/// How important a request is. Higher classes run first; lower ones are refused first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    /// What can wait for better times: crawlers, prefetching, reports.
    pub const LOW: Class = Class(0);
    /// What has no other class.
    pub const NORMAL: Class = Class(1);
    /// What pays, say.
    pub const HIGH: Class = Class(2);
    /// What keeps the service alive: health checks, the operator's own. Runs before all others. Up to sixteen may wait whatever
    /// the load; more are judged like others, as anybody can ask for what is vital.
    pub const VITAL: Class = Class(3);

    /// How many there are.
    pub const COUNT: usize = 4;

    /// All of them, the lowest first.
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

/// A request, as far as admission looks at it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Offer {
    /// When it reached the machine, as far as is known: what it has waited since counts.
    pub arrived: Instant,
    /// How important it is.
    pub class: Class,
    /// Whose it is: clients share what there is evenly. Any number that names the client, such as a hash of its address.
    pub client: u64,
    /// What it is like: requests of one kind are expected to cost alike. Any number, such as a hash of method and target.
    pub kind: u64,
    /// After this time its result is worth nothing.
    pub deadline: Option<Instant>,
}

impl Offer {
    /// A request that has just arrived, of no special class, kind or client.
    pub fn now() -> Offer {
        Offer::arrived(crate::time::real_now())
    }

    /// As [`Offer::now`], of something that arrived at a known time.
    ///
    /// ```
    /// use std::time::{Duration, Instant, SystemTime};
    /// use dapple_tower::admission::Offer;
    ///
    /// /// A request of which a proxy in front says, in a header, when it took it.
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

    /// With this class.
    pub fn class(mut self, class: Class) -> Offer {
        self.class = class;
        self
    }

    /// Of this client.
    pub fn client(mut self, client: u64) -> Offer {
        self.client = client;
        self
    }

    /// Of this kind.
    pub fn kind(mut self, kind: u64) -> Offer {
        self.kind = kind;
        self
    }

    /// Worth nothing after this time.
    pub fn deadline(mut self, deadline: Instant) -> Offer {
        self.deadline = Some(deadline);
        self
    }
}

/// What admission has done so far, and how it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AdmissionStats {
    /// Requests that were offered.
    pub offered: u64,
    /// Those that were refused when they were offered.
    pub refused: u64,
    /// Those that were admitted, and dropped before they began: for a higher class, for another client, or for their deadline.
    pub dropped: u64,
    /// Those that ended by themselves.
    pub finished: u64,
    /// Those that their callers gave up.
    pub cancelled: u64,
    /// How many wait to begin.
    pub waiting: usize,
    /// How many have begun and not ended.
    pub in_service: usize,
    /// The mean cost of a request: processor time of its handler, in the mix in which they ran lately; zero before the first.
    pub cost: Duration,
    /// The delay that a request of class normal would meet now before it begins.
    pub delay: Duration,
}
