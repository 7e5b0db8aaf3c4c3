//! Faults, and when they happen.

use std::fmt;
use std::time::Duration;

use crate::random::Random;

/// The faults of one simulation, by a script or by chance.
///
/// ```
/// use std::time::Duration;
/// use dapple_sim::{Fault, Plan};
///
/// let mut plan = Plan::default();
/// plan.add(Duration::from_secs(1), Duration::from_secs(3), Fault::Crash("db".into()));
/// assert_eq!(plan.to_string(), "0: at 1s, for 3s: db crashes\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub(crate) faults: Vec<Planned>,
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

/// One thing that goes wrong. Hosts are told by their names.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The host is gone with all that it has in memory; its connections are half open. At the end it starts again.
    Crash(String),
    /// The host stands still, with its blocking pool and its disk, and what comes to it waits.
    Freeze(String),
    /// Nothing gets from the first host to the second; the way back is open.
    Cut(String, String),
    /// Nothing gets to this host, and nothing from it.
    Isolate(String),
    /// The host resets all its connections. The other sides learn of it too, but for those that it cannot reach: these learn when they
    /// send after the cut, or lose their patience during it.
    Reset(String),
    /// Nothing gets through one connection between two hosts, in either direction: one that the seed chooses, or the next one if there is
    /// none. Other connections between them work.
    Stall(String, String),
    /// Packets take so many times as long to get over these ways.
    Latency(Ways, u32),
    /// So many datagrams of a million are lost on these ways, if that is more than on others.
    Loss(Ways, u32),
    /// The wall clock of the host goes forward by so much, and back at the end.
    WallClock(String, Duration),
    /// The wall clock of the host goes back by so much, and forward at the end.
    WallClockBack(String, Duration),
    /// Both clocks of the host gain so many microseconds a second, or lose them if there are less than zero; at the end, what they have
    /// gained or lost stays. They lose less than a second each second, whatever is asked for.
    Drift(String, i32),
    /// The name server that the host asks gives bad answers.
    Names(String, NameFault),
    /// The disk of the host misbehaves.
    Disk(String, DiskFault),
}

/// The ways between hosts that a fault concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ways {
    /// Those to this host, and those from it.
    Of(String),
    /// That from the first host to the second.
    From(String, String),
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ways::Of(host) => write!(f, "of {host}"),
            Ways::From(from, to) => write!(f, "from {from} to {to}"),
        }
    }
}

/// How a disk misbehaves. A crash is worse: it loses or tears what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskFault {
    /// Every second call fails with `EIO`; one that syncs loses or tears writes.
    Errors,
    /// No file can be made, or made longer: `ENOSPC`.
    Full,
    /// Each call takes so much longer.
    Slow(Duration),
}

/// How a name server misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameFault {
    /// It knows no name.
    Missing,
    /// It gives the address of another host, or one that no host has.
    Wrong,
    /// Its answers come late by so much.
    Slow(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash(host) => write!(f, "{host} crashes"),
            Fault::Freeze(host) => write!(f, "{host} stands still"),
            Fault::Cut(from, to) => write!(f, "nothing gets from {from} to {to}"),
            Fault::Isolate(host) => write!(f, "{host} is cut off"),
            Fault::Reset(host) => write!(f, "connections of {host} are reset"),
            Fault::Stall(one, other) => write!(f, "one connection between {one} and {other} stalls"),
            Fault::Latency(ways, times) => write!(f, "packets {ways} take {times} times as long"),
            Fault::Loss(ways, rate) => write!(f, "{rate} of a million datagrams {ways} are lost"),
            Fault::WallClock(host, by) => write!(f, "the wall clock of {host} is {by:?} fast"),
            Fault::WallClockBack(host, by) => write!(f, "the wall clock of {host} is {by:?} slow"),
            Fault::Drift(host, rate) => {
                let what = if *rate < 0 { "lose" } else { "gain" };
                write!(f, "the clocks of {host} {what} {} us a second", rate.unsigned_abs())
            }
            Fault::Disk(host, DiskFault::Errors) => write!(f, "the disk of {host} fails"),
            Fault::Disk(host, DiskFault::Full) => write!(f, "the disk of {host} is full"),
            Fault::Disk(host, DiskFault::Slow(by)) => write!(f, "the disk of {host} is {by:?} slow"),
            Fault::Names(host, NameFault::Missing) => write!(f, "names that {host} looks up are missing"),
            Fault::Names(host, NameFault::Wrong) => write!(f, "names that {host} looks up are wrong"),
            Fault::Names(host, NameFault::Slow(by)) => write!(f, "names that {host} looks up are {by:?} late"),
        }
    }
}

impl Fault {
    /// This fault, or a milder one where it has a measure.
    fn up_to(self, random: &mut Random) -> Fault {
        let mut below = |most: Duration| random.within(&(Duration::ZERO..most));
        match self {
            Fault::WallClock(host, by) => {
                let by = below(by);
                if random.below(2) == 0 { Fault::WallClock(host, by) } else { Fault::WallClockBack(host, by) }
            }
            Fault::Drift(host, rate) => {
                let rate = i64::from(rate.unsigned_abs());
                Fault::Drift(host, (random.below(2 * rate as usize + 1) as i64 - rate) as i32)
            }
            Fault::Disk(host, DiskFault::Slow(by)) => Fault::Disk(host, DiskFault::Slow(below(by))),
            Fault::Names(host, NameFault::Slow(by)) => Fault::Names(host, NameFault::Slow(below(by))),
            Fault::Latency(ways, times) => Fault::Latency(ways, 1 + random.below(times.max(1) as usize) as u32),
            Fault::Loss(ways, rate) => Fault::Loss(ways, random.below(rate as usize + 1) as u32),
            fault => fault,
        }
    }
}

/// The ways between two hosts.
fn both(one: &str, other: &str) -> [Ways; 2] {
    let (one, other) = (one.to_owned(), other.to_owned());
    [Ways::From(one.clone(), other.clone()), Ways::From(other, one)]
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Planned { at, lasts, fault }) in self.faults.iter().enumerate() {
            writeln!(f, "{number}: at {at:?}, for {lasts:?}: {fault}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// Adds a fault that begins at `at` and lasts for `lasts`.
    pub fn add(&mut self, at: Duration, lasts: Duration, fault: Fault) -> &mut Plan {
        self.faults.push(Planned { at, lasts, fault });
        self
    }

    /// The number of faults.
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Whether nothing goes wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Which faults a simulation may have by chance; its seed decides which of them it has, and when.
///
/// ```
/// use std::time::Duration;
/// use dapple_sim::Faults;
///
/// let faults = Faults::new(Duration::from_secs(10)).crash("db").freeze("db").cut("client", "db").at_most(5);
/// # let _ = faults;
/// ```
#[derive(Clone, Debug)]
pub struct Faults {
    within: Duration,
    lasts_max: Duration,
    count_max: usize,
    kinds: Vec<Fault>,
}

impl Faults {
    /// None so far. Those that are added happen in the first `within` of the simulation, and last for a third of that at most.
    pub fn new(within: Duration) -> Faults {
        Faults { within, lasts_max: within / 3, count_max: 6, kinds: Vec::new() }
    }

    /// How many faults there are at most; 6 if not set.
    pub fn at_most(mut self, count: usize) -> Faults {
        self.count_max = count;
        self
    }

    /// The host may crash, and start again.
    pub fn crash(self, host: &str) -> Faults {
        self.with(Fault::Crash(host.to_owned()))
    }

    /// The host may stand still.
    pub fn freeze(self, host: &str) -> Faults {
        self.with(Fault::Freeze(host.to_owned()))
    }

    /// The ways between two hosts may be cut, one at a time.
    pub fn cut(self, one: &str, other: &str) -> Faults {
        let back = Fault::Cut(other.to_owned(), one.to_owned());
        self.with(Fault::Cut(one.to_owned(), other.to_owned())).with(back)
    }

    /// The host may be cut off.
    pub fn isolate(self, host: &str) -> Faults {
        self.with(Fault::Isolate(host.to_owned()))
    }

    /// The host may reset its connections.
    pub fn reset(self, host: &str) -> Faults {
        self.with(Fault::Reset(host.to_owned()))
    }

    /// Single connections between two hosts may stall.
    pub fn stall(self, one: &str, other: &str) -> Faults {
        self.with(Fault::Stall(one.to_owned(), other.to_owned()))
    }

    /// Packets to the host and from it may take up to so many times as long.
    pub fn latency(self, host: &str, times: u32) -> Faults {
        self.with(Fault::Latency(Ways::Of(host.to_owned()), times))
    }

    /// Packets between two hosts may take up to so many times as long, one way at a time.
    pub fn latency_between(self, one: &str, other: &str, times: u32) -> Faults {
        both(one, other).into_iter().fold(self, |faults, ways| faults.with(Fault::Latency(ways, times)))
    }

    /// Datagrams to the host and from it may be lost: up to so many of a million.
    pub fn loss(self, host: &str, per_million: u32) -> Faults {
        self.with(Fault::Loss(Ways::Of(host.to_owned()), per_million))
    }

    /// Datagrams between two hosts may be lost, one way at a time: up to so many of a million.
    pub fn loss_between(self, one: &str, other: &str, per_million: u32) -> Faults {
        both(one, other).into_iter().fold(self, |faults, ways| faults.with(Fault::Loss(ways, per_million)))
    }

    /// The wall clock of the host may be wrong by up to `by`, ahead or behind.
    pub fn wall_clock(self, host: &str, by: Duration) -> Faults {
        self.with(Fault::WallClock(host.to_owned(), by))
    }

    /// Both clocks of the host may go too fast or too slow by up to so many microseconds a second.
    pub fn drift(self, host: &str, us_per_second: u32) -> Faults {
        self.with(Fault::Drift(host.to_owned(), i32::try_from(us_per_second).unwrap_or(i32::MAX)))
    }

    /// The host may get no addresses for names, wrong ones, or late ones: by up to `by`.
    pub fn names(self, host: &str, by: Duration) -> Faults {
        let all = [NameFault::Missing, NameFault::Wrong, NameFault::Slow(by)];
        all.into_iter().fold(self, |faults, how| faults.with(Fault::Names(host.to_owned(), how)))
    }

    /// The disk of the host may fail, be full, or be slow by up to `by`.
    pub fn disk(self, host: &str, by: Duration) -> Faults {
        let all = [DiskFault::Errors, DiskFault::Full, DiskFault::Slow(by)];
        all.into_iter().fold(self, |faults, how| faults.with(Fault::Disk(host.to_owned(), how)))
    }

    fn with(mut self, fault: Fault) -> Faults {
        self.kinds.push(fault);
        self
    }

    /// A plan of these.
    pub(crate) fn plan(&self, random: &mut Random) -> Plan {
        let mut plan = Plan::default();
        if self.kinds.is_empty() || self.count_max == 0 {
            return plan;
        }
        // In every tenth simulation nothing goes wrong: some bugs need peace.
        let count = if random.below(10) == 0 { 0 } else { 1 + random.below(self.count_max) };
        for _ in 0..count {
            let at = random.within(&(Duration::ZERO..self.within));
            let lasts = random.within(&(self.lasts_max / 100..self.lasts_max));
            let fault = self.kinds[random.below(self.kinds.len())].clone().up_to(random);
            plan.add(at, lasts, fault);
        }
        plan.faults.sort_by_key(|planned| planned.at);
        plan
    }
}
