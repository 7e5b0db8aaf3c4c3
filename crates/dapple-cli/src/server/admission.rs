//! Who may connect: so many in all, and so many from one address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections, and decides about new ones.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Connections at the same time.
    max: usize,
    per_address: PerAddress,
    open: AtomicUsize,
    is_short_of_memory: AtomicBool,
    refused: [AtomicU64; Refusal::ALL.len()],
    /// Connections that ended because the process did.
    cut: AtomicU64,
    /// Sharded by address, because connections end on all workers.
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
    hasher: RandomState,
}

/// The limit for one address, or for one network of IPv6 (`/64`, which is what one client has).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerAddress {
    /// For everybody but this machine itself: behind a proxy, all clients come from there.
    Others(u32),
    /// For everybody.
    Everybody(u32),
    /// None.
    Unlimited,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All connections are in use.
    Full,
    /// The address has as many as one may have.
    Address,
    /// Memory is short.
    Memory,
}

impl Refusal {
    /// Each of them, with its name for programs, in the order of their numbers.
    pub(crate) const ALL: [(Refusal, &str); 3] =
        [(Refusal::Full, "full"), (Refusal::Address, "address"), (Refusal::Memory, "memory")];
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
    is_finished: bool,
}

impl Admission {
    pub(crate) fn new(max: usize, per_address: PerAddress) -> Admission {
        Admission {
            max,
            per_address,
            open: AtomicUsize::new(0),
            is_short_of_memory: AtomicBool::new(false),
            refused: Default::default(),
            cut: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
        }
    }

    /// A place for a connection of `address`.
    ///
    /// # Errors
    ///
    /// Which limit it met; that is counted.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Place, Refusal> {
        let refuse = |refusal: Refusal| {
            self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
            Err(refusal)
        };
        if self.is_short_of_memory.load(Ordering::Relaxed) {
            return refuse(Refusal::Memory);
        }
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return refuse(Refusal::Full);
        }
        let place = |address| Ok(Place { admission: self.clone(), address, is_finished: false });
        let network = network(address);
        let max = match self.per_address {
            PerAddress::Everybody(max) => max,
            PerAddress::Others(max) if !network.is_loopback() => max,
            _ => return place(None),
        };
        let mut shard = self.shard(network);
        let count = shard.entry(network).or_default();
        if *count >= max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return refuse(Refusal::Address);
        }
        *count += 1;
        place(Some(network))
    }

    /// From now on nobody is admitted, as memory is short; or everybody is again.
    pub(crate) fn set_short_of_memory(&self, is_short: bool) {
        self.is_short_of_memory.store(is_short, Ordering::Relaxed);
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The most connections at a time.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// How many were refused for this reason.
    pub(crate) fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Ordering::Relaxed)
    }

    /// How many were refused for each reason, in the order of [`Refusal::ALL`].
    pub(crate) fn refused_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.into_iter().map(|(refusal, name)| (name, self.refused(refusal)))
    }

    /// How many ended only because the process did.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    fn shard(&self, network: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        let index = self.hasher.hash_one(network) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection has come to its own end.
    pub(crate) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let admission = &self.admission;
        admission.open.fetch_sub(1, Ordering::Relaxed);
        if !self.is_finished {
            admission.cut.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(address) = self.address
            && let Entry::Occupied(mut count) = admission.shard(address).entry(address)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What counts as one client: an address of IPv4, also when it comes in the clothes of IPv6, or a `/64` of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        other => other,
    }
}

/// The client that an address belongs to, as a number.
pub(crate) fn client_key(address: IpAddr) -> u64 {
    match network(address) {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// More than there are workers on most machines.
const SHARDS: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Admission, PerAddress, Place, Refusal};

    fn admit(admission: &Arc<Admission>, address: &str) -> Result<Place, Refusal> {
        admission.admit(address.parse().unwrap())
    }

    #[test]
    fn one_address_has_its_share_and_no_more() {
        let admission = Arc::new(Admission::new(10, PerAddress::Others(2)));
        let first = admit(&admission, "192.0.2.1").unwrap();
        let _second = admit(&admission, "::ffff:192.0.2.1").unwrap();
        assert_eq!(admit(&admission, "192.0.2.1").unwrap_err(), Refusal::Address);
        assert!(admit(&admission, "192.0.2.2").is_ok());
        drop(first);
        assert!(admit(&admission, "192.0.2.1").is_ok(), "there is room again");
        assert_eq!(admission.refused(Refusal::Address), 1);
        assert_eq!(admission.open(), 1);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let admission = Arc::new(Admission::new(10, PerAddress::Others(1)));
        let _first = admit(&admission, "2001:db8:1:2::1").unwrap();
        assert_eq!(admit(&admission, "2001:db8:1:2:ffff::9").unwrap_err(), Refusal::Address);
        assert!(admit(&admission, "2001:db8:1:3::1").is_ok());
    }

    #[test]
    fn this_machine_is_limited_only_when_that_was_asked_for() {
        let admission = Arc::new(Admission::new(10, PerAddress::Others(1)));
        let _places = ["127.0.0.1", "127.0.0.1", "::1", "::1"].map(|address| admit(&admission, address).unwrap());
        let admission = Arc::new(Admission::new(10, PerAddress::Everybody(1)));
        let _place = admit(&admission, "127.0.0.1").unwrap();
        assert_eq!(admit(&admission, "127.0.0.1").unwrap_err(), Refusal::Address);
    }

    #[test]
    fn the_total_is_a_limit_too() {
        let admission = Arc::new(Admission::new(1, PerAddress::Unlimited));
        let place = admit(&admission, "127.0.0.1").unwrap();
        assert_eq!(admit(&admission, "127.0.0.1").unwrap_err(), Refusal::Full);
        place.finish();
        assert_eq!((admission.open(), admission.cut()), (0, 0));
    }

    #[test]
    fn nobody_comes_in_while_memory_is_short() {
        let admission = Arc::new(Admission::new(1, PerAddress::Unlimited));
        admission.set_short_of_memory(true);
        assert_eq!(admit(&admission, "127.0.0.1").unwrap_err(), Refusal::Memory);
        admission.set_short_of_memory(false);
        admit(&admission, "127.0.0.1").unwrap().finish();
        let refused: Vec<_> = admission.refused_by_reason().collect();
        assert_eq!(refused, [("full", 0), ("address", 0), ("memory", 1)]);
    }

    #[test]
    fn what_is_dropped_unfinished_was_cut() {
        let admission = Arc::new(Admission::new(2, PerAddress::Unlimited));
        drop(admit(&admission, "127.0.0.1").unwrap());
        admit(&admission, "127.0.0.1").unwrap().finish();
        assert_eq!((admission.open(), admission.cut()), (0, 1));
    }
}
