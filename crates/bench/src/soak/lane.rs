//! The check of one color: no overlap with a writer, and no overtaking.
//!
//! Each holder of a color enters its lane. A lane knows its holders and the source of each item. A
//! post carries its number among its poster's posts to this lane, if it is made while some color is
//! held for writing, or by one of the outside threads. Posts of one poster follow each other, so
//! they must arrive in that order (C2).
//!
//! Relaxed throughout: the lane must not order what the color should have ordered. Loads and stores
//! of data with one holder at a time are plain on purpose.

use super::book::Book;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

/// How a color is held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// How a holder enters a color.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// As a separate callback or poll, which never runs inside another one of the color.
    Turn,
    /// Inline, perhaps inside a callback of the same color.
    Inline,
}

/// One color, as seen by its checks.
pub(crate) struct Lane {
    pub(crate) book: Arc<Book>,
    /// Index among the lanes with a checked order, or [`PRIVATE`].
    number: u16,
    /// Readers inside, or -1 for a writer.
    inside: AtomicI32,
    /// The number of posts by holders of this lane, by target lane.
    sent: Vec<AtomicU32>,
    /// By poster: the latest post that ran.
    seen: Vec<AtomicU32>,
    /// By poster: the latest post that ran and held the color for writing.
    seen_write: Vec<AtomicU32>,
}

/// A post's place in the order of its poster: `(poster, number)`, counted from 1; 0 for none.
pub(crate) type Place = (u16, u32);

/// A lane without a checked order.
pub(crate) const PRIVATE: u16 = u16::MAX;

/// No place.
pub(crate) const NOWHERE: Place = (PRIVATE, 0);

struct Held {
    lane: Arc<Lane>,
    mode: Mode,
}

/// The order of the posts of one outside thread.
struct Outside {
    poster: u16,
    sent: Vec<Cell<u32>>,
}

thread_local! {
    /// The lanes that this thread is inside of, innermost last.
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    static OUTSIDE: RefCell<Option<Rc<Outside>>> = const { RefCell::new(None) };
}

/// Makes the calling thread an outside poster, the `thread`-th of its runtime.
pub(crate) fn be_outside_thread(thread: usize, lanes: usize) {
    let poster = (lanes + thread) as u16;
    let sent = (0..lanes).map(|_| Cell::new(0)).collect();
    OUTSIDE.with(|outside| *outside.borrow_mut() = Some(Rc::new(Outside { poster, sent })));
}

/// Whether the calling thread is an outside poster.
pub(crate) fn on_outside_thread() -> bool {
    OUTSIDE.with(|outside| outside.borrow().is_some())
}

impl Lane {
    /// One of `lanes` lanes with a checked order, with `threads` outside posters.
    pub(crate) fn new(book: &Arc<Book>, number: usize, lanes: usize, threads: usize) -> Arc<Lane> {
        let zeros = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Lane {
            book: book.clone(),
            number: number as u16,
            inside: AtomicI32::new(0),
            sent: zeros(lanes),
            seen: zeros(lanes + threads),
            seen_write: zeros(lanes + threads),
        })
    }

    /// A lane without a checked order.
    pub(crate) fn private(book: &Arc<Book>) -> Arc<Lane> {
        Lane::new(book, usize::from(PRIVATE), 0, 0)
    }

    fn problem(&self, what: impl FnOnce() -> String) {
        self.book.problem(|| format!("lane {}: {}", self.number, what()));
    }

    /// Takes a place for a post from here to this lane. The post must follow at once.
    pub(crate) fn place(&self) -> Place {
        if self.number == PRIVATE {
            return NOWHERE;
        }
        let to = usize::from(self.number);
        let from_lane = HELD.with(|held| {
            let held = held.borrow();
            let poster = held.iter().rfind(|held| held.mode == Mode::Write && held.lane.number != PRIVATE)?;
            let sent = &poster.lane.sent[to];
            let next = sent.load(Relaxed) + 1;
            sent.store(next, Relaxed);
            Some((poster.lane.number, next))
        });
        from_lane.unwrap_or_else(|| {
            OUTSIDE.with(|outside| match &*outside.borrow() {
                Some(outside) => {
                    outside.sent[to].set(outside.sent[to].get() + 1);
                    (outside.poster, outside.sent[to].get())
                }
                None => NOWHERE,
            })
        })
    }

    /// Records that the post with this place has started.
    pub(crate) fn arrive(&self, (poster, number): Place, mode: Mode) {
        if number == 0 {
            return;
        }
        let (seen, seen_write) = (&self.seen[usize::from(poster)], &self.seen_write[usize::from(poster)]);
        let before = match mode {
            Mode::Write => seen.load(Relaxed),
            // Readers may overtake each other.
            Mode::Read => seen_write.load(Relaxed),
        };
        if before >= number {
            self.problem(|| format!("C2: post {number} of poster {poster} ran after its post {before}"));
        }
        match mode {
            Mode::Write => {
                seen.store(number, Relaxed);
                seen_write.store(number, Relaxed);
            }
            Mode::Read => {
                seen.fetch_max(number, Relaxed);
            }
        }
    }

    /// Enters the lane until the returned value is dropped; records a problem if a forbidden holder
    /// is inside.
    pub(crate) fn enter(self: &Arc<Lane>, mode: Mode, entry: Entry) -> Inside {
        let held = HELD.with(|held| {
            let held = held.borrow();
            held.iter().filter(|held| Arc::ptr_eq(&held.lane, self)).map(|held| held.mode).max()
        });
        let leave = match mode {
            _ if entry == Entry::Inline && held == Some(Mode::Write) => Leave::Nothing,
            Mode::Write => match self.inside.compare_exchange(0, -1, Relaxed, Relaxed) {
                Ok(_) => Leave::Writer,
                Err(inside) => {
                    self.problem(|| format!("C1: a writer ({entry:?}) beside {}", holders(inside)));
                    Leave::Nothing
                }
            },
            Mode::Read => {
                let inside = self.inside.fetch_add(1, Relaxed);
                if inside < 0 {
                    self.problem(|| format!("C5: a reader ({entry:?}) beside {}", holders(inside)));
                }
                Leave::Reader
            }
        };
        HELD.with(|held| held.borrow_mut().push(Held { lane: self.clone(), mode }));
        Inside { lane: self.clone(), leave }
    }
}

fn holders(inside: i32) -> String {
    if inside < 0 { "a writer".to_owned() } else { format!("{inside} readers") }
}

enum Leave {
    Nothing,
    Writer,
    Reader,
}

/// A holder inside a lane.
pub(crate) struct Inside {
    lane: Arc<Lane>,
    leave: Leave,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let last = HELD.with(|held| held.borrow_mut().pop());
        if !last.is_some_and(|held| Arc::ptr_eq(&held.lane, &self.lane)) {
            self.lane.problem(|| "left by a thread that is not inside".to_owned());
        }
        let was = match self.leave {
            Leave::Nothing => return,
            Leave::Writer => self.inside_was(1, |inside| inside == -1),
            Leave::Reader => self.inside_was(-1, |inside| inside > 0),
        };
        if let Some(inside) = was {
            self.lane.problem(|| format!("C1: another holder entered meanwhile: {}", holders(inside)));
        }
    }
}

impl Inside {
    /// Adds to the count inside; returns the previous count if it was not as expected.
    fn inside_was(&self, add: i32, expected: impl Fn(i32) -> bool) -> Option<i32> {
        let inside = self.lane.inside.fetch_add(add, Relaxed);
        (!expected(inside)).then_some(inside)
    }
}
