//! The shared handle: a discipline behind a lock, those who wait, and the alarm that lets them go.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

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

/// Lets so much pass in each stretch of time, for all who have a clone of it. For anything that can be told how much it is about to
/// do: a sink, a service (with [`ThrottleLayer`](super::ThrottleLayer)), a loop.
///
/// | made by | shares the rate |
/// |---|---|
/// | [`Throttle::bucket`] | with nobody: who came first goes first |
/// | [`Throttle::fair`] | equally among the keys that wait, by what their items cost |
/// | [`Throttle::classes`] | by guaranteed shares; what one leaves is lent to others |
///
/// What was not used is kept for later, up to a burst. At most [`WAITING_MAX`](Throttle::WAITING_MAX) wait, unless said otherwise; beyond
/// that, the last one of the key with most in line makes room for one of a key with fewer, and else the newcomer is refused.
///
/// It works on any executor: who waits is woken by a timer, and does not depend on others being polled.
///
/// ```
/// use std::time::Duration;
/// use dapple_tower::throttle::{Rate, Throttle};
///
/// // 1,000 bytes a millisecond, whoever writes them.
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
    /// What it was made of, to be made again with another burst.
    make: Make<K>,
    waiting: HashMap<Ticket, Waiting>,
    /// How many of those have not been told yet.
    in_line: usize,
    waiting_max: usize,
    next_ticket: Ticket,
    alarm: Alarm,
    /// Those who are to be woken when the lock is given back.
    woken: Vec<KeptWaker>,
}

type Make<K> = Arc<dyn Fn(u64, Instant) -> Box<dyn Discipline<K>> + Send + Sync>;

#[derive(Default)]
struct Waiting {
    waker: Option<KeptWaker>,
    told: Option<Result<Charge, Refused>>,
}

impl Throttle {
    /// How many wait at most, unless [`Throttle::waiting_max`] says otherwise.
    pub const WAITING_MAX: usize = 10_000;

    /// A token bucket: `rate`, and one line. The burst is what the rate gives in one of its stretches.
    pub fn bucket(rate: Rate) -> Throttle {
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Plain::new(rate, burst, now))))
    }
}

impl<K: Key> Throttle<K> {
    /// Equal shares of `rate` for all keys that wait: clients, connections, tenants. A key that does not wait costs nothing and takes
    /// nothing. The burst is what the rate gives in one of its stretches.
    pub fn fair(rate: Rate) -> Throttle<K> {
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Fair::new(rate, burst, now))))
    }

    /// Guaranteed shares of `rate` for these classes. A key without a class has no rate, and is refused. The burst is what the rate
    /// gives in one of its stretches, shared as the rate is.
    pub fn classes(rate: Rate, classes: impl IntoIterator<Item = Class<K>>) -> Throttle<K> {
        let classes: Vec<Class<K>> = classes.into_iter().collect();
        Throttle::new(rate, Arc::new(move |burst, now| Box::new(Classes::new(rate, burst, classes.clone(), now))))
    }

    fn new(rate: Rate, make: Make<K>) -> Throttle<K> {
        let state = State {
            discipline: make(rate.num(), now()),
            make,
            waiting: HashMap::new(),
            in_line: 0,
            waiting_max: Throttle::<()>::WAITING_MAX,
            next_ticket: 0,
            alarm: Alarm::new(),
            woken: Vec::new(),
        };
        Throttle { shared: Arc::new(Shared { state: Mutex::new(state) }) }
    }

    /// The same with another burst, at least 1: what may pass at once after a rest. To be said before it is used.
    pub fn burst(self, burst: u64) -> Throttle<K> {
        let mut state = self.shared.lock();
        if state.waiting.is_empty() {
            state.discipline = (state.make)(burst.max(1), now());
        }
        drop(state);
        self
    }

    /// The same with another bound on how many wait.
    pub fn waiting_max(self, waiting_max: usize) -> Throttle<K> {
        self.shared.lock().waiting_max = waiting_max;
        self
    }

    /// Takes `cost` at once, if nobody waits for whom that would have to wait. A cost of 0 is always there.
    ///
    /// # Errors
    ///
    /// [`Reason::Rate`]: not now; `retry_after` says when, if nobody else takes it.
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
    /// [`Reason::Full`]: as many wait as may. [`Reason::Share`]: this key has most in line, and another one had to find room.
    /// [`Reason::Rate`]: the key has no class.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the line, and gives back what it was let go with.
    pub fn until_ready(&self, key: &K, cost: u64) -> UntilReady<K> {
        UntilReady::new(self.shared.clone(), key.clone(), cost)
    }

    /// How many wait.
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
    /// Changes the state, before and after which all go who may; sets the alarm, and wakes outside of the lock.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State<K>, Instant) -> R) -> R {
        let now = now();
        let mut state = self.lock();
        state.run(now);
        let result = change(&mut state, now);
        state.run(now);
        let next = (state.in_line > 0).then(|| state.next_at(now));
        if state.alarm.set(next, self).is_err() {
            // Without a timer, those who wait have to look for themselves.
            let wakers: Vec<KeptWaker> =
                state.waiting.values_mut().filter_map(|waiting| waiting.waker.take()).collect();
            state.woken.extend(wakers);
        }
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(KeptWaker::wake);
        result
    }

    /// Puts somebody in line, at his first poll, and yields what he is told; until then his waker is kept.
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

    /// Takes somebody out, wherever he has come to.
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

    /// Puts somebody in line, however many wait.
    fn enter(&mut self, key: &K, cost: u64, now: Instant) -> Result<Ticket, Refused> {
        let ticket = self.next_ticket;
        let pushed = self.discipline.push(ticket, key, cost, now);
        pushed.map_err(|UnknownKey| Refused::new(Reason::Rate, Duration::ZERO))?;
        self.next_ticket += 1;
        self.in_line += 1;
        self.waiting.insert(ticket, Waiting::default());
        Ok(ticket)
    }

    /// The longest line gives its last place to a key with fewer; `Err` if that is the newcomer's own.
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

    /// What this one was told, once; until then the waker is kept. Also a waker to be dropped outside of the lock.
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

    /// Tells all who may go by now.
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
