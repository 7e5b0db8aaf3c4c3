//! A color's fifo: its waiting nodes, and the statistics that the placement rules use.

use super::{ColorCell, HABIT_CALLBACKS, HISTORY_CALLBACKS, NO_WORKER, rank};
use crate::color::Priority;
use crate::color::node::{Chain, Node, NodeList, NodeQueue, OwnedNode};
use crate::color::rights::ColorRef;
use crate::sync::atomic::Ordering::*;
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::clock;
use crate::worker::run_queue::EXPRESS;

/// The callbacks and waits queued in a color, and the counts that decide its placement.
pub(super) struct Fifo {
    nodes: NodeQueue,
    /// Highest priority that waits (an upper bound after a turn was cut off), doubled, and
    /// [`EXPRESS`].
    rank: u8,
    /// A thief took the color although its traffic is with its former worker: the color may go back
    /// there.
    rescued: bool,
    /// Posts received from callbacks on the home worker, posts made to other colors, posts received
    /// from other threads. Halved together with [`ColorCell::ran_recently`], so that they describe
    /// the recent past.
    posts_in: u16,
    posts_out: u16,
    posts_foreign: u16,
    /// Posts made to colors at home on other workers, and the last of those workers.
    posts_away: u16,
    away_to: u16,
    /// The key under which a policy knows the color while it is queued; see `policed`. It is here
    /// because the struct has room.
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

    /// Puts back a node that goes before all others: its wait has ended.
    fn push_front(&mut self, node: OwnedNode) {
        // An urgent node never waits long; or other colors are held until it has run.
        self.rank = self.rank.max(rank(node.priority())) | EXPRESS;
        self.nodes.push_front(node);
    }

    fn note_away(&mut self, posts: u16, worker: usize) {
        self.posts_away = self.posts_away.saturating_add(posts);
        self.away_to = worker as u16;
    }

    /// The worker with which the color has most of its traffic, if that traffic costs more than the
    /// callbacks themselves. `run`: how many callbacks the color has run recently.
    fn partner(&self, last_poster: u16, run: u32, own_ns: u32) -> Option<u16> {
        let most = |crossings: u16| {
            let crossings = u32::from(crossings);
            crossings * 2 > run && u64::from(own_ns) * u64::from(run) < u64::from(TINY_CALLBACK_NS * crossings)
        };
        if run < HABIT_CALLBACKS {
            return None;
        }
        let (from, to) = (most(self.posts_foreign), most(self.posts_away));
        // The lower index, if both qualify.
        let from = if from { last_poster } else { NO_WORKER };
        let to = if to { self.away_to } else { NO_WORKER };
        Some(from.min(to)).filter(|partner| *partner != NO_WORKER)
    }

    /// Halves the weight of the past.
    #[cold]
    fn halve_history(&mut self) {
        self.posts_in /= 2;
        self.posts_out /= 2;
        if !self.rescued {
            // The counters that move the color home are kept until it can go.
            self.posts_foreign /= 2;
            self.posts_away /= 2;
        }
    }
}

/// The right to a color's fifo: the home lock of a color that does not run, or the turn of one that
/// runs on this thread.
///
/// A thread may have several guards of one color. Each function here has finished with the fifo
/// when it returns, and calls none that could ask for it.
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
        // SAFETY: the fifo belongs to this thread, and no `f` of this module asks for it again.
        self.0.get().fifo.with_mut(|fifo| f(unsafe { &mut *fifo }))
    }

    /// Whether nodes wait in the inbox.
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

    /// As [`FifoGuard::push`], with a known priority.
    #[inline]
    pub(crate) fn push_as(&mut self, node: OwnedNode, priority: Priority) {
        let priority = priority.level();
        self.with(|fifo| {
            fifo.nodes.push(node);
            // Few nodes have a priority above the lowest.
            if priority > 0 {
                fifo.rank = fifo.rank.max(rank(priority));
            }
        });
        self.0.set_len(self.0.len() + 1);
    }

    /// Appends the nodes of an inbox; `outside`: some of them came from outside.
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

    /// Puts back a node that goes before all others: its wait has ended.
    pub(crate) fn push_front(&mut self, node: OwnedNode) {
        self.with(|fifo| fifo.push_front(node));
        self.0.set_len(self.0.len() + 1);
    }

    /// Puts back a node that is to get the color itself, after the urgent ones.
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

    /// Takes the oldest node in order to run it as callback number `ran`. Its link is not cleared.
    #[inline]
    pub(crate) fn take_for_run(&mut self, ran: u64) -> Option<OwnedNode> {
        let node = self.with(|fifo| fifo.nodes.pop())?;
        self.0.one_less();
        // Relaxed: see `ColorCell::len`.
        self.0.get().ran.store(ran, Relaxed);
        Some(node)
    }

    /// Takes the oldest node in order to run it, with the next number.
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

    /// Takes the nodes of dropped waits out of the fifo.
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

    /// Prefetches the oldest node.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.with(|fifo| fifo.nodes.prefetch());
    }

    /// Whether the oldest node is urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(Node::is_urgent))
    }

    /// Whether the oldest node is a wait: a task wants the color in the middle of its poll.
    pub(crate) fn has_wait_next(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(|node| node.vtable().waits.is_some()))
    }

    /// Whether the oldest node is a plain callback: neither the poll of a task, nor traced, nor
    /// counted.
    #[inline]
    pub(crate) fn has_plain_next(&self) -> bool {
        self.with(|fifo| fifo.nodes.first().is_some_and(|node| node.plain_origin().is_some()))
    }

    /// Highest priority that waits (an upper bound after a turn was cut off), doubled, and
    /// [`EXPRESS`].
    #[inline]
    pub(crate) fn rank(&self) -> u8 {
        self.with(|fifo| fifo.rank)
    }

    #[inline]
    pub(crate) fn reset_rank(&mut self) {
        self.with(|fifo| fifo.rank = 0);
    }

    /// Makes the color express: one of its nodes came from outside, or counts as such.
    pub(crate) fn make_express(&mut self) {
        self.with(|fifo| fifo.rank |= EXPRESS);
    }

    pub(crate) fn raise_rank(&mut self, rank: u8) {
        self.with(|fifo| fifo.rank = fifo.rank.max(rank));
    }

    /// Notes a push: from outside, or as `posts` posts by callbacks of the home worker.
    #[inline]
    pub(crate) fn note_arrival(&mut self, outside: bool, posts: u16) {
        self.with(|fifo| {
            fifo.rank |= u8::from(outside) * EXPRESS;
            fifo.posts_in = fifo.posts_in.saturating_add(posts);
        });
    }

    /// Counts posts that a callback of this color made to other colors. `elsewhere`: their worker,
    /// if it was another one.
    #[inline]
    pub(crate) fn note_traffic(&mut self, posts: u16, elsewhere: Option<usize>) {
        self.with(|fifo| {
            fifo.posts_out = fifo.posts_out.saturating_add(posts);
            if let Some(worker) = elsewhere {
                fifo.note_away(posts, worker);
            }
        });
    }

    /// Notes that a post that is already counted went to that other worker.
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

    /// Posts from callbacks on the home worker, plus posts to other colors.
    pub(crate) fn traffic(&self) -> u32 {
        self.with(|fifo| u32::from(fifo.posts_in) + u32::from(fifo.posts_out))
    }

    /// Whether the color has no traffic with another worker.
    pub(crate) fn is_alone(&self) -> bool {
        self.with(|fifo| fifo.posts_foreign == 0 && fifo.posts_away == 0)
    }

    /// The best home for the color by its traffic, and whether it was rescued from there.
    pub(crate) fn partner(&self) -> Option<(usize, bool)> {
        let color = self.0;
        // Relaxed: a hint.
        let last_poster = color.last_poster.load(Relaxed);
        self.with(|fifo| {
            let partner = fifo.partner(last_poster, color.ran_recently(), color.own_ns())?;
            Some((usize::from(partner), fifo.rescued))
        })
    }

    /// Notes that the color moves to its best home.
    pub(in crate::color) fn come_home(&mut self) {
        // Relaxed: a hint.
        self.0.last_poster.store(NO_WORKER, Relaxed);
        self.with(|fifo| (fifo.posts_away, fifo.posts_foreign, fifo.rescued) = (0, 0, false));
    }

    /// A thief is about to take the color from a worker in a long callback, although the color is
    /// not worth moving. From here on its traffic with its home counts as traffic with another
    /// worker, so that the color goes back after the long callback.
    pub(crate) fn note_rescue(&mut self) {
        // Relaxed: this thread has the home lock, or is the home; `last_poster` is a hint.
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

    /// Ages the counters of the recent past. The caller calls this after [`HISTORY_CALLBACKS`]
    /// callbacks at the latest. `before`: the number of callbacks run at the last call.
    #[inline]
    pub(crate) fn age_history(&mut self, before: u64) {
        let ran = self.0.ran();
        if before / HISTORY_CALLBACKS != ran / HISTORY_CALLBACKS && ran >= 2 * HISTORY_CALLBACKS {
            self.with(Fifo::halve_history);
        }
    }

    /// Records a timed stretch of callbacks: their mean time, and the share of it, in 255ths, that
    /// went into traffic with other workers.
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
