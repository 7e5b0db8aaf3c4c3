//! Connection limits: the total, and for each address.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::{self, Client, Connections, pause};
use dapple_io::time::Instant;
use dapple_sched::environment::{HashMap, RandomState};

use crate::link::Link;

/// Counts connections, and decides about new ones.
#[derive(Debug)]
pub struct Admission {
    /// Connections that have a place.
    connections: Arc<Connections<Link>>,
    per_address: Mutex<PerAddress>,
    is_short_of_memory: AtomicBool,
    refused: [AtomicU64; Refusal::ALL.len()],
    /// Connections that ended only because the process did.
    cut: AtomicU64,
    /// Sharded by address, because connections end on all workers.
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
    hasher: RandomState,
}

/// The limit for one address, or for one network of IPv6 (`/64`, the usual network of one client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerAddress {
    /// For every address but this machine's own: all clients behind a local proxy have that one.
    Others(u32),
    /// For every address.
    Everybody(u32),
    /// No limit.
    Unlimited,
}

/// The reason why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All connections are in use.
    Full,
    /// The address has as many connections as it may have.
    Address,
    /// Memory is short.
    Memory,
}

impl Refusal {
    /// All reasons, each with its name for programs, in the order of their numbers.
    pub const ALL: [(Refusal, &str); 3] =
        [(Refusal::Full, "full"), (Refusal::Address, "address"), (Refusal::Memory, "memory")];
}

/// Permission for one more connection of an address. It counts until it is dropped.
#[derive(Debug)]
pub struct Ticket {
    admission: Arc<Admission>,
    network: Client,
    /// Whether the address's counter includes it.
    is_counted: bool,
}

/// A place for a connection. It counts until it is dropped.
#[derive(Debug)]
pub struct AdmittedConnection {
    link: Arc<Link>,
    ticket: Ticket,
    _place: connections::ConnectionPermit<Link>,
    is_finished: bool,
}

impl Admission {
    pub fn new(max: usize, per_address: PerAddress) -> Admission {
        Admission {
            connections: Arc::new(Connections::new(max)),
            per_address: Mutex::new(per_address),
            is_short_of_memory: AtomicBool::new(false),
            refused: Default::default(),
            cut: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::default(),
        }
    }

    /// Returns a place for a connection of `address`, if one is free.
    ///
    /// # Errors
    ///
    /// The limit that was reached; the refusal is counted.
    #[cfg(any(test, feature = "http3"))]
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<AdmittedConnection, Refusal> {
        self.enter(self.ticket(Some(network(address)))?).map_err(|_| self.refuse(Refusal::Full))
    }

    /// Returns permission for another connection of a client, even if there is no room.
    ///
    /// # Errors
    ///
    /// The limit that was reached; the refusal is counted.
    pub fn ticket(self: &Arc<Self>, network: Client) -> Result<Ticket, Refusal> {
        if self.is_short_of_memory.load(Ordering::Relaxed) {
            return Err(self.refuse(Refusal::Memory));
        }
        let (address, max) = match (network, *self.per_address.lock().unwrap_or_else(PoisonError::into_inner)) {
            (Some(address), PerAddress::Everybody(max)) => (address, max),
            (Some(address), PerAddress::Others(max)) if !address.is_loopback() => (address, max),
            _ => return Ok(Ticket { admission: self.clone(), network, is_counted: false }),
        };
        let mut shard = self.shard(address);
        let count = shard.entry(address).or_default();
        if *count >= max {
            return Err(self.refuse(Refusal::Address));
        }
        *count += 1;
        Ok(Ticket { admission: self.clone(), network, is_counted: true })
    }

    /// Returns a place for a connection.
    ///
    /// # Errors
    ///
    /// No place is free. The error returns the ticket.
    pub fn enter(&self, ticket: Ticket) -> Result<AdmittedConnection, Ticket> {
        let link = Arc::new(Link::new(ticket.network));
        match self.connections.enter(&link) {
            Some(place) => Ok(AdmittedConnection { link, ticket, _place: place, is_finished: false }),
            None => Err(ticket),
        }
    }

    /// Ends idle connections because no descriptors are left, and waits a moment for one to end.
    /// Cancel safe.
    pub async fn shed(&self) {
        self.connections.shed(Instant::now());
        pause(&self.connections).await;
    }

    /// Counts a refusal, and returns it.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Refusal {
        self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed);
        refusal
    }

    /// The connections that have a place, and may make room for others.
    pub(crate) fn connections(&self) -> &Connections<Link> {
        &self.connections
    }

    /// Sets the limit for each address, for new connections.
    pub(crate) fn set_per_address(&self, per_address: PerAddress) {
        *self.per_address.lock().unwrap_or_else(PoisonError::into_inner) = per_address;
    }

    /// Refuses all new connections while memory is short.
    pub fn set_short_of_memory(&self, is_short: bool) {
        self.is_short_of_memory.store(is_short, Ordering::Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.connections.open()
    }

    /// Returns the most open connections at a time since the last call.
    pub fn take_most(&self) -> usize {
        self.connections.take_most()
    }

    /// Sets the most connections allowed.
    pub(crate) fn set_max(&self, max: usize) {
        self.connections.set_max(max);
    }

    /// The most connections allowed at a time.
    pub fn max(&self) -> usize {
        self.connections.max()
    }

    /// The number of refusals for this reason.
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused[refusal as usize].load(Ordering::Relaxed)
    }

    /// The number of refusals for each reason, in the order of [`Refusal::ALL`].
    pub fn refused_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.into_iter().map(|(refusal, name)| (name, self.refused(refusal)))
    }

    /// The number of connections that ended only because the process did.
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    fn shard(&self, network: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        let index = self.hasher.hash_one(network) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AdmittedConnection {
    /// The phase of the connection, and its orders.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Notes that the connection ended by itself.
    pub fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        if !self.is_finished {
            self.ticket.admission.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(network) = self.network.filter(|_| self.is_counted)
            && let Entry::Occupied(mut count) = self.admission.shard(network).entry(network)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The network that counts as one client: an IPv4 address, also when mapped into IPv6, or a `/64`
/// of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        other => other,
    }
}

/// The client of an address, as a number.
pub fn client_key(address: IpAddr) -> u64 {
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

    use super::{Admission, AdmittedConnection, PerAddress, Refusal};

    fn admit(admission: &Arc<Admission>, address: &str) -> Result<AdmittedConnection, Refusal> {
        admission.admit(address.parse().unwrap())
    }

    #[test]
    fn one_address_gets_its_share_and_no_more() {
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
    fn this_machine_is_limited_only_on_request() {
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
    fn no_connection_is_admitted_while_memory_is_short() {
        let admission = Arc::new(Admission::new(1, PerAddress::Unlimited));
        admission.set_short_of_memory(true);
        assert_eq!(admit(&admission, "127.0.0.1").unwrap_err(), Refusal::Memory);
        admission.set_short_of_memory(false);
        admit(&admission, "127.0.0.1").unwrap().finish();
        let refused: Vec<_> = admission.refused_by_reason().collect();
        assert_eq!(refused, [("full", 0), ("address", 0), ("memory", 1)]);
    }

    #[test]
    fn a_place_dropped_unfinished_counts_as_cut() {
        let admission = Arc::new(Admission::new(2, PerAddress::Unlimited));
        drop(admit(&admission, "127.0.0.1").unwrap());
        admit(&admission, "127.0.0.1").unwrap().finish();
        assert_eq!((admission.open(), admission.cut()), (0, 1));
    }
}
