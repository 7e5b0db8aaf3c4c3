//! A color's fifo: what waits in it, and what the placement rules know of the color's past.

use super::{ColorCell, HABIT_CALLBACKS, HISTORY_CALLBACKS, NO_WORKER, rank};
use crate::color::Priority;
use crate::color::node::{Chain, Node, NodeList, NodeQueue, OwnedNode};
use crate::color::rights::ColorRef;
use crate::sync::atomic::Ordering::*;
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::clock;
use crate::worker::run_queue::EXPRESS;

/// The callbacks and waits that are queued in a color, and the counts by which the color is placed.
pub(super) struct Fifo {
    nodes: NodeQueue,
    /// Highest priority that waits (an upper bound after a turn was cut off), doubled, and [`EXPRESS`].
    rank: u8,
    /// A thief took it although its traffic is with the worker that it came from: it may go back there.
    rescued: bool,
    /// Posts received from callbacks on the home worker, posts made to other colors, posts received from other threads:
    /// halved whenever [`ColorCell::ran_recently`] is, so that they tell of the recent past.
    posts_in: u16,
    posts_out: u16,
    posts_foreign: u16,
    /// Posts made to colors at home on other workers, and the last one of those workers.
    posts_away: u16,
    away_to: u16,
    /// The key by which a policy knows the color while it is queued; see `policed`. Here, where there is room for it.
    policy_slot: u32,
}

impl Fifo {
    pub(super) const fn new() -> Fifo {
        Fifo {
            nodes: NodeQueue::new(),
            rank: 0,
            rescued: false,
            posts_in: 0,
            posts_out: 0,
            posts_foreign: 0,
            posts_away: 0,
            away_to: NO_WORKER,
            policy_slot: 0,
        }
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    fn push_front(&mut self, node: OwnedNode) {
        // An urgent node waits for less, or other colors are held until it has run.
        self.rank = self.rank.max(rank(node.priority())) | EXPRESS;
        self.nodes.push_front(node);
    }

    fn note_away(&mut self, posts: u16, worker: usize) {
        self.posts_away = self.posts_away.saturating_add(posts);
        self.away_to = worker as u16;
    }

    /// The worker with which the color has most of its traffic, if that traffic costs more than its callbacks take. `run`:
    /// how many of them it has run recently.
    fn partner(&self, last_poster: u16, run: u32, own_ns: u32) -> Option<u16> {
        let most = |crossings: u16| {
            let crossings = u32::from(crossings);
            crossings * 2 > run && u64::from(own_ns) * u64::from(run) < u64::from(TINY_CALLBACK_NS * crossings)
        };
        if run < HABIT_CALLBACKS {
            return None;
        }
        let (from, to) = (most(self.posts_foreign), most(self.posts_away));
        // The lower one, where both have a claim.
        let from = if from { last_poster } else { NO_WORKER };
        let to = if to { self.away_to } else { NO_WORKER };
        Some(from.min(to)).filter(|partner| *partner != NO_WORKER)
    }

    /// Lets the past count for less.
    #[cold]
    fn halve_history(&mut self) {
        self.posts_in /= 2;
        self.posts_out /= 2;
        if !self.rescued {
            // What is to bring it home is not forgotten before it can go.
            self.posts_foreign /= 2;
            self.posts_away /= 2;
        }
    }
}

/// The right to a color's fifo: the home lock of a color that does not run, or the turn of one that runs on this thread.
///
/// A thread may have several for one color, since each function here is through with the fifo when it returns, and calls none
/// that could ask for it.
pub(crate) struct FifoGuard<'a>(ColorRef<'a>);

impl<'a> FifoGuard<'a> {
    /// # Safety
    /// This thread owns the fifo for `'a` (see the one rule in `cell`).
    #[inline]
    pub(crate) unsafe fn new(color: ColorRef<'a>) -> FifoGuard<'a> {
        FifoGuard(color)
    }

    #[inline]
    pub(super) fn color(&self) -> ColorRef<'a> {
        self.0
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        self.0.check_alive();
        // SAFETY: the fifo is this thread's, and no `f` of this module asks for it again.
        self.0.get().fifo.with_mut(|fifo| f(unsafe { &mut *fifo }))
    }

    /// Whether something came from outside that is not in the fifo yet.
    #[inline]
    pub(crate) fn inbox_waits(&self) -> bool {
        self.0.inbox_waits()
    }

    /// Appends one node.
    #[inline]
    pub(crate) fn push(&mut self, node: OwnedNode) {
        let priority = Priority::new(node.priority());
        self.push_as(node, priority);
    }

    /// As [`FifoGuard::push`], where the priority is known.
    #[inline]
    pub(crate) fn push_as(&mut self, node: OwnedNode, priority: Priority) {
        let priority = priority.level();
        self.with(|fifo| {
            fifo.nodes.push(node);
            // Seldom: most have the lowest one.
            if priority > 0 {
                fifo.rank = fifo.rank.max(rank(priority));
            }
        });
        self.0.set_len(self.0.len() + 1);
    }

    /// Appends what an inbox held; `outside`: a part of it came from outside.
    pub(super) fn append(&mut self, stack: NodeList, outside: bool) {
        let chain = Chain::from_stack(stack);
        if chain.len == 0 {
            return;
        }
        // Relaxed: a number to show.
        self.0.get().inbox_len.fetch_sub(chain.len, Relaxed);
        let count = chain.len.min(u32::from(u16::MAX)) as u16;
        let len = self.0.len() + chain.len;
        self.with(|fifo| {
            fifo.posts_foreign = fifo.posts_foreign.saturating_add(count);
            fifo.nodes.append(chain.nodes);
            fifo.rank = fifo.rank.max(rank(chain.priority)) | if outside { EXPRESS } else { 0 };
            if chain.urgent {
                fifo.nodes.sort_urgent();
            }
        });
        self.0.set_len(len);
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    pub(crate) fn push_front(&mut self, node: OwnedNode) {
        self.with(|fifo| fifo.push_front(node));
        self.0.set_len(self.0.len() + 1);
    }

    /// Puts back a node that the color was to be handed to, behind the urgent ones.
    pub(crate) fn put_back(&mut self, node: OwnedNode) {
        self.push_front(node);
        self.with(|fifo| fifo.nodes.sort_urgent());
    }

    /// Takes the oldest node.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<OwnedNode> {
        let node = self.with(|fifo| fifo.nodes.pop())?;
        node.next.set(std::ptr::null_mut());
        self.0.one_less();
        Some(node)
    }

    /// Takes the oldest node in order to run it, as the callback with that number. Its link is not cleared.
    #[inline]
    pub(crate) fn take_for_run(&mut self, ran: u64) -> Option<OwnedNode> {
        let node = self.with(|fifo| fifo.nodes.pop())?;
        self.0.one_less();
        // Relaxed: see `ColorCell::len`.
        self.0.get().ran.store(ran, Relaxed);
        Some(node)
    }

    /// As [`FifoGuard::take_for_run`], as the next one.
    pub(crate) fn take_next(&mut self) -> Option<OwnedNode> {
        let before = self.0.ran();
        let node = self.take_for_run(before + 1)?;
        self.age_history(before);
        Some(node)
    }

    /// Takes the oldest node if it asks to read.
    pub(crate) fn pop_reader(&mut self) -> Option<OwnedNode> {
        let reads = self.with(|fifo| fifo.nodes.first().is_some_and(Node::reads));
        if reads { self.pop() } else { None }
    }

    /// Takes the nodes of waits that were dropped out of the fifo.
    pub(crate) fn unlink_dropped(&mut self) -> NodeList {
        let (removed, count) = self.with(|fifo| {
            let dropped = fifo.nodes.unlink_dropped();
            if fifo.nodes.is_empty() {
                fifo.rank = 0;
            }
            dropped
        });
        self.0.set_len(self.0.len() - count);
        removed
    }

    /// Whether that node is the oldest.
    pub(crate) fn is_next(&self, node: std::ptr::NonNull<Node>) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(|first| std::ptr::eq(first, node.as_ptr())))
    }

    /// Has the processor fetch the oldest node.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.with(|fifo| fifo.nodes.prefetch());
    }

    /// Whether an urgent node goes first.
    pub(crate) fn is_urgent(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(Node::is_urgent))
    }

    /// Whether a wait goes first: a task wants the color in the middle of its poll.
    pub(crate) fn has_wait_next(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(|node| node.vtable().waits.is_some()))
    }

    /// Whether a plain callback goes first: no poll of a task, and no callback that is traced or counted.
    #[inline]
    pub(crate) fn has_plain_next(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(|node| node.plain_origin().is_some()))
    }

    /// Highest priority that waits (an upper bound after a turn was cut off), doubled, and [`EXPRESS`].
    #[inline]
    pub(crate) fn rank(&self) -> u8 {
        self.with(|fifo| fifo.rank)
    }

    #[inline]
    pub(crate) fn reset_rank(&mut self) {
        self.with(|fifo| fifo.rank = 0);
    }

    /// Something that waits came from outside, or counts as if it had.
    pub(crate) fn make_express(&mut self) {
        self.with(|fifo| fifo.rank |= EXPRESS);
    }

    pub(crate) fn raise_rank(&mut self, rank: u8) {
        self.with(|fifo| fifo.rank = fifo.rank.max(rank));
    }

    /// Notes what was pushed: it comes from outside, or counts as so many posts of the home worker's callbacks.
    #[inline]
    pub(crate) fn note_arrival(&mut self, outside: bool, posts: u16) {
        self.with(|fifo| {
            fifo.rank |= u8::from(outside) * EXPRESS;
            fifo.posts_in = fifo.posts_in.saturating_add(posts);
        });
    }

    /// Counts what a callback of this color has done to others; it counts as so many posts. `elsewhere`: the worker
    /// where that was, if it was not its own.
    #[inline]
    pub(crate) fn note_traffic(&mut self, posts: u16, elsewhere: Option<usize>) {
        self.with(|fifo| {
            fifo.posts_out = fifo.posts_out.saturating_add(posts);
            if let Some(worker) = elsewhere {
                fifo.note_away(posts, worker);
            }
        });
    }

    /// Counts that a post, which has been counted, was one to that other worker.
    pub(crate) fn note_post_away(&mut self, worker: usize) {
        self.with(|fifo| fifo.note_away(1, worker));
    }

    #[inline]
    pub(crate) fn posts_out(&self) -> u16 {
        self.with(|fifo| fifo.posts_out)
    }

    pub(crate) fn posts_away(&self) -> u16 {
        self.with(|fifo| fifo.posts_away)
    }

    #[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
    pub(crate) fn away_to(&self) -> u16 {
        self.with(|fifo| fifo.away_to)
    }

    /// Posts from callbacks on the home worker, and to others.
    pub(crate) fn traffic(&self) -> u32 {
        self.with(|fifo| u32::from(fifo.posts_in) + u32::from(fifo.posts_out))
    }

    /// Whether the color talks to nothing on another worker.
    pub(crate) fn is_alone(&self) -> bool {
        self.with(|fifo| fifo.posts_foreign == 0 && fifo.posts_away == 0)
    }

    /// Where the color belongs by its traffic, and whether it was rescued from there.
    pub(crate) fn partner(&self) -> Option<(usize, bool)> {
        let color = self.0;
        // Relaxed: a hint.
        let last_poster = color.last_poster.load(Relaxed);
        self.with(|fifo| {
            let partner = fifo.partner(last_poster, color.ran_recently(), color.own_ns())?;
            Some((usize::from(partner), fifo.rescued))
        })
    }

    /// The color goes where it belongs.
    pub(in crate::color) fn come_home(&mut self) {
        // Relaxed: a hint.
        self.0.last_poster.store(NO_WORKER, Relaxed);
        self.with(|fifo| (fifo.posts_away, fifo.posts_foreign, fifo.rescued) = (0, 0, false));
    }

    /// A thief is about to take the color, which is not worth moving, from a worker in a long callback: what the color had to do
    /// with its home is traffic with another worker from here on, so that it goes back when that is through.
    pub(crate) fn note_rescue(&mut self) {
        // Relaxed: this thread has the home lock, or is the home; the other one is a hint.
        let home = self.0.home.load(Relaxed);
        self.0.last_poster.store(home, Relaxed);
        self.with(|fifo| {
            fifo.posts_foreign = fifo.posts_foreign.saturating_add(std::mem::take(&mut fifo.posts_in));
            (fifo.posts_away, fifo.away_to) = (fifo.posts_out, home);
            fifo.rescued = true;
        });
    }

    pub(crate) fn policy_slot(&self) -> u32 {
        self.with(|fifo| fifo.policy_slot)
    }

    pub(crate) fn set_policy_slot(&mut self, slot: u32) {
        self.with(|fifo| fifo.policy_slot = slot);
    }

    /// Keeps the counters about the recent past: to be called after [`HISTORY_CALLBACKS`] callbacks at the latest. `before`: how
    /// many had run when it was called last.
    #[inline]
    pub(crate) fn age_history(&mut self, before: u64) {
        let ran = self.0.ran();
        if before / HISTORY_CALLBACKS != ran / HISTORY_CALLBACKS && ran >= 2 * HISTORY_CALLBACKS {
            self.with(Fifo::halve_history);
        }
    }

    /// Records a timed stretch of callbacks: their mean, and how much of the time, in 255ths, went into traffic with
    /// other workers.
    pub(crate) fn record_time(&mut self, mean_ns: u64, away_share: u8) {
        let cell: &ColorCell = self.0.get();
        let mean = clock::smooth(u32::from(cell.mean_ns()), mean_ns.clamp(1, u64::from(u16::MAX)) as u32);
        // Relaxed, all: see `ColorCell::len`.
        cell.mean_ns.store(mean.clamp(1, u32::from(u16::MAX)) as u16, Relaxed);
        let share = cell.away_share.load(Relaxed);
        if share != away_share {
            cell.away_share.store(((u16::from(share) * 3 + u16::from(away_share) + 2) / 4) as u8, Relaxed);
        }
    }
}
