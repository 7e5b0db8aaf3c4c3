//! The token of every callback, task and closure of the soak. It is entered in the book when it is
//! made, and again at its end, of whatever kind.

use super::book::{Book, Excuse, Kind};
use super::lane::{Entry, Lane, Mode, NOWHERE, Place, on_outside_thread};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One item of a runtime. 24 bytes, so that a closure with it fits a node of the scheduler.
pub(crate) struct Token {
    lane: Arc<Lane>,
    serial: u64,
    place: (u16, [u16; 2]),
    kind: Kind,
    ran: bool,
}

impl Token {
    /// An item without a place in the order of its lane.
    pub(crate) fn new(lane: &Arc<Lane>, kind: Kind) -> Token {
        Token::at(lane, kind, NOWHERE)
    }

    /// An item that is queued in its lane at once.
    pub(crate) fn queued(lane: &Arc<Lane>, kind: Kind) -> Token {
        if on_outside_thread() {
            lane.book.outside.fetch_add(1, Relaxed);
        }
        Token::at(lane, kind, lane.place())
    }

    fn at(lane: &Arc<Lane>, kind: Kind, (poster, number): Place) -> Token {
        // In halves, so that the place and the flags share eight bytes.
        let place = (poster, [number as u16, (number >> 16) as u16]);
        Token { serial: lane.book.made(kind), lane: lane.clone(), place, kind, ran: false }
    }

    pub(crate) fn book(&self) -> &Arc<Book> {
        &self.lane.book
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Runs the token's work inside its lane, and ends the token there.
    pub(crate) fn run<R>(mut self, mode: Mode, entry: Entry, work: impl FnOnce() -> R) -> R {
        let lane = self.lane.clone();
        let _inside = lane.enter(mode, entry);
        let (poster, [low, high]) = self.place;
        lane.arrive((poster, u32::from(low) | u32::from(high) << 16), mode);
        self.ran = true;
        // Dropped before `_inside`, also by a panic.
        let _token = self;
        work()
    }

    pub(crate) fn has_run(&self) -> bool {
        self.ran
    }

    /// Records that the token's work runs, or has stopped early.
    pub(crate) fn set_ran(&mut self, ran: bool) {
        self.ran = ran;
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let book = &self.lane.book;
        if !self.ran {
            if self.kind.is_on_state() && std::thread::panicking() {
                // The call was due, and the state was poisoned. (Or a panic released a color after
                // a shutdown, and that dropped the item; then the excuse would not be needed.)
                book.excuse(self.kind, Excuse::Poisoned);
            }
            // Dropping counts as running (C1). Sets handle that themselves.
            let mode = if self.kind == Kind::PostRead { Mode::Read } else { Mode::Write };
            let _inside = (self.kind.drops_in_color() && self.kind != Kind::SetPost)
                .then(|| self.lane.enter(mode, Entry::Inline));
        }
        book.ended(self.kind, self.serial, self.ran);
    }
}

/// A token for an item that is kept and never runs: it ends when it is dropped, in its color.
pub(crate) struct KeptToken(Token);

impl KeptToken {
    pub(crate) fn new(lane: &Arc<Lane>, kind: Kind) -> KeptToken {
        KeptToken(Token::new(lane, kind))
    }

    pub(crate) fn book(&self) -> &Arc<Book> {
        self.0.book()
    }
}

impl Drop for KeptToken {
    fn drop(&mut self) {
        let _inside = self.0.lane.enter(Mode::Write, Entry::Inline);
        self.0.ran = true;
    }
}

/// One lane that a set holds.
struct Hold {
    lane: Arc<Lane>,
    mode: Mode,
    place: Place,
}

/// A token for several colors at once.
pub(crate) struct SetToken {
    token: Token,
    holds: Vec<Hold>,
}

impl SetToken {
    /// For these lanes, each of which may occur several times; `home` is any lane of the runtime.
    pub(crate) fn new(home: &Arc<Lane>, kind: Kind, lanes: &[(Arc<Lane>, Mode)]) -> SetToken {
        let mut holds: Vec<Hold> = Vec::new();
        for (lane, mode) in lanes {
            match holds.iter_mut().find(|hold| Arc::ptr_eq(&hold.lane, lane)) {
                Some(hold) => hold.mode = hold.mode.max(*mode),
                None => holds.push(Hold { lane: lane.clone(), mode: *mode, place: NOWHERE }),
            }
        }
        if kind == Kind::SetPost {
            holds.iter_mut().for_each(|hold| hold.place = hold.lane.place());
        }
        SetToken { token: Token::new(home, kind), holds }
    }

    pub(crate) fn book(&self) -> &Arc<Book> {
        self.token.book()
    }

    /// As [`Token::run`], inside of all lanes.
    pub(crate) fn run<R>(mut self, entry: Entry, work: impl FnOnce() -> R) -> R {
        let holds = std::mem::take(&mut self.holds);
        // Left in reverse.
        let mut inside = Stack(Vec::with_capacity(holds.len()));
        for hold in &holds {
            inside.0.push(hold.lane.enter(hold.mode, entry));
            hold.lane.arrive(hold.place, hold.mode);
        }
        self.token.ran = true;
        let _token = self;
        work()
    }
}

impl Drop for SetToken {
    fn drop(&mut self) {
        if self.token.ran || self.token.kind != Kind::SetPost {
            return;
        }
        let mut inside = Stack(Vec::new());
        for hold in &self.holds {
            inside.0.push(hold.lane.enter(hold.mode, Entry::Inline));
        }
    }
}

/// A vector that drops its last item first.
struct Stack<T>(Vec<T>);

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// Records that the owner dropped a future, unless it finished.
pub(crate) struct Waiting {
    book: Arc<Book>,
    kind: Kind,
    over: bool,
}

impl Waiting {
    pub(crate) fn new(book: &Arc<Book>, kind: Kind) -> Waiting {
        Waiting { book: book.clone(), kind, over: false }
    }

    pub(crate) fn over(mut self) {
        self.over = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // In a panic its token has an excuse already, or has run.
        if !self.over && !std::thread::panicking() {
            self.book.excuse(self.kind, Excuse::Canceled);
        }
    }
}
