//! Places that are given in the order in which they were asked for.
//!
//! Free places belong to as many of the first who wait. Whoever comes next gets one only if more are free than wait; and each
//! change wakes those whose turn it is. All is behind one lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::foreign::KeptWaker;
use dapple_tower::middleware::shedding;
use dapple_tower::switch::{Mutex, lock};

use crate::{Reason, Refused};

/// So many places, which may change.
pub(crate) struct Credits {
    state: Mutex<State>,
}

struct State {
    limit: usize,
    used: usize,
    /// `None`: woken, and not polled since.
    waiting: BTreeMap<u64, Option<KeptWaker>>,
    next: u64,
}

impl State {
    fn free(&self) -> usize {
        self.limit.saturating_sub(self.used)
    }

    /// Those whose turn it is.
    fn turns(&mut self) -> Vec<KeptWaker> {
        let free = self.free();
        self.waiting.values_mut().take(free).filter_map(Option::take).collect()
    }
}

impl Credits {
    pub(crate) fn new(limit: usize) -> Arc<Credits> {
        Arc::new(Credits { state: Mutex::new(State { limit, used: 0, waiting: BTreeMap::new(), next: 0 }) })
    }

    /// Changes how many there are. Those that are taken stay taken.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.change(|state| state.limit = limit);
    }

    pub(crate) fn limit(&self) -> usize {
        lock(&self.state).limit
    }

    pub(crate) fn used(&self) -> usize {
        lock(&self.state).used
    }

    /// Takes a place if one is free that nobody waits for.
    pub(crate) fn try_take(self: &Arc<Credits>) -> Option<Credit> {
        let mut state = lock(&self.state);
        (state.waiting.len() < state.free()).then(|| {
            state.used += 1;
            Credit(self.clone())
        })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let turns = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.turns()
        };
        turns.into_iter().for_each(KeptWaker::wake);
    }
}

/// A place that is taken, until this is dropped.
pub(crate) struct Credit(Arc<Credits>);

impl Drop for Credit {
    fn drop(&mut self) {
        self.0.change(|state| state.used -= 1);
    }
}

/// One who wants a place at a time; a clone is another.
pub(crate) struct Claim {
    credits: Arc<Credits>,
    ticket: Option<u64>,
    credit: Option<Credit>,
}

impl Claim {
    pub(crate) fn new(credits: Arc<Credits>) -> Claim {
        Claim { credits, ticket: None, credit: None }
    }

    pub(crate) fn credits(&self) -> &Arc<Credits> {
        &self.credits
    }

    /// Ready when a place is held. Who was pending keeps his place in line until he is dropped; inside of a `Shed` he gets none.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.credit.is_some() {
            return Poll::Ready(());
        }
        let waker = KeptWaker::from(cx.waker());
        let mut state = lock(&self.credits.state);
        let free = state.free();
        let before = match self.ticket {
            Some(ticket) => state.waiting.range(..ticket).take(free).count(),
            None => state.waiting.len(),
        };
        if before < free {
            state.used += 1;
            let old = self.ticket.take().and_then(|ticket| state.waiting.remove(&ticket));
            drop(state);
            drop(old);
            self.credit = Some(Credit(self.credits.clone()));
            return Poll::Ready(());
        }
        if self.ticket.is_none() && !shedding::would_wait() {
            let len = state.used;
            drop(state);
            shedding::decline(Refused::new(Reason::Full { len }, Duration::ZERO));
            return Poll::Pending;
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        let old = state.waiting.insert(ticket, Some(waker));
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Takes the place along that `poll_ready` has got.
    pub(crate) fn take(&mut self) -> Option<Credit> {
        self.credit.take()
    }
}

impl Clone for Claim {
    fn clone(&self) -> Claim {
        Claim::new(self.credits.clone())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut old = None;
            self.credits.change(|state| old = state.waiting.remove(&ticket));
        }
    }
}
