//! A color's fifo: what waits in it, and what the placement rules know of the color's past.

use std::mem;
use std::ptr::{self, NonNull};

use super::{ColorCell, HABIT_CALLBACKS, HISTORY_CALLBACKS, NO_WORKER, rank};
use crate::color::Priority;
use crate::color::node::{self, Chain, Node, NodeList};
use crate::sync::atomic::Ordering::*;
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::clock;
use crate::worker::run_queue::EXPRESS;

/// What waits in a color, and what the placement rule knows of it.
pub(crate) struct Fifo {
    head: *mut Node,
    tail: *mut Node,
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
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
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

    /// Appends a chain that is not empty.
    #[inline]
    fn append(&mut self, chain: Chain, outside: bool) {
        if self.tail.is_null() {
            self.head = chain.head;
        } else {
            // SAFETY: the fifo owns its tail, and whoever holds `&mut self` owns the fifo.
            unsafe { (*self.tail).next.set(chain.head) };
        }
        self.tail = chain.tail;
        self.rank = self.rank.max(rank(chain.priority)) | if outside { EXPRESS } else { 0 };
    }

    /// Counts what a callback of this color has done to others; it counts as so many posts. `elsewhere`: the worker
    /// where that was, if it was not its own.
    #[inline]
    pub(crate) fn note_traffic(&mut self, posts: u16, elsewhere: Option<usize>) {
        self.posts_out = self.posts_out.saturating_add(posts);
        if let Some(worker) = elsewhere {
            self.posts_away = self.posts_away.saturating_add(posts);
            self.away_to = worker as u16;
        }
    }

    /// Takes the oldest node, which keeps its link.
    #[inline]
    fn pop(&mut self) -> Option<NonNull<Node>> {
        let node = NonNull::new(self.head)?;
        // SAFETY: the fifo owns its nodes.
        self.head = unsafe { node.as_ref() }.next.get();
        if self.head.is_null() {
            self.tail = ptr::null_mut();
        }
        Some(node)
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    fn push_front(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller gives the node, which is in no list.
        let node_ref = unsafe { node.as_ref() };
        node_ref.next.set(self.head);
        if self.tail.is_null() {
            self.tail = node.as_ptr();
        }
        self.head = node.as_ptr();
        // Whoever is here waits for less, or holds other colors until it has run.
        self.rank = self.rank.max(rank(node_ref.priority())) | EXPRESS;
    }

    /// Has the processor fetch the oldest node.
    #[inline]
    pub(crate) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has the instruction, which takes any address.
        unsafe {
            std::arch::x86_64::_mm_prefetch(self.head.cast_const().cast(), std::arch::x86_64::_MM_HINT_T0);
        }
    }

    /// Whether an urgent node goes first.
    pub(crate) fn is_urgent(&self) -> bool {
        // SAFETY: the fifo owns its nodes.
        unsafe { self.head.as_ref() }.is_some_and(Node::is_urgent)
    }

    /// Whether a wait goes first: a task wants the color in the middle of its poll.
    pub(crate) fn has_wait_next(&self) -> bool {
        // SAFETY: the fifo owns its nodes.
        unsafe { self.head.as_ref() }.is_some_and(|node| node.vtable().waits.is_some())
    }

    /// Whether a plain callback goes first: no poll of a task, and no callback that is traced or counted.
    #[inline]
    pub(crate) fn has_plain_next(&self) -> bool {
        // SAFETY: the fifo owns its nodes.
        unsafe { self.head.as_ref() }.is_some_and(|node| node.plain_origin().is_some())
    }

    /// Moves urgent nodes to the front, where they keep their order.
    #[cold]
    pub(super) fn sort_urgent(&mut self) {
        let (mut urgent, mut others) = (ptr::null_mut(), ptr::null_mut());
        let mut rest = mem::replace(&mut self.head, ptr::null_mut());
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: the fifo owns its nodes.
            let node_ref = unsafe { node.as_ref() };
            let list = if node_ref.is_urgent() { &mut urgent } else { &mut others };
            rest = node_ref.next.replace(*list);
            *list = node.as_ptr();
        }
        self.tail = ptr::null_mut();
        for mut list in [others, urgent] {
            while let Some(node) = NonNull::new(list) {
                // SAFETY: as above. Both lists are the wrong way round, and so is pushing to the front.
                let node_ref = unsafe { node.as_ref() };
                list = node_ref.next.replace(self.head);
                if self.head.is_null() {
                    self.tail = node.as_ptr();
                }
                self.head = node.as_ptr();
            }
        }
    }

    /// Puts back a node that the color was to be handed to, behind the urgent ones.
    fn put_back(&mut self, node: NonNull<Node>) {
        self.push_front(node);
        self.sort_urgent();
    }

    /// Takes the oldest node if it asks to read.
    pub(super) fn pop_reader(&mut self) -> Option<NonNull<Node>> {
        let head = NonNull::new(self.head)?;
        // SAFETY: the fifo owns its nodes.
        if unsafe { head.as_ref() }.reads() { self.pop() } else { None }
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
    /// As [`ColorCell::fifo`]; the node is the caller's to give, and in no list.
    #[inline]
    pub(crate) unsafe fn push(&self, node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe { self.push_as(node, Priority::new(node.as_ref().priority())) };
    }

    /// As [`ColorCell::push`], where the priority is known.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub(crate) unsafe fn push_as(&self, node: NonNull<Node>, priority: Priority) {
        // SAFETY: promised by the caller; a fifo owns its tail.
        unsafe {
            let priority = priority.level();
            node.as_ref().next.set(ptr::null_mut());
            self.fifo(|fifo| {
                match NonNull::new(fifo.tail) {
                    Some(tail) => tail.as_ref().next.set(node.as_ptr()),
                    None => fifo.head = node.as_ptr(),
                }
                fifo.tail = node.as_ptr();
                // Seldom: most have the lowest one.
                if priority > 0 {
                    fifo.rank = fifo.rank.max(rank(priority));
                }
            });
        }
        self.set_len(self.len() + 1);
    }

    /// # Safety
    /// As [`ColorCell::fifo`]; the nodes are the caller's to give.
    #[inline]
    pub(super) unsafe fn append(&self, chain: Chain, outside: bool) {
        let len = self.len() + chain.len;
        // SAFETY: promised by the caller.
        unsafe { self.fifo(|fifo| fifo.append(chain, outside)) };
        self.set_len(len);
    }

    /// Puts back a node that goes before all others: what it waited for is complete.
    ///
    /// # Safety
    /// As [`ColorCell::push`].
    pub(crate) unsafe fn push_front(&self, node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe { self.fifo(|fifo| fifo.push_front(node)) };
        self.set_len(self.len() + 1);
    }

    /// Puts back a node that the color was to be handed to, behind the urgent ones.
    ///
    /// # Safety
    /// As [`ColorCell::push`].
    pub(crate) unsafe fn put_back(&self, node: NonNull<Node>) {
        // SAFETY: promised by the caller.
        unsafe { self.fifo(|fifo| fifo.put_back(node)) };
        self.set_len(self.len() + 1);
    }

    /// Takes the nodes of waits that were dropped out of the fifo; returns them as a list.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    pub(crate) unsafe fn unlink_dropped(&self) -> NodeList {
        // SAFETY: promised by the caller; the fifo owns its nodes.
        let (removed, count) = unsafe {
            self.fifo(|fifo| {
                let (tail, removed, count) = node::unlink_dropped(&mut fifo.head);
                fifo.tail = tail;
                if tail.is_null() {
                    fifo.rank = 0;
                }
                (removed, count)
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
        unsafe { self.fifo(|fifo| fifo.head == node.as_ptr()) }
    }

    /// Takes the oldest node.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<NonNull<Node>> {
        // SAFETY: promised by the caller.
        let node = unsafe { self.fifo(Fifo::pop) }?;
        // SAFETY: popped, hence ours.
        unsafe { node.as_ref() }.next.set(ptr::null_mut());
        // Relaxed: see `len`.
        self.len.store(self.len() - 1, Relaxed);
        Some(node)
    }

    /// Takes the oldest node in order to run it, as the callback with that number. Its link is not cleared.
    ///
    /// # Safety
    /// As [`ColorCell::fifo`].
    #[inline]
    pub(crate) unsafe fn take_for_run(&self, ran: u64) -> Option<NonNull<Node>> {
        // SAFETY: promised by the caller.
        let node = unsafe { self.fifo(Fifo::pop) }?;
        // Relaxed, both: see `len`.
        self.len.store(self.len() - 1, Relaxed);
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
