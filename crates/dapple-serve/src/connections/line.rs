//! The line of newcomers that wait for a place. Several wait at once, so that a long wait does not
//! block the others.
//!
//! This is not a [`Limit`](dapple_sync::sync::limit::Limit), which is first come, first served.
//! Here a newcomer goes first if a connection was cut for it, or if it has fewer connections than
//! its share. The accept loop alone owns the line, with the sockets in it, and each newcomer waits
//! for a limited time. A permit for each newcomer would need a task for each.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use dapple_io::time::{Instant, timeout};

use super::shortage::Shortage;
use super::{Client, Connections, Holder};
use dapple_io::net::Peer;

/// A waiting line. A free slot goes to the first newcomer for which a connection was cut, then to
/// the first with a claim, then to the first.
#[derive(Debug)]
pub struct Line<S, H> {
    waiting: VecDeque<Newcomer<S>>,
    shortage: Shortage<H>,
}

/// A newcomer that waits for a place.
#[derive(Debug)]
pub(super) struct Newcomer<S> {
    stream: S,
    peer: Peer,
    pub(super) since: Instant,
    /// Whether a client with more connections must make room for it.
    pub(super) has_claim: bool,
    /// Whether a connection was cut for it.
    pub(super) has_cut: bool,
}

/// The outcome of a wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<S> {
    /// A place is free.
    Enters(S, Peer),
    /// No place became free in time.
    Leaves(S),
}

impl<S, H: Holder> Line<S, H> {
    /// Creates an empty line. In a `patient` line newcomers wait without limit; otherwise some
    /// leave after a moment.
    pub fn new(is_patient: bool) -> Line<S, H> {
        Line { waiting: VecDeque::new(), shortage: Shortage::new(is_patient) }
    }

    /// Whether the line is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of waiting newcomers.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a newcomer that just arrived.
    pub fn join(&mut self, stream: S, peer: Peer, now: Instant) {
        self.waiting.push_back(Newcomer { stream, peer, since: now, has_claim: false, has_cut: false });
    }

    /// Returns the next newcomer to enter or leave; call it until it returns `None`. Makes others
    /// give up their slots.
    pub fn turn(&mut self, connections: &Connections<H>, now: Instant) -> Option<Turn<S>> {
        if self.waiting.is_empty() {
            return None;
        }
        if connections.open() < connections.max() {
            let newcomer = self.waiting.remove(self.first()?)?;
            self.shortage.is_over(connections, newcomer.has_cut);
            return Some(Turn::Enters(newcomer.stream, newcomer.peer));
        }
        self.shortage.look(connections, &mut self.waiting, now);
        let at = self.waiting.iter().position(|newcomer| !self.shortage.may_wait(newcomer, now))?;
        self.shortage.tell(connections);
        self.waiting.remove(at).map(|newcomer| Turn::Leaves(newcomer.stream))
    }

    /// Removes the first newcomer, because the server ends.
    pub fn leave(&mut self) -> Option<(S, Peer)> {
        self.waiting.pop_front().map(|newcomer| (newcomer.stream, newcomer.peer))
    }

    /// The position of the newcomer that gets the next place.
    fn first(&self) -> Option<usize> {
        let all = self.waiting.iter().enumerate();
        all.max_by_key(|(at, newcomer)| (newcomer.has_cut, newcomer.has_claim, Reverse(*at))).map(|(at, _)| at)
    }
}

impl<S> Newcomer<S> {
    pub(super) fn client(&self) -> Client {
        self.peer.network()
    }
}

/// Waits until it is time to check again: a slot may be free, or a newcomer may have waited long
/// enough. Cancel safe.
pub async fn pause<H: Holder>(connections: &Connections<H>) {
    let _ = timeout(WAIT_STEP, connections.one_ended()).await;
}

/// The most newcomers that wait here at a time. Others wait in the kernel.
pub const LINE_MAX: usize = 8;

/// How often the server checks for a free slot while newcomers wait.
pub(super) const WAIT_STEP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use dapple_io::time::Instant;

    use super::{Line, Turn};
    use crate::connections::{Holder as _, Order};
    use crate::http::clock::now_ms;
    use crate::link::Link;
    type Connections = crate::connections::Connections<Link>;
    type ConnectionPermit = crate::connections::ConnectionPermit<Link>;
    use dapple_io::net::Peer;

    const MS: Duration = Duration::from_millis(1);

    fn peer(client: u8) -> Peer {
        Peer::Tcp(([192, 0, 2, client], 1).into())
    }

    /// Returns busy connections of these clients, which take all places.
    fn full(clients: &[u8]) -> (Arc<Connections>, Vec<(Arc<Link>, ConnectionPermit)>) {
        let connections = Arc::new(Connections::new(clients.len()));
        let held = clients.iter().map(|&client| {
            let link = Arc::new(Link::new(peer(client).network()));
            link.begin();
            let place = connections.enter(&link).unwrap();
            (link, place)
        });
        let held = held.collect();
        (connections, held)
    }

    fn ordered(held: &[(Arc<Link>, ConnectionPermit)], order: Order) -> usize {
        held.iter().filter(|(link, _)| link.orders().ordered() == order).count()
    }

    fn end(held: &mut Vec<(Arc<Link>, ConnectionPermit)>, order: Order) {
        held.retain(|(link, _)| link.orders().ordered() != order);
    }

    #[test]
    fn one_connection_is_asked_for_each_newcomer_and_one_is_cut_at_a_time() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 12]);
        let mut line = Line::new(false);
        for client in 2..=4 {
            line.join(client, peer(client), begin);
        }
        assert_eq!(line.turn(&connections, begin), None);
        assert_eq!(
            (ordered(&held, Order::Finish), ordered(&held, Order::Cut)),
            (3, 0),
            "connections that were asked have time for their replies"
        );
        for client in 2..=4 {
            assert_eq!(line.turn(&connections, begin + 200 * MS), None);
            assert_eq!(ordered(&held, Order::Cut), 1);
            end(&mut held, Order::Cut);
            assert_eq!(line.turn(&connections, begin + 200 * MS), Some(Turn::Enters(client, peer(client))));
            // The newcomer takes the place.
            let link = Arc::new(Link::new(peer(client).network()));
            link.begin();
            held.push((link.clone(), connections.enter(&link).unwrap()));
        }
        assert_eq!((line.len(), ordered(&held, Order::Finish)), (0, 0));
    }

    #[test]
    fn a_newcomer_with_a_claim_goes_first_and_others_do_not_wait_for_long() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 4]);
        let mut line = Line::new(false);
        line.join("none", peer(1), begin);
        line.join("claim", peer(2), begin + MS);
        assert_eq!(line.turn(&connections, begin + MS), None);
        assert_eq!(ordered(&held, Order::Finish), 1, "although the first newcomer has no claim");
        end(&mut held, Order::Finish);
        assert_eq!(line.turn(&connections, begin + 2 * MS), Some(Turn::Enters("claim", peer(2))));
        let link = Arc::new(Link::new(peer(2).network()));
        link.begin();
        held.push((link.clone(), connections.enter(&link).unwrap()));
        assert_eq!(line.turn(&connections, begin + 199 * MS), None);
        assert_eq!(line.turn(&connections, begin + 200 * MS), Some(Turn::Leaves("none")));
        assert_eq!(line.turn(&connections, begin + 200 * MS), None);
    }

    #[test]
    fn newcomers_wait_for_idle_connections_however_slowly_they_end() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 4]);
        held[2].0.rest(now_ms());
        let mut line = Line::new(false);
        line.join(1, peer(1), begin);
        assert_eq!(line.turn(&connections, begin), None);
        assert_eq!(ordered(&held, Order::EndIfResting), 1);
        assert_eq!(line.turn(&connections, begin + 5_000 * MS), None, "nothing ran meanwhile");
        end(&mut held, Order::EndIfResting);
        assert_eq!(line.turn(&connections, begin + 5_001 * MS), Some(Turn::Enters(1, peer(1))));
    }

    #[test]
    fn patient_newcomers_stay() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 2]);
        let mut line = Line::new(true);
        line.join(1, peer(1), begin);
        assert_eq!(line.turn(&connections, begin + 5_000 * MS), None);
        held.pop();
        assert_eq!(line.turn(&connections, begin + 5_001 * MS), Some(Turn::Enters(1, peer(1))));
    }

    #[test]
    fn a_cut_connection_that_does_not_end_is_replaced_by_another() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 6]);
        let mut line = Line::new(false);
        line.join(2, peer(2), begin);
        assert_eq!(line.turn(&connections, begin), None);
        assert_eq!(line.turn(&connections, begin + 200 * MS), None);
        assert_eq!(ordered(&held, Order::Cut), 1);
        line.join(3, peer(3), begin + 210 * MS);
        assert_eq!(line.turn(&connections, begin + 230 * MS), None);
        assert_eq!(ordered(&held, Order::Finish), 1, "another connection is asked");
        assert_eq!(line.turn(&connections, begin + 430 * MS), None);
        assert_eq!(ordered(&held, Order::Cut), 2);
        held.clear();
        assert!(line.turn(&connections, begin + 431 * MS).is_some());
        assert!(line.turn(&connections, begin + 431 * MS).is_some());
        assert_eq!(line.len(), 0);
    }
}
