//! Leases: keys that go where their owner does not renew them.

use std::fmt;

use dapple_tower::random::Random;
use serde::{Serialize, Serializer};

/// The number of a lease; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(i64);

impl LeaseId {
    pub(crate) fn of(number: i64) -> Option<LeaseId> {
        (number != 0).then_some(LeaseId(number))
    }

    /// Chosen here and not by etcd, so that granting it twice is noticed.
    pub(crate) fn fresh() -> LeaseId {
        // Above 0 and below 2^62: the gateway of some versions reads numbers as floating point where they are larger than a signed one.
        LeaseId(((Random::fresh().next() >> 2) as i64).max(1))
    }

    /// The number.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl Serialize for LeaseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}
