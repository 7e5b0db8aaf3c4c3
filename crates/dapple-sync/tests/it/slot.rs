//! Slots: drops, panics, invalid uses, and many users.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dapple_sched::{block_on, spawn, yield_now};
use dapple_sync::sync::Slot;

use crate::{run, thread};

fn poll_once(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_dropped_put_gives_its_value_up_and_its_turn_on() {
    let slot = Slot::new(Arc::new(1));
    let value = Arc::new(2);
    {
        let mut put = pin!(slot.put(value.clone()));
        assert!(!poll_once(put.as_mut()));
        assert_eq!(*slot.try_take().unwrap(), 1);
        // It is dropped while it has its turn.
    }
    assert_eq!(Arc::strong_count(&value), 1);
    assert!(slot.is_empty());
    assert_eq!(slot.try_put(Arc::new(3)), Ok(()));
}

#[test]
fn a_dropped_take_loses_nothing() {
    let slot = Slot::empty();
    {
        let (mut first, mut second) = (Box::pin(slot.take()), pin!(slot.take()));
        assert!(!poll_once(first.as_mut()) && !poll_once(second.as_mut()));
        slot.try_put(1).unwrap();
        assert_eq!(slot.try_take(), None, "the first in line has it");
        drop(first);
        assert_eq!(slot.try_take(), None, "the second in line has it");
    }
    assert_eq!(slot.try_take(), Some(1));
}

#[test]
fn a_dropped_vacancy_lets_the_next_in() {
    block_on(async {
        let slot = Slot::empty();
        let vacancy = slot.reserve().await;
        let mut put = pin!(slot.put(1));
        assert!(!poll_once(put.as_mut()));
        drop(vacancy);
        assert!(poll_once(put.as_mut()));
        assert_eq!(slot.take().await, 1);
    });
}

#[test]
fn a_clone_that_panics_leaves_the_value() {
    struct Touchy(u32);
    impl Clone for Touchy {
        fn clone(&self) -> Touchy {
            panic!("on purpose")
        }
    }
    let slot = Slot::new(Touchy(7));
    assert!(catch_unwind(AssertUnwindSafe(|| slot.read_blocking())).is_err());
    assert!(!slot.is_empty());
    assert_eq!(slot.take_blocking().0, 7);
}

#[test]
fn blocking_forms_refuse_to_stop_a_worker() {
    run(1, async {
        let slot = Slot::new(7);
        let forms: [fn(&Slot<u8>); 3] = [
            |slot| assert_eq!(slot.take_blocking(), 7),
            |slot| slot.put_blocking(8),
            |slot| assert_eq!(slot.read_blocking(), 7),
        ];
        for blocks in forms {
            assert!(catch_unwind(AssertUnwindSafe(|| blocks(&slot))).is_err());
        }
        assert_eq!(slot.take().await, 7);
    });
}

/// Takers, readers and putters of different colors and a thread at one slot. Some of them give up,
/// also when they have just got their turn. Every value that was put is taken exactly once.
#[test]
fn nothing_is_lost_or_doubled_in_a_crowd() {
    const EACH: usize = if cfg!(miri) { 20 } else { 2_000 };
    const END: usize = usize::MAX;
    run(2, async {
        let slot = Arc::new(Slot::empty());
        let takers = [0, 1, 2].map(|_| {
            let slot = slot.clone();
            spawn(async move {
                let mut taken = Vec::new();
                while taken.last() != Some(&END) {
                    let mut hasty = Box::pin(slot.take());
                    if let Poll::Ready(value) = hasty.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        taken.push(value);
                        continue;
                    }
                    let _seen = poll_once(pin!(slot.read()));
                    yield_now().await;
                    drop(hasty);
                    taken.push(slot.take().await);
                }
                taken
            })
        });
        let puts = |from: usize| from * EACH..(from + 1) * EACH;
        let putters = [0, 1, 2].map(|from| {
            let slot = slot.clone();
            spawn(async move {
                for n in puts(from) {
                    // Waits for a vacancy, or has one and gives it back.
                    let mut hasty = Box::pin(slot.reserve());
                    let _kept = poll_once(hasty.as_mut());
                    yield_now().await;
                    drop(hasty);
                    slot.put(n).await;
                }
            })
        });
        let theirs = slot.clone();
        thread(move || puts(3).for_each(|n| theirs.put_blocking(n))).await;
        for putter in putters {
            putter.await.unwrap();
        }
        for _ in &takers {
            slot.put(END).await;
        }
        let mut all = Vec::new();
        for taker in takers {
            all.extend(taker.await.unwrap());
        }
        all.retain(|n| *n != END);
        all.sort_unstable();
        assert_eq!(all, (0..4 * EACH).collect::<Vec<_>>());
    });
}
