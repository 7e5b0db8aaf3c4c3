//! The states of the soak: each change makes the value inconsistent for a moment, so that a
//! forbidden reader detects it.

use super::book::{Book, Kind};
use super::lane::Lane;
use super::token::KeptToken;
use crate::rng::Rng;
use dapple_sched::{Color, Colored};
use std::hint::black_box;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The value of a state. Plain memory: ThreadSanitizer sees it too.
pub(crate) struct Value {
    token: KeptToken,
    /// Equal to `b` unless a writer is active.
    a: u64,
    b: u64,
    /// Whether a panic came between the two.
    torn: bool,
}

impl Value {
    pub(crate) fn new(lane: &Arc<Lane>) -> Value {
        Value { token: KeptToken::new(lane, Kind::State), a: 0, b: 0, torn: false }
    }

    /// Changes the value; takes a while.
    pub(crate) fn write(&mut self, rng: &mut Rng) {
        if std::mem::take(&mut self.torn) {
            self.b = self.a;
        }
        self.check("a writer");
        self.a += 1;
        work(black_box(rng));
        self.b += 1;
        self.check("a writer, afterwards,");
    }

    /// Reads twice.
    pub(crate) fn read(&self, rng: &mut Rng) {
        if self.torn {
            return;
        }
        self.check("a reader");
        let before = *black_box(&self.a);
        work(black_box(rng));
        let after = *black_box(&self.a);
        if before != after {
            self.token.book().problem(|| format!("C5: a state went from {before} to {after} under a reader"));
        }
    }

    /// Panics in the middle of a change.
    pub(crate) fn tear(&mut self) -> ! {
        self.torn = true;
        self.a += 1;
        panic_on_purpose(self.token.book())
    }

    fn check(&self, who: &str) {
        let (a, b) = (*black_box(&self.a), *black_box(&self.b));
        if a != b {
            self.token.book().problem(|| format!("C1: {who} found a half-changed state: {a} and {b}"));
        }
    }
}

/// A state with the lane of its color.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) state: Colored<Value>,
    pub(crate) lane: Arc<Lane>,
}

impl State {
    pub(crate) fn new(lane: &Arc<Lane>, color: &Color) -> State {
        State { state: Colored::with_color(Value::new(lane), color), lane: lane.clone() }
    }

    /// Makes a poisoned state accessible again, most of the time.
    pub(crate) fn mend(&self, rng: &mut Rng) {
        if self.state.is_poisoned() && !rng.once_in(4) {
            self.state.clear_poison();
        }
    }
}

/// Panics without output on standard error.
pub(crate) fn panic_on_purpose(book: &Book) -> ! {
    book.panics.thrown.fetch_add(1, Relaxed);
    resume_unwind(Box::new(OnPurpose))
}

struct OnPurpose;

/// The work of a callback: mostly almost none; sometimes long enough for other posts, steals, or
/// the slow-callback report.
pub(crate) fn work(rng: &mut Rng) {
    match rng.below(10_000) {
        0..7_000 => {}
        7_000..9_000 => spin(rng.range(10, 2_000)),
        // If threads outnumber cores, this lets another thread run in the middle.
        9_000..9_800 => std::thread::yield_now(),
        9_800..9_990 => spin(rng.range(2_000, 50_000)),
        9_990..9_999 => std::thread::sleep(Duration::from_micros(rng.range(50, 2_000))),
        _ => std::thread::sleep(Duration::from_millis(rng.range(2, 20))),
    }
}

fn spin(rounds: u64) {
    let mut number = rounds;
    for _ in 0..rounds {
        number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}
