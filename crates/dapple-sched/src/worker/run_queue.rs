//! A worker's queue of runnable colors: two lists for each priority, first in first out.
//!
//! Part of the worker's lock. Lists are doubly linked through the cells, so that a color can leave
//! from the middle: when a higher priority arrives in it, when it is stolen, or when a waiter's
//! turn runs it in line.
//!
//! A color's *rank* is its priority, doubled, plus [`EXPRESS`] if it has work from outside: from a
//! thread that is not a worker, an I/O event, a timer. Each rank has a list. If a million colors
//! always have more to run, a round of an ordinary list takes a tenth of a second; on the express
//! list, new events wait only a few turns.
//!
//! A color that a task waits for in the middle of its poll goes to the front of its express list:
//! the task keeps its holds until then, and each task that reaches the same color waits with it. At
//! most every other pick of an express list takes such a color, and a few more in a row
//! ([`RunQueue::put_first`]).
//!
//! No color starves, because
//!
//! - of the two lists of a priority, each has its share of the picks of that priority while both
//!   have colors: every other one, unless the program set another share ([`Share`]),
//! - every [`FAIR_PICK`]-th pick goes to one of the priorities in turn.
//!
//! So a color with `k` others before it in its list starts after at most `2 (k + 1)` picks if all
//! have the same priority, and otherwise after `2 LEVELS FAIR_PICK (k + 1)`; with another share, of
//! one pick in `n`, replace 2 by `n`. In an express list, where later colors may go to the front,
//! replace `k + 1` by `2 (k + 1)` + [`FIRSTS_MAX`].

use std::ptr::{self, NonNull};

use crate::color::cell::{ColorCell, State};
use crate::color::rights::{ColorRef, FifoGuard, HomeGuard};
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::task::LightQueue;
use crate::task::light::STRETCH_MAX;
use crate::worker::policed::{Board, PolicedHome};
use crate::worker::tuning::{Credit, Share};

/// Runnable colors, by rank.
pub(crate) struct RunQueue {
    lists: [List; RANKS],
    /// The owner of this queue: the runtime, not to be dereferenced, and the index of the worker.
    shared: *const Shared,
    worker: u16,
    /// Bit `n` is set if list `n` is not empty, and [`POLICED`] if a policy of the program's own
    /// picks.
    occupied: u32,
    /// The bits of a rank that choose a list: all of them, or none under a policy.
    rank_mask: u8,
    /// Under a policy, which has to know each change of a color, above every rank; otherwise 0.
    raise_always: u8,
    len: usize,
    /// Counts picks while several lists have colors, for the share of the lower levels.
    picks: u32,
    /// The share of an express list in the picks of its priority, and for each priority whether its
    /// express list is next.
    event_share: Share,
    express_credits: [Credit; LEVELS],
    /// How many colors may still go to the front, for each priority.
    firsts: [u8; LEVELS],
    /// The worker has stopped: nothing may be queued here again.
    pub(crate) closed: bool,
    /// Light tasks; colors and they take turns.
    pub(crate) light: LightQueue,
    /// The colors that the policy knows, if there is a policy.
    pub(super) board: Option<Box<Board>>,
}

#[derive(Clone, Copy)]
struct List {
    head: *mut ColorCell,
    tail: *mut ColorCell,
}

// SAFETY: the lists are intrusive; their cells are `Sync` and are linked and unlinked under this
// queue's lock.
unsafe impl Send for RunQueue {}

impl RunQueue {
    pub(crate) fn new(event_share: Share, shared: *const Shared, worker: usize) -> RunQueue {
        let empty = List { head: ptr::null_mut(), tail: ptr::null_mut() };
        RunQueue {
            lists: [empty; RANKS],
            shared,
            worker: worker as u16,
            occupied: 0,
            rank_mask: RANKS as u8 - 1,
            raise_always: 0,
            len: 0,
            picks: 0,
            event_share,
            express_credits: [Credit::DUE; LEVELS],
            firsts: [FIRSTS_MAX; LEVELS],
            closed: false,
            light: LightQueue::default(),
            board: None,
        }
    }

    /// Whether this queue's lock is the home lock of a color: true until the lock is released, or
    /// its holder moves the color.
    #[inline]
    pub(crate) fn is_home_of(&self, cell: &ColorCell) -> bool {
        // Relaxed: `home` changes only under the locks of the old and the new home.
        cell.home.load(Relaxed) == self.worker && ptr::eq(cell.shared, self.shared)
    }

    /// Whether the other queue belongs to the same runtime.
    pub(crate) fn is_beside(&self, other: &RunQueue) -> bool {
        ptr::eq(self.shared, other.shared)
    }

    /// The index of this queue's worker.
    #[inline]
    pub(crate) fn worker(&self) -> usize {
        usize::from(self.worker)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many light tasks go next, if there are some; 0 if a color does. Compared with colors of
    /// their own priority, the lowest, each task gets as many polls as each color gets turns;
    /// compared with colors of a higher priority, tasks get one pick in [`FAIR_PICK`]. Work from
    /// outside has its share of the picks, whether in tasks or in colors.
    #[inline]
    pub(crate) fn tasks_next(&mut self) -> usize {
        if self.len == 0 { self.light.len() } else { self.tasks_beside_colors() }
    }

    #[inline(never)]
    fn tasks_beside_colors(&mut self) -> usize {
        let (tasks, colors) = (self.light.len(), self.len);
        let higher = self.occupied & !(POLICED | LOWEST_BITS) != 0;
        let express_color = self.occupied & u32::from(EXPRESS) << 1 != 0;
        // Work from outside, in tasks or in colors, does not wait for a whole round of the other
        // kind.
        let alternates = higher || express_color || self.light.has_express();
        let polls = (self.light.credit / colors).min(tasks);
        let tasks_go = if alternates {
            let share = match (self.light.has_express(), express_color) {
                _ if higher => Share::one_of(FAIR_PICK),
                (true, false) => self.event_share,
                (false, true) => self.event_share.rest(),
                _ => Share::HALF,
            };
            self.light.turn.goes(share)
        } else {
            self.light.turn.alone(polls > 0);
            polls > 0
        };
        if tasks_go {
            return if express_color { 1 } else { polls.max(1) };
        }
        self.light.credit = (self.light.credit + tasks).min(tasks.saturating_mul(colors));
        0
    }

    /// Notes that so many tasks were taken.
    #[inline]
    pub(crate) fn note_taken(&mut self, tasks: usize) {
        if self.len > 0 {
            self.light.credit = self.light.credit.saturating_sub(tasks * self.len);
        }
    }

    /// Whether a color waits with a priority above the lowest, or with work from outside.
    #[inline]
    pub(super) fn higher_waits(&self) -> bool {
        self.occupied & !1 != 0
    }

    /// An estimate of the number of turns that the waiting work takes.
    #[inline]
    pub(super) fn turns_waiting(&self) -> usize {
        self.len + self.light.len().div_ceil(STRETCH_MAX)
    }

    /// Puts a color at the end of the list of that rank.
    ///
    /// # Safety
    /// The color is at home here, `Queued`, and in no list.
    #[inline]
    pub(crate) unsafe fn append(&mut self, color: ColorRef<'_>, rank: u8) {
        debug_assert!(!self.closed);
        self.len += 1;
        // SAFETY: promised by the caller.
        unsafe { self.link(color, rank & self.rank_mask) };
    }

    /// Moves a queued color to the front of its express list. It does not if too many of the last
    /// colors picked from that list were moved to the front, so that the others get their turns;
    /// and not under a policy.
    ///
    /// # Safety
    /// The color is in this queue.
    pub(crate) unsafe fn put_first(&mut self, color: ColorRef<'_>) {
        // SAFETY: promised by the caller; `&mut self` is the home lock.
        unsafe {
            let at = color.links(|links| links.list);
            let firsts = &mut self.firsts[level_of(at)];
            if self.occupied & POLICED == 0 && *firsts > 0 {
                *firsts -= 1;
                self.unlink(color);
                self.prepend(color, at);
            }
        }
    }

    /// # Safety
    /// The color is in no list, and may be in that one.
    unsafe fn prepend(&mut self, color: ColorRef<'_>, at: u8) {
        let list = &mut self.lists[usize::from(at) & (RANKS - 1)];
        // SAFETY: `&mut self` is the home lock of the color, and of the first one in the list.
        unsafe {
            color.links(|links| {
                links.list = at | FIRST;
                links.prev = ptr::null_mut();
                links.next = list.head;
            });
            match NonNull::new(list.head) {
                Some(head) => head.as_ref().links(|links| links.prev = color.ptr().as_ptr()),
                None => list.tail = color.ptr().as_ptr(),
            }
        }
        list.head = color.ptr().as_ptr();
        self.occupied |= 1 << at;
    }

    /// # Safety
    /// The color is in no list, and may be in that one.
    #[inline]
    unsafe fn link(&mut self, color: ColorRef<'_>, at: u8) {
        let list = &mut self.lists[usize::from(at) & (RANKS - 1)];
        // SAFETY: `&mut self` is the home lock of the color, and of the last one in the list.
        unsafe {
            color.links(|links| {
                links.list = at;
                links.prev = list.tail;
                links.next = ptr::null_mut();
            });
            match NonNull::new(list.tail) {
                Some(tail) => tail.as_ref().links(|links| links.next = color.ptr().as_ptr()),
                None => list.head = color.ptr().as_ptr(),
            }
        }
        list.tail = color.ptr().as_ptr();
        self.occupied |= 1 << at;
    }

    /// Takes a color out of its list; the caller sets its next state.
    ///
    /// # Safety
    /// The color is in this queue.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, color: ColorRef<'_>) {
        self.with_board(color, Board::forget);
        self.len -= 1;
        // SAFETY: promised by the caller.
        unsafe { self.unlink(color) };
    }

    /// # Safety
    /// The color is in this queue.
    #[inline]
    unsafe fn unlink(&mut self, color: ColorRef<'_>) {
        // SAFETY: as in `link`; neighbors are in this queue too.
        unsafe {
            let (at, prev, next) = color.links(|links| (links.list, links.prev, links.next));
            let list = &mut self.lists[usize::from(at) & (RANKS - 1)];
            match NonNull::new(prev) {
                Some(prev) => prev.as_ref().links(|links| links.next = next),
                None => list.head = next,
            }
            match NonNull::new(next) {
                Some(next) => next.as_ref().links(|links| links.prev = prev),
                None => list.tail = prev,
            }
            if list.head.is_null() {
                self.occupied &= !(1 << (at & !FIRST));
            }
        }
    }

    /// Whether a queued color has to move, or its change be noted, now that its rank is `rank`.
    #[inline]
    pub(crate) fn outranks(&self, rank: u8, queued: u8) -> bool {
        rank | self.raise_always > queued
    }

    /// Moves a queued color to the list of another rank.
    ///
    /// # Safety
    /// The color is in this queue.
    pub(crate) unsafe fn move_up(&mut self, color: ColorRef<'_>, rank: u8) {
        if self.is_policed() {
            // Its place is its age.
            return self.with_board(color, Board::note_change);
        }
        // SAFETY: promised by the caller.
        unsafe {
            self.unlink(color);
            self.link(color, rank);
        }
    }

    /// Reports a change of a color that is at home here to a policy's board, if there is one.
    fn with_board(&mut self, color: ColorRef<'_>, tell: fn(&mut Board, PolicedHome<'_, '_>)) {
        if let Some(mut board) = self.board.take() {
            HomeGuard::of(&mut *self, color).into_iter().for_each(|home| tell(&mut board, home));
            self.board = Some(board);
        }
    }

    /// Takes the next color, which is `Running` from here on: the oldest of the highest priority,
    /// from outside or not according to the share; but every [`FAIR_PICK`]-th time one of another
    /// priority in turn. `None` also if a policy has to be asked.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<ColorCell>> {
        // Nearly always only the first list has colors.
        let color = if self.occupied == 1 { self.pop_from(0) } else { self.pop_ranked() }?;
        // SAFETY: `&mut self` is its home lock, which owns the fifo until the color runs.
        unsafe {
            FifoGuard::new(ColorRef::new(color)).reset_rank();
            color.as_ref().links(|links| links.state = State::Running);
        }
        Some(color)
    }

    #[inline(never)]
    fn pop_ranked(&mut self) -> Option<NonNull<ColorCell>> {
        if self.occupied == 0 || self.is_policed() {
            return None;
        }
        let rank = self.pick_rank();
        let color = self.pop_from(rank)?;
        // SAFETY: just taken out, under this lock.
        let stood_first = unsafe { color.as_ref().links(|links| links.list & FIRST != 0) };
        if rank as u8 & EXPRESS != 0 && !stood_first {
            let firsts = &mut self.firsts[level_of(rank as u8)];
            *firsts = (*firsts + 1).min(FIRSTS_MAX);
        }
        Some(color)
    }

    /// Takes the oldest color of a list; the caller sets its next state.
    #[inline]
    fn pop_from(&mut self, rank: usize) -> Option<NonNull<ColorCell>> {
        let list = &mut self.lists[rank & (RANKS - 1)];
        let color = NonNull::new(list.head)?;
        // SAFETY: it is the head of one of our lists, and the other one is its neighbor.
        unsafe {
            list.head = color.as_ref().links(|links| links.next);
            match NonNull::new(list.head) {
                Some(next) => {
                    next.as_ref().links(|links| links.prev = ptr::null_mut());
                    // When its turn comes, the processor has fetched its first node.
                    FifoGuard::new(ColorRef::new(next)).prefetch();
                }
                None => {
                    list.tail = ptr::null_mut();
                    self.occupied &= !(1 << rank);
                }
            }
        }
        self.len -= 1;
        Some(color)
    }

    /// The rank of the next color, the oldest in its list; some list is not empty.
    fn pick_rank(&mut self) -> usize {
        self.picks = self.picks.wrapping_add(1);
        // Bit `2 n` for priority `n`.
        let levels = (self.occupied | self.occupied >> 1) & ORDINARY_BITS;
        let mut level_bit = levels.ilog2();
        if self.picks.is_multiple_of(FAIR_PICK) {
            let start = (self.picks / FAIR_PICK) % LEVELS as u32 * 2;
            // Twice the mask, so that the search wraps around.
            level_bit = (start + ((levels | levels << RANKS) >> start).trailing_zeros()) % RANKS as u32;
        }
        let ordinary = self.occupied >> level_bit & 1 != 0;
        let express = self.occupied >> level_bit & 2 != 0;
        let credit = &mut self.express_credits[level_bit as usize / 2 % LEVELS];
        let takes_express = if ordinary && express {
            credit.goes(self.event_share)
        } else {
            credit.alone(express);
            express
        };
        level_bit as usize + usize::from(takes_express)
    }

    /// Visits the queued colors, lowest rank and oldest first, until `visit` returns false.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(HomeGuard<'_, &mut RunQueue>) -> bool) {
        // Under a policy the second list is the older one.
        let older = usize::from(self.is_policed());
        for rank in 0..RANKS {
            let mut at = self.lists[rank ^ older].head;
            while let Some(color) = NonNull::new(at) {
                // SAFETY: the color is in this queue, and `&mut self` is its home lock; a visit
                // takes no other color out.
                let home = unsafe {
                    at = color.as_ref().links(|links| links.next);
                    HomeGuard::new(self, ColorRef::new(color))
                };
                if !visit(home) {
                    return;
                }
            }
        }
    }

    /// From now on a policy picks, which knows no color yet; queued colors keep the order of `pop`.
    pub(super) fn police(&mut self) {
        let queued: Vec<_> = std::iter::from_fn(|| self.pop_ranked()).collect();
        self.occupied |= POLICED;
        self.rank_mask = 0;
        self.raise_always = 1 << 7;
        self.board = Some(Box::default());
        for color in queued {
            // SAFETY: just taken out, under this lock, and still `Queued`.
            unsafe { self.append(ColorRef::new(color), UNTOLD) };
        }
    }

    /// From now on [`RunQueue::pop`] picks again. Queued colors stay in place: the oldest of the
    /// two lists goes, in turn.
    pub(super) fn end_policing(&mut self) {
        self.occupied &= !POLICED;
        self.rank_mask = RANKS as u8 - 1;
        self.raise_always = 0;
        self.board = None;
    }

    #[inline]
    pub(super) fn is_policed(&self) -> bool {
        self.occupied & POLICED != 0
    }

    /// The oldest color, under a policy.
    pub(super) fn oldest(&mut self) -> Option<HomeGuard<'_, &mut RunQueue>> {
        // The colors that a policy knows are older than all others.
        let [untold, told, ..] = &self.lists;
        let oldest = NonNull::new(told.head).or(NonNull::new(untold.head))?;
        // SAFETY: it is in this queue, and `&mut self` is its lock.
        Some(unsafe { HomeGuard::new(self, ColorRef::new(oldest)) })
    }

    /// The oldest color that the policy does not know yet, to be reported now.
    pub(super) fn tell_next(&mut self) -> Option<HomeGuard<'_, &mut RunQueue>> {
        let color = NonNull::new(self.lists[usize::from(UNTOLD)].head)?;
        // SAFETY: as in `oldest`.
        unsafe {
            let color = ColorRef::new(color);
            self.unlink(color);
            self.link(color, TOLD);
            Some(HomeGuard::new(self, color))
        }
    }
}

/// Under a policy, the list of colors that it does not know: the list of a masked rank.
const UNTOLD: u8 = 0;

/// Under a policy, the list of colors that it knows.
pub(super) const TOLD: u8 = 1;

/// Set while a policy of the program's own picks. Never set alone, so that [`RunQueue::pop`] needs
/// no separate test for it.
const POLICED: u32 = 1 << 31;

/// Priorities from 0 to 7.
const LEVELS: usize = 8;

/// Two lists for each of them.
const RANKS: usize = 2 * LEVELS;

/// The bit of a rank for work from outside.
pub(crate) const EXPRESS: u8 = 1;

/// The bit of [`Links::list`](crate::color::cell::Links::list) for a color that was moved to the
/// front.
pub(crate) const FIRST: u8 = 1 << 7;

/// This many colors may go to the front in a row.
const FIRSTS_MAX: u8 = 16;

/// The priority of a rank.
#[inline]
fn level_of(rank: u8) -> usize {
    usize::from(rank) / 2 % LEVELS
}

/// The lists of the lowest priority, which light tasks have.
const LOWEST_BITS: u32 = 0b11;

/// The ordinary lists.
const ORDINARY_BITS: u32 = 0x5555;

/// Every so often a pick goes to a lower level.
const FAIR_PICK: u32 = 32;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;
    use crate::color::cell::{Kind, Links};

    /// Queues one color of each of the given ranks, and each again as soon as it is picked.
    fn flood(ranks: &[u8], picks: usize) -> Vec<u8> {
        flood_with(Share::HALF, ranks, picks)
    }

    fn flood_with(share: Share, ranks: &[u8], picks: usize) -> Vec<u8> {
        let cells: Vec<_> =
            ranks.iter().map(|_| ColorCell::new(ptr::null(), Kind::Fresh, 1, 0, Links::idle())).collect();
        let mut queue = RunQueue::new(share, ptr::null(), 0);
        let push = |queue: &mut RunQueue, at: usize| {
            // SAFETY: this thread alone has the cells, and this one is in no queue.
            unsafe { queue.append(ColorRef::new(NonNull::from(&cells[at])), ranks[at]) };
        };
        (0..ranks.len()).for_each(|at| push(&mut queue, at));
        let pick = |_| {
            let color = queue.pop().expect("all were queued again");
            let at = cells.iter().position(|cell| NonNull::from(cell) == color).expect("it is one of them");
            assert_eq!(queue.len(), ranks.len() - 1);
            push(&mut queue, at);
            ranks[at]
        };
        (0..picks).map(pick).collect()
    }

    /// The longest wait of a rank.
    fn longest_wait(picked: &[u8], rank: u8) -> usize {
        picked.split(|&picked| picked == rank).map(<[u8]>::len).max().expect("there is a last part")
    }

    #[test]
    fn no_rank_starves_beside_any_others() {
        // All ranks; the ordinary lists; and pairs in which the lower rank could miss its turns.
        let mut sets = vec![(0..16).collect::<Vec<u8>>(), (0..16).step_by(2).collect()];
        sets.extend((0..15).map(|low| vec![low, 15]));
        sets.extend((0..14).map(|low| vec![low & !1, low | 1, 14, 15]));
        for ranks in sets {
            let picked = flood(&ranks, 10_000);
            for &rank in &ranks {
                let bound = 2 * LEVELS * FAIR_PICK as usize;
                assert!(longest_wait(&picked, rank) < bound, "{rank} of {ranks:?}: {}", longest_wait(&picked, rank));
            }
        }
    }

    #[test]
    fn work_from_outside_takes_turns_with_other_work() {
        assert_eq!(flood(&[0, 1], 6), [1, 0, 1, 0, 1, 0]);
        // By order of arrival it would have two thirds.
        assert_eq!(flood(&[1, 0, 1], 6), [1, 0, 1, 0, 1, 0]);
        // The highest priority first, from outside or not.
        assert_eq!(flood(&[1, 2], 6), [2; 6]);
    }

    /// A color that moves to the front after each pick, next to others of its list.
    #[test]
    fn every_other_pick_at_most_is_of_a_color_that_stood_first() {
        let cells: Vec<_> = (0..3).map(|_| ColorCell::new(ptr::null(), Kind::Fresh, 1, 0, Links::idle())).collect();
        let mut queue = RunQueue::new(Share::HALF, ptr::null(), 0);
        let push = |queue: &mut RunQueue, at: usize| {
            // SAFETY: this thread alone has the cells, and this one is in no queue.
            unsafe {
                let color = ColorRef::new(NonNull::from(&cells[at]));
                queue.append(color, EXPRESS);
                if at == 0 {
                    queue.put_first(color);
                }
            }
        };
        (0..cells.len()).for_each(|at| push(&mut queue, at));
        let pick = |_| {
            let color = queue.pop().expect("all were queued again");
            let at = cells.iter().position(|cell| NonNull::from(cell) == color).expect("it is one of them");
            push(&mut queue, at);
            at
        };
        let picked: Vec<usize> = (0..1_016).map(pick).collect();
        // The allowed number in a row, and then the others as well.
        assert_eq!(picked[..16], [0; 16]);
        let count = |of| picked[16..].iter().filter(|&&at| at == of).count();
        // All three share the other half in turn.
        assert!(count(1) >= 160 && count(2) >= 160, "{} {} {}", count(0), count(1), count(2));
    }

    #[test]
    fn work_from_outside_has_the_share_that_was_set() {
        let of = |share, ranks: &[u8]| flood_with(share, ranks, 800).iter().filter(|&&rank| rank == 1).count();
        for (one_of, expected) in [(2, 400), (8, 100), (64, 13)] {
            assert_eq!(of(Share::one_of(one_of), &[0, 1]), expected);
            assert!(of(Share::one_of(one_of).rest(), &[0, 1]).abs_diff(800 - expected) <= 1);
            // The share belongs to the kind, however many colors it has.
            assert_eq!(of(Share::one_of(one_of), &[1, 0, 1, 1]), expected);
        }
        assert_eq!(of(Share::one_of(8), &[1]), 800);
        assert_eq!(of(Share::one_of(8).rest(), &[0]), 0);
    }
}
