//! One worker's ring, and the life of an operation in it.
//!
//! | state | owner of the memory | becomes | by |
//! |---|---|---|---|
//! | queued | the place | submitted | `fill`, in order, when fewer than the limit are in flight |
//! | | | gone, it never happens | the future is dropped; the shutdown (the future gets its memory back) |
//! | submitted | the place, **for the kernel** | completed | `reap`, which wakes the task |
//! | | | orphaned | the future is dropped; a cancellation follows, unless the call changes the file |
//! | completed | the place | gone | the future takes result and memory, or is dropped |
//! | orphaned | the place, **for the kernel** | gone | `reap`: now the memory is freed, and an opened file is closed |
//! | submitted, orphaned | the place, **for the kernel** | leaked | the shutdown, when the kernel does not answer in time |
//!
//! An operation counts as submitted as soon as its entry is in the submission queue, though the
//! kernel sees it with the next turn only: from then on it completes once, whatever happens. The
//! name of an operation has a generation, so that a late cancellation finds no other operation.
//!
//! Both queues of a ring are under one lock, taken briefly by
//!
//! - tasks, which begin, poll and drop operations;
//! - the thread in the slot: its owner between turns and around its sleep, or a thief while the
//!   owner is in a long callback. Completions can only be taken from the ring through which they
//!   came; a thief does so in the owner's place, under the lock, and this keeps C6 for files.
//!
//! No waker is called and no request dropped under that lock: both may run code that takes it
//! again.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
// REAL: a shutdown waits for the kernel.
use std::time::{Duration, Instant};

use super::buffers::{RegionLookup, Table};
use super::kernel::Kernel;
use super::setup::{Limits, Refused};
use super::{Memory, Request};
use crate::fs::Region;
use crate::sync::Mutex;
use dapple_sched::foreign::KeptWaker;

/// See the module's text.
pub(crate) struct Ring(Mutex<State>);

/// The name of one operation of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    key: u32,
    generation: u32,
}

/// The owner's choices after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sleep: the ring's descriptor reports completions.
    Wait,
    /// Come back soon: at the moment the kernel takes no more entries.
    Retry,
}

struct State {
    /// For the regions registered here.
    own: Weak<Ring>,
    kernel: Kernel,
    limits: Limits,
    places: Vec<RingSlot>,
    free: Vec<u32>,
    /// Queued operations, oldest first, and numbers of those that were dropped since.
    backlog: VecDeque<Token>,
    /// Cancellations for which the submission queue had no room yet.
    cancels: VecDeque<Token>,
    /// Number of submitted and orphaned operations.
    in_flight: usize,
    buffers: Table,
    is_closed: bool,
}

#[derive(Default)]
struct RingSlot {
    generation: u32,
    stage: SlotState,
    /// `None` if vacant or leaked.
    request: Option<Request>,
    waker: Option<KeptWaker>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Vacant,
    Queued,
    Submitted,
    Orphaned,
    Completed(i32),
    /// The ring has been closed, and the kernel may still have the memory.
    Leaked,
}

/// Values to drop, and wakers to call, after the lock.
#[derive(Default)]
struct Afterwards {
    woken: Vec<KeptWaker>,
    discarded: Vec<(Request, i32)>,
}

impl Ring {
    pub(crate) fn new(limits: Limits) -> Result<Arc<Ring>, Refused> {
        let kernel = Kernel::new(limits)?;
        Ok(Arc::new_cyclic(|own| {
            Ring(Mutex::new(State {
                own: own.clone(),
                kernel,
                limits,
                places: Vec::new(),
                free: Vec::new(),
                backlog: VecDeque::new(),
                cancels: VecDeque::new(),
                in_flight: 0,
                buffers: Table::default(),
                is_closed: false,
            }))
        }))
    }

    /// Calls `f` with the descriptor that is readable when there are completions.
    pub(crate) fn with_fd<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> R {
        let state = self.0.lock();
        // SAFETY: the ring lives at least as long as the guard, and its descriptor with it.
        f(unsafe { BorrowedFd::borrow_raw(state.kernel.fd()) })
    }

    /// Takes a request over. After a shutdown it is returned.
    pub(crate) fn begin(&self, request: Request, waker: &Waker) -> Result<Token, Request> {
        let waker = KeptWaker::from(waker);
        let mut state = self.0.lock();
        if state.is_closed {
            drop(state);
            return Err(request);
        }
        let token = state.insert(request, waker);
        state.backlog.push_back(token);
        state.fill();
        Ok(token)
    }

    /// Returns the result and the request, or keeps the waker. `None` if the shutdown has left the
    /// memory to the kernel.
    pub(crate) fn poll(&self, token: Token, waker: &Waker) -> Poll<Option<(i32, Request)>> {
        let waker = KeptWaker::from(waker);
        let mut state = self.0.lock();
        let place = &mut state.places[token.key as usize];
        debug_assert_eq!(place.generation, token.generation, "the future owns its place");
        match place.stage {
            SlotState::Completed(result) => {
                let request = state.vacate(token);
                Poll::Ready(request.map(|request| (result, request)))
            }
            SlotState::Leaked => Poll::Ready(None),
            _ => {
                let replaced = place.waker.replace(waker);
                drop(state);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    /// Called when the future is dropped. Returns whether there are entries to submit now.
    pub(crate) fn abandon(&self, token: Token, cancel: bool) -> bool {
        let mut state = self.0.lock();
        let place = &mut state.places[token.key as usize];
        let waker = place.waker.take();
        let mut discarded = None;
        let mut has_news = false;
        match place.stage {
            // Its name in the backlog finds no operation.
            SlotState::Queued => discarded = state.vacate(token).map(|request| (request, -libc::ECANCELED)),
            SlotState::Completed(result) => discarded = state.vacate(token).map(|request| (request, result)),
            SlotState::Submitted => {
                place.stage = SlotState::Orphaned;
                if cancel {
                    state.cancels.push_back(token);
                    state.fill();
                    has_news = true;
                }
            }
            SlotState::Leaked | SlotState::Vacant | SlotState::Orphaned => {}
        }
        drop(state);
        drop(waker);
        if let Some((request, result)) = discarded {
            request.discard(result);
        }
        has_news
    }

    /// Submits collected operations, and takes in completions. For the thread in the slot. Wakers
    /// are added to `woken`.
    pub(crate) fn turn(&self, woken: &mut Vec<KeptWaker>) -> Next {
        let mut afterwards = Afterwards { woken: mem::take(woken), discarded: Vec::new() };
        let next = self.0.lock().turn(&mut afterwards);
        *woken = mem::take(&mut afterwards.woken);
        afterwards.discard();
        next
    }

    /// Removes a region from the table of registered buffers; no part of it is in flight.
    pub(crate) fn forget_region(&self, region: &Region) {
        let state = &mut *self.0.lock();
        state.buffers.forget(&state.kernel, region);
    }

    /// Number of operations that the kernel has, and of those that are queued.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.in_flight, state.backlog.len())
    }

    /// Returns queued operations, cancels submitted ones, and waits for the kernel, at most
    /// [`SHUTDOWN_MAX`]. Awaiting tasks get results that have arrived. Memory that the kernel still
    /// has then is leaked, never freed.
    pub(crate) fn shut_down(&self) {
        let mut afterwards = Afterwards::default();
        {
            let mut state = self.0.lock();
            if mem::replace(&mut state.is_closed, true) {
                return;
            }
            state.give_up_queued(&mut afterwards);
            state.cancel_all(false);
            let start = Instant::now();
            let mut is_patient = true;
            while state.in_flight > 0 && start.elapsed() < SHUTDOWN_MAX {
                if is_patient && start.elapsed() > SHUTDOWN_MAX / 2 {
                    is_patient = false;
                    state.cancel_all(true);
                }
                state.wait_briefly(&mut afterwards);
            }
            state.leak(&mut afterwards);
        }
        afterwards.woken.drain(..).for_each(KeptWaker::wake);
        afterwards.discard();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl State {
    fn insert(&mut self, request: Request, waker: KeptWaker) -> Token {
        let key = self.free.pop().unwrap_or_else(|| {
            self.places.push(RingSlot::default());
            u32::try_from(self.places.len() - 1).expect("fewer operations than 2^32")
        });
        let place = &mut self.places[key as usize];
        place.stage = SlotState::Queued;
        place.request = Some(request);
        place.waker = Some(waker);
        Token { key, generation: place.generation }
    }

    /// Frees a slot; its waker must have been dropped.
    fn vacate(&mut self, token: Token) -> Option<Request> {
        let place = &mut self.places[token.key as usize];
        place.stage = SlotState::Vacant;
        // One generation is reserved for completions of cancellations.
        place.generation = (place.generation + 1) % CANCEL.generation;
        self.free.push(token.key);
        place.request.take()
    }

    /// The place of a name, if the name is still valid.
    fn find(&mut self, token: Token) -> Option<&mut RingSlot> {
        let place = self.places.get_mut(token.key as usize)?;
        (place.generation == token.generation).then_some(place)
    }

    /// Moves cancellations and queued operations to the submission queue, as far as there is room.
    fn fill(&mut self) {
        while let Some(&token) = self.cancels.front() {
            if !self.kernel.push_cancel(token.data(), CANCEL.data()) {
                return;
            }
            self.cancels.pop_front();
        }
        while self.in_flight < self.limits.in_flight_max
            && let Some(&token) = self.backlog.front()
        {
            let place = &mut self.places[token.key as usize];
            if place.generation != token.generation || place.stage != SlotState::Queued {
                self.backlog.pop_front();
                continue;
            }
            let request = place.request.as_mut().expect("queued operations have a request");
            let registered = registered_place(&mut self.buffers, &self.kernel, &self.own, request);
            let entry = request.entry(registered).user_data(token.data());
            // SAFETY: the entry points into a request in `places`, which is neither moved, touched
            // nor dropped before the completion (see the table above: only `reap` ends the states
            // "submitted" and "orphaned", or the request is leaked).
            if !unsafe { self.kernel.push(&entry) } {
                return;
            }
            self.places[token.key as usize].stage = SlotState::Submitted;
            self.in_flight += 1;
            self.backlog.pop_front();
        }
    }

    fn turn(&mut self, afterwards: &mut Afterwards) -> Next {
        for _ in 0..ROUNDS_MAX {
            self.reap(afterwards);
            self.fill();
            if !self.kernel.submit() {
                return Next::Retry;
            }
            self.reap(afterwards);
            if self.cancels.is_empty() && (self.backlog.is_empty() || self.in_flight == self.limits.in_flight_max) {
                return Next::Wait;
            }
        }
        Next::Retry
    }

    /// Takes in completions.
    fn reap(&mut self, afterwards: &mut Afterwards) {
        while let Some((data, result)) = self.kernel.completion() {
            let token = Token::from_data(data);
            if token == CANCEL {
                continue;
            }
            let Some(place) = self.find(token) else {
                debug_assert!(false, "a completion of nobody");
                continue;
            };
            let waker = place.waker.take();
            match place.stage {
                SlotState::Submitted => {
                    place.stage = SlotState::Completed(result);
                    afterwards.woken.extend(waker);
                }
                stage => {
                    debug_assert_eq!(stage, SlotState::Orphaned);
                    let request = self.vacate(token);
                    afterwards.discarded.extend(request.map(|request| (request, result)));
                }
            }
            self.in_flight -= 1;
        }
    }

    /// Ends operations that the kernel does not know: their tasks get the memory and an error.
    fn give_up_queued(&mut self, afterwards: &mut Afterwards) {
        while let Some(token) = self.backlog.pop_front() {
            if let Some(place) = self.find(token)
                && place.stage == SlotState::Queued
            {
                place.stage = SlotState::Completed(-libc::ECANCELED);
                afterwards.woken.extend(place.waker.take());
            }
        }
    }

    /// Cancels operations in flight: all, or only those without effects.
    fn cancel_all(&mut self, irrevocable_too: bool) {
        for (key, place) in self.places.iter().enumerate() {
            let is_in_flight = matches!(place.stage, SlotState::Submitted | SlotState::Orphaned);
            let request = place.request.as_ref();
            if is_in_flight && request.is_some_and(|request| irrevocable_too || request.call.is_revocable()) {
                self.cancels.push_back(Token { key: key as u32, generation: place.generation });
            }
        }
    }

    /// Waits for a completion, for some milliseconds at most.
    fn wait_briefly(&mut self, afterwards: &mut Afterwards) {
        self.fill();
        self.kernel.wait_briefly();
        self.reap(afterwards);
    }

    /// Never frees memory or files that the kernel still has.
    fn leak(&mut self, afterwards: &mut Afterwards) {
        if self.in_flight == 0 {
            return;
        }
        tracing::warn!(
            operations = self.in_flight,
            "the kernel does not end calls on files: their memory is left to it"
        );
        for place in &mut self.places {
            if matches!(place.stage, SlotState::Submitted | SlotState::Orphaned) {
                mem::forget(place.request.take());
                place.stage = SlotState::Leaked;
                afterwards.woken.extend(place.waker.take());
            }
        }
    }
}

/// The place of this request's memory in the ring's table of buffers.
fn registered_place(table: &mut Table, kernel: &Kernel, own: &Weak<Ring>, request: &Request) -> Option<u16> {
    let Memory::Aligned(buf) = &request.memory else {
        return None;
    };
    let region = buf.registered_region()?;
    match table.place(kernel, region) {
        RegionLookup::Old(index) => Some(index),
        RegionLookup::New(index) => {
            region.note_registration(own.clone());
            Some(index)
        }
        RegionLookup::None => None,
    }
}

impl Afterwards {
    fn discard(self) {
        self.discarded.into_iter().for_each(|(request, result)| request.discard(result));
    }
}

impl Token {
    fn data(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.key)
    }

    fn from_data(data: u64) -> Self {
        Token { key: data as u32, generation: (data >> 32) as u32 }
    }
}

/// The name of all cancellations; no operation has this generation.
const CANCEL: Token = Token { key: u32::MAX, generation: u32::MAX };

/// How often one turn submits: calls that complete at once make room for more.
const ROUNDS_MAX: usize = 4;

/// How long a shutdown waits for the kernel.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);
