//! A color's fifo: what waits in it, and what the placement rules know of the color's past.

use std::ptr::{self, NonNull};

use super::{ColorCell, HABIT_CALLBACKS, HISTORY_CALLBACKS, NO_WORKER, rank};
use crate::color::Priority;
use crate::color::node::{Chain, Node, NodeList, NodeQueue, OwnedNode};
use crate::sync::atomic::Ordering::*;
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::clock;
use crate::worker::run_queue::EXPRESS;

/// What waits in a color, and what the placement rule knows of it.
pub(crate) struct Fifo {
    nodes: NodeQueue,
    /// Highest priority that waits (an upper bound after a turn was cut off), doubled, and [`EXPRESS`].
    pub(crate) rank: u8,
    /// A thief took it although its traffic is with the worker that it came from: it may go back there.
    pub(crate) rescued: bool,
    /// Posts received from callbacks on the home worker, posts made to other colors, posts received from other threads:
    /// halved whenever [`ColorCell::ran_recently`] is, so that they tell of the recent past.
    pub(crate) posts_in: u16,
    pub(crate) posts_out: u16,
    pub(crate) posts_foreign: u16,
    /// Posts made to colors at home on other workers, and the last one of those workers.
    pub(crate) posts_away: u16,
    pub(crate) away_to: u16,
    /// What a policy knows the color by while it is queued; see `policed`. Here, where there is room for it.
    pub(crate) policy_slot: u32,
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

    pub(in crate::color) fn note_away(&mut self, posts: u16, worker: usize) {
        self.posts_away = self.posts_away.saturating_add(posts);
        self.away_to = worker as u16;
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    fn push_front(&mut self, node: OwnedNode) {
        // Whoever is here waits for less, or holds other colors until it has run.
        self.rank = self.rank.max(rank(node.priority())) | EXPRESS;
        self.nodes.push_front(node);
    }

    /// Has the processor fetch the oldest node.
    #[inline]
    pub(crate) fn prefetch(&self) {
        self.nodes.prefetch();
    }

    /// Whether an urgent node goes first.
    pub(crate) fn is_urgent(&self) -> bool {
        self.nodes.first().is_some_and(Node::is_urgent)
    }

    /// Whether a wait goes first: a task wants the color in the middle of its poll.
    pub(crate) fn has_wait_next(&self) -> bool {
        self.nodes.first().is_some_and(|node| node.vtable().waits.is_some())
    }

    /// Whether a plain callback goes first: no poll of a task, and no callback that is traced or counted.
    #[inline]
    pub(crate) fn has_plain_next(&self) -> bool {
        self.nodes.first().is_some_and(|node| node.plain_origin().is_some())
    }

    /// The worker with which the color has most of its traffic, if that traffic costs more than its callbacks take. `run`:
    /// how many of them it has run recently.
    pub(crate) fn partner(&self, last_poster: u16, run: u32, own_ns: u32) -> Option<u16> {
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

impl ColorCell {
    /// The fifo, for whoever owns it.
    ///
    /// # Safety
    /// The caller holds the home lock while the color is not `Running`, or is the worker that runs it.
    #[inline]
    pub(crate) unsafe fn fifo<R>(&self, f: impl FnOnce(&mut Fifo) -> R) -> R {
        self.check_alive();
        // SAFETY: promised by the caller; the closures in this crate do not re-enter.
        self.fifo.with_mut(|fifo| f(unsafe { &mut *fifo }))
    }

    /// Appends one node to the fifo.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn push(&self, node: OwnedNode) {
        let priority = Priority::new(node.priority());
        // SAFETY: promised by the caller.
        unsafe { self.push_as(node, priority) };
    }

    /// As [`ColorCell::push`], where the priority is known.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn push_as(&self, node: OwnedNode, priority: Priority) {
        let priority = priority.level();
        // SAFETY: promised by the caller.
        unsafe {
            self.fifo(|fifo| {
                fifo.nodes.push(node);
                // Seldom: most have the lowest one.
                if priority > 0 {
                    fifo.rank = fifo.rank.max(rank(priority));
                }
            });
        }
        self.set_len(self.len() + 1);
    }

    /// Appends what an inbox held; `outside`: a part of it came from outside.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(in crate::color) unsafe fn append(&self, stack: NodeList, outside: bool) {
        let chain = Chain::from_stack(stack);
        if chain.len == 0 {
            return;
        }
        // Relaxed: a number to show.
        self.inbox_len.fetch_sub(chain.len, Relaxed);
        let count = chain.len.min(u32::from(u16::MAX)) as u16;
        let len = self.len() + chain.len;
        // SAFETY: promised by the caller.
        unsafe {
            self.fifo(|fifo| {
                fifo.posts_foreign = fifo.posts_foreign.saturating_add(count);
                fifo.nodes.append(chain.nodes);
                fifo.rank = fifo.rank.max(rank(chain.priority)) | if outside { EXPRESS } else { 0 };
                if chain.urgent {
                    fifo.nodes.sort_urgent();
                }
            });
        }
        self.set_len(len);
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(crate) unsafe fn push_front(&self, node: OwnedNode) {
        // SAFETY: promised by the caller.
        unsafe { self.fifo(|fifo| fifo.push_front(node)) };
        self.set_len(self.len() + 1);
    }

    /// Puts back a node that the color was to be handed to, behind the urgent ones.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(crate) unsafe fn put_back(&self, node: OwnedNode) {
        // SAFETY: promised by the caller.
        unsafe {
            self.push_front(node);
            self.fifo(|fifo| fifo.nodes.sort_urgent());
        }
    }

    /// Takes the nodes of waits that were dropped out of the fifo; returns them as a list.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(crate) unsafe fn unlink_dropped(&self) -> NodeList {
        // SAFETY: promised by the caller.
        let (removed, count) = unsafe {
            self.fifo(|fifo| {
                let dropped = fifo.nodes.unlink_dropped();
                if fifo.nodes.is_empty() {
                    fifo.rank = 0;
                }
                dropped
            })
        };
        self.set_len(self.len() - count);
        removed
    }

    /// Whether that node is the oldest.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(crate) unsafe fn is_next(&self, node: NonNull<Node>) -> bool {
        // SAFETY: promised by the caller.
        unsafe { self.fifo(|fifo| fifo.nodes.first().is_some_and(|first| ptr::eq(first, node.as_ptr()))) }
    }

    /// Takes the oldest node.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<OwnedNode> {
        // SAFETY: promised by the caller.
        let node = unsafe { self.fifo(|fifo| fifo.nodes.pop()) }?;
        node.next.set(ptr::null_mut());
        self.one_less();
        Some(node)
    }

    /// Takes the oldest node if it asks to read.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(super) unsafe fn pop_reader(&self) -> Option<OwnedNode> {
        // SAFETY: promised by the caller.
        unsafe {
            let reads = self.fifo(|fifo| fifo.nodes.first().is_some_and(Node::reads));
            if reads { self.pop() } else { None }
        }
    }

    /// Takes the oldest node in order to run it, as the callback with that number. Its link is not cleared.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn take_for_run(&self, ran: u64) -> Option<OwnedNode> {
        // SAFETY: promised by the caller.
        let node = unsafe { self.fifo(|fifo| fifo.nodes.pop()) }?;
        self.one_less();
        // Relaxed: see `len`.
        self.ran.store(ran, Relaxed);
        Some(node)
    }

    /// Keeps the counters about the recent past: to be called after [`HISTORY_CALLBACKS`] callbacks at the latest. `before`: how
    /// many had run when it was called last.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn age_history(&self, before: u64) {
        let ran = self.ran();
        if before / HISTORY_CALLBACKS != ran / HISTORY_CALLBACKS && ran >= 2 * HISTORY_CALLBACKS {
            // SAFETY: promised by the caller.
            unsafe { self.fifo(Fifo::halve_history) };
        }
    }

    /// Records a timed stretch of callbacks: their mean, and how much of the time, in 255ths, went into traffic with
    /// other workers. The caller owns the fifo.
    pub(crate) fn record_time(&self, mean_ns: u64, away_share: u8) {
        let mean = clock::smooth(u32::from(self.mean_ns()), mean_ns.clamp(1, u64::from(u16::MAX)) as u32);
        self.mean_ns.store(mean.clamp(1, u32::from(u16::MAX)) as u16, Relaxed);
        let share = self.away_share.load(Relaxed);
        if share != away_share {
            self.away_share.store(((u16::from(share) * 3 + u16::from(away_share) + 2) / 4) as u8, Relaxed);
        }
    }
}
