//! Many futures in one, polled only when they were woken.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::foreign::{KeptWaker, contain};

use crate::switch::{Mutex, lock};

/// A set of futures in progress. Dropping it drops them.
pub struct Flights<F> {
    futures: BTreeMap<u64, (Pin<Box<F>>, Waker)>,
    next: u64,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken {
    state: Mutex<WokenState>,
}

#[derive(Default)]
struct WokenState {
    /// Keys in the order of their wakes; ended futures are skipped.
    keys: Vec<u64>,
    waker: Option<KeptWaker>,
}

struct FlightWaker {
    key: u64,
    woken: Arc<Woken>,
}

impl Wake for FlightWaker {
    fn wake(self: Arc<FlightWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<FlightWaker>) {
        let waker = {
            let mut state = lock(&self.woken.state);
            if !state.keys.contains(&self.key) {
                state.keys.push(self.key);
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<F: Future> Flights<F> {
    #[allow(clippy::new_without_default, reason = "hidden: only our own crates use it")]
    pub fn new() -> Flights<F> {
        Flights { futures: BTreeMap::new(), next: 0, woken: Arc::default() }
    }

    /// Adds a future and returns its key. Call [`poll_next`](Flights::poll_next) afterwards, which
    /// polls it.
    pub fn push(&mut self, future: F) -> u64 {
        let key = self.next;
        self.next += 1;
        let waker = Waker::from(Arc::new(FlightWaker { key, woken: self.woken.clone() }));
        self.futures.insert(key, (Box::pin(future), waker));
        lock(&self.woken.state).keys.push(key);
        key
    }

    /// Drops a future. Its drop may panic, which ends no other future.
    pub fn remove(&mut self, key: u64) {
        if let Some(flight) = self.futures.remove(&key) {
            contain(|| drop(flight));
        }
    }

    /// The next future to end, with its key; `None` if the set is empty. Cancel safe.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(u64, F::Output)>> {
        // Futures that wake themselves while polled must not do so for ever.
        let mut waker = Some(KeptWaker::from(cx.waker()));
        for _ in 0..ROUNDS {
            if self.futures.is_empty() {
                return Poll::Ready(None);
            }
            let keys = {
                let mut state = lock(&self.woken.state);
                if state.keys.is_empty() {
                    let old = std::mem::replace(&mut state.waker, waker.take());
                    drop(state);
                    drop(old);
                    return Poll::Pending;
                }
                std::mem::take(&mut state.keys)
            };
            for (at, key) in keys.iter().enumerate() {
                let Some((future, waker)) = self.futures.get_mut(key) else { continue };
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                    self.remove(*key);
                    lock(&self.woken.state).keys.extend(&keys[at + 1..]);
                    return Poll::Ready(Some((*key, output)));
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// How many rounds of polls before this yields.
const ROUNDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_wakes_itself_delays_no_other() {
        let mut flights = Flights::new();
        flights.push(std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let (tx, rx) = std::sync::mpsc::channel();
        struct Told(std::sync::mpsc::Sender<()>);
        impl Wake for Told {
            fn wake(self: Arc<Told>) {
                let _told = self.0.send(());
            }
        }
        let waker = Waker::from(Arc::new(Told(tx)));
        assert!(flights.poll_next(&mut Context::from_waker(&waker)).is_pending());
        assert!(rx.try_recv().is_ok(), "it is polled again");
    }
}
