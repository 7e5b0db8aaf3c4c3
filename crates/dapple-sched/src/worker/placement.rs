//! Where colors live: the rules by which a color's home moves, other than stealing.
//!
//! A callback that is posted to another worker costs two cache-line transfers, as much as ten tiny callbacks. So tiny
//! callbacks belong on the worker that posts them, and colors that talk to each other on one worker. Stealing does not
//! take them apart (`idle.rs`: it takes what gains more than it costs); these rules bring them together:
//!
//! | when | what | where |
//! |---|---|---|
//! | a color falls idle, or a turn of it was sampled | most of its callbacks come from one other worker, or most post to one other worker, and all this traffic costs more than the callbacks take | to that worker, if its index is lower |
//! | a request for several colors spans workers, that of its poster among them if it has one | its colors but those that run, if their callbacks are shorter than what it costs to span workers | to the lowest of these workers |
//! | the first of these is true of a color that was rescued, against the rule by which colors are stolen, from a worker in a long callback | the color, once | back to that worker when it is through, whatever its index |
//! | a task begins to wait for a color that neither runs nor is held | the color | to the worker of the task |
//! | a task that lives long begins ([`crate::spawn_balanced`]) where many turns wait | its color | to the worker with the shortest queue |
//! | a worker posts to an idle color whose home sleeps, or from an I/O event (`post`) | the color | to that worker |
//!
//! **Always to the lower index**: two colors that post to each other would otherwise pass each other by for ever, each
//! moving to where the other was. And not to a worker whose queue is long, where they would wait. And never what is pinned.
//!
//! How long callbacks take is measured **without what they spend on traffic with other workers** (`worker::away`), which is
//! what a move would save. Measured with it, colors that are apart look like colors whose long callbacks are worth two
//! workers, and stay apart: four accounts with 1 us of work, begun on two workers, ran at a third of the speed for good.

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
    /// Where a color whose turn is over has most of its traffic, if that is not here: the index of that worker, and its lock. A
    /// color that has something to run is in its queue then, and it is to be woken.
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
        // The new home's lock orders what we did with the color before what is done there. Only tried, as everywhere
        // where one is held already.
        let theirs = slot.try_lock().filter(|theirs| !theirs.closed)?;
        Some((target, theirs))
    }
}

/// Brings several colors that are wanted together to one worker, if what is known of their callbacks is that they are tiny:
/// all of them but those that run elsewhere or are read, which stay.
///
/// `homes`: the locks of all their homes, and perhaps of the worker that posts, in the order of the workers.
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
            // A holder looks for its home under the home's lock.
            home.move_to(lowest);
        }
    }
}

/// Counts that a callback holds a color in line; the callback's worker is `here`.
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

/// Counts that a callback has asked in vain to hold a color in line that is at home on another worker: the lock and the color
/// have crossed all the same.
pub(crate) fn note_attempt(home: usize) {
    context::note_turn(HOLD_POSTS, Some(home));
}

/// As [`note_hold`], for a color that is at home on the worker that holds it.
#[inline]
pub(crate) fn note_hold_here(worker: &Worker, home: &mut HomeGuard<'_, Guard<'_, RunQueue>>) {
    if (worker.note_turn(HOLD_POSTS, None) || worker.frame.is_light())
        && let Some(mut fifo) = home.fifo()
    {
        fifo.note_arrival(false, HOLD_POSTS);
    }
}

/// A task of this thread has posted its wait to a color just now: the color goes before others, and comes to this worker unless it
/// is held. The worker that it was at home on may not run at the moment, and each task that comes to the color waits with this one.
pub(crate) fn hasten(color: ColorRef<'_>) {
    let fetched = context::with_worker(|worker| {
        // Relaxed: a hint.
        let home = usize::from(color.home.load(Relaxed));
        if home == worker.index || worker.rests() || !ptr::eq(&*worker.shared, color.shared) || switches::shared_queue()
        {
            return false;
        }
        let mut own = worker.slot().lock();
        // Only tried, as everywhere where one lock is held already.
        let theirs = worker.shared.slots[home].try_lock().and_then(|theirs| HomeGuard::of(theirs, color));
        theirs.is_some_and(|theirs| theirs.hasten_to(&mut own))
    });
    if fetched != Some(true) {
        color.lock_home().hasten();
    }
}

/// Where a task is to begin that lives long: on the worker with the shortest queue, if that of the caller is long, and longer by more
/// than an eighth. `None`: where the caller is.
pub(crate) fn shortest_queue(shared: &Shared) -> Option<usize> {
    // Relaxed: hints.
    let waiting = |worker: usize| shared.slots[worker].len.load(Relaxed);
    let here = context::index_in(shared)?;
    let shortest = (0..shared.active()).min_by_key(|&worker| waiting(worker))?;
    let own = waiting(here);
    (own > MANY_TURNS && waiting(shortest) < own - own / 8).then_some(shortest)
}

/// Counts that a callback asks for several colors at once; they and it are at home on these workers.
pub(crate) fn note_request(homes: &[Guard<'_, RunQueue>]) {
    let lowest = if let [lowest, _, ..] = homes { Some(lowest.worker()) } else { None };
    context::note_turn(REQUEST_POSTS as u16, lowest);
}

impl Slot {
    /// About how long a color waits that is queued now. A hint.
    fn wait_ns(&self) -> u64 {
        // Relaxed: hints.
        self.len.load(Relaxed) as u64 * u64::from(self.turn_ns.load(Relaxed))
    }
}

/// As how many posts between colors a request for several counts. One that spans workers takes the locks of both, and each
/// of its colors crosses: about a microsecond.
pub(crate) const REQUEST_POSTS: u32 = 10;

/// As how many posts a hold in line counts: elsewhere the lock, the color and its state cross, and the lock again, and
/// whoever has them at home is kept waiting meanwhile. Where two workers do so without a pause it takes 600 ns and more,
/// of which 400 pass for the callback's own; twice that, so that they do not stay apart.
const HOLD_POSTS: u16 = 8;

/// Where fewer turns wait than this, what begins there does not wait for long.
const MANY_TURNS: usize = 64;

/// Tiny callbacks are not brought to where they would wait longer than this.
const LONG_WAIT_NS: u64 = 1_000_000;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::color::rights::FifoGuard;
    use crate::{Colored, Runtime, TryWithError};

    #[test]
    fn what_lives_long_begins_where_the_queue_is_shortest() {
        let runtime = Runtime::builder().workers(3).build().unwrap();
        let (tx, seen) = mpsc::channel();
        let shared = runtime.handle().shared().clone();
        // No worker begins a turn meanwhile and stores how long its queue is.
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
