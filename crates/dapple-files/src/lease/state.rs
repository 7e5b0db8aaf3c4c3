//! The state of one file: the holders of its leases, and its changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dapple::sync::oneshot;
use dapple::time::Instant;

use super::ClientId;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) holders: Vec<Holder>,
    /// The client that may keep its writes to itself, and the grant by which it may; it is one of the holders.
    pub(super) delegate: Option<Delegate>,
    /// The changes that run or wait.
    pub(super) changes: usize,
    /// Those that wait for holders.
    pub(super) waiters: Vec<oneshot::Sender<()>>,
    /// The changes that run.
    pub(super) running: usize,
    /// Whether the one that runs must be alone.
    pub(super) is_alone: bool,
    /// Changes that wait for the end of others, and how they will run, in the order of their turns.
    pub(super) turns: VecDeque<(Stage, oneshot::Sender<()>)>,
}

/// The delegations of all files.
#[derive(Debug, Default)]
pub(super) struct Delegations {
    pub(super) now: AtomicUsize,
    pub(super) ended: AtomicUsize,
}

/// The client that may keep its writes to itself.
#[derive(Debug)]
pub(super) struct Delegate {
    pub(super) client: ClientId,
    /// The grant with which it began.
    pub(super) grant: u64,
    pub(super) count: Arc<Delegations>,
    /// Of its file.
    pub(super) is_delegated: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct Holder {
    pub(super) client: ClientId,
    pub(super) grant: u64,
    pub(super) until: Instant,
}

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its closure has not run, so no file knows of it.
    Unknown,
    /// It waits for the holders of leases, or for other changes.
    Waits,
    /// It runs beside others.
    Runs,
    /// It runs alone.
    Alone,
}

impl State {
    /// Counts a change, and returns the other clients that hold leases.
    pub(super) fn announce(&mut self, by: Option<ClientId>, now: Instant) -> Vec<ClientId> {
        self.changes += 1;
        self.others(by, now)
    }

    /// Whether the changes that run let another one run so. A newcomer also waits for one that waits to be alone, which many small
    /// changes would starve otherwise.
    pub(super) fn is_free_for(&self, stage: Stage, is_new: bool) -> bool {
        let is_awaited = |(stage, turn): &(Stage, oneshot::Sender<()>)| *stage == Stage::Alone && !turn.is_closed();
        let is_free = !self.is_alone && (stage != Stage::Alone || self.running == 0);
        is_free && !(is_new && self.turns.iter().any(is_awaited))
    }

    /// How a change that will run so waits for others; a newcomer behind those that wait already.
    pub(super) fn await_turn(&mut self, stage: Stage, is_new: bool) -> oneshot::Receiver<()> {
        if self.turns.len() == self.turns.capacity() {
            self.turns.retain(|(_, turn)| !turn.is_closed());
        }
        let (turn, comes) = oneshot::channel();
        match is_new {
            true => self.turns.push_back((stage, turn)),
            false => self.turns.push_front((stage, turn)),
        }
        comes
    }

    /// Ends a change.
    pub(super) fn end(&mut self, has_run: bool) {
        self.changes -= 1;
        if has_run {
            self.running -= 1;
            self.is_alone = false;
        }
        self.call_next();
    }

    /// Calls the next ones: one that must be alone once no other runs, or all up to that. Each of them ends sooner or later, and
    /// then those after it are called.
    fn call_next(&mut self) {
        let mut is_taken = self.running > 0;
        while let Some((stage, _)) = self.turns.front() {
            if self.is_alone || is_taken && *stage == Stage::Alone {
                return;
            }
            let Some((stage, turn)) = self.turns.pop_front() else { return };
            // One that has left needs no turn.
            let is_there = turn.send(()).is_ok();
            if is_there && stage == Stage::Alone {
                return;
            }
            is_taken |= is_there;
        }
    }

    pub(super) fn is_delegate(&self, client: Option<ClientId>, grant: u64) -> bool {
        let is_it = |delegate: &Delegate| Some(delegate.client) == client && delegate.grant <= grant;
        self.delegate.as_ref().is_some_and(is_it)
    }

    pub(super) fn may_grant(&self, client: ClientId) -> bool {
        // A read takes back the delegation of another client; the wish for a lease does not.
        self.changes == 0 && self.delegate.as_ref().is_none_or(|delegate| delegate.client == client)
    }

    pub(super) fn grant(&mut self, client: ClientId, grant: u64, now: Instant, until: Instant) {
        self.holders.retain(|holder| holder.until > now && holder.client != client);
        self.holders.push(Holder { client, grant, until });
    }

    /// Takes a client's lease back unless its grant is newer; whether the client has none now.
    pub(super) fn release(&mut self, client: ClientId, grant: u64) -> bool {
        self.holders.retain(|holder| holder.client != client || holder.grant > grant);
        self.end_delegation();
        self.waiters.drain(..).for_each(|waiter| {
            let _ = waiter.send(());
        });
        self.holders.iter().all(|holder| holder.client != client)
    }

    /// The holders of leases that have not run out, but for one.
    pub(super) fn others(&mut self, by: Option<ClientId>, now: Instant) -> Vec<ClientId> {
        self.expire(by, now);
        self.holders.iter().map(|holder| holder.client).filter(|client| Some(*client) != by).collect()
    }

    /// How to wait for other holders, and until when at most; `None` if there is none.
    pub(super) fn wait(&mut self, by: Option<ClientId>, now: Instant) -> Option<(oneshot::Receiver<()>, Instant)> {
        self.expire(by, now);
        let others = self.holders.iter().filter(|holder| Some(holder.client) != by);
        let until = others.map(|holder| holder.until).max()?;
        // Those that left, or waited for long enough, make room before the list grows.
        if self.waiters.len() == self.waiters.capacity() {
            self.waiters.retain(|waiter| !waiter.is_closed());
        }
        let (waiter, gone) = oneshot::channel();
        self.waiters.push(waiter);
        Some((gone, until))
    }

    /// Ends leases that have run out, for another client that comes now. A client's own delegation lasts until such a one comes.
    pub(super) fn expire(&mut self, by: Option<ClientId>, now: Instant) {
        let delegate = self.delegate.as_ref().map(|delegate| delegate.client).filter(|client| Some(*client) == by);
        self.holders.retain(|holder| holder.until > now || Some(holder.client) == delegate);
        self.end_delegation();
    }

    /// Ends the delegation if its client has no lease any more.
    pub(super) fn end_delegation(&mut self) {
        let holders = &self.holders;
        self.delegate.take_if(|delegate| holders.iter().all(|holder| holder.client != delegate.client));
    }
}

impl Delegate {
    pub(super) fn new(
        client: ClientId,
        grant: u64,
        count: &Arc<Delegations>,
        is_delegated: &Arc<AtomicBool>,
    ) -> Delegate {
        // Before the client hears of it: reads that begin later look for it.
        count.now.fetch_add(1, Ordering::Release);
        is_delegated.store(true, Ordering::Relaxed);
        Delegate { client, grant, count: count.clone(), is_delegated: is_delegated.clone() }
    }
}

impl Drop for Delegate {
    fn drop(&mut self) {
        self.is_delegated.store(false, Ordering::Relaxed);
        // A reader that no longer counts it sees that it has ended: pairs with the loads of `has_delegations` and `delegations_ended`.
        self.count.ended.fetch_add(1, Ordering::Release);
        self.count.now.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dapple::time::Instant;
    use futures_util::FutureExt;

    use super::{ClientId, Stage, State};

    #[test]
    fn those_that_gave_up_their_wait_take_no_room() {
        dapple::builder().workers(1).build().expect("a runtime").block_on(async {
            let (mut state, now) = (State::default(), Instant::now());
            state.grant(ClientId(1), 1, now, now + Duration::from_secs(1));
            let (waits, turn) = (state.wait(None, now).expect("a holder"), state.await_turn(Stage::Alone, true));
            for _ in 0..1000 {
                drop(state.wait(None, now));
                drop(state.await_turn(Stage::Runs, true));
            }
            assert!(state.waiters.len() < 10 && state.turns.len() < 10);
            state.release(ClientId(1), 1);
            assert_eq!(waits.0.await, Ok(()));
            state.running = 1;
            state.changes = 1;
            state.end(true);
            assert_eq!(turn.await, Ok(()));
        });
    }

    #[test]
    fn small_changes_that_keep_coming_do_not_starve_one_that_must_be_alone() {
        let mut state = State { running: 2, changes: 4, ..State::default() };
        assert!(!state.is_free_for(Stage::Alone, true));
        let mut alone = state.await_turn(Stage::Alone, true);
        assert!(!state.is_free_for(Stage::Runs, true), "it comes after the one that waits");
        let mut small = state.await_turn(Stage::Runs, true);
        let has_come = |turn: &mut _| FutureExt::now_or_never(turn).is_some();
        state.end(true);
        assert!(!has_come(&mut alone) && !has_come(&mut small), "another one runs");
        state.end(true);
        assert!(has_come(&mut alone) && !has_come(&mut small));
        // It has left, and its place in the line goes to the next.
        drop(alone);
        state.end(false);
        assert!(has_come(&mut small));
    }
}
