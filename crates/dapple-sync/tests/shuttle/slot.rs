//! Slots: several threads put, take, read and give up at once.
//!
//! Caught: a `read` that gives its permit back before it clones; a `put` that gives it back before
//! the value is in place; a `take` that passes it on before the value is removed.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dapple_sync::sync::Slot;
use shuttle::future::block_on;
use shuttle::sync::Arc;
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

/// Starts a thread that uses the slot.
fn with<T: Send + 'static>(
    slot: &Arc<Slot<u32>>,
    work: impl FnOnce(&Slot<u32>) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let slot = slot.clone();
    thread::spawn(move || work(&slot))
}

#[test]
fn values_are_taken_once_and_in_order_while_others_read() {
    check(|| {
        let slot = Arc::new(Slot::empty());
        let puts = with(&slot, |slot| (1..=3).for_each(|n| block_on(slot.put(n))));
        let takes = with(&slot, |slot| [block_on(slot.take()), block_on(slot.take())]);
        let reads = with(&slot, |slot| [block_on(slot.read()), block_on(slot.read())]);
        let read = reads.join().unwrap();
        assert!(read[0] <= read[1] && read[1] <= 3);
        assert_eq!(takes.join().unwrap(), [1, 2]);
        puts.join().unwrap();
        assert_eq!(slot.try_take(), Some(3));
    });
}

#[test]
fn a_dropped_wait_takes_nothing() {
    check(|| {
        let slot = Arc::new(Slot::empty());
        let puts = with(&slot, |slot| (1..=2).for_each(|n| block_on(slot.put(n))));
        // Queued for one poll; a grant meanwhile goes to the next.
        let hasty = with(&slot, |slot| {
            let mut take = pin!(slot.take());
            match take.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(value) => Some(value),
                Poll::Pending => {
                    thread::yield_now();
                    None
                }
            }
        });
        let tries = with(&slot, |slot| (slot.try_take(), slot.try_put(9)));
        let mut all: Vec<u32> = hasty.join().unwrap().into_iter().collect();
        let (tried, put) = tries.join().unwrap();
        all.extend(tried);
        let expected = if put.is_ok() { vec![1, 2, 9] } else { vec![1, 2] };
        while all.len() < expected.len() {
            all.push(block_on(slot.take()));
        }
        puts.join().unwrap();
        all.sort_unstable();
        assert_eq!(all, expected);
        assert!(slot.is_empty());
    });
}
