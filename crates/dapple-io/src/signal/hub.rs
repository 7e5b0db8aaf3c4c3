//! The path from signal handlers, which are allowed to do very little, to wakers.
//!
//! A handler sets a flag and writes to an eventfd. The eventfd is a source of the driver like any
//! other; when it is readable, the pump raises a counter for each signal that came and wakes its
//! waiters.

// REAL: signals are the process's, and the map is never walked through.
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::foreign::KeptWaker;
use rustix::event::{EventfdFlags, eventfd};
use signal_hook_registry::SigId;

use crate::driver::{Direction, Source, Step, shut_down_error};
use crate::lock::Mutex;

/// The signals that one runtime watches.
#[derive(Default)]
pub(crate) struct Hub(Mutex<State>);

#[derive(Default)]
struct State {
    pump: Option<Arc<Pump>>,
    actions: Vec<SigId>,
    is_shut_down: bool,
}

/// The number of times that a signal arrived, and the waiters for the next.
pub(crate) struct Counter {
    count: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    list: Vec<(u64, KeptWaker)>,
    next_id: u64,
}

/// Woken by the driver when the eventfd is readable.
struct Pump {
    source: Source<OwnedFd>,
    raised: Arc<Raised>,
    counters: Mutex<HashMap<i32, Arc<Counter>>>,
}

/// Everything that a handler touches.
struct Raised {
    flags: [AtomicBool; SIGNALS],
    /// A duplicate, so that a late handler never writes to a descriptor number that was closed and
    /// reused.
    wake_up: OwnedFd,
}

impl Hub {
    /// The counter of a signal; from now on the signal is caught.
    pub(crate) fn counter(&self, number: i32) -> io::Result<Arc<Counter>> {
        let is_forbidden = signal_hook_registry::FORBIDDEN.contains(&number);
        if number <= 0 || number as usize >= SIGNALS || is_forbidden {
            let text = format!("{number} is not a signal that can be watched");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut state = self.0.lock();
        if state.is_shut_down {
            return Err(shut_down_error());
        }
        let pump = match &state.pump {
            Some(pump) => pump.clone(),
            None => {
                let pump = Arc::new(Pump::new()?);
                pump.run();
                state.pump = Some(pump.clone());
                pump
            }
        };
        let mut counters = pump.counters.lock();
        if let Some(counter) = counters.get(&number) {
            return Ok(counter.clone());
        }
        let action = catch(number, pump.raised.clone())?;
        state.actions.push(action);
        let counter = Arc::new(Counter { count: AtomicU64::new(0), waiters: Mutex::default() });
        counters.insert(number, counter.clone());
        Ok(counter)
    }

    /// Stops listening and drops the wakers.
    pub(crate) fn shut_down(&self) {
        let (pump, actions) = {
            let mut state = self.0.lock();
            state.is_shut_down = true;
            (state.pump.take(), std::mem::take(&mut state.actions))
        };
        for action in actions {
            signal_hook_registry::unregister(action);
        }
        let Some(pump) = pump else { return };
        let counters = std::mem::take(&mut *pump.counters.lock());
        for counter in counters.into_values() {
            let stale = std::mem::take(&mut counter.waiters.lock().list);
            drop(stale);
        }
    }
}

fn catch(number: i32, raised: Arc<Raised>) -> io::Result<SigId> {
    let action = move || {
        // Release pairs with the swap in the pump.
        raised.flags[number as usize].store(true, Ordering::Release);
        // A full counter is readable already.
        let _ = rustix::io::write(&raised.wake_up, &1u64.to_ne_bytes());
    };
    // SAFETY: the action is safe in a signal handler: it stores to an atomic and makes one `write`,
    // by a direct system call that leaves `errno` alone. It neither locks, allocates nor panics,
    // because the caller has checked the index.
    unsafe { signal_hook_registry::register(number, action) }
}

impl Pump {
    fn new() -> io::Result<Self> {
        let wake_up = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Pump {
            raised: Arc::new(Raised {
                flags: [const { AtomicBool::new(false) }; SIGNALS],
                wake_up: wake_up.try_clone()?,
            }),
            source: Source::new(wake_up)?,
            counters: Mutex::default(),
        })
    }

    /// Passes signals on, and stays registered for more.
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        let drain = |fd: &OwnedFd| Ok(Step::More(rustix::io::read(fd, &mut [0; 8])?));
        while let Poll::Ready(Ok(_)) = self.source.poll_io(&mut cx, Direction::Read, None, drain) {
            self.pass_on();
        }
    }

    fn pass_on(&self) {
        let came: Vec<Arc<Counter>> = {
            let counters = self.counters.lock();
            // Acquire pairs with the store in the action.
            let came = |number: i32| self.raised.flags[number as usize].swap(false, Ordering::AcqRel);
            let counters = counters.iter().filter(|&(&number, _)| came(number));
            counters.map(|(_, counter)| counter.clone()).collect()
        };
        for counter in came {
            let waiters = {
                let mut waiters = counter.waiters.lock();
                // Release pairs with `count`. Under the lock of the waiters, so that a waiter that
                // does not see it yet is woken.
                counter.count.fetch_add(1, Ordering::AcqRel);
                std::mem::take(&mut waiters.list)
            };
            waiters.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }
}

impl Wake for Pump {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

impl Counter {
    pub(crate) fn count(&self) -> u64 {
        // Acquire pairs with the addition in `pass_on`.
        self.count.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Resolves when the count differs from the one seen.
pub(crate) struct Received<'a> {
    counter: &'a Counter,
    seen: &'a mut u64,
    place: Option<u64>,
}

impl<'a> Received<'a> {
    pub(crate) fn new(counter: &'a Counter, seen: &'a mut u64) -> Self {
        Received { counter, seen, place: None }
    }
}

impl Future for Received<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waker = KeptWaker::from(cx.waker());
        let mut waiters = this.counter.waiters.lock();
        // Under the lock: the pump counts under it, too.
        let count = this.counter.count();
        if count != *this.seen {
            *this.seen = count;
            return Poll::Ready(());
        }
        let kept = waiters.list.iter_mut().find(|(id, _)| Some(*id) == this.place);
        let replaced = match kept {
            Some((_, kept)) => Some(std::mem::replace(kept, waker)),
            None => {
                waiters.next_id += 1;
                let id = waiters.next_id;
                this.place = Some(id);
                waiters.list.push((id, waker));
                None
            }
        };
        drop(waiters);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut waiters = self.counter.waiters.lock();
            let position = waiters.list.iter().position(|(id, _)| *id == place);
            let stale = position.map(|position| waiters.list.swap_remove(position));
            drop(waiters);
            drop(stale);
        }
    }
}

/// Signals of Linux are numbered from 1 to 64.
const SIGNALS: usize = 65;
