//! What a color is in memory: its inbox, its fifo, its place in a run queue.
//!
//! # States (field `links.state`, changed only under the home worker's lock)
//!
//! | state | in a run queue | who owns the fifo | next |
//! |---|---|---|---|
//! | `Idle` | no | the home worker's lock; it is empty | `Queued` (post), `Running` (a nested turn), `Held` (hold in line, or by a request for several colors), `Reading` (the same for reading) |
//! | `Queued` | yes, exactly one | the home worker's lock | `Running` (its worker pops it); stays `Queued` under a new home (steal) |
//! | `Running` | no | the worker that runs the turn, which is its home | `Queued` (more to run), `Idle`, `Held` (handed to a waiter), `Reading` (handed to the readers in front) |
//! | `Held` | no | the home worker's lock | `Queued` (something came meanwhile, or a request for several colors is complete and runs in this one), `Idle` |
//! | `Reading` | no | the home worker's lock | `Reading` (one reader more or less), `Queued` (the last reader has gone and something waits), `Idle` |
//!
//! **One rule:** the running worker owns the fifo; otherwise the home worker's lock does. `home` changes only under the
//! locks of the old and of the new home, and never while the color is `Running` or `Reading`; while it is `Held`, only a
//! request for several colors changes it (`placement::bring_together`). That of a pinned color never changes.
//!
//! # Readers (`links.readers`, under the home lock)
//!
//! A request to read stands in the fifo like any callback. The turn that reaches one ends, and with it all requests to
//! read that stand directly behind it hold the color together: a chain. While the color is `Reading`, one more reader
//! joins only if nothing waits; whatever else comes waits until the chain has gone, in the order of acceptance. So
//! neither side starves (C5), and a turn of plain callbacks never looks for readers.
//!
//! What comes from other threads, and from other colors, stands in the color's inbox first (`inbox`).

mod inbox;

use std::mem;
use std::panic::Location;
use std::ptr::{self, NonNull};

use crate::color::Priority;
use crate::color::ext::{Ext, ExtPtr};
use crate::color::holder::Holder;
use crate::color::node::{self, Chain, Granted, Node, NodeList, Origin, OwnedNode};
use crate::runtime::shared::Shared;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::clock;
use crate::worker::run_queue::EXPRESS;

/// See the table of states above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    Queued,
    Running,
    Held,
    Reading,
}

/// Which colors exist once per runtime, which are found by value, and which are known by their handles only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Default,
    Named,
    Fresh,
    /// Fresh, and its home never changes.
    Pinned,
}

/// One color. Reached through handles ([`crate::Color`]), through a run queue or a remote list, or as what runs.
///
/// The first of its two cache lines has all that is asked of a color which is only held.
#[repr(C, align(128))]
pub(crate) struct ColorCell {
    /// Nodes from other threads; see the table in `inbox`.
    inbox: AtomicPtr<Node>,
    /// The runtime, alive as long as this cell: a cell holds a count on it (the default color's handles do it instead).
    pub(crate) shared: *const Shared,
    /// State and run queue links; under the home lock.
    pub(crate) links: UnsafeCell<Links>,
    /// Handles. Goes from 1 to 0 only under the home lock, so that a turn's end can tell whether to free.
    pub(crate) refs: AtomicU32,
    /// Nodes in the fifo. Written, as the next two and `ran` are, by whoever owns the fifo; read by anybody who shows numbers.
    len: AtomicU32,
    /// Mean callback time, sampled; 0: not known.
    mean_ns: AtomicU16,
    /// Of that time, what went into traffic with other workers: in 255ths.
    away_share: AtomicU8,
    pub(crate) kind: Kind,
    /// Index of the home worker; changed under the locks of the old and of the new home.
    pub(crate) home: AtomicU16,
    /// The worker that last posted from elsewhere, for home moves. A hint.
    pub(crate) last_poster: AtomicU16,
    /// The name of a named color, a serial number otherwise.
    pub(crate) id: u64,
    /// The fifo and its statistics; see the one rule.
    pub(crate) fifo: UnsafeCell<Fifo>,
    /// Callbacks run.
    ran: AtomicU64,
    /// What few colors need.
    pub(crate) ext: ExtPtr,
    /// Link in a remote list; written by whoever set NOTIFIED, read by whoever takes the list.
    pub(crate) remote_next: AtomicPtr<ColorCell>,
    /// Nodes in the inbox, so that a color that is busy for long does not hide how many wait.
    inbox_len: AtomicU32,
    /// The most that waited at one time.
    pub(crate) len_max: AtomicU32,
    /// Models keep the memory of a color that was freed, to see who touches it.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    buried: std::sync::atomic::AtomicBool,
}

// SAFETY: shared fields are atomics; `links` and `fifo` are touched under the home lock or by the running worker only
// (the one rule), and nodes hold `Send` closures.
unsafe impl Send for ColorCell {}
// SAFETY: as above.
unsafe impl Sync for ColorCell {}

/// Where a color stands.
pub(crate) struct Links {
    pub(crate) state: State,
    /// The [`Fifo::rank`] under which it is queued.
    pub(crate) queued_rank: u8,
    /// How many hold the color for reading; not 0 exactly while it is `Reading`.
    pub(crate) readers: u32,
    /// The list that it stands in: that of its rank, or one of a policy's.
    pub(crate) list: u8,
    /// How often another worker has taken the color over; what does not fit is in the side record.
    stolen: u8,
    /// While the color is `Held` these two say who holds it; see [`ColorCell::set_held`].
    pub(crate) prev: *mut ColorCell,
    pub(crate) next: *mut ColorCell,
}

impl Links {
    /// So many more hold the color for reading. A reader that is granted and then forgotten stays, so the number is bounded
    /// by memory only.
    #[inline]
    pub(crate) fn add_readers(&mut self, more: u32) {
        self.state = State::Reading;
        self.readers = self.readers.checked_add(more).unwrap_or_else(|| std::process::abort());
    }

    /// See [`ColorCell::set_held`].
    #[inline]
    pub(crate) fn set_held(&mut self, holder: Holder, origin: Option<Origin>) {
        self.state = State::Held;
        self.list = 0;
        self.prev = ptr::without_provenance_mut(holder.code());
        self.next = origin.map_or(ptr::null_mut(), |origin| ptr::from_ref(origin).cast_mut().cast());
    }
}

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
    fn sort_urgent(&mut self) {
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
    fn pop_reader(&mut self) -> Option<NonNull<Node>> {
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
    pub(crate) fn new(shared: *const Shared, kind: Kind, id: u64, home: usize) -> ColorCell {
        ColorCell {
            inbox: AtomicPtr::new(ptr::null_mut()),
            remote_next: AtomicPtr::new(ptr::null_mut()),
            home: AtomicU16::new(home as u16),
            last_poster: AtomicU16::new(NO_WORKER),
            refs: AtomicU32::new(1),
            links: UnsafeCell::new(Links {
                state: State::Idle,
                queued_rank: 0,
                readers: 0,
                list: 0,
                stolen: 0,
                prev: ptr::null_mut(),
                next: ptr::null_mut(),
            }),
            fifo: UnsafeCell::new(Fifo {
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
            }),
            ran: AtomicU64::new(0),
            len: AtomicU32::new(0),
            mean_ns: AtomicU16::new(0),
            away_share: AtomicU8::new(0),
            ext: ExtPtr::new(),
            inbox_len: AtomicU32::new(0),
            len_max: AtomicU32::new(0),
            shared,
            id,
            kind,
            #[cfg(any(dapple_loom, dapple_shuttle))]
            buried: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Whether its home never changes.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.kind == Kind::Pinned
    }

    /// The runtime of this color.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        self.check_alive();
        // SAFETY: see the field.
        unsafe { &*self.shared }
    }

    /// Stands for freeing in a model: whoever touches the cell later, or has touched it without being ordered before
    /// this, is found out. The memory is never used again.
    ///
    /// # Safety
    /// The caller may free the cell.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) unsafe fn bury(mut color: NonNull<ColorCell>) {
        // SAFETY: promised by the caller.
        let cell = unsafe { color.as_mut() };
        cell.check_alive();
        // Relaxed: in models one thread runs at a time.
        cell.buried.store(true, std::sync::atomic::Ordering::Relaxed);
        cell.links.with_mut(|_| ());
        cell.fifo.with_mut(|_| ());
        #[cfg(dapple_loom)]
        {
            cell.inbox.with_mut(|_| ());
            cell.remote_next.with_mut(|_| ());
            cell.home.with_mut(|_| ());
            cell.refs.with_mut(|_| ());
        }
    }

    #[inline(always)]
    pub(crate) fn check_alive(&self) {
        #[cfg(any(dapple_loom, dapple_shuttle))]
        // Relaxed: as there.
        assert!(!self.buried.load(std::sync::atomic::Ordering::Relaxed), "a color was used after it was freed");
    }

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
    unsafe fn append(&self, chain: Chain, outside: bool) {
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

    /// Nodes in the fifo: exact for who owns it, a number to show for others.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // Relaxed: what hands the fifo from one owner to the next orders this as well.
        self.len.load(Relaxed)
    }

    #[inline]
    fn set_len(&self, len: u32) {
        // Relaxed: see `len`.
        self.len.store(len, Relaxed);
        self.note_len(len);
    }

    /// See [`crate::model::Model::seem_long`].
    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn seem_long(&self) {
        self.mean_ns.store(u16::MAX, Relaxed);
    }

    /// Callbacks run; as [`ColorCell::len`].
    #[inline]
    pub(crate) fn ran(&self) -> u64 {
        // Relaxed: as there.
        self.ran.load(Relaxed)
    }

    /// Of the callbacks run, those that the counters about the recent past are measured against; as
    /// [`ColorCell::len`].
    #[inline]
    pub(crate) fn ran_recently(&self) -> u32 {
        let ran = self.ran();
        let recent = if ran < 2 * HISTORY_CALLBACKS { ran } else { HISTORY_CALLBACKS + ran % HISTORY_CALLBACKS };
        recent as u32
    }

    /// Mean callback time, sampled, 0 if it is not known; as [`ColorCell::len`].
    #[inline]
    pub(crate) fn mean_ns(&self) -> u16 {
        // Relaxed: as there.
        self.mean_ns.load(Relaxed)
    }

    /// Mean callback time without what went into traffic with other workers: what would be left of it if all whom it
    /// talks to were at home on one worker. As [`ColorCell::len`].
    pub(crate) fn own_ns(&self) -> u32 {
        let own_share = u8::MAX - self.away_share.load(Relaxed);
        u32::from(self.mean_ns()) * u32::from(own_share) / u32::from(u8::MAX)
    }

    /// Nodes in fifo and inbox: a number to show.
    pub(crate) fn queued(&self) -> u64 {
        // Relaxed: see `push_inbox`.
        u64::from(self.len()) + u64::from(self.inbox_len.load(Relaxed))
    }

    /// A callback that was counted against the capacity runs or is dropped.
    #[cold]
    pub(crate) fn count_off(&self) {
        if let Some(ext) = self.ext.get() {
            ext.count_off();
        }
    }

    #[inline]
    fn note_len(&self, len: u32) {
        // Relaxed: a number to show. Nearly always the look is enough.
        if len > self.len_max.load(Relaxed) {
            self.len_max.fetch_max(len, Relaxed);
        }
    }

    /// State and links.
    ///
    /// # Safety
    /// The caller holds the home lock.
    #[inline]
    pub(crate) unsafe fn links<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        self.check_alive();
        // SAFETY: promised by the caller; the closures in this crate do not re-enter.
        self.links.with_mut(|links| f(unsafe { &mut *links }))
    }

    /// # Safety
    /// The caller holds the home lock.
    #[inline]
    pub(crate) unsafe fn state(&self) -> State {
        // SAFETY: promised by the caller.
        unsafe { self.links(|links| links.state) }
    }

    /// # Safety
    /// The caller holds the home lock.
    #[inline]
    pub(crate) unsafe fn set_state(&self, state: State) {
        debug_assert!(state != State::Held, "who holds a color says who he is");
        // SAFETY: promised by the caller.
        unsafe { self.links(|links| links.state = state) }
    }

    /// Makes the color `Held`, and notes by whom, and where in the program that was asked for: in the links, which are
    /// not used while the color stands in no queue.
    ///
    /// # Safety
    /// The caller holds the home lock.
    #[inline]
    pub(crate) unsafe fn set_held(&self, holder: Holder, origin: Option<Origin>) {
        // SAFETY: promised by the caller.
        unsafe { self.links(|links| links.set_held(holder, origin)) };
    }

    /// Who holds the color, and where that was asked for.
    ///
    /// # Safety
    /// The caller holds the home lock, and the color is `Held`.
    pub(crate) unsafe fn holder(&self) -> (Holder, Option<Origin>) {
        // SAFETY: promised by the caller; the link is a location that `set_held` put there.
        unsafe {
            self.links(|links| (Holder::from_code(links.prev.addr()), links.next.cast::<Location<'_>>().as_ref()))
        }
    }

    /// Lets the requests to read at the front of the fifo, and `first` before them, hold the color together.
    ///
    /// # Safety
    /// The caller holds the home lock; the color is `Reading`, or the caller's to make so. `first` is the caller's.
    #[cold]
    pub(crate) unsafe fn admit_readers(&self, first: Option<NonNull<Node>>) -> Granted {
        let mut readers = NodeList::new();
        let mut admitted = 0;
        // SAFETY: promised by the caller; popped nodes are ours.
        unsafe {
            if let Some(first) = first {
                readers.push(OwnedNode::from_raw(first));
                admitted = 1;
            }
            while let Some(node) = self.fifo(Fifo::pop_reader) {
                // Relaxed: see `len`.
                self.len.store(self.len() - 1, Relaxed);
                readers.push(OwnedNode::from_raw(node));
                admitted += 1;
            }
            if admitted > 0 {
                self.links(|links| links.add_readers(admitted));
            }
            Granted::new(readers)
        }
    }

    /// Another worker takes the color over.
    ///
    /// # Safety
    /// The caller holds the locks of both homes.
    pub(crate) unsafe fn steal(&self, thief: usize) {
        // SAFETY: promised by the caller.
        let stolen = unsafe {
            self.links(|links| {
                links.stolen = links.stolen.wrapping_add(1);
                links.stolen
            })
        };
        if stolen == 0 {
            self.ext.get_or_make().add_stolen(1 << u8::BITS);
        }
        // Relaxed: under the locks of both homes.
        self.home.store(thief as u16, Relaxed);
    }

    /// How often another worker has taken the color over.
    ///
    /// # Safety
    /// The caller holds the home lock.
    pub(crate) unsafe fn stolen(&self) -> u64 {
        // SAFETY: promised by the caller.
        let low = unsafe { self.links(|links| links.stolen) };
        u64::from(low) + self.ext.get().map_or(0, Ext::stolen)
    }
}

/// The rank of a priority.
#[inline]
fn rank(priority: u8) -> u8 {
    priority << 1
}

/// No worker has posted from elsewhere yet.
pub(crate) const NO_WORKER: u16 = u16::MAX;

/// A color has shown its habits after this many callbacks.
const HABIT_CALLBACKS: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { 16 };

/// When a color has run twice this many callbacks, and from then on after every so many, its counters about the recent past
/// are halved. So few that callbacks of up to five hundred posts are counted in full.
const HISTORY_CALLBACKS: u64 = 64;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
const _: () = assert!(std::mem::size_of::<ColorCell>() <= 128, "a color's allocation is to stay within 128 bytes");
