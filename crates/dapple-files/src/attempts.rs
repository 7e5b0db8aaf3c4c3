//! Wrong logins, counted by user and by address, so that passwords cannot be guessed.
//!
//! | count | limit | against |
//! |---|---|---|
//! | of a name from an address | 10 a minute | guesses; other users behind the same proxy go on |
//! | from an address | 50 a minute | one password tried with many users |
//! | of a name from all addresses | 50 a minute | guesses from many addresses; addresses from which the user logged in during the last day go on, and so does the token |
//!
//! A name counts the same whether a user has it or not, so that no count tells which users there are. Tokens without a name have a count for each
//! address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dapple::time::Instant;
use dapple_sched::environment::HashMap;

/// The wrong logins of the last minute, and the places that right ones came from.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failures: HashMap<Count, Failures>,
    /// The addresses from which a user logged in, and when last.
    trusted: HashMap<(IpAddr, Arc<str>), Instant>,
}

/// The origin of a login.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// As [`client`] gives it.
    pub(crate) address: Option<IpAddr>,
    /// The name that it gives, which need not be a user's; `None` for a token alone.
    pub(crate) name: Option<Arc<str>>,
    /// Whether it has the token, which guesses at a name from elsewhere do not keep out.
    pub(crate) has_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Count {
    Address(IpAddr),
    Name(Arc<str>),
    /// A name from an address; the wrong tokens of an address together.
    Pair(IpAddr, Option<Arc<str>>),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

impl Attempts {
    /// How long a login must wait.
    pub(crate) fn wait(&self, from: &Origin, now: Instant) -> Option<Duration> {
        let left = |count: &Count| {
            let failures = self.failures.get(count)?;
            let end = failures.since + FORGOTTEN_AFTER;
            (failures.count >= count.max() && end > now).then(|| end.saturating_duration_since(now))
        };
        self.counts(from, now).iter().filter_map(left).max()
    }

    /// Counts a wrong login.
    pub(crate) fn failed(&mut self, from: &Origin, now: Instant) {
        for count in self.counts(from, now) {
            if self.failures.len() >= COUNTS_MAX && !self.failures.contains_key(&count) {
                self.make_room(now);
            }
            let max = count.max();
            let failures = self.failures.entry(count.clone()).or_insert(Failures { count: 0, since: now });
            if failures.since + FORGOTTEN_AFTER <= now {
                *failures = Failures { count: 0, since: now };
            }
            failures.count += 1;
            if failures.count == max {
                failures.since = now;
                tracing::warn!(?count, "too many wrong tokens or passwords; the next must wait a minute");
            }
        }
    }

    /// Notes a right login of a user by its password.
    pub(crate) fn succeeded(&mut self, address: Option<IpAddr>, user: &Arc<str>, now: Instant) {
        let Some((address, user)) = address.map(|address| (address, user.clone())) else { return };
        if self.trusted.len() >= TRUSTED_MAX && !self.trusted.contains_key(&(address, user.clone())) {
            self.trusted.retain(|_, last| *last + TRUSTED_FOR > now);
            if self.trusted.len() >= TRUSTED_MAX {
                return;
            }
        }
        self.trusted.insert((address, user), now);
    }

    /// The counts that a login belongs to.
    fn counts(&self, from: &Origin, now: Instant) -> Vec<Count> {
        let mut counts = Vec::with_capacity(3);
        if let Some(address) = from.address {
            counts.push(Count::Address(address));
            counts.push(Count::Pair(address, from.name.clone()));
        }
        if let Some(name) = from.name.as_ref().filter(|_| !from.has_token) {
            let last = from.address.and_then(|address| self.trusted.get(&(address, name.clone())));
            if last.is_none_or(|last| *last + TRUSTED_FOR <= now) {
                counts.push(Count::Name(name.clone()));
            }
        }
        counts
    }

    /// Forgets what is over; if that is not enough, the half that has failed least, so that the table stays bounded and still counts.
    fn make_room(&mut self, now: Instant) {
        self.failures.retain(|_, failures| failures.since + FORGOTTEN_AFTER > now);
        if self.failures.len() < COUNTS_MAX {
            return;
        }
        let mut counts: Vec<u32> = self.failures.values().map(|failures| failures.count).collect();
        counts.sort_unstable();
        let median = counts[counts.len() / 2];
        let mut room = COUNTS_MAX / 2;
        self.failures.retain(|_, failures| {
            let goes = failures.count <= median && room > 0;
            room -= usize::from(goes);
            !goes
        });
    }
}

impl Count {
    /// The wrong logins of a minute until the next must wait.
    fn max(&self) -> u32 {
        match self {
            Count::Pair(..) => FAILURES_MAX,
            Count::Address(_) | Count::Name(_) => FAILURES_OF_ALL_MAX,
        }
    }
}

/// The unit that strangers are counted by: an address, or a /64 of IPv6.
pub(crate) fn client(address: IpAddr) -> IpAddr {
    // A socket of both families shows an address of IPv4 as one of IPv6.
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) >> 64 << 64;
            IpAddr::V6(bits.into())
        }
        address => address,
    }
}

/// The wrong logins of one name from one address until it must wait; those of an address, and of a name; and for how long.
pub(crate) const FAILURES_MAX: u32 = 10;
const FAILURES_OF_ALL_MAX: u32 = 50;
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The most counts, and the most places that right logins came from; and for how long these are known.
const COUNTS_MAX: usize = 30_000;
const TRUSTED_MAX: usize = 10_000;
const TRUSTED_FOR: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use dapple::time::Instant;

    use super::{Attempts, COUNTS_MAX, FAILURES_MAX, Origin};

    #[test]
    fn the_table_is_bounded_and_keeps_those_that_fail_most() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let from = |number: u32| Origin {
            address: Some(IpAddr::V4(Ipv4Addr::from_bits(number))),
            name: None,
            has_token: false,
        };
        for _ in 0..FAILURES_MAX {
            attempts.failed(&from(0), now);
        }
        for number in 1..3 * COUNTS_MAX as u32 {
            attempts.failed(&from(number), now);
            assert!(attempts.failures.len() <= COUNTS_MAX);
        }
        assert!(attempts.wait(&from(0), now).is_some() && attempts.wait(&from(1), now).is_none());
    }
}
