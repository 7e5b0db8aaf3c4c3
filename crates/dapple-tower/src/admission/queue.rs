//! The queue of admission, by class and by client.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use dapple_sched::environment::HashMap;

use super::Class;

/// Requests that wait to begin: the highest class first; within a class the clients take turns;
/// each client's requests in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lanes: [Lane; Class::COUNT],
    len: usize,
}

/// The requests of one class.
#[derive(Debug, Default)]
struct Lane {
    clients: HashMap<u64, VecDeque<Waiting>>,
    /// Clients with a request in this lane, the next first.
    turns: VecDeque<u64>,
    work_ns: u64,
}

/// A waiting request: its key and its expected work.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: usize,
    work_ns: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The work that would run before a newcomer of this class.
    pub(super) fn work_ahead_ns(&self, class: Class) -> u64 {
        self.lanes[class.index()..].iter().map(|lane| lane.work_ns).sum()
    }

    pub(super) fn push(&mut self, class: Class, client: u64, key: usize, work_ns: u64) {
        let lane = &mut self.lanes[class.index()];
        let own = lane.clients.entry(client).or_default();
        if own.is_empty() {
            lane.turns.push_back(client);
        }
        own.push_back(Waiting { key, work_ns });
        lane.work_ns += work_ns;
        self.len += 1;
    }

    /// Takes the next request.
    pub(super) fn pop(&mut self) -> Option<usize> {
        let lane = self.lanes.iter_mut().rev().find(|lane| !lane.turns.is_empty())?;
        let client = lane.turns.pop_front()?;
        let Entry::Occupied(mut own) = lane.clients.entry(client) else {
            unreachable!("a client with a turn has a request")
        };
        let first = own.get_mut().pop_front()?;
        if own.get().is_empty() {
            own.remove();
        } else {
            lane.turns.push_back(client);
        }
        lane.work_ns -= first.work_ns;
        self.len -= 1;
        Some(first.key)
    }

    /// Removes a request that its caller gave up; false if it does not wait. Linear in the number
    /// of its client's requests.
    pub(super) fn remove(&mut self, class: Class, client: u64, key: usize) -> bool {
        let Some(own) = self.lanes[class.index()].clients.get(&client) else { return false };
        let Some(place) = own.iter().position(|waiting| waiting.key == key) else { return false };
        self.take(class, client, place);
        true
    }

    /// The number of a client's requests in a class.
    pub(super) fn len_of(&self, class: Class, client: u64) -> usize {
        self.lanes[class.index()].clients.get(&client).map_or(0, VecDeque::len)
    }

    /// The number of requests in a class. Linear in the number of waiting clients.
    pub(super) fn len_in(&self, class: Class) -> usize {
        self.lanes[class.index()].clients.values().map(VecDeque::len).sum()
    }

    /// The client with the most requests in a class, and their number. Linear in the number of
    /// waiting clients.
    pub(super) fn largest(&self, class: Class) -> Option<(u64, usize)> {
        let clients = self.lanes[class.index()].clients.iter();
        clients.map(|(&client, own)| (client, own.len())).max_by_key(|&(client, len)| (len, client))
    }

    /// Removes a request from the lowest non-empty class below `class`: the newest one of the
    /// client with the most.
    pub(super) fn evict_below(&mut self, class: Class) -> Option<usize> {
        let lowest = Class::all().take_while(|&lower| lower < class).find(|&lower| self.largest(lower).is_some())?;
        let (client, _) = self.largest(lowest)?;
        self.evict_newest(lowest, client)
    }

    /// Removes the newest request of a client in a class.
    pub(super) fn evict_newest(&mut self, class: Class, client: u64) -> Option<usize> {
        let place = self.len_of(class, client).checked_sub(1)?;
        Some(self.take(class, client, place))
    }

    fn take(&mut self, class: Class, client: u64, place: usize) -> usize {
        let lane = &mut self.lanes[class.index()];
        let Entry::Occupied(mut own) = lane.clients.entry(client) else {
            unreachable!("the caller has checked the client")
        };
        let Some(taken) = own.get_mut().remove(place) else { unreachable!("the caller has checked the number") };
        if own.get().is_empty() {
            own.remove();
            lane.turns.retain(|&other| other != client);
        }
        lane.work_ns -= taken.work_ns;
        self.len -= 1;
        taken.key
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use crate::admission::Class;

    #[test]
    fn a_higher_class_goes_first_and_clients_take_turns() {
        let mut queue = Queue::default();
        for (key, class, client) in [
            (0, Class::NORMAL, 7),
            (1, Class::NORMAL, 7),
            (2, Class::NORMAL, 7),
            (3, Class::NORMAL, 8),
            (4, Class::HIGH, 9),
        ] {
            queue.push(class, client, key, 10);
        }
        assert_eq!(queue.work_ahead_ns(Class::HIGH), 10);
        assert_eq!(queue.work_ahead_ns(Class::LOW), 50);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [4, 0, 3, 1, 2]);
        assert_eq!((queue.len(), queue.work_ahead_ns(Class::LOW)), (0, 0));
    }

    #[test]
    fn the_newest_of_the_largest_client_of_the_lowest_class_is_evicted() {
        let mut queue = Queue::default();
        queue.push(Class::LOW, 1, 10, 5);
        queue.push(Class::NORMAL, 2, 20, 5);
        queue.push(Class::NORMAL, 2, 21, 5);
        queue.push(Class::NORMAL, 3, 30, 5);
        assert_eq!(queue.evict_below(Class::LOW), None);
        assert_eq!(queue.evict_below(Class::HIGH), Some(10));
        assert_eq!(queue.evict_below(Class::HIGH), Some(21));
        assert_eq!(queue.len_of(Class::NORMAL, 2), 1);
    }

    #[test]
    fn a_client_that_leaves_has_no_turn_any_more() {
        let mut queue = Queue::default();
        queue.push(Class::NORMAL, 1, 10, 5);
        queue.push(Class::NORMAL, 2, 20, 5);
        assert!(queue.remove(Class::NORMAL, 1, 10));
        assert!(!queue.remove(Class::NORMAL, 1, 10));
        assert_eq!(queue.pop(), Some(20));
        assert_eq!(queue.pop(), None);
    }
}
