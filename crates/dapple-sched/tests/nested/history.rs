//! The open closures at each moment, and the mistakes found.

use std::sync::{Mutex, MutexGuard};

use super::program::{COLORS, Use};

/// An agent, or a callback, has a color, and maybe a state of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub(crate) agent: usize,
    pub(crate) color: usize,
    pub(crate) state: Option<usize>,
    pub(crate) reads: bool,
}

/// Not synchronized with the threads of a model, so that it adds no schedules: they run one at a
/// time.
#[derive(Default)]
pub(crate) struct History(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    open: Vec<Open>,
    /// A closure that wrote it has unwound.
    poisoned: [bool; 2 * COLORS],
    wrong: Vec<String>,
}

/// The expected result of a `try_`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Runs,
    Fails,
    /// That depends on other threads.
    Either,
}

impl History {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn is_wrong(&self, what: String) {
        self.seen().wrong.push(what);
    }

    /// Begins a closure, which ends when the guard is dropped.
    pub(crate) fn enter(&self, agent: usize, uses: &[Use], bare: bool) -> Inside<'_> {
        let opens: Vec<Open> = uses
            .iter()
            .map(|it| Open { agent, color: it.color(), state: (!bare).then_some(it.state), reads: it.reads })
            .collect();
        let mut seen = self.seen();
        for new in &opens {
            for old in seen.open.clone() {
                let (same_state, same_color) = (new.state.is_some() && old.state == new.state, old.color == new.color);
                if !(old.reads && new.reads) && (same_state || (same_color && old.agent != agent)) {
                    seen.wrong.push(format!("{new:?} inside of {old:?}"));
                }
            }
        }
        seen.open.extend(&opens);
        Inside { history: self, opens }
    }

    /// The expected result for an agent that asks for this now. The agent's open closures tell
    /// whether it has the color already.
    pub(crate) fn answer(&self, agent: usize, uses: &[Use]) -> Answer {
        let seen = self.seen();
        let own = || seen.open.iter().filter(|open| open.agent == agent);
        let is_lent = |it: &Use| own().any(|open| open.state == Some(it.state) && !(open.reads && it.reads));
        let is_had = |it: &Use| own().any(|open| open.color == it.color() && (it.reads || !open.reads));
        match () {
            () if uses.iter().any(is_lent) => Answer::Fails,
            () if uses.iter().all(is_had) => Answer::Runs,
            () => Answer::Either,
        }
    }

    pub(crate) fn is_poisoned(&self, uses: &[Use]) -> bool {
        let seen = self.seen();
        uses.iter().any(|it| seen.poisoned[it.state])
    }

    pub(crate) fn is_open(&self, color: usize) -> bool {
        self.seen().open.iter().any(|open| open.color == color)
    }

    /// The colors of the closures that an agent has open.
    pub(crate) fn opened_by(&self, agent: usize) -> Vec<usize> {
        self.seen().open.iter().filter(|open| open.agent == agent).map(|open| open.color).collect()
    }

    pub(crate) fn wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.seen().wrong)
    }
}

/// A closure that is open.
pub(crate) struct Inside<'a> {
    history: &'a History,
    opens: Vec<Open>,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut seen = self.history.seen();
        for own in &self.opens {
            let is_own = |open: &Open| open.agent == own.agent && open.state == own.state && open.color == own.color;
            // The innermost one.
            if let Some(at) = seen.open.iter().rposition(is_own) {
                seen.open.remove(at);
            }
            if let Some(state) = own.state.filter(|_| !own.reads && std::thread::panicking()) {
                seen.poisoned[state] = true;
            }
        }
    }
}
