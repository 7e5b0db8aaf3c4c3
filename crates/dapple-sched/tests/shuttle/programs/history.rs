//! The observations of a program, in order, and the mistakes in them.

use std::sync::Mutex;

use super::program::Part;

/// Not synchronized with the threads of the model, so that it adds no schedules: they run one at a
/// time.
pub(super) struct History(Mutex<Seen>);

struct Seen {
    /// The agents in each color, for reading or alone.
    inside: Vec<(usize, bool)>,
    events: Vec<Event>,
    /// The posts of each poster, in order.
    posted: Vec<Posted>,
    wrong: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Starts(usize),
    Ends(usize),
}

struct Posted {
    poster: Poster,
    id: usize,
    parts: Vec<Part>,
    over: Option<Over>,
}

/// A poster, for the order of its posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Poster {
    Agent(usize),
    /// A callback, or a task.
    Op(usize),
}

/// The fate of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Ran,
    /// Dropped without having run.
    Dropped,
}

impl History {
    pub(super) fn new(colors: usize) -> History {
        History(Mutex::new(Seen {
            inside: vec![(0, false); colors],
            events: Vec::new(),
            posted: Vec::new(),
            wrong: Vec::new(),
        }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Seen) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub(super) fn posts(&self, poster: Poster, id: usize, parts: &[Part]) {
        self.with(|seen| seen.posted.push(Posted { poster, id, parts: parts.to_vec(), over: None }));
    }

    pub(super) fn is_over(&self, id: usize, over: Over) {
        self.with(|seen| {
            let posted = seen.posted.iter_mut().find(|posted| posted.id == id).expect("it was posted");
            match posted.over.replace(over) {
                None => {}
                Some(before) => seen.wrong.push(format!("{id}: {over:?} after {before:?}")),
            }
        });
    }

    /// Begins a hold of colors.
    pub(super) fn starts(&self, id: usize, parts: &[Part]) {
        self.with(|seen| {
            for part in parts {
                let (readers, alone) = &mut seen.inside[part.color];
                if *alone || (!part.reads && *readers > 0) {
                    // Printed at once, because the rest may never end.
                    eprintln!("operation {id} overlaps another one in color {}", part.color);
                    seen.wrong.push(format!("{id} overlaps another one in color {}", part.color));
                }
                if part.reads { *readers += 1 } else { *alone = true }
            }
            seen.events.push(Event::Starts(id));
        });
    }

    pub(super) fn ends(&self, id: usize, parts: &[Part]) {
        self.with(|seen| {
            for part in parts {
                let (readers, alone) = &mut seen.inside[part.color];
                if part.reads { *readers = readers.saturating_sub(1) } else { *alone = false }
            }
            seen.events.push(Event::Ends(id));
        });
    }

    /// Panics if there was a mistake. `may_drop`: accepted callbacks may have been dropped.
    pub(super) fn check(&self, may_drop: impl Fn(usize) -> bool) {
        self.with(|seen| {
            for posted in &seen.posted {
                match posted.over {
                    None => seen.wrong.push(format!("{} has neither run nor been dropped", posted.id)),
                    Some(Over::Dropped) if !may_drop(posted.id) => {
                        seen.wrong.push(format!("{} was dropped", posted.id));
                    }
                    Some(_) => {}
                }
            }
            seen.check_order();
            assert!(seen.wrong.is_empty(), "{:?}\n{:?}", seen.wrong, seen.events);
        });
    }
}

impl Seen {
    /// If two posts of one poster share a color, and one of them writes it, the second starts when
    /// the first has ended.
    fn check_order(&mut self) {
        let at = |event| self.events.iter().position(|seen| *seen == event);
        for (index, later) in self.posted.iter().enumerate() {
            for earlier in self.posted[..index].iter().filter(|earlier| earlier.poster == later.poster) {
                let conflict = later.parts.iter().any(|part| {
                    earlier.parts.iter().any(|other| part.color == other.color && !(part.reads && other.reads))
                });
                if !conflict {
                    continue;
                }
                if let (Some(ended), Some(started)) = (at(Event::Ends(earlier.id)), at(Event::Starts(later.id)))
                    && ended > started
                {
                    self.wrong.push(format!("{} overtook {}, both from {:?}", later.id, earlier.id, later.poster));
                }
            }
        }
    }
}
