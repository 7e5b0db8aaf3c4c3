//! The accounts of one runtime: everything given to it, and the fate of each item.
//!
//! Each posted item carries a [`Token`](super::token::Token), which is entered here when it is made
//! and again when it ends. Besides counts, there are sums of a hash of the serial numbers: so a
//! lost callback and a repeated one cannot cancel each other out.
//!
//! All accesses are relaxed: the accounts must not order what the scheduler under test should have
//! ordered.

use crate::rng::mix;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $place:ident;)+) => {
        /// The kinds of items given to a runtime.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum Kind { $($(#[$doc])* $kind),+ }

        impl Kind {
            pub(crate) const ALL: &[Kind] = &[$(Kind::$kind),+];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),+ }
            }

            /// Whether an item that does not run must be dropped while its color is held.
            pub(crate) fn drops_in_color(self) -> bool {
                match self { $(Kind::$kind => kinds!(@ $place)),+ }
            }
        }
    };
    (@ in_color) => { true };
    (@ anywhere) => { false };
}

kinds! {
    Post "post" in_color;
    Large "post, large closure" in_color;
    Ranked "post_with a priority" in_color;
    // A refused one is dropped by its poster.
    TryPost "try_post" anywhere;
    Cancelable "post_cancellable" in_color;
    Wrap "wrap: closures" in_color;
    Call "wrap: calls" in_color;
    StatePost "Colored::post" in_color;
    PostRead "Colored::post_read" in_color;
    SetPost "when().post" in_color;
    Task "tasks" in_color;
    Background "background tasks" in_color;
    // These closures belong to the future or the caller, which drops them anywhere.
    With "with" anywhere;
    Read "read" anywhere;
    SetWith "when().with" anywhere;
    TryWith "try_with" anywhere;
    TryRead "try_read" anywhere;
    SetTry "when().try_with" anywhere;
    WithBlocking "with_blocking" anywhere;
    ReadBlocking "read_blocking" anywhere;
    SetBlocking "when().with_blocking" anywhere;
    State "states" in_color;
}

impl Kind {
    /// Whether an item of this kind ends soon; others may end only with their runtime.
    fn is_brief(self) -> bool {
        !matches!(self, Kind::State | Kind::Wrap | Kind::Background)
    }

    /// Whether it is a closure on a state, which does not run if the state is poisoned.
    pub(crate) fn is_on_state(self) -> bool {
        use Kind::*;
        matches!(self, StatePost | PostRead | SetPost | With | Read | SetWith | TryWith | TryRead | SetTry)
            || matches!(self, WithBlocking | ReadBlocking | SetBlocking)
    }
}

/// Why an accepted or offered item has not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excuse {
    /// Offered and not accepted: `Full`, `ShutDown`, `Busy`.
    Refused,
    /// Taken back by its owner: canceled, aborted, or a dropped future.
    Canceled,
    /// Its state was poisoned.
    Poisoned,
}

/// The account of one kind, apart from its neighbors in memory, because all threads write it.
#[derive(Default)]
#[repr(align(128))]
struct Account {
    made: AtomicU64,
    ran: AtomicU64,
    unrun: AtomicU64,
    excused: [AtomicU64; 3],
    made_sum: AtomicU64,
    ended_sum: AtomicU64,
}

/// An account at one moment.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Given to the runtime, or offered.
    pub(crate) made: u64,
    /// Ran.
    pub(crate) ran: u64,
    /// Was dropped without having run.
    pub(crate) unrun: u64,
    /// Of those, by [`Excuse`].
    pub(crate) excused: [u64; 3],
    /// Whether the ended ones equal the made ones, by their serial numbers.
    pub(crate) same: bool,
}

impl Entry {
    pub(crate) fn outstanding(&self) -> u64 {
        self.made.wrapping_sub(self.ran).wrapping_sub(self.unrun)
    }

    /// Dropped without a request: a shutdown may do this, and nothing else.
    pub(crate) fn dropped(&self) -> u64 {
        self.unrun.wrapping_sub(self.excused.iter().sum())
    }

    pub(crate) fn add(&mut self, other: &Entry) {
        self.made += other.made;
        self.ran += other.ran;
        self.unrun += other.unrun;
        for (sum, more) in self.excused.iter_mut().zip(other.excused) {
            *sum += more;
        }
        self.same &= other.same;
    }
}

/// Deliberate panics, and where they were reported.
#[derive(Default)]
pub(crate) struct Panics {
    /// Begun, by the soak or by an access to a poisoned state.
    pub(crate) thrown: AtomicU64,
    /// Reported to the runtime's handler.
    pub(crate) told: AtomicU64,
    /// Found in a join handle.
    pub(crate) joined: AtomicU64,
    /// Caught by a thread that ran the work inline.
    pub(crate) caught: AtomicU64,
}

/// The accounts of one runtime, and its problems.
pub(crate) struct Book {
    accounts: Vec<Account>,
    serial: AtomicU64,
    outstanding: AtomicU64,
    steps: AtomicU64,
    /// Callbacks from threads outside of the runtime.
    pub(crate) outside: AtomicU64,
    /// Programs of `nesting` that are over.
    pub(crate) nested: AtomicU64,
    pub(crate) panics: Panics,
    broken: AtomicUsize,
    problems: Mutex<Vec<String>>,
}

impl Book {
    pub(crate) fn new() -> Book {
        Book {
            accounts: Kind::ALL.iter().map(|_| Account::default()).collect(),
            serial: AtomicU64::new(0),
            outstanding: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            outside: AtomicU64::new(0),
            nested: AtomicU64::new(0),
            panics: Panics::default(),
            broken: AtomicUsize::new(0),
            problems: Mutex::new(Vec::new()),
        }
    }

    fn account(&self, kind: Kind) -> &Account {
        &self.accounts[kind as usize]
    }

    /// Enters a new item; returns its serial number.
    pub(crate) fn made(&self, kind: Kind) -> u64 {
        let serial = self.serial.fetch_add(1, Relaxed);
        self.outstanding.fetch_add(u64::from(kind.is_brief()), Relaxed);
        let account = self.account(kind);
        account.made.fetch_add(1, Relaxed);
        account.made_sum.fetch_add(mix(serial), Relaxed);
        serial
    }

    /// Enters its end.
    pub(crate) fn ended(&self, kind: Kind, serial: u64, ran: bool) {
        let account = self.account(kind);
        if ran { &account.ran } else { &account.unrun }.fetch_add(1, Relaxed);
        account.ended_sum.fetch_add(mix(serial), Relaxed);
        self.outstanding.fetch_sub(u64::from(kind.is_brief()), Relaxed);
        self.steps.fetch_add(1, Relaxed);
    }

    /// Records why one of a kind has not run, before or after its end.
    pub(crate) fn excuse(&self, kind: Kind, excuse: Excuse) {
        self.account(kind).excused[excuse as usize].fetch_add(1, Relaxed);
    }

    /// The number of items without an end, of those that should end soon.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding.load(Relaxed)
    }

    /// The number of items of one kind without an end.
    pub(crate) fn outstanding_of(&self, kind: Kind) -> u64 {
        let account = self.account(kind);
        let ended = account.ran.load(Relaxed) + account.unrun.load(Relaxed);
        account.made.load(Relaxed).saturating_sub(ended)
    }

    /// Grows with every event.
    pub(crate) fn progress(&self) -> u64 {
        self.steps.load(Relaxed) + self.serial.load(Relaxed)
    }

    /// Records a broken promise. Keeps the first few.
    pub(crate) fn problem(&self, text: impl FnOnce() -> String) {
        if self.broken.fetch_add(1, Relaxed) < PROBLEMS_MAX {
            self.problems.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(text());
        }
    }

    /// The problems so far, with a line for those not kept.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let more = self.broken.load(Relaxed).saturating_sub(PROBLEMS_MAX);
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        problems
    }

    /// All accounts, in the order of [`Kind::ALL`].
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let entry = |account: &Account| Entry {
            made: account.made.load(Relaxed),
            ran: account.ran.load(Relaxed),
            unrun: account.unrun.load(Relaxed),
            excused: [0, 1, 2].map(|excuse: usize| account.excused[excuse].load(Relaxed)),
            same: account.made_sum.load(Relaxed) == account.ended_sum.load(Relaxed),
        };
        self.accounts.iter().map(entry).collect()
    }

    /// One line for each kind with outstanding items.
    pub(crate) fn outstanding_text(&self) -> String {
        let mut text = String::new();
        for (kind, entry) in Kind::ALL.iter().zip(self.entries()) {
            if entry.outstanding() != 0 {
                let (made, ran, unrun) = (entry.made, entry.ran, entry.unrun);
                text.push_str(&format!(
                    "  {}: {} outstanding of {made}; {ran} ran, {unrun} dropped\n",
                    kind.name(),
                    entry.outstanding() as i64
                ));
            }
        }
        text
    }
}

/// One broken part breaks everything else, so the first problems matter.
const PROBLEMS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_runs_twice_do_not_cancel_out() {
        let book = Book::new();
        let (one, two) = (book.made(Kind::Post), book.made(Kind::Post));
        book.ended(Kind::Post, one, true);
        book.ended(Kind::Post, one, true);
        let entry = book.entries()[Kind::Post as usize];
        assert_eq!((entry.outstanding(), entry.same), (0, false));
        book.ended(Kind::Post, two, false);
        assert_eq!(book.entries()[Kind::Post as usize].outstanding(), u64::MAX);
    }

    #[test]
    fn what_has_an_excuse_was_not_dropped() {
        let book = Book::new();
        let serial = book.made(Kind::TryPost);
        book.ended(Kind::TryPost, serial, false);
        assert_eq!(book.entries()[Kind::TryPost as usize].dropped(), 1);
        book.excuse(Kind::TryPost, Excuse::Refused);
        let entry = book.entries()[Kind::TryPost as usize];
        assert_eq!((entry.dropped(), entry.same), (0, true));
    }
}
