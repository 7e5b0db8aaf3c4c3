//! All connections of a server: counts them, gives them orders, and finds those that make room for
//! others.

mod farewell;
mod holder;
mod line;
mod room;
mod shortage;

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_io::time::Instant;
use dapple_sched::environment::HashMap;
use dapple_sync::sync::Notify;
use slab::Slab;

pub use self::farewell::farewell;
pub use self::holder::{Holder, Order, Orders};
pub use self::line::{LINE_MAX, Line, Turn, pause};
pub use self::room::Client;
use self::room::{GiveWay, Held, Standing, give_way, has_claim, richest};

/// The open connections, including upgraded ones.
#[derive(Debug)]
pub struct Connections<H> {
    max: AtomicUsize,
    open: Mutex<Open<H>>,
    /// Notified when a connection ends.
    ended: Notify,
}

#[derive(Debug)]
struct Open<H> {
    links: Slab<Arc<H>>,
    /// The number of connections of each client.
    counts: HashMap<Client, usize>,
    /// The most connections at a time since this was last taken.
    most: usize,
}

/// A connection's place, which counts until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit<H: Holder> {
    connections: Arc<Connections<H>>,
    key: usize,
}

impl<H: Holder> Connections<H> {
    /// Creates an empty set with room for `max` connections.
    pub fn new(max: usize) -> Connections<H> {
        let open = Open { links: Slab::new(), counts: HashMap::default(), most: 0 };
        Connections { max: AtomicUsize::new(max), open: Mutex::new(open), ended: Notify::new() }
    }

    /// The most connections allowed.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.lock().links.len()
    }

    /// Returns the most connections at a time since the last call.
    pub fn take_most(&self) -> usize {
        let mut open = self.lock();
        let now = open.links.len();
        std::mem::replace(&mut open.most, now)
    }

    /// Adds a connection; `None` when all places are taken.
    pub fn enter(self: &Arc<Self>, link: &Arc<H>) -> Option<ConnectionPermit<H>> {
        let mut open = self.lock();
        if open.links.len() >= self.max() {
            return None;
        }
        let key = open.links.insert(link.clone());
        open.most = open.most.max(open.links.len());
        *open.counts.entry(link.client()).or_default() += 1;
        Some(ConnectionPermit { connections: self.clone(), key })
    }

    /// Makes room for `count` newcomers like this one: ends idle connections, or asks some of the
    /// client with the most connections to end. Returns whether some are idle, and the connections
    /// that got the order.
    fn make_room(&self, newcomer: Client, count: usize, now: Instant) -> (bool, impl Iterator<Item = Arc<H>>) {
        let (at_once, soon) = self.connections_to_end(newcomer, count, now);
        for link in &at_once {
            link.order(Order::EndIfResting);
        }
        let asked = soon.into_iter().inspect(|link| {
            link.orders().set_asked();
            link.order(Order::Finish);
        });
        (!at_once.is_empty(), asked)
    }

    /// Ends some idle connections, if there are any, because no descriptors are left.
    pub fn shed(&self, now: Instant) {
        for link in self.connections_to_end(None, 1, now).0 {
            link.order(Order::EndIfResting);
        }
    }

    /// The connections to end at once, and those to end when their open requests are done.
    fn connections_to_end(&self, newcomer: Client, count: usize, now: Instant) -> (Vec<Arc<H>>, Vec<Arc<H>>) {
        let some = (self.max() / SOME_PART).min(SOME_MAX).max(count);
        let open = self.lock();
        let held: Vec<Held> = open.links.iter().map(|(key, link)| held(key, &**link, now)).collect();
        let GiveWay { at_once, soon } = give_way(&held, &open.counts, newcomer, some, now);
        let links = |keys: Vec<usize>| -> Vec<_> { keys.into_iter().map(|key| open.links[key].clone()).collect() };
        (links(at_once), links(soon))
    }

    /// The client with the most connections. Looks at all clients.
    fn richest(&self) -> Client {
        richest(&self.lock().counts).and_then(|(client, _)| client)
    }

    /// Whether a newcomer has a claim to a place of another client.
    fn has_claim(&self, newcomer: Client, other: Client) -> bool {
        let open = self.lock();
        let count = |client| open.counts.get(&client).copied().unwrap_or(0);
        has_claim(count(newcomer), count(other))
    }

    /// Gives an order to all connections.
    pub(crate) fn order(&self, order: Order) {
        let all: Vec<Arc<H>> = self.lock().links.iter().map(|(_, link)| link.clone()).collect();
        for link in all {
            link.order(order);
        }
    }

    /// Waits until a connection ends after this was first polled. Cancel safe.
    async fn one_ended(&self) {
        self.ended.notified().await;
    }

    /// Waits until no connection is left. Cancel safe.
    pub(crate) async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open() == 0 {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open<H>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Holder> Drop for ConnectionPermit<H> {
    fn drop(&mut self) {
        let link = {
            let mut open = self.connections.lock();
            let link = open.links.remove(self.key);
            if let Entry::Occupied(mut count) = open.counts.entry(link.client()) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
            link
        };
        link.orders().set_over();
        self.connections.ended.notify_one();
    }
}

fn held(key: usize, link: &impl Holder, now: Instant) -> Held {
    let (rests_since, orders) = (link.rests_since(now), link.orders());
    let order = orders.ordered();
    let standing = if orders.is_closing() || order == Order::Cut {
        Standing::Ending
    } else if orders.is_asked() {
        Standing::Asked
    } else if rests_since.is_ok() && order <= Order::EndIfResting {
        Standing::Resting
    } else {
        // Includes an idle connection that was already told to finish: that order does not end it
        // if the peer does not agree, and a weaker order changes nothing.
        Standing::Busy
    };
    let (Ok(since) | Err(since)) = rests_since;
    Held { key, client: link.client(), standing, since }
}

/// When there is no room: the part of all connections that is ended at once, even if fewer
/// newcomers wait, and the most connections that are ended at once.
const SOME_PART: usize = 100;
const SOME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use dapple_io::time::Instant;

    use super::{Holder as _, Order, Standing, held};
    use crate::http::clock::now_ms;
    use crate::link::Link;

    fn standing(change: impl FnOnce(&Link)) -> Standing {
        let now = Instant::now();
        let link = Link::new(None);
        link.begin();
        change(&link);
        held(0, &link, now).standing
    }

    /// Marks the connection as idle.
    fn rest(link: &Link) {
        link.rest(now_ms());
    }

    #[test]
    fn a_connection_that_ignores_an_order_is_not_idle() {
        assert_eq!(standing(|_| {}), Standing::Busy);
        assert_eq!(standing(rest), Standing::Resting);
        let told = |order| {
            standing(|link| {
                rest(link);
                link.order(order);
            })
        };
        assert_eq!(told(Order::EndIfResting), Standing::Resting, "its task is about to look");
        assert_eq!(told(Order::Finish), Standing::Busy, "its peer does not agree to the end of HTTP/2");
        assert_eq!(told(Order::Cut), Standing::Ending);
        let closing = standing(|link| {
            rest(link);
            link.set_closing();
        });
        assert_eq!(closing, Standing::Ending, "sending the last reply may take a while");
        let asked = standing(|link| {
            link.orders().set_asked();
            link.order(Order::Finish);
            rest(link);
        });
        assert_eq!(asked, Standing::Asked);
    }
}
