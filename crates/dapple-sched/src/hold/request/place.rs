//! How all colors of a request accept it in one step, under the locks of all their homes.

use super::{Member, OwnRequest};
use crate::color::cell::State;
use crate::color::holder::Holder;
use crate::color::node::Granted;
use crate::color::rights::{ColorRef, FifoGuard, HomeGuard, Notified};
use crate::post::afterwards;
use crate::post::grant_all;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Guard;
use crate::worker::placement;
use crate::worker::run_queue::RunQueue;
use crate::worker::{self, Worker};

/// The lock of one worker.
pub(super) type Home<'a> = Guard<'a, RunQueue>;

/// A color of a request; takes the lock of its home from the held ones.
type MemberHome<'h, 'c> = HomeGuard<'c, &'h mut RunQueue>;

/// The remaining work after the release of the locks.
struct Placed {
    /// Requests to read that got the color now, of any poster.
    granted: Granted,
    /// Colors that this thread must link.
    notify: Vec<Notified>,
    /// The request, if all colors are held.
    complete: Option<OwnRequest>,
}

impl Placed {
    const NOTHING_LEFT: Placed = Placed { granted: Granted::none(), notify: Vec::new(), complete: None };

    /// Does the remaining work, with no lock held.
    #[inline]
    fn settle(self) {
        self.notify.into_iter().for_each(afterwards::pass_on);
        grant_all(self.granted);
        self.complete.into_iter().for_each(OwnRequest::complete);
    }
}

/// The thread that posts a request.
#[derive(Clone, Copy)]
struct Poster<'w> {
    /// This thread's worker, if it is one of the request's runtime.
    worker: Option<&'w Worker>,
    from_callback: bool,
    outside: bool,
}

impl<'w> Poster<'w> {
    fn new(worker: Option<&'w Worker>) -> Poster<'w> {
        Poster {
            worker,
            from_callback: worker.is_some_and(|worker| worker.frame.color().is_some()),
            outside: worker.is_none_or(|worker| worker.dispatches.get()),
        }
    }

    /// The fifo of a color. `None` if this thread may use only the inbox, because another worker
    /// runs the color, or because its worker has stopped.
    fn reaches<'f>(self, home: &'f mut MemberHome<'_, '_>) -> Option<FifoGuard<'f>> {
        if home.is_closed() {
            return None;
        }
        match self.worker {
            Some(worker) => home.fifo_of(worker),
            None => home.fifo(),
        }
    }
}

impl OwnRequest {
    /// Makes all colors accept the request in one step. They are of one runtime, and each is named
    /// once.
    pub(super) fn submit(self) {
        context::with_worker_of(self.shared, |worker| {
            let Some(worker) = worker else { return self.place_anywhere(None).settle() };
            let mut queue = worker.slot().lock();
            if !self.place_simply(&mut queue, worker) {
                self.place_otherwise(queue, worker);
            }
        });
    }

    /// Places the request of a worker that has its lock.
    #[inline(never)]
    fn place_otherwise(self, queue: Home<'_>, worker: &Worker) {
        if self.members().iter().all(|member| queue.is_home_of(&member.color())) {
            // The lock is released before the rest of the work.
            let placed = self.place(&mut [queue], Poster::new(Some(worker)));
            return placed.settle();
        }
        drop(queue);
        worker::away(|| self.place_anywhere(Some(worker)).settle());
    }

    /// Places the request with homes on any workers.
    fn place_anywhere(self, worker: Option<&Worker>) -> Placed {
        // SAFETY: the submitter has handles to the colors, which keep the runtime.
        let shared = unsafe { &*self.shared };
        let mut homes = lock_homes(shared, self.members(), worker.map(|worker| worker.index));
        let placed = self.place(&mut homes, Poster::new(worker));
        let homes: Vec<usize> = homes.into_iter().map(|queue| queue.worker()).collect();
        homes.into_iter().for_each(|home| _ = shared.kick(home));
        placed
    }

    /// Places a request in the usual case: all colors are at home here and wanted for writing, and
    /// their inboxes are empty. Free colors are held; the others get their member. If all are free,
    /// the last one gets its member, too, and will run the request. False if it is another case,
    /// and nothing has changed.
    #[inline]
    fn place_simply(&self, queue: &mut RunQueue, worker: &Worker) -> bool {
        if queue.closed || self.pinned {
            return false;
        }
        match self.members() {
            // A length that the compiler knows.
            [one, two] => self.place_few([one, two], queue, worker),
            [one, two, three] => self.place_few([one, two, three], queue, worker),
            _ => false,
        }
    }

    #[inline(always)]
    fn place_few<const N: usize>(&self, members: [&Member; N], queue: &mut RunQueue, worker: &Worker) -> bool {
        let mut waiting = 0;
        for member in members {
            let Some(home) = HomeGuard::of(&mut *queue, member.color()) else { return false };
            let state = home.state();
            // One check must find all inboxes empty: then a thread that posts to one inbox and
            // later to another comes after the request in both.
            if member.reads() || member.color().inbox_waits() || state == State::Reading {
                return false;
            }
            waiting += u32::from(state != State::Idle);
        }
        // Relaxed: a thread that reaches a member comes through the lock.
        self.pending().store(waiting.max(1), Relaxed);
        let from_callback = worker.frame.color().is_some();
        if waiting > 0 {
            self.place_waiting(queue, worker);
        } else {
            let [others @ .., runner] = &members[..] else { return false };
            for member in others {
                member.keep(home_in(queue, member.color()).hold(false, Holder::Request, Some(self.origin)));
            }
            runner.queue_here(home_in(queue, runner.color()), worker);
        }
        if from_callback {
            context::note_turn(placement::REQUEST_POSTS as u16, None);
        }
        true
    }

    /// As [`OwnRequest::place_few`], if some colors are not free.
    #[inline(never)]
    fn place_waiting(&self, queue: &mut RunQueue, worker: &Worker) {
        for member in self.members() {
            let mut home = home_in(queue, member.color());
            if home.state() == State::Idle {
                member.keep(home.hold(false, Holder::Request, Some(self.origin)));
            } else {
                member.queue_here(home, worker);
            }
        }
    }

    /// Drains the inboxes so that all colors have one common moment at which they are drained: a
    /// thread that posts to one of them and later to another must not come after the request in the
    /// first and before it in the second. True if the inboxes are frozen until each member has been
    /// placed.
    ///
    /// The home locks do not suffice for that. A push to an inbox takes no lock, and a color that
    /// runs elsewhere drains its inbox and posts to itself without any.
    ///
    /// If none runs elsewhere, only this thread drains, and it is enough to repeat until a whole
    /// round finds nothing. A post to one color, made before a post that this thread has drained,
    /// would have been seen at the next check of that color. Later posts come after the request,
    /// which goes to the fifo, or has the color at once. Otherwise all inboxes are frozen before
    /// any of them gets the request, and posters wait for this thread.
    fn meet(&self, homes: &mut [Home<'_>], poster: Poster<'_>) -> bool {
        let members = self.members();
        if let [member] = members {
            poster.reaches(&mut home_of(homes, member.color())).into_iter().for_each(|mut fifo| fifo.drain_inbox());
            return false;
        }
        if members.iter().all(|member| poster.reaches(&mut home_of(homes, member.color())).is_some()) {
            for _ in 0..ROUNDS_MAX {
                let mut calm = true;
                for member in members.iter().filter(|member| member.color().inbox_waits()) {
                    let mut home = home_of(homes, member.color());
                    poster.reaches(&mut home).into_iter().for_each(|mut fifo| fifo.drain_inbox());
                    calm = false;
                }
                if calm {
                    return false;
                }
            }
        }
        for member in members {
            let mut home = home_of(homes, member.color());
            let drains = poster.reaches(&mut home).is_some();
            home.freeze(drains, poster.worker);
        }
        true
    }

    /// Holds the free colors and queues the member of the others, with all home locks held.
    fn place(self, homes: &mut [Home<'_>], poster: Poster<'_>) -> Placed {
        let frozen = self.meet(homes, poster);
        let mut free = 0;
        let mut closed = false;
        let mut runner = None;
        for member in self.members() {
            let mut home = home_of(homes, member.color());
            closed |= home.is_closed();
            // An inbox that was not drained may have nodes from before this request.
            let waits = poster.reaches(&mut home).is_none() && member.color().inbox_has_nodes();
            let is_free = !waits && home.is_free_but_for_inbox(member.reads());
            member.mark_free(is_free);
            if is_free {
                free += 1;
                if !member.reads() && (runner.is_none() || member.color().is_pinned()) {
                    runner = Some(member);
                }
            }
        }
        if free == self.members().len() && !closed {
            // The request runs in a turn of this color.
            runner.inspect(|runner| runner.mark_free(false));
        }
        if homes.len() > 1 {
            placement::bring_together(self.shared(), homes, self.colors());
        }
        let pending = self.members().iter().filter(|member| !member.is_held()).count();
        // Relaxed: a thread that reaches a member comes through one of the locks, or an inbox.
        self.pending().store(pending as u32, Relaxed);
        let mut placed = Placed::NOTHING_LEFT;
        for member in self.members() {
            // Nothing has changed since the first check.
            member.place(home_of(homes, member.color()), frozen, poster, &mut placed);
        }
        if poster.from_callback {
            placement::note_request(homes);
        }
        placed.complete = (pending == 0).then_some(self);
        placed
    }
}

impl Member {
    /// Places one color of a request.
    #[inline]
    fn place(&self, mut home: MemberHome<'_, '_>, frozen: bool, poster: Poster<'_>, placed: &mut Placed) {
        if self.is_held() {
            self.keep(home.hold(self.reads(), Holder::Request, Some(self.node.posted_from())));
        } else if let Some(fifo) = poster.reaches(&mut home) {
            self.push_counted(fifo, poster);
            placed.granted.append(home.enqueue());
        } else {
            // SAFETY: the request is new, and this gives it up once all its members are queued or
            // hold their colors.
            let node = unsafe { self.queued() };
            let outside = poster.outside;
            let notified = if frozen { home.thaw_with(node, outside) } else { self.color().push_inbox(node, outside) };
            placed.notify.extend(notified);
            return;
        }
        if frozen {
            home.thaw();
        }
    }

    /// Puts the new member's node into its color, which is at home here, runs nowhere else and has
    /// no readers.
    #[inline]
    fn queue_here(&self, mut home: MemberHome<'_, '_>, worker: &Worker) {
        let outside = worker.dispatches.get();
        let posts = if worker.frame.color().is_some() { placement::REQUEST_POSTS as u16 } else { 0 };
        let mut fifo = home.fifo_of(worker).expect("it runs nowhere else");
        // SAFETY: as in `place`.
        fifo.push(unsafe { self.queued() });
        fifo.note_arrival(outside, posts);
        // Nothing reads it.
        let _none = home.enqueue();
    }

    /// Puts the new member's node into its color, and counts it.
    #[inline]
    fn push_counted(&self, mut fifo: FifoGuard<'_>, poster: Poster<'_>) {
        // SAFETY: as in `place`.
        fifo.push(unsafe { self.queued() });
        fifo.note_arrival(poster.outside, placement::REQUEST_POSTS as u16 * u16::from(poster.from_callback));
    }
}

/// Takes the locks of all homes, in the order of the workers, so that two threads that do so cannot
/// wait for each other. (Any other thread that holds one lock only tries the next.)
///
/// `besides`: the worker that posts, to which the colors may move.
pub(super) fn lock_homes<'a>(shared: &'a Shared, members: &[Member], besides: Option<usize>) -> Vec<Home<'a>> {
    // Relaxed: decided under the locks.
    let home = |member: &Member| usize::from(member.color().home.load(Relaxed));
    loop {
        let mut homes: Vec<usize> = members.iter().map(home).chain(besides).collect();
        homes.sort_unstable();
        homes.dedup();
        let locked: Vec<Home<'a>> = homes.into_iter().map(|home| shared.slots[home].lock()).collect();
        let is_locked = |member: &Member| locked.iter().any(|queue| queue.is_home_of(&member.color()));
        if members.iter().all(is_locked) {
            return locked;
        }
    }
}

/// Finds the lock of a color's home among these.
pub(super) fn home_of<'h, 'c>(homes: &'h mut [Home<'_>], color: ColorRef<'c>) -> MemberHome<'h, 'c> {
    HomeGuard::among(homes, color).expect("the locks of all homes are held")
}

#[inline]
fn home_in<'h, 'c>(queue: &'h mut RunQueue, color: ColorRef<'c>) -> MemberHome<'h, 'c> {
    HomeGuard::of(queue, color).expect("its home lock is held")
}

/// Keeps each color once in a set of members; a color named twice is wanted for writing if one of
/// the two is. Returns how many are left, at the front.
#[inline]
pub(super) fn merge_duplicates(members: &mut [Member]) -> usize {
    match members {
        [] | [_] => members.len(),
        [one, other] if one.color != other.color => 2,
        _ => merge_many(members),
    }
}

fn merge_many(members: &mut [Member]) -> usize {
    let sorted = members.len() > FEW;
    if sorted {
        members.sort_unstable_by_key(|member| member.color);
    }
    let mut kept = 0;
    for at in 0..members.len() {
        let color = members[at].color;
        // In a sorted set the same color can only be the previous one.
        let first = if sorted { kept.max(1) - 1 } else { 0 };
        match (first..kept).find(|&other| members[other].color == color) {
            Some(same) => {
                let reads = members[same].reads() && members[at].reads();
                members[same].set_reads(reads);
            }
            None => {
                members.swap(kept, at);
                kept += 1;
            }
        }
    }
    kept
}

/// The number of checks of the inboxes before they are frozen, because some thread may post all the
/// time.
const ROUNDS_MAX: usize = 3;

/// Sets up to this size are compared each with each.
const FEW: usize = 8;
