//! The queue compared with the simplest program that does the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Counts its wake-ups.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A handle asks for a place.
    Poll(usize),
    /// A handle pushes, with or without a place.
    Push {
        handle: usize,
        rank: u8,
        bytes: usize,
        deadline_ms: Option<u64>,
    },
    /// A handle is dropped and made again.
    Release(usize),
    Take(usize),
    /// This one of the pushed requests is canceled.
    Cancel(usize),
    Pass(u64),
    Shut(bool),
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    let deadline = prop::option::weighted(0.4, 0u64..40);
    prop_oneof![
        6 => (0..HANDLES).prop_map(Step::Poll),
        6 => (0..HANDLES, 0u8..3, 0usize..40, deadline).prop_map(|(handle, rank, bytes, deadline_ms)| Step::Push {
            handle, rank, bytes, deadline_ms,
        }),
        2 => (0..HANDLES).prop_map(Step::Release),
        4 => (1usize..4).prop_map(Step::Take),
        2 => (0usize..20).prop_map(Step::Cancel),
        2 => (0u64..20).prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Shut),
        1 => Just(Step::Open),
    ]
}

/// A request in the simple program.
#[derive(Clone, Debug, PartialEq)]
struct Waits {
    item: usize,
    rank: u8,
    bytes: usize,
    deadline: Option<Instant>,
}

/// The simple program: lists with linear search.
#[derive(Default)]
struct Simple {
    waiting: Vec<Waits>,
    line: Vec<usize>,
    promised: Vec<usize>,
    shut: bool,
}

impl Simple {
    fn has_room(&self) -> bool {
        self.waiting.len() + self.promised.len() < LEN_MAX && self.bytes() < BYTES_MAX
    }

    fn bytes(&self) -> usize {
        self.waiting.iter().map(|waits| waits.bytes).sum()
    }

    /// Gives free slots to the first waiters. Returns the admitted handles.
    fn settle(&mut self) -> Vec<usize> {
        let mut let_in = Vec::new();
        while self.has_room() && !self.line.is_empty() {
            let handle = self.line.remove(0);
            self.promised.push(handle);
            let_in.push(handle);
        }
        let_in
    }

    fn leave(&mut self, handle: usize) -> bool {
        self.line.retain(|other| *other != handle);
        let had = self.promised.contains(&handle);
        self.promised.retain(|other| *other != handle);
        had
    }

    /// The order in which requests are taken.
    fn in_order(&self) -> Vec<Waits> {
        let mut all = self.waiting.clone();
        all.sort_by_key(|waits| std::cmp::Reverse(waits.rank));
        all
    }
}

/// Both programs, and the tickets and places of the handles.
struct Both {
    queue: Queue<usize>,
    simple: Simple,
    tickets: Vec<Option<u64>>,
    calls: Vec<Arc<Calls>>,
    expected_calls: Vec<usize>,
    places: Vec<(usize, QueueRank)>,
    now: Instant,
    pushed: usize,
}

impl Both {
    fn new() -> Both {
        Both {
            queue: Queue::new(Limits { len_max: LEN_MAX, bytes_max: BYTES_MAX }),
            simple: Simple::default(),
            tickets: vec![None; HANDLES],
            calls: (0..HANDLES).map(|_| Arc::default()).collect(),
            expected_calls: vec![0; HANDLES],
            places: Vec::new(),
            now: Instant::now(),
            pushed: 0,
        }
    }

    fn settle(&mut self, wakes: Wakes) {
        wakes.call();
        for handle in self.simple.settle() {
            self.expected_calls[handle] += 1;
        }
    }

    fn poll(&mut self, handle: usize) {
        let waker = Waker::from(self.calls[handle].clone());
        let ready = self.queue.poll_place(&mut self.tickets[handle], waker.into()).0.is_ready();
        let simple = &mut self.simple;
        let expected = if simple.shut || simple.promised.contains(&handle) {
            true
        } else if simple.line.contains(&handle) {
            false
        } else if simple.has_room() && simple.line.is_empty() {
            simple.promised.push(handle);
            true
        } else {
            simple.line.push(handle);
            false
        };
        assert_eq!(ready, expected);
    }

    fn push(&mut self, handle: usize, rank: u8, bytes: usize, deadline_ms: Option<u64>) {
        self.pushed += 1;
        let item = self.pushed;
        let deadline = deadline_ms.map(|ms| self.now + Duration::from_millis(ms));
        let result = self.queue.push(&mut self.tickets[handle], Entry { item, bytes, rank, deadline });
        let simple = &mut self.simple;
        let had = simple.leave(handle);
        let crowded = simple.waiting.len() + simple.promised.len() >= LEN_MAX || !simple.line.is_empty();
        let expected = if simple.shut {
            Some(Reason::Stopping)
        } else if !had && crowded {
            Some(Reason::Full { len: simple.waiting.len() })
        } else {
            (simple.bytes() + bytes > BYTES_MAX).then_some(Reason::Memory)
        };
        match result {
            Ok((place, _)) => {
                assert_eq!(expected, None);
                simple.waiting.push(Waits { item, rank, bytes, deadline });
                self.places.push((item, place));
            }
            Err((reason, entry, wakes)) => {
                assert_eq!((Some(reason), item), (expected, entry.item));
                self.settle(wakes);
            }
        }
    }

    fn take(&mut self, max: usize) {
        let (taken, wakes) = self.queue.take(max, |_, _| true);
        let expected: Vec<usize> = self.simple.in_order().into_iter().take(max).map(|waits| waits.item).collect();
        let taken: Vec<usize> = taken.into_iter().map(|(_, entry)| entry.item).collect();
        assert_eq!(taken, expected);
        self.simple.waiting.retain(|waits| !taken.contains(&waits.item));
        self.settle(wakes);
    }

    fn cancel(&mut self, number: usize) {
        let Some((item, place)) = self.places.get(number).copied() else { return };
        let (entry, wakes) = self.queue.cancel(place);
        let waits = self.simple.waiting.iter().any(|waits| waits.item == item);
        assert_eq!(entry.map(|entry| entry.item), waits.then_some(item));
        self.simple.waiting.retain(|waits| waits.item != item);
        self.settle(wakes);
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let now = self.now;
        let (expired, wakes) = self.queue.expire(now);
        let mut expired: Vec<usize> = expired.into_iter().map(|entry| entry.item).collect();
        expired.sort_unstable();
        let late = |waits: &Waits| waits.deadline.is_some_and(|deadline| deadline <= now);
        let expected: Vec<usize> =
            self.simple.waiting.iter().filter(|waits| late(waits)).map(|waits| waits.item).collect();
        assert_eq!(expired, expected);
        self.simple.waiting.retain(|waits| !late(waits));
        self.settle(wakes);
    }

    fn shut(&mut self, clear: bool) {
        let wakes = self.queue.shut(Reason::Stopping);
        for handle in std::mem::take(&mut self.simple.line) {
            self.expected_calls[handle] += 1;
        }
        (self.simple.shut, self.simple.promised) = (true, Vec::new());
        wakes.call();
        if clear {
            let (entries, wakes) = self.queue.clear();
            let items: Vec<usize> = entries.into_iter().map(|entry| entry.item).collect();
            let expected: Vec<usize> = self.simple.in_order().into_iter().map(|waits| waits.item).collect();
            assert_eq!(items, expected);
            self.simple.waiting.clear();
            self.settle(wakes);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Poll(handle) => self.poll(handle),
            Step::Push { handle, rank, bytes, deadline_ms } => self.push(handle, rank, bytes, deadline_ms),
            Step::Release(handle) => {
                let wakes = self.queue.release(&mut self.tickets[handle]);
                self.simple.leave(handle);
                self.settle(wakes);
            }
            Step::Take(max) => self.take(max),
            Step::Cancel(number) => self.cancel(number),
            Step::Pass(ms) => self.pass(ms),
            Step::Shut(clear) => self.shut(clear),
            Step::Open => {
                self.queue.open();
                self.simple.shut = false;
            }
        }
    }

    fn compare(&self) {
        assert_eq!(self.queue.len(), self.simple.waiting.len());
        assert_eq!(self.queue.bytes(), self.simple.bytes());
        assert_eq!(self.queue.line_len(), self.simple.line.len());
        let deadline = self.simple.waiting.iter().filter_map(|waits| waits.deadline).min();
        assert_eq!(self.queue.deadline(), deadline);
        let calls: Vec<usize> = self.calls.iter().map(|calls| calls.0.load(SeqCst)).collect();
        assert_eq!(calls, self.expected_calls, "each ticket is woken exactly when it may go on");
        assert!(self.queue.len() + self.simple.promised.len() <= LEN_MAX);
        assert!(self.queue.bytes() <= BYTES_MAX);
        assert!(!self.simple.has_room() || self.simple.line.is_empty());
    }
}

proptest! {
    #[test]
    fn the_queue_does_what_the_simple_program_does(steps in prop::collection::vec(step(), 0..200)) {
        let mut both = Both::new();
        for step in steps {
            both.step(step);
            both.compare();
        }
    }
}

#[test]
fn a_cohort_is_of_those_that_fit_in_their_order() {
    let mut queue = Queue::new(Limits { len_max: 100, bytes_max: usize::MAX });
    for item in 0..20 {
        let entry = Entry { item, bytes: 1, rank: 0, deadline: None };
        assert!(queue.push(&mut None, entry).is_ok());
    }
    let (taken, _) = queue.take(3, |one, other| one % 3 == other % 3);
    assert_eq!(taken.iter().map(|(_, entry)| entry.item).collect::<Vec<_>>(), [0, 3, 6]);
    for (place, entry) in taken {
        assert!(queue.put_back(place, entry).is_ok());
    }
    let (taken, _) = queue.take(2, |_, _| true);
    assert_eq!(taken.iter().map(|(_, entry)| entry.item).collect::<Vec<_>>(), [0, 1]);
}

const HANDLES: usize = 5;
const LEN_MAX: usize = 3;
const BYTES_MAX: usize = 60;
