//! A color in memory: its inbox, its fifo, its place in a run queue.
//!
//! # States (field `links.state`, changed only under the home worker's lock)
//!
//! | state | in a run queue | owner of the fifo | next |
//! |---|---|---|---|
//! | `Idle` | no | the home worker's lock; it is empty | `Queued` (post), `Running` (a nested turn), `Held` (hold in line, or by a request for several colors), `Reading` (the same for reading) |
//! | `Queued` | yes, exactly one | the home worker's lock | `Running` (its worker pops it); stays `Queued` under a new home (steal) |
//! | `Running` | no | the worker that runs the turn, which is its home | `Queued` (more to run), `Idle`, `Held` (handed to a waiter), `Reading` (handed to the readers in front) |
//! | `Held` | no | the home worker's lock | `Queued` (a node arrived meanwhile, or a request for several colors is complete and runs in this one), `Idle` |
//! | `Reading` | no | the home worker's lock | `Reading` (one reader more or less), `Queued` (the last reader has gone and a node waits), `Idle` |
//!
//! **One rule:** the running worker owns the fifo; otherwise the home worker's lock does. `home`
//! changes only under the locks of the old and of the new home, never while the color is `Running`
//! or `Reading`; while it is `Held`, only a request for several colors changes it
//! (`placement::bring_together`). The home of a pinned color never changes.
//!
//! # Readers (`links.readers`, under the home lock)
//!
//! A request to read waits in the fifo like any callback. A turn that reaches one ends, and the
//! color goes to that request and to all requests to read directly after it: a chain, which holds
//! the color together. While the color is `Reading`, another reader joins only if no request waits.
//! Everything else waits until the chain has ended, in the order of acceptance. So neither side
//! starves (C5), and a turn of plain callbacks never looks for readers.
//!
//! Nodes from other threads and from other colors arrive in the color's inbox first (`inbox`).

pub(crate) mod fifo;
mod inbox;

use std::ptr;
#[cfg(any(dapple_loom, dapple_shuttle))]
use std::ptr::NonNull;

use self::fifo::Fifo;
use crate::color::ext::ExtPtr;
use crate::color::holder::Holder;
use crate::color::node::{Node, Origin};
use crate::runtime::shared::Shared;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

/// See the table of states above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    Queued,
    Running,
    Held,
    Reading,
}

/// The default color exists once per runtime, named ones are found by value, others are known by
/// their handles only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Default,
    Named,
    Fresh,
    /// Fresh, and its home never changes.
    Pinned,
}

/// One color. It is reached through handles ([`crate::Color`]), through a run queue or a remote
/// list, or as the running color.
///
/// Holding a color touches only the first of its two cache lines.
#[repr(C, align(128))]
pub(crate) struct ColorCell {
    /// Nodes from other threads; see the table in `inbox`.
    inbox: AtomicPtr<Node>,
    /// The runtime, alive as long as this cell: a cell holds a count on it (for the default color,
    /// its handles do).
    pub(crate) shared: *const Shared,
    /// State and run queue links; under the home lock.
    links: UnsafeCell<Links>,
    /// Number of handles. Goes from 1 to 0 only under the home lock, so that the end of a turn can
    /// tell whether to free the color.
    pub(crate) refs: AtomicU32,
    /// Nodes in the fifo. The owner of the fifo writes this, the next two fields and `ran`;
    /// statistics read them.
    len: AtomicU32,
    /// Mean callback time, sampled; 0 if unknown.
    mean_ns: AtomicU16,
    /// The share of that time that went into traffic with other workers, in 255ths.
    away_share: AtomicU8,
    pub(crate) kind: Kind,
    /// Index of the home worker; changed under the locks of the old and of the new home.
    pub(crate) home: AtomicU16,
    /// The worker that last posted from elsewhere, for home moves. A hint.
    pub(crate) last_poster: AtomicU16,
    /// The name of a named color, a serial number otherwise.
    pub(crate) id: u64,
    /// The fifo and its statistics; see the one rule.
    fifo: UnsafeCell<Fifo>,
    /// Callbacks run.
    ran: AtomicU64,
    /// The fields that few colors need.
    pub(crate) ext: ExtPtr,
    /// Link in a remote list; written by the thread that set NOTIFIED, read by the thread that
    /// takes the list.
    pub(crate) remote_next: AtomicPtr<ColorCell>,
    /// Nodes in the inbox. Counted separately, so that they show while a long callback keeps the
    /// fifo's owner from draining them.
    inbox_len: AtomicU32,
    /// The most callbacks that waited at one time.
    pub(crate) len_max: AtomicU32,
    /// Models keep the memory of a freed color in order to detect a use after free.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    buried: std::sync::atomic::AtomicBool,
}

// SAFETY: shared fields are atomics; `links` and `fifo` are touched under the home lock or by the
// running worker only (the one rule), and nodes hold `Send` closures.
unsafe impl Send for ColorCell {}
// SAFETY: as above.
unsafe impl Sync for ColorCell {}

/// The links of a color.
pub(crate) struct Links {
    pub(crate) state: State,
    /// The [`Fifo::rank`] under which it is queued.
    pub(crate) queued_rank: u8,
    /// Number of readers; 0 in all states but `Reading`.
    pub(super) readers: u32,
    /// The list that the color is in: that of its rank, or one of a policy's.
    pub(crate) list: u8,
    /// How often another worker has taken the color over; the overflow is in the side record.
    pub(super) stolen: u8,
    /// While the color is `Held`, `prev` and `next` say which holder has it; see
    /// [`Links::set_held`].
    pub(crate) prev: *mut ColorCell,
    pub(crate) next: *mut ColorCell,
}

impl Links {
    /// The links of an `Idle` color.
    pub(crate) const fn idle() -> Links {
        Links {
            state: State::Idle,
            queued_rank: 0,
            readers: 0,
            list: 0,
            stolen: 0,
            prev: ptr::null_mut(),
            next: ptr::null_mut(),
        }
    }

    /// Adds readers. A reader that is granted the color and then leaked (`mem::forget`) stays, so
    /// only memory bounds the number.
    #[inline]
    pub(crate) fn add_readers(&mut self, more: u32) {
        self.state = State::Reading;
        self.readers = self.readers.checked_add(more).unwrap_or_else(|| std::process::abort());
    }

    /// Makes the color `Held`. The links, unused outside a queue, note the holder and the place in
    /// the program that asked.
    #[inline]
    pub(crate) fn set_held(&mut self, holder: Holder, origin: Option<Origin>) {
        self.state = State::Held;
        self.list = 0;
        self.prev = ptr::without_provenance_mut(holder.code());
        self.next = origin.map_or(ptr::null_mut(), |origin| ptr::from_ref(origin).cast_mut().cast());
    }
}

impl ColorCell {
    pub(crate) fn new(shared: *const Shared, kind: Kind, id: u64, home: usize, links: Links) -> ColorCell {
        ColorCell {
            inbox: AtomicPtr::new(ptr::null_mut()),
            remote_next: AtomicPtr::new(ptr::null_mut()),
            home: AtomicU16::new(home as u16),
            last_poster: AtomicU16::new(NO_WORKER),
            refs: AtomicU32::new(1),
            links: UnsafeCell::new(links),
            fifo: UnsafeCell::new(Fifo::new()),
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

    /// Replaces freeing in a model: a later access, or one that is not ordered before this call,
    /// fails the model. The memory is never used again.
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

    /// Nodes in the fifo: exact for the fifo's owner, an estimate for others.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // Relaxed: the handover of the fifo to its next owner orders this as well.
        self.len.load(Relaxed)
    }

    #[inline]
    fn set_len(&self, len: u32) {
        // Relaxed: see `len`.
        self.len.store(len, Relaxed);
        self.note_len(len);
    }

    /// One node was taken out of the fifo.
    #[inline]
    fn one_less(&self) {
        // Relaxed: see `len`.
        self.len.store(self.len() - 1, Relaxed);
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

    /// How many of the callbacks run count as the recent past, which the counters below cover; as
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

    /// Mean callback time without the share that went into traffic with other workers: about the
    /// mean that the color would have if its partners were at home on one worker. As
    /// [`ColorCell::len`].
    pub(crate) fn own_ns(&self) -> u32 {
        let own_share = u8::MAX - self.away_share.load(Relaxed);
        u32::from(self.mean_ns()) * u32::from(own_share) / u32::from(u8::MAX)
    }

    /// Nodes in fifo and inbox, for statistics.
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
        // Relaxed: for statistics. This load alone is nearly always enough.
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
}

/// The rank of a priority.
#[inline]
fn rank(priority: u8) -> u8 {
    priority << 1
}

/// No worker has posted from elsewhere yet.
pub(crate) const NO_WORKER: u16 = u16::MAX;

/// After this many callbacks the average length and traffic of the color's callbacks are known.
const HABIT_CALLBACKS: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { 16 };

/// The counters of the recent past are halved when a color has run twice this many callbacks, and
/// from then on after each this many. They do not overflow as long as a callback makes up to five
/// hundred posts.
const HISTORY_CALLBACKS: u64 = 64;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
const _: () = assert!(std::mem::size_of::<ColorCell>() <= 128, "a color's allocation must stay within 128 bytes");
