//! The queue of a stage: several threads promise, use, give up and free slots at once. A lost
//! wake-up is a deadlock here.

use std::future::poll_fn;
use std::task::{Context, Waker};

use dapple_stage::queue_model::{Item, Queue, Ticket};
use shuttle::future::block_on;
use shuttle::sync::{Arc, Mutex, mpsc};
use shuttle::thread;

use super::check;

const SCHEDULES: usize = 8_000;

/// Waits for a place and uses it; `None` when the queue was shut.
fn send(queue: &Queue, item: u32) -> Option<Item> {
    let mut ticket = Ticket::default();
    block_on(poll_fn(|cx| queue.poll_place(&mut ticket, cx)));
    queue.push(&mut ticket, item)
}

/// Tries to get a slot once, and gives up a slot that it got.
fn be_hasty(queue: &Queue) {
    let mut ticket = Ticket::default();
    let _ = queue.poll_place(&mut ticket, &mut Context::from_waker(Waker::noop()));
    thread::yield_now();
    queue.release(ticket);
}

// Two threads send into a queue of one place, a third one takes.
//
// Caught: `take` that does not settle (deadlock), `settle` that promises the place without invoking
// the waker (deadlock), and `poll_place` that lets in a ticket that is not first in line (more than
// one waits).
#[test]
fn all_items_pass_and_never_more_than_the_limit() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(1));
        let (tx, rx) = mpsc::channel();
        let senders = [0, 10].map(|first| {
            let (queue, tx) = (queue.clone(), tx.clone());
            thread::spawn(move || {
                for item in first..first + 2 {
                    assert!(send(&queue, item).is_some(), "a promised place is not there");
                    tx.send(()).unwrap();
                }
            })
        });
        drop(tx);
        let mut taken = Vec::new();
        while rx.recv().is_ok() {
            assert!(queue.lengths().0 <= 1);
            taken.push(queue.take().expect("the sent item is there"));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        for first in [0, 10] {
            let of_one: Vec<u32> = taken.iter().copied().filter(|item| (first..first + 2).contains(item)).collect();
            assert_eq!(of_one, [first, first + 1]);
        }
        assert_eq!(queue.lengths(), (0, 0));
    });
}

// Two threads want the only slot, which is in use; a third one is queued, and gives up its position
// or slot.
//
// Caught: `release` that does not settle, and one that forgets a promise (deadlock).
#[test]
fn a_waiter_that_gives_up_lets_the_next_one_in() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(1));
        assert!(send(&queue, 0).is_some());
        let hasty = thread::spawn({
            let queue = queue.clone();
            move || be_hasty(&queue)
        });
        let (tx, rx) = mpsc::channel();
        let senders = [1, 2].map(|item| {
            let (queue, tx) = (queue.clone(), tx.clone());
            thread::spawn(move || {
                assert!(send(&queue, item).is_some());
                tx.send(()).unwrap();
            })
        });
        let mut taken = vec![queue.take().unwrap()];
        for _ in 0..2 {
            rx.recv().unwrap();
            taken.push(queue.take().unwrap());
        }
        hasty.join().unwrap();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
        assert_eq!(queue.lengths(), (0, 0));
        assert!(queue.push(&mut Ticket::default(), 9).is_some(), "the place is free");
    });
}

// One thread cancels what another one takes, while a third one waits for the place.
//
// Caught: `cancel` that does not settle (deadlock).
#[test]
fn each_item_is_taken_or_canceled_once() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(1));
        let item = send(&queue, 1).unwrap();
        let cancels = thread::spawn({
            let queue = queue.clone();
            move || queue.cancel(item)
        });
        let sends = thread::spawn({
            let queue = queue.clone();
            move || send(&queue, 2).is_some()
        });
        let first = queue.take();
        let canceled = cancels.join().unwrap();
        assert!(sends.join().unwrap());
        let rest = queue.take();
        let taken: Vec<u32> = first.into_iter().chain(rest).collect();
        assert_eq!(taken, if canceled { vec![2] } else { vec![1, 2] });
        assert_eq!(queue.take(), None);
    });
}

// A queue is shut while one waits, one sends and one takes.
//
// Caught: `shut` that does not wake the line (deadlock), and `push` that does not check whether the
// queue was shut (an item is left).
#[test]
fn a_shut_queue_keeps_no_waiter_and_no_item() {
    check(SCHEDULES, || {
        let queue = Arc::new(Queue::new(1));
        let sent = Arc::new(Mutex::new(0));
        let senders = [1, 2].map(|item| {
            let (queue, sent) = (queue.clone(), sent.clone());
            thread::spawn(move || {
                if send(&queue, item).is_some() {
                    *sent.lock().unwrap() += 1;
                }
            })
        });
        let takes = thread::spawn({
            let queue = queue.clone();
            move || usize::from(queue.take().is_some())
        });
        let dropped = queue.shut().len();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let taken = takes.join().unwrap();
        assert_eq!(*sent.lock().unwrap(), taken + dropped);
        assert_eq!(queue.lengths(), (0, 0));
    });
}
