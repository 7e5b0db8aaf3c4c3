//! The messages of one sender and their outcomes.
//!
//! A message is
//!
//! ```text
//!   (absent) ──► Held ──► Running ──► Settled ──► (forgotten, below the floor)
//!       ▲          │         │
//!       └──────────┴─────────┴─ Busy: refused, absent until sent again; withdrawn: Settled as never run
//! ```
//!
//! Each waiter polls the running message: its own, or in an ordered inbox the one at its turn. So
//! no message needs a task of its own, and none stalls because the waiter that began it was
//! dropped. Only one waiter polls at a time. All waiters are woken on a change; they register first
//! and then check, so that they miss no change. If a sender gives up its running message, so that
//! no waiter can poll it any more, the message is dropped. One lock guards all state; it is free
//! while a message is polled.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::foreign::KeptWaker;
use dapple_tower::switch::{Mutex, lock};

use super::message::{Order, Receipt, Settled};

pub(super) type Running<R> = Pin<Box<dyn Future<Output = Receipt<R>> + Send>>;

pub(super) struct Inbox<M, R> {
    state: Mutex<State<M, R>>,
    waiting: Arc<Waiting>,
}

struct State<M, R> {
    order: Order,
    floor: u64,
    /// The first message that has not begun, if there is an order.
    next: u64,
    records: BTreeMap<u64, Record<M, R>>,
    /// The number of waiters by message.
    waiters: BTreeMap<u64, usize>,
}

enum Record<M, R> {
    Held(M),
    /// `None` while a waiter polls it.
    Running(Option<Running<R>>),
    Busy(String),
    Settled(Settled<R>),
}

#[derive(Default)]
struct Waiting {
    wakers: Mutex<(u64, BTreeMap<u64, KeptWaker>)>,
}

impl Wake for Waiting {
    fn wake(self: Arc<Waiting>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Waiting>) {
        let wakers = std::mem::take(&mut lock(&self.wakers).1);
        wakers.into_values().for_each(KeptWaker::wake);
    }
}

impl<M, R: Clone> Inbox<M, R> {
    pub(super) fn put(&self, sequence: u64, floor: u64, message: Option<M>) -> Result<(), usize> {
        let mut state = lock(&self.state);
        let dropped = state.raise_floor(floor);
        let result = state.put(sequence, message);
        drop(state);
        drop(dropped);
        self.waiting.wake_by_ref();
        result
    }

    /// Waits for the outcome of a message; `run` begins one.
    pub(super) fn wait<F>(self: Arc<Inbox<M, R>>, sequence: u64, run: F) -> Wait<M, R, F>
    where
        F: Fn(M) -> Running<R>,
    {
        *lock(&self.state).waiters.entry(sequence).or_default() += 1;
        let id = {
            let mut wakers = lock(&self.waiting.wakers);
            wakers.0 += 1;
            wakers.0
        };
        Wait { inbox: self, sequence, id, run }
    }
}

impl<M, R> Inbox<M, R> {
    pub(super) fn new(floor: u64, order: Order) -> Inbox<M, R> {
        let state = State { order, floor, next: floor, records: BTreeMap::new(), waiters: BTreeMap::new() };
        Inbox { state: Mutex::new(state), waiting: Arc::default() }
    }
}

impl<M, R: Clone> State<M, R> {
    fn raise_floor(&mut self, floor: u64) -> Vec<Record<M, R>> {
        if floor <= self.floor {
            return Vec::new();
        }
        self.floor = floor;
        let mut below = self.records.split_off(&floor);
        std::mem::swap(&mut below, &mut self.records);
        let (kept, over): (Vec<_>, Vec<_>) = below.into_iter().partition(|(sequence, record)| match record {
            // In an ordered inbox, later messages wait for it and poll it to its end; otherwise
            // only its own waiters poll it.
            Record::Running(Some(_)) => self.order != Order::Any || self.waiters.contains_key(sequence),
            Record::Running(None) => true,
            Record::Held(_) | Record::Busy(_) | Record::Settled(_) => false,
        });
        self.records.extend(kept);
        over.into_iter().map(|(_, record)| record).collect()
    }

    /// Removes a waiter. Returns the running message that nothing will poll any more, to be dropped
    /// outside of the lock.
    fn leave(&mut self, sequence: u64) -> Option<Record<M, R>> {
        if let Some(count) = self.waiters.get_mut(&sequence) {
            *count -= 1;
            if *count > 0 {
                return None;
            }
            self.waiters.remove(&sequence);
        }
        let is_over = self.order == Order::Any && sequence < self.floor;
        let is_idle = is_over && matches!(self.records.get(&sequence), Some(Record::Running(Some(_))));
        if is_idle { self.records.remove(&sequence) } else { None }
    }

    fn put(&mut self, sequence: u64, message: Option<M>) -> Result<(), usize> {
        if sequence < self.floor {
            return Ok(());
        }
        if sequence - self.floor >= WINDOW {
            return Err(self.records.len());
        }
        let is_new = matches!(self.records.get(&sequence), None | Some(Record::Busy(_)));
        match message {
            Some(message) if is_new => {
                let is_late = self.order == Order::Skipping && sequence < self.next;
                let late = || Record::Settled(Settled::NotDone("a later one has begun".into()));
                self.records.insert(sequence, if is_late { late() } else { Record::Held(message) });
            }
            None if is_new || matches!(self.records.get(&sequence), Some(Record::Held(_))) => {
                let why = match self.records.remove(&sequence) {
                    Some(Record::Busy(why)) => why,
                    _ => "it was withdrawn before it began".into(),
                };
                self.records.insert(sequence, Record::Settled(Settled::NotDone(why)));
            }
            _ => {}
        }
        Ok(())
    }

    /// The message that a waiter for `sequence` should poll.
    fn turn(&self, sequence: u64) -> Option<u64> {
        if self.order == Order::Any {
            return Some(sequence);
        }
        if let Some((running, _)) = self.records.iter().find(|(_, record)| matches!(record, Record::Running(_))) {
            return Some(*running);
        }
        let mut held = self.records.iter().filter(|(_, record)| matches!(record, Record::Held(_)));
        let first = *held.next()?.0;
        if self.order == Order::Skipping {
            return Some(first);
        }
        let from = self.next.max(self.floor);
        let settled =
            self.records.range(from..first).filter(|(_, record)| matches!(record, Record::Settled(_))).count();
        (first < from || settled as u64 == first - from).then_some(first)
    }

    fn receipt(&self, sequence: u64) -> Option<Receipt<R>> {
        match self.records.get(&sequence) {
            Some(Record::Settled(settled)) => Some(Receipt::Settled(settled.clone())),
            Some(Record::Busy(why)) => Some(Receipt::Busy(why.clone())),
            Some(Record::Held(_) | Record::Running(_)) => None,
            None => Some(Receipt::Forgotten),
        }
    }

    /// Takes the message to poll, and begins it if necessary.
    fn take(&mut self, turn: u64, run: &impl Fn(M) -> Running<R>) -> Option<Running<R>> {
        let record = self.records.get_mut(&turn)?;
        match std::mem::replace(record, Record::Running(None)) {
            Record::Running(running) => running,
            Record::Held(message) => {
                self.next = self.next.max(turn + 1);
                Some(run(message))
            }
            other => {
                *record = other;
                None
            }
        }
    }

    fn end(&mut self, turn: u64, receipt: Receipt<R>) {
        let record = match receipt {
            Receipt::Settled(settled) => Record::Settled(settled),
            Receipt::Busy(why) => {
                // It gets its turn again when it is sent again.
                if self.order == Order::Gapless {
                    self.next = self.next.min(turn);
                }
                Record::Busy(why)
            }
            Receipt::Opened(_) | Receipt::Forgotten => unreachable!("a service does not return this"),
        };
        if turn < self.floor {
            self.records.remove(&turn);
        } else {
            self.records.insert(turn, record);
        }
    }
}

/// A waiter for a message.
pub(super) struct Wait<M, R: Clone, F> {
    inbox: Arc<Inbox<M, R>>,
    sequence: u64,
    id: u64,
    run: F,
}

impl<M, R: Clone, F: Fn(M) -> Running<R>> Wait<M, R, F> {
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Receipt<R>> {
        let inbox = self.inbox.clone();
        loop {
            let waker = KeptWaker::from(cx.waker());
            let old = lock(&inbox.waiting.wakers).1.insert(self.id, waker);
            drop(old);
            let (turn, running) = {
                let mut state = lock(&inbox.state);
                if let Some(receipt) = state.receipt(self.sequence) {
                    return Poll::Ready(receipt);
                }
                let turn = state.turn(self.sequence);
                match turn.and_then(|turn| state.take(turn, &self.run).map(|running| (turn, running))) {
                    Some(taken) => taken,
                    None => return Poll::Pending,
                }
            };
            let mut polling = Polling { inbox: &inbox, turn, running: Some(running) };
            if polling.poll().is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<M, R: Clone, F> Drop for Wait<M, R, F> {
    fn drop(&mut self) {
        let old = lock(&self.inbox.waiting.wakers).1.remove(&self.id);
        let given_up = lock(&self.inbox.state).leave(self.sequence);
        drop((old, given_up));
        // The wake may have been meant for the dropped waiter.
        self.inbox.waiting.wake_by_ref();
    }
}

/// The message being polled. Its drop puts it back or settles it in every case.
struct Polling<'inbox, M, R: Clone> {
    inbox: &'inbox Arc<Inbox<M, R>>,
    turn: u64,
    running: Option<Running<R>>,
}

impl<M, R: Clone> Polling<'_, M, R> {
    fn poll(&mut self) -> Poll<()> {
        let running = self.running.as_mut().expect("it goes back when this is dropped");
        let waker = Waker::from(self.inbox.waiting.clone());
        match running.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                let running = self.running.take();
                let mut state = lock(&self.inbox.state);
                state.records.insert(self.turn, Record::Running(running));
                Poll::Pending
            }
            Poll::Ready(receipt) => {
                let over = self.running.take();
                drop(over);
                self.end(receipt);
                Poll::Ready(())
            }
        }
    }

    fn end(&self, receipt: Receipt<R>) {
        lock(&self.inbox.state).end(self.turn, receipt);
        self.inbox.waiting.wake_by_ref();
    }
}

impl<M, R: Clone> Drop for Polling<'_, M, R> {
    fn drop(&mut self) {
        if self.running.is_some() {
            self.end(Receipt::Settled(Settled::Failed("the service panicked".into())));
        }
    }
}

/// The largest distance between unsettled messages of one sender.
pub(super) const WINDOW: u64 = 1024;
