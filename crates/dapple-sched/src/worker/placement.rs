//! The homes of colors: the rules by which a color moves to another worker, other than stealing.
//!
//! A callback posted to another worker costs two cache-line transfers, as much as ten tiny
//! callbacks. So tiny callbacks should run on the worker that posts them, and colors that post to
//! each other on one worker. Stealing does not separate them, because it takes only colors that
//! gain more than they cost (`idle.rs`); these rules bring them together:
//!
//! | when | moves | to |
//! |---|---|---|
//! | a color falls idle, or a turn of it was sampled | most of its callbacks come from one other worker, or most post to one other worker, and all this traffic costs more than the callbacks take | to that worker, if its index is lower |
//! | a request for several colors spans workers, that of its poster among them if it has one | its colors but those that run, if their callbacks take less time than spanning workers costs | to the lowest of these workers |
//! | the first case is true of a color that was rescued, against the rule for stealing, from a worker in a long callback | the color, once | back to that worker after its callback, whatever its index |
//! | a task begins to wait for a color that neither runs nor is held | the color | to the worker of the task |
//! | a long-lived task begins ([`crate::spawn_balanced`]) on a worker with many waiting turns | its color | to the worker with the shortest queue |
//! | a worker posts to an idle color on a sleeping worker, or from an I/O event (`post`) | the color | to that worker |
//!
//! **Always to the lower index**: otherwise two colors that post to each other would keep swapping
//! homes, each moving to the other's former one. Never to a worker with a long queue, in which they
//! would wait. And never a pinned color.
//!
//! The time of callbacks is measured **without the time that they spend on traffic with other
//! workers** (`worker::away`), which a move would save. If that time were included, separated
//! colors would seem to have callbacks long enough for two workers, and stay apart: four accounts
//! with 1 us of work, begun on two workers, stayed at a third of the speed.

use std::ops::DerefMut;
use std::ptr;

use crate::color::cell::State;
use crate::color::rights::{ColorRef, HomeGuard};
use crate::runtime::context;
use crate::runtime::shared::{Shared, Slot};
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Guard;
use crate::worker::run_queue::RunQueue;
use crate::worker::{TINY_CALLBACK_NS, Worker};

impl Worker {
    /// After a turn: the worker with most of the color's traffic, if it is not this one: its index
    /// and its lock. If the color has a node to run the caller moves it to that queue and wakes
    /// that worker.
    pub(super) fn partner(&self, home: &mut HomeGuard<'_, &mut RunQueue>) -> Option<(usize, Guard<'_, RunQueue>)> {
        if home.color().is_pinned() {
            return None;
        }
        let (target, rescued) = home.fifo()?.partner()?;
        let slot = &self.shared.slots[target];
        if target == self.index
            || target >= self.shared.active()
            || (target > self.index && !rescued)
            || slot.wait_ns() > LONG_WAIT_NS
            || slot.is_overdue()
        {
            return None;
        }
        // The new home's lock orders this thread's changes of the color before later ones there.
        // Only tried, as always while another lock is held.
        let theirs = slot.try_lock().filter(|theirs| !theirs.closed)?;
        Some((target, theirs))
    }
}

/// Moves several wanted colors to one worker, if their callbacks are known to be tiny. Colors that
/// run elsewhere or have readers stay.
///
/// `homes`: the locks of all their homes, and perhaps of the posting worker, in the order of the
/// workers.
pub(crate) fn bring_together<'c>(
    shared: &Shared,
    homes: &mut [Guard<'_, RunQueue>],
    colors: impl Iterator<Item = ColorRef<'c>> + Clone,
) {
    let [lowest, _, ..] = &*homes else { return };
    let lowest = lowest.worker();
    let stays = |homes: &mut [Guard<'_, RunQueue>], color| {
        let home = HomeGuard::among(homes, color).expect("the locks of all homes are held");
        matches!(home.state(), State::Running | State::Reading) || color.is_pinned()
    };
    let long = |cell: ColorRef<'_>| cell.own_ns() >= REQUEST_POSTS * TINY_CALLBACK_NS;
    if homes.iter().any(|queue| queue.closed)
        || colors.clone().all(|cell| cell.mean_ns() == 0)
        || shared.slots[lowest].wait_ns() > LONG_WAIT_NS
        || colors.clone().any(|cell| !stays(homes, cell) && long(cell))
    {
        return;
    }
    for color in colors {
        let stays = stays(homes, color);
        let [lowest, others @ ..] = &mut *homes else { return };
        if let Some(home) = HomeGuard::among(others, color).filter(|_| !stays) {
            // A holder finds its home under the home's lock.
            home.move_to(lowest);
        }
    }
}

/// Counts that a callback on the worker `here` holds a color in line.
pub(crate) fn note_hold<Q>(home: &mut HomeGuard<'_, Q>, here: Option<usize>)
where
    Q: DerefMut<Target = RunQueue>,
{
    let at = home.index();
    let elsewhere = (here != Some(at)).then_some(at);
    let from_turn = here.is_some() && context::note_turn(HOLD_POSTS, elsewhere);
    if elsewhere.is_none()
        && (from_turn || context::polls_any_light())
        && let Some(mut fifo) = home.fifo()
    {
        fifo.note_arrival(false, HOLD_POSTS);
    }
}

/// Counts that a callback has failed to hold a color of another worker in line: the lock and the
/// color have crossed all the same.
pub(crate) fn note_attempt(home: usize) {
    context::note_turn(HOLD_POSTS, Some(home));
}

/// As [`note_hold`], for a color at home on the worker that holds it.
#[inline]
pub(crate) fn note_hold_here(worker: &Worker, home: &mut HomeGuard<'_, Guard<'_, RunQueue>>) {
    if (worker.note_turn(HOLD_POSTS, None) || worker.frame.is_light())
        && let Some(mut fifo) = home.fifo()
    {
        fifo.note_arrival(false, HOLD_POSTS);
    }
}

/// A task of this thread has just posted its wait to a color: the color goes before others, and
/// moves to this worker unless it is held. Its former home may not run at the moment, and each task
/// that reaches the color waits together with this one.
pub(crate) fn hasten(color: ColorRef<'_>) {
    let fetched = context::with_worker(|worker| {
        // Relaxed: a hint.
        let home = usize::from(color.home.load(Relaxed));
        if home == worker.index || worker.rests() || !ptr::eq(&*worker.shared, color.shared) || switches::shared_queue()
        {
            return false;
        }
        let mut own = worker.slot().lock();
        // Only tried, as always while another lock is held.
        let theirs = worker.shared.slots[home].try_lock().and_then(|theirs| HomeGuard::of(theirs, color));
        theirs.is_some_and(|theirs| theirs.hasten_to(&mut own))
    });
    if fetched != Some(true) {
        color.lock_home().hasten();
    }
}

/// The worker on which a long-lived task should begin: the one with the shortest queue, if the
/// caller's own is long, and longer by more than an eighth. `None`: the caller's worker.
pub(crate) fn shortest_queue(shared: &Shared) -> Option<usize> {
    // Relaxed: hints.
    let waiting = |worker: usize| shared.slots[worker].len.load(Relaxed);
    let here = context::index_in(shared)?;
    let shortest = (0..shared.active()).min_by_key(|&worker| waiting(worker))?;
    let own = waiting(here);
    (own > MANY_TURNS && waiting(shortest) < own - own / 8).then_some(shortest)
}

/// Counts that a callback asks for several colors at once; `homes` are the workers of all of them.
pub(crate) fn note_request(homes: &[Guard<'_, RunQueue>]) {
    let lowest = if let [lowest, _, ..] = homes { Some(lowest.worker()) } else { None };
    context::note_turn(REQUEST_POSTS as u16, lowest);
}

impl Slot {
    /// An estimate of how long a newly queued color waits. A hint.
    fn wait_ns(&self) -> u64 {
        // Relaxed: hints.
        self.len.load(Relaxed) as u64 * u64::from(self.turn_ns.load(Relaxed))
    }
}

/// The number of posts between colors that a request for several colors counts as. A request that
/// spans workers takes the locks of both, and each of its colors crosses: about a microsecond.
pub(crate) const REQUEST_POSTS: u32 = 10;

/// The number of posts that a hold in line counts as. On another worker the lock, the color, its
/// state and the lock again cross between the cores, while the home waits. If two workers do this
/// without a pause, it takes 600 ns or more, of which 400 seem to be the callback's own time; the
/// estimate is twice that, so that they do not stay apart.
const HOLD_POSTS: u16 = 8;

/// With fewer waiting turns, a new task does not wait for long.
const MANY_TURNS: usize = 64;

/// Tiny callbacks do not move to a queue in which they would wait longer than this.
const LONG_WAIT_NS: u64 = 1_000_000;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::color::rights::FifoGuard;
    use crate::{Colored, Runtime, TryWithError};

    #[test]
    fn a_long_lived_task_begins_where_the_queue_is_shortest() {
        let runtime = Runtime::builder().workers(3).build().unwrap();
        let (tx, seen) = mpsc::channel();
        let shared = runtime.handle().shared().clone();
        // No worker begins a turn meanwhile and stores its queue length.
        let (inside_tx, inside) = mpsc::channel();
        let gates = [1, 2].map(|worker| {
            let (open, opened) = mpsc::channel::<()>();
            let inside_tx = inside_tx.clone();
            runtime.handle().pinned_color(worker).post(move || {
                inside_tx.send(()).unwrap();
                _ = opened.recv();
            });
            inside.recv().unwrap();
            open
        });
        runtime.handle().pinned_color(0).post(move || {
            let among = |waiting: [usize; 3]| {
                shared.slots.iter().zip(waiting).for_each(|(slot, len)| slot.len.store(len, Relaxed));
                shortest_queue(&shared)
            };
            let found = [[1_000, 900, 800], [1_000, 990, 980], [MANY_TURNS, 0, 0], [1_000, 0, 1_000]].map(among);
            drop(crate::spawn_balanced(async {}));
            tx.send((found, [1, 2].map(|worker| shared.slots[worker].remote_waits()))).unwrap();
            among([0; 3]);
        });
        let (found, has_news) = seen.recv().unwrap();
        assert_eq!(found, [Some(2), None, None, Some(1)]);
        assert_eq!(has_news, [true, false], "the task begins on worker 1");
        drop(gates);
        assert_eq!(shortest_queue(runtime.handle().shared()), None, "the caller is no worker");
    }

    #[test]
    fn a_hold_that_is_refused_counts_as_traffic() {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        let state = Colored::with_color((), &runtime.handle().new_color_at(0));
        let sender = runtime.handle().pinned_color(1);
        let (tx, seen) = mpsc::channel();
        let asked = state.clone();
        let (away, to) = state.with_blocking(|()| {
            sender.post(move || {
                (0..10).for_each(|_| assert_eq!(asked.try_with(|()| ()), Err(TryWithError::Busy)));
                let color = context::current_color().unwrap();
                // SAFETY: a callback of the color.
                let fifo = unsafe { FifoGuard::new(ColorRef::new(color)) };
                tx.send((fifo.posts_away(), fifo.away_to())).unwrap();
            });
            seen.recv().unwrap()
        });
        assert_eq!((away, to), (10 * HOLD_POSTS, 0));
    }
}
