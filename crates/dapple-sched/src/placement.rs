//! Where colors live: the rules by which a color's home moves, other than stealing.
//!
//! A callback that is posted to another worker costs two cache-line transfers, as much as ten tiny callbacks. So tiny
//! callbacks belong on the worker that posts them, and colors that talk to each other on one worker. Stealing does not
//! take them apart (`idle.rs`: it takes what gains more than it costs); these rules bring them together:
//!
//! | when | what | where |
//! |---|---|---|
//! | a color falls idle, or a turn of it was sampled | most of its callbacks come from one other worker, or most post to one other worker, and all this traffic costs more than the callbacks take | to that worker, if its index is lower |
//! | a request for several colors spans workers, that of its poster among them | its colors, if they are all free and their callbacks shorter than what it costs to span workers | to the lowest of these workers |
//! | a worker posts to an idle color whose home sleeps, or from an I/O event (`post.rs`) | the color | to that worker |
//!
//! **Always to the lower index**: two colors that post to each other would otherwise pass each other by for ever, each
//! moving to where the other was. And not to a worker whose queue is long, where they would wait. And never what is pinned.

use crate::cell::{ColorCell, NO_WORKER, State};
use crate::lock::Guard;
use crate::run_queue::RunQueue;
use crate::shared::Slot;
use crate::sync::atomic::Ordering::*;
use crate::worker::{TINY_CALLBACK_NS, Worker};

impl Worker {
    /// Moves a color whose turn is over to where most of its traffic is, if that is not here. False: it stays; true: it
    /// is idle there, or in that worker's queue, and the worker is to be woken.
    ///
    /// # Safety
    /// The home lock, that of this worker, is held; the color is in no queue, and `Idle`, or has something to run.
    pub(crate) unsafe fn gather(&self, cell: &ColorCell) -> Option<usize> {
        if cell.is_pinned() {
            return None;
        }
        // SAFETY: promised by the caller.
        let target = unsafe {
            let own_ns = cell.own_ns() as u16;
            cell.fifo(|fifo| fifo.partner(cell.last_poster.load(Relaxed), cell.ran_recently(), own_ns))
        }?;
        if usize::from(target) >= self.index {
            return None;
        }
        let slot = &self.shared.slots[usize::from(target)];
        if slot.wait_ns() > LONG_WAIT_NS {
            return None;
        }
        // The new home's lock orders what we did with the color before what is done there. Only tried, as everywhere
        // where one is held already.
        let mut theirs = slot.try_lock().filter(|theirs| !theirs.closed)?;
        cell.home.store(target, Relaxed);
        cell.last_poster.store(NO_WORKER, Relaxed);
        // SAFETY: both homes' locks are held, so the fifo is ours.
        unsafe {
            cell.fifo(|fifo| (fifo.posts_away, fifo.posts_foreign) = (0, 0));
            if cell.len() > 0 {
                theirs.push(cell.into());
            } else {
                debug_assert!(cell.state() == State::Idle);
            }
        }
        Some(usize::from(target))
    }
}

/// Brings the free ones of several colors that are wanted together to one worker, if their callbacks are tiny.
///
/// # Safety
/// `homes` are the locks of all their homes, and of the worker that posts; the colors are idle.
pub(crate) unsafe fn bring_together<'a>(
    homes: &[(usize, Guard<'_, RunQueue>)],
    free: impl Iterator<Item = &'a ColorCell> + Clone,
) {
    let [(lowest, queue), _, ..] = homes else { return };
    // SAFETY: promised by the caller: idle, so the home lock owns the fifo.
    let short = |cell: &ColorCell| unsafe { cell.own_ns() } < REQUEST_POSTS * TINY_CALLBACK_NS;
    if !queue.closed && free.clone().all(short) {
        free.filter(|cell| !cell.is_pinned()).for_each(|cell| cell.home.store(*lowest as u16, Relaxed));
    }
}

impl Slot {
    /// About how long a color waits that is queued now. A hint.
    fn wait_ns(&self) -> u64 {
        self.len.load(Relaxed) as u64 * u64::from(self.turn_ns.load(Relaxed))
    }
}

/// As how many posts between colors a request for several counts. One that spans workers takes the locks of both, and each
/// of its colors crosses: about a microsecond.
pub(crate) const REQUEST_POSTS: u32 = 10;

/// What one costs its poster, above what it costs at home.
pub(crate) const REQUEST_AWAY_NS: u32 = 800;

/// Tiny callbacks are not brought to where they would wait longer than this.
const LONG_WAIT_NS: u64 = 500_000;
