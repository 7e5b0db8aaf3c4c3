//! The shared handle: a discipline in a lock, the waiting tickets, and the alarm that releases
//! them.
//!
//! This is not a [`Limit`](dapple_sync::sync::limit::Limit), which counts permits that come back,
//! in one line. A throttle has a line for each key and a cost for each waiter; the clock decides;
//! and if the line is full, the last waiter of the longest key is refused.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use dapple_sched::environment::HashMap;
use dapple_sched::foreign::KeptWaker;

use super::classes::{Class, Classes};
use super::discipline::{Charge, Discipline, Next, Ticket, UnknownKey};
use super::fair::Fair;
use super::key::Key;
use super::plain::Plain;
use super::rate::Rate;
use super::until::UntilReady;
use crate::switch::{Mutex, MutexGuard, lock};
use crate::time::{Alarm, Ring, now};
use crate::{Reason, Refused};

/// Lets an amount per period pass, for all holders of a clone. For any code that can say how much
/// it is about to do: a sink, a service (with [`ThrottleLayer`](super::ThrottleLayer)), a loop.
///
/// | constructor | order |
/// |---|---|
/// | [`Throttle::bucket`] | first come, first served |
/// | [`Throttle::fair`] | equal shares of the rate for the waiting keys, by the cost of their items |
/// | [`Throttle::classes`] | guaranteed shares; others borrow the unused part |
///
/// The unused part is kept for later, up to a burst. The default limit of waiting tickets is
/// [`WAITING_MAX`](Throttle::WAITING_MAX). Beyond it, the last ticket of the key with the longest
/// line makes room for one of a key with a shorter line; otherwise the newcomer is refused.
///
/// It works on any executor: a timer wakes each waiting task, whether others are polled or not.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::throttle::{Rate, Throttle};
///
/// // 1,000 bytes a millisecond, for all writers together.
/// let throttle = Throttle::bucket(Rate::new(1_000, Duration::from_millis(1))).burst(4_000);
/// dapple_sched::block_on(async {
///     for chunk in [4_000, 1_000, 2_500] {
///         throttle.until_ready(&(), chunk).await?;
///         // … write so many bytes
///     }
///     Ok::<(), dapple_tower::Refused>(())
/// })?;
/// assert!(throttle.try_take(&(), 4_000).is_err());
/// # Ok::<(), dapple_tower::Refused>(())
/// ```
pub struct Throttle<K = ()> {
    shared: Arc<Shared<K>>,
}

pub(super) struct Shared<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    discipline: Box<dyn Discipline<K>>,
    /// Its construction, to repeat it with another burst.
    make: Make<K>,
    waiting: HashMap<Ticket, Waiting>,
    /// The number of queued tickets without a result.
    in_line: usize,
    waiting_max: usize,
    next_ticket: Ticket,
    alarm: Alarm,
    /// Wakers to invoke when the lock is released.
    woken: Vec<KeptWaker>,
}

type Make<K> = Arc<dyn Fn(u64, Instant) -> Box<dyn Discipline<K>> + Send + Sync>;

#[derive(Default)]
struct Waiting {
    waker: Option<KeptWaker>,
    told: Option<Result<Charge, Refused>>,
}

impl Throttle {
    /// The default of [`Throttle::waiting_max`].
    pub const WAITING_MAX: usize = 10_000;

    /// A token bucket with `rate` and one line. The burst is the amount of one period.
    pub fn bucket(rate: Rate) -> Throttle {
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Plain::new(rate, burst, now))))
    }
}

impl<K: Key> Throttle<K> {
    /// Equal shares of `rate` for all waiting keys: clients, connections, tenants. A key that does
    /// not wait costs nothing and takes nothing. The burst is the amount of one period.
    pub fn fair(rate: Rate) -> Throttle<K> {
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Fair::new(rate, burst, now))))
    }

    /// Guaranteed shares of `rate` for these classes. A key without a class has no rate, and is
    /// refused. The burst is the amount of one period, shared as the rate is.
    pub fn classes(rate: Rate, classes: impl IntoIterator<Item = Class<K>>) -> Throttle<K> {
        let classes: Vec<Class<K>> = classes.into_iter().collect();
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Classes::new(rate, burst, classes.clone(), now))))
    }

    fn new(rate: Rate, make: Make<K>) -> Throttle<K> {
        let state = State {
            discipline: make(rate.num(), now()),
            make,
            waiting: HashMap::default(),
            in_line: 0,
            waiting_max: Throttle::<()>::WAITING_MAX,
            next_ticket: 0,
            alarm: Alarm::new(),
            woken: Vec::new(),
        };
        Throttle { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// Sets the burst, at least 1: the amount that may pass at once after a rest. Call it before
    /// the throttle is used.
    pub fn burst(self, burst: u64) -> Throttle<K> {
        let mut state = self.shared.lock();
        if state.waiting.is_empty() {
            state.discipline = (state.make)(burst.max(1), now());
        }
        drop(state);
        self
    }

    /// Sets the limit of waiting tickets.
    pub fn waiting_max(self, waiting_max: usize) -> Throttle<K> {
        self.shared.lock().waiting_max = waiting_max;
        self
    }

    /// Takes `cost` at once, if no earlier ticket would have to wait for it. A cost of 0 is always
    /// available.
    ///
    /// # Errors
    ///
    /// [`Reason::Rate`]: not now; `retry_after` says when, if no other caller takes it.
    ///
    /// ```
    /// use dapple_tower::throttle::{Rate, Throttle};
    ///
    /// let throttle = Throttle::bucket(Rate::per_second(1));
    /// assert!(throttle.try_take(&(), 1).is_ok());
    /// let refused = throttle.try_take(&(), 1).unwrap_err();
    /// assert!(refused.retry_after.as_millis() > 900);
    /// ```
    pub fn try_take(&self, key: &K, cost: u64) -> Result<(), Refused> {
        self.try_take_charged(key, cost).map(|_| ())
    }

    pub(super) fn try_take_charged(&self, key: &K, cost: u64) -> Result<Charge, Refused> {
        if cost == 0 {
            return Ok(Charge::Borrowed);
        }
        self.shared.change(|state, now| {
            let ticket = state.enter(key, cost, now)?;
            state.run(now);
            match state.waiting.remove(&ticket).and_then(|waiting| waiting.told) {
                Some(told) => told,
                None => {
                    let at = state.next_at(now);
                    state.leave(ticket, key);
                    Err(Refused::new(Reason::Rate, at.saturating_duration_since(now)))
                }
            }
        })
    }

    /// Waits until `cost` may pass.
    ///
    /// # Errors
    ///
    /// [`Reason::Full`]: the line is full. [`Reason::Share`]: this key has the longest line, and another one needed room.
    /// [`Reason::Rate`]: the key has no class.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue, and returns an unused grant.
    pub fn until_ready(&self, key: &K, cost: u64) -> UntilReady<K> {
        UntilReady::new(self.shared.clone(), key.clone(), cost)
    }

    /// The number of waiting tickets.
    pub fn waiting_len(&self) -> usize {
        self.shared.lock().in_line
    }

    pub(super) fn shared(&self) -> &Arc<Shared<K>> {
        &self.shared
    }
}

impl<K> Shared<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        lock(&self.state)
    }
}

impl<K: Key> Shared<K> {
    /// Changes the state, and releases all due tickets before and after; sets the alarm, and wakes
    /// outside of the lock.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let now = now();
        let mut state = self.lock();
        state.run(now);
        let result = change(&mut state, now);
        state.run(now);
        let next = (state.in_line > 0).then(|| state.next_at(now));
        if state.alarm.set(next, self).is_err() {
            // Without a timer, the waiting tasks must check for themselves.
            let wakers: Vec<KeptWaker> =
                state.waiting.values_mut().filter_map(|waiting| waiting.waker.take()).collect();
            state.woken.extend(wakers);
        }
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(KeptWaker::wake);
        result
    }

    /// Enters the line at the first poll, and returns the result; keeps the waker until then.
    pub(super) fn poll(
        self: &Arc<Self>,
        ticket: &mut Option<Ticket>,
        key: &K,
        cost: u64,
        waker: &Waker,
    ) -> Option<Result<Charge, Refused>> {
        let waker = KeptWaker::from(waker);
        let (told, before) = self.change(|state, now| {
            let number = match *ticket {
                Some(number) => number,
                None => match state.push(key, cost, now) {
                    Ok(number) => *ticket.insert(number),
                    Err(refused) => return (Some(Err(refused)), None),
                },
            };
            state.run(now);
            state.look(number, waker)
        });
        if told.is_some() {
            *ticket = None;
        }
        drop(before);
        told
    }

    /// Removes a ticket, in any state.
    pub(super) fn cancel(self: &Arc<Self>, ticket: Ticket, key: &K, cost: u64) {
        let waker = self.change(|state, _| {
            let Waiting { waker, told } = state.waiting.remove(&ticket)?;
            match told {
                Some(Ok(charge)) => state.discipline.put_back(key, cost, charge),
                None => state.leave(ticket, key),
                Some(Err(_)) => {}
            }
            waker
        });
        // Without the lock.
        drop(waker);
    }

    pub(super) fn put_back(self: &Arc<Self>, key: &K, cost: u64, charge: Charge) {
        self.change(|state, _| state.discipline.put_back(key, cost, charge));
    }
}

impl<K> State<K> {
    fn push(&mut self, key: &K, cost: u64, now: Instant) -> Result<Ticket, Refused> {
        if self.in_line >= self.waiting_max {
            self.make_room(key, now)?;
        }
        self.enter(key, cost, now)
    }

    /// Adds a ticket to the line, if there is room.
    fn enter(&mut self, key: &K, cost: u64, now: Instant) -> Result<Ticket, Refused> {
        let ticket = self.next_ticket;
        let pushed = self.discipline.push(ticket, key, cost, now);
        pushed.map_err(|UnknownKey| Refused::new(Reason::Rate, Duration::ZERO))?;
        self.next_ticket += 1;
        self.in_line += 1;
        self.waiting.insert(ticket, Waiting::default());
        Ok(ticket)
    }

    /// The longest line gives its last place to a key with a shorter one; `Err` if that is the
    /// newcomer's own.
    fn make_room(&mut self, key: &K, now: Instant) -> Result<(), Refused> {
        let longest = self.discipline.longest_len();
        let ticket = if longest > self.discipline.len_of(key) + 1 { self.discipline.cut_longest() } else { None };
        let Some(ticket) = ticket else {
            let first_at = self.next_at(now);
            let wait = first_at.saturating_duration_since(now);
            return Err(Refused::new(Reason::Full { len: self.in_line }, wait));
        };
        self.in_line -= 1;
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.told = Some(Err(Refused::new(Reason::Share { len: longest }, Duration::ZERO)));
            self.woken.extend(waiting.waker.take());
        }
        Ok(())
    }

    /// The result of a ticket, once; keeps the waker until then. Also returns a waker to drop
    /// outside of the lock.
    fn look(&mut self, ticket: Ticket, waker: KeptWaker) -> (Option<Result<Charge, Refused>>, Option<KeptWaker>) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return (None, Some(waker)) };
        match waiting.told.take() {
            Some(told) => {
                self.waiting.remove(&ticket);
                (Some(told), Some(waker))
            }
            None => (None, waiting.waker.replace(waker)),
        }
    }

    fn leave(&mut self, ticket: Ticket, key: &K) {
        self.discipline.cancel(ticket, key);
        self.in_line -= 1;
    }

    /// Releases all tickets that may go by now.
    fn run(&mut self, now: Instant) {
        while let Next::Goes(ticket, charge) = self.discipline.next(now) {
            self.in_line -= 1;
            if let Some(waiting) = self.waiting.get_mut(&ticket) {
                waiting.told = Some(Ok(charge));
                self.woken.extend(waiting.waker.take());
            }
        }
    }

    fn next_at(&mut self, now: Instant) -> Instant {
        match self.discipline.next(now) {
            Next::At(at) => at,
            Next::Goes(..) | Next::Nobody => now,
        }
    }
}

impl<K: Key> Ring for Shared<K> {
    fn ring(self: Arc<Self>) {
        self.change(|state, _| state.alarm.rang());
    }
}

impl<K> Clone for Throttle<K> {
    fn clone(&self) -> Throttle<K> {
        Throttle { shared: self.shared.clone() }
    }
}

impl<K> fmt::Debug for Throttle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("waiting_len", &self.shared.lock().in_line).finish_non_exhaustive()
    }
}
