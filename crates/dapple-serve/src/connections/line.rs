//! Newcomers who wait for a place, a few side by side: one who has to wait for long does not keep those behind it from being let in.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

use dapple_io::time::{Instant, timeout};

use super::shortage::Shortage;
use super::{Client, Connections, Holder};
use dapple_io::net::Peer;

/// See the module. A place that becomes free is the first's for whom somebody was cut, then the first's who has a claim.
#[derive(Debug)]
pub struct Line<S, H> {
    waiting: VecDeque<Newcomer<S>>,
    shortage: Shortage<H>,
}

/// One who waits for a place.
#[derive(Debug)]
pub(super) struct Newcomer<S> {
    stream: S,
    peer: Peer,
    pub(super) since: Instant,
    /// Whether somebody who has more is to make room for it.
    pub(super) has_claim: bool,
    /// Whether somebody was cut for it.
    pub(super) has_cut: bool,
}

/// What becomes of a newcomer.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<S> {
    /// There is a place.
    Enters(S, Peer),
    /// There was none for long enough.
    Leaves(S),
}

impl<S, H: Holder> Line<S, H> {
    /// An empty line. Those that will wait are `patient` if they wait for as long as it takes; else some leave after a moment.
    pub fn new(is_patient: bool) -> Line<S, H> {
        Line { waiting: VecDeque::new(), shortage: Shortage::new(is_patient) }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// One more, who came just now.
    pub fn join(&mut self, stream: S, peer: Peer, now: Instant) {
        self.waiting.push_back(Newcomer { stream, peer, since: now, has_claim: false, has_cut: false });
    }

    /// Whose turn it is to enter or to leave; to be called until it is nobody's. Sees to it that others make room.
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

    /// The end has come: the first of those who wait.
    pub fn leave(&mut self) -> Option<(S, Peer)> {
        self.waiting.pop_front().map(|newcomer| (newcomer.stream, newcomer.peer))
    }

    /// Whose place the next one is.
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

/// Ready when it is time to look again: a place may be free, or somebody may have waited for long enough. Cancel safe.
pub async fn pause<H: Holder>(connections: &Connections<H>) {
    let _ = timeout(WAIT_STEP, connections.one_ended()).await;
}

/// How many wait at a time. Others wait in the kernel.
pub const LINE_MAX: usize = 8;

/// How often it is looked while somebody waits.
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
    type Place = crate::connections::Place<Link>;
    use dapple_io::net::Peer;

    const MS: Duration = Duration::from_millis(1);

    fn peer(client: u8) -> Peer {
        Peer::Tcp(([192, 0, 2, client], 1).into())
    }

    /// Busy connections of these clients, and no more places.
    fn full(clients: &[u8]) -> (Arc<Connections>, Vec<(Arc<Link>, Place)>) {
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

    fn ordered(held: &[(Arc<Link>, Place)], order: Order) -> usize {
        held.iter().filter(|(link, _)| link.orders().ordered() == order).count()
    }

    fn end(held: &mut Vec<(Arc<Link>, Place)>, order: Order) {
        held.retain(|(link, _)| link.orders().ordered() != order);
    }

    #[test]
    fn as_many_are_asked_as_wait_and_one_is_cut_at_a_time() {
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
            "they have time for their replies"
        );
        for client in 2..=4 {
            assert_eq!(line.turn(&connections, begin + 200 * MS), None);
            assert_eq!(ordered(&held, Order::Cut), 1);
            end(&mut held, Order::Cut);
            assert_eq!(line.turn(&connections, begin + 200 * MS), Some(Turn::Enters(client, peer(client))));
            // It takes the place.
            let link = Arc::new(Link::new(peer(client).network()));
            link.begin();
            held.push((link.clone(), connections.enter(&link).unwrap()));
        }
        assert_eq!((line.len(), ordered(&held, Order::Finish)), (0, 0));
    }

    #[test]
    fn who_has_a_claim_goes_first_and_who_has_none_does_not_wait_for_long() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 4]);
        let mut line = Line::new(false);
        line.join("none", peer(1), begin);
        line.join("claim", peer(2), begin + MS);
        assert_eq!(line.turn(&connections, begin + MS), None);
        assert_eq!(ordered(&held, Order::Finish), 1, "although the first has no claim");
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
    fn those_that_rest_are_waited_for_however_slowly_they_end() {
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
    fn who_is_patient_stays() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 2]);
        let mut line = Line::new(true);
        line.join(1, peer(1), begin);
        assert_eq!(line.turn(&connections, begin + 5_000 * MS), None);
        held.pop();
        assert_eq!(line.turn(&connections, begin + 5_001 * MS), Some(Turn::Enters(1, peer(1))));
    }

    #[test]
    fn who_does_not_end_although_it_was_cut_is_waited_for_no_longer() {
        let begin = Instant::now();
        let (connections, mut held) = full(&[1; 6]);
        let mut line = Line::new(false);
        line.join(2, peer(2), begin);
        assert_eq!(line.turn(&connections, begin), None);
        assert_eq!(line.turn(&connections, begin + 200 * MS), None);
        assert_eq!(ordered(&held, Order::Cut), 1);
        line.join(3, peer(3), begin + 210 * MS);
        assert_eq!(line.turn(&connections, begin + 230 * MS), None);
        assert_eq!(ordered(&held, Order::Finish), 1, "somebody else is asked");
        assert_eq!(line.turn(&connections, begin + 430 * MS), None);
        assert_eq!(ordered(&held, Order::Cut), 2);
        held.clear();
        assert!(line.turn(&connections, begin + 431 * MS).is_some());
        assert!(line.turn(&connections, begin + 431 * MS).is_some());
        assert_eq!(line.len(), 0);
    }
}
