//! The state shared by all transactions: the clock, the gate of the serial path, the memory of
//! variables.
//!
//! **The clock** orders versions; it is read often and written rarely. A commit takes a version
//! above the clock and above those that it replaces, and leaves the clock unchanged. A transaction
//! remembers the clock at its begin, its *mark*: a version up to the mark was locked before the
//! mark was read, so it needs no check. For a newer version it checks all its earlier reads, which
//! is cheap while they are few. When they are many, it first moves the clock past that version, and
//! later checks only for versions above the new mark.

use crate::gate::Gate;
use crate::pool::Pool;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::sync::{Mutex, sc_fence};

#[cfg_attr(not(any(dapple_loom, dapple_shuttle)), repr(align(128)))]
struct Line<T>(T);

struct Global {
    clock: Line<AtomicU64>,
    ids: Line<AtomicU64>,
    gate: Gate,
    pool: Mutex<Pool>,
}

macro_rules! new_global {
    () => {
        Global {
            clock: Line(AtomicU64::new(1)),
            ids: Line(AtomicU64::new(0)),
            gate: Gate::new(),
            pool: Mutex::new(Pool::new()),
        }
    };
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
static GLOBAL: Global = new_global!();

#[cfg(any(dapple_loom, dapple_shuttle))]
crate::sync::lazy_static! {
    static ref GLOBAL: Global = new_global!();
}

/// The clock, as the mark of a transaction or as a lower bound of a commit's version.
///
/// `SeqCst`: a commit locks and then reads the clock, a reader reads the clock and then words. If
/// the commit reads less than the reader's mark, the reader sees its locks.
#[inline(always)]
pub(crate) fn clock() -> u64 {
    // After a commit's locks, and before a reader's loads.
    sc_fence();
    let now = GLOBAL.clock.0.load(SeqCst);
    sc_fence();
    now
}

/// Moves the clock to at least `version`. Returns the clock, which may be higher.
#[cold]
pub(crate) fn move_clock(version: u64) -> u64 {
    sc_fence();
    let before = GLOBAL.clock.0.fetch_max(version, SeqCst);
    sc_fence();
    before.max(version)
}

pub(crate) fn next_id() -> u64 {
    GLOBAL.ids.0.fetch_add(1, Relaxed)
}

pub(crate) fn gate() -> &'static Gate {
    &GLOBAL.gate
}

pub(crate) fn pool() -> &'static Mutex<Pool> {
    &GLOBAL.pool
}
