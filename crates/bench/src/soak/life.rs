//! The shared state of one runtime's callbacks: its colors and states, its plan, and a bag of
//! things for any callback to take.

use super::book::{Book, Excuse, Kind};
use super::lane::Lane;
use super::state::State;
use super::token::Token;
use crate::rng::Rng;
use dapple_sched::{Callback, Color, Handle, JoinError, JoinHandle, Posted};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// The parameters of a runtime, drawn from its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Threads that post from outside.
    pub(crate) threads: usize,
    /// Colors without a name.
    pub(crate) fresh: usize,
    /// Named colors, looked up again for each use.
    pub(crate) named: usize,
    /// How many of all colors get half of the work.
    pub(crate) hot: usize,
    pub(crate) states: usize,
    /// The outside threads pause while more than this is outstanding.
    pub(crate) outstanding_max: u64,
    /// One callback in this many panics; 0 for none.
    pub(crate) panic_once_in: u64,
    /// The frequency of each operation; see `ops`.
    pub(crate) weights: [u8; super::ops::COUNT],
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng) -> Plan {
        let fresh = rng.range(1, 40) as usize;
        let named = rng.range(1, 8) as usize;
        let mut weights = [0; super::ops::COUNT];
        weights.iter_mut().for_each(|weight| *weight = rng.range(0, 3) as u8);
        // At least one operation must occur.
        weights[0] = weights[0].max(1);
        Plan {
            threads: rng.range(1, 4) as usize,
            fresh,
            named,
            hot: rng.range(1, (fresh + named) as u64) as usize,
            states: rng.range(2, 24) as usize,
            outstanding_max: [10, 100, 1_000, 10_000][rng.index(4)],
            panic_once_in: [0, 50, 500, 5_000][rng.index(4)],
            weights,
        }
    }

    /// The default color, the named and the fresh ones.
    pub(crate) fn lanes(&self) -> usize {
        1 + self.named + self.fresh
    }
}

/// One runtime, as seen from inside.
pub(crate) struct Life {
    pub(crate) plan: Plan,
    pub(crate) book: Arc<Book>,
    pub(crate) handle: Handle,
    /// In the order of [`Plan::lanes`].
    pub(crate) lanes: Vec<Arc<Lane>>,
    /// The colors of the last lanes.
    fresh: Vec<Color>,
    pub(crate) states: Vec<State>,
    pub(crate) bag: Bag,
    /// Whether the outside threads continue.
    pub(crate) open: AtomicBool,
    /// How many more tasks may wait for the shutdown.
    closers: AtomicI32,
}

impl Life {
    pub(crate) fn new(plan: Plan, book: Arc<Book>, handle: Handle, rng: &mut Rng) -> Life {
        let count = plan.lanes();
        let lanes: Vec<_> = (0..count).map(|lane| Lane::new(&book, lane, count, plan.threads)).collect();
        let fresh: Vec<Color> = (0..plan.fresh).map(|_| handle.new_color()).collect();
        let mut life = Life {
            plan,
            book,
            handle,
            lanes,
            fresh,
            states: Vec::new(),
            bag: Bag::default(),
            open: AtomicBool::new(true),
            closers: AtomicI32::new(5),
        };
        // Some colors get several states, some none.
        life.states = (0..plan.states)
            .map(|_| {
                let (lane, color) = life.pick_color(rng);
                State::new(&lane, &color)
            })
            .collect();
        life
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Whether the plan's limit of work is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.book.outstanding() > self.plan.outstanding_max
    }

    /// Some color, half of the time one of the hot ones.
    pub(crate) fn pick_color(&self, rng: &mut Rng) -> (Arc<Lane>, Color) {
        let count = self.plan.lanes();
        let index = if rng.once_in(2) { count - 1 - rng.index(self.plan.hot) } else { rng.index(count) };
        (self.lanes[index].clone(), self.color(index))
    }

    fn color(&self, index: usize) -> Color {
        let named = self.plan.named;
        match index {
            0 => self.handle.default_color(),
            _ if index <= named => self.handle.named_color(index as u64),
            _ => self.fresh[index - named - 1].clone(),
        }
    }

    pub(crate) fn pick_state<'a>(&'a self, rng: &mut Rng) -> &'a State {
        let state = &self.states[rng.index(self.states.len())];
        state.mend(rng);
        state
    }

    /// Some states, each once.
    pub(crate) fn pick_states(&self, count: usize, rng: &mut Rng) -> Vec<State> {
        let mut picked: Vec<usize> = Vec::new();
        while picked.len() < count.min(self.states.len()) {
            let index = rng.index(self.states.len());
            if !picked.contains(&index) {
                self.states[index].mend(rng);
                picked.push(index);
            }
        }
        picked.into_iter().map(|index| self.states[index].clone()).collect()
    }

    /// Whether to panic now.
    pub(crate) fn panics(&self, rng: &mut Rng) -> bool {
        self.plan.panic_once_in > 0 && rng.once_in(self.plan.panic_once_in)
    }

    /// Whether another task may wait for the shutdown.
    pub(crate) fn may_await_end(&self) -> bool {
        self.closers.fetch_sub(1, Relaxed) > 0
    }

    /// Records the result of a task.
    pub(crate) fn joined(&self, result: Result<(), JoinError>) {
        if result.is_err_and(|error| error.is_panic()) {
            self.book.panics.joined.fetch_add(1, Relaxed);
        }
    }
}

/// A task that any finder may await or abort.
pub(crate) struct Joinable {
    pub(crate) handle: JoinHandle<()>,
    /// Set before it is aborted.
    pub(crate) aborted: Arc<AtomicBool>,
    /// It may not end before the shutdown.
    pub(crate) endless: bool,
}

impl Joinable {
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Relaxed);
        self.handle.abort();
    }
}

/// A wrapped closure; each call brings a token and a seed.
pub(crate) struct Wrapped {
    pub(crate) callback: Callback<(Token, u64)>,
    pub(crate) lane: Arc<Lane>,
}

/// The bag of things. No part of it is dropped under the lock, because that runs user code.
#[derive(Default)]
pub(crate) struct Bag {
    things: Mutex<Things>,
}

#[derive(Default)]
struct Things {
    closed: bool,
    tasks: Vec<Joinable>,
    bells: Vec<Bell>,
    posted: Vec<Posted>,
    callbacks: Vec<Wrapped>,
}

macro_rules! shelves {
    ($($put:ident $take:ident $shelf:ident $thing:ty;)+) => {
        impl Bag {
            $(
                /// Puts it into the bag; if the bag is full, one thing goes, and after the end,
                /// this one.
                pub(crate) fn $put(&self, thing: $thing, rng: &mut Rng) {
                    let gone = self.locked(|things| {
                        let shelf = &mut things.$shelf;
                        if things.closed {
                            return Some(thing);
                        }
                        let gone = (shelf.len() >= SHELF_MAX).then(|| shelf.swap_remove(rng.index(SHELF_MAX)));
                        shelf.push(thing);
                        gone
                    });
                    drop(gone);
                }

                /// One of them, if there is any.
                pub(crate) fn $take(&self, rng: &mut Rng) -> Option<$thing> {
                    self.locked(|things| {
                        let shelf = &mut things.$shelf;
                        (!shelf.is_empty()).then(|| shelf.swap_remove(rng.index(shelf.len())))
                    })
                }
            )+
        }
    };
}

shelves! {
    put_task take_task tasks Joinable;
    put_bell take_bell bells Bell;
    put_posted take_posted posted Posted;
    put_callback take_callback callbacks Wrapped;
}

impl Bag {
    fn locked<R>(&self, f: impl FnOnce(&mut Things) -> R) -> R {
        f(&mut self.things.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Drops everything, now and in future; waits for a bell end.
    pub(crate) fn close(&self) {
        let things = self.locked(|things| std::mem::replace(things, Things { closed: true, ..Things::default() }));
        drop(things);
    }
}

/// Cancels a posted callback.
pub(crate) fn cancel(posted: &Posted, book: &Book) {
    if posted.cancel() {
        book.excuse(Kind::Cancelable, Excuse::Canceled);
    }
}

/// Wakes the task that awaits the [`Ring`], at the latest when it is dropped.
pub(crate) struct Bell(Arc<Mutex<Rung>>);

/// A wait for a [`Bell`].
pub(crate) struct Ring(Arc<Mutex<Rung>>);

#[derive(Default)]
struct Rung {
    rung: bool,
    waker: Option<Waker>,
}

pub(crate) fn bell() -> (Bell, Ring) {
    let rung = Arc::new(Mutex::new(Rung::default()));
    (Bell(rung.clone()), Ring(rung))
}

impl Drop for Bell {
    fn drop(&mut self) {
        let waker = {
            let mut rung = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            rung.rung = true;
            rung.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Ring {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        let mut rung = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if rung.rung {
            return Poll::Ready(());
        }
        let old = rung.waker.replace(cx.waker().clone());
        drop(rung);
        drop(old);
        Poll::Pending
    }
}

/// The limit of things of a kind in the bag.
const SHELF_MAX: usize = 64;
