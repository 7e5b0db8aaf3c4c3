//! How the colors of a request accept it: in one step, under the locks of all their homes.

use std::ptr::{self, NonNull};

use super::{Member, Request};
use crate::color::cell::{ColorCell, State};
use crate::color::holder::Holder;
use crate::color::node::Node;
use crate::hold;
use crate::post::afterwards;
use crate::post::{self, grant_all};
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Guard;
use crate::worker::placement;
use crate::worker::run_queue::{EXPRESS, RunQueue};
use crate::worker::{self, Worker};

/// The lock of one worker, with its index.
pub(super) type Home<'a> = (usize, Guard<'a, RunQueue>);

/// What is left to do once the locks are released.
struct Placed {
    /// Requests to read, of whomever, that were let in.
    granted: *mut Node,
    /// Colors whose notification is ours.
    notify: Vec<NonNull<ColorCell>>,
    /// All colors are held.
    complete: bool,
}

impl Placed {
    const NOTHING_LEFT: Placed = Placed { granted: ptr::null_mut(), notify: Vec::new(), complete: false };

    /// Requests to read that were let in; in practice one chain at most.
    fn grant(&mut self, chain: *mut Node) {
        let mut rest = chain;
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: the chain is ours.
            rest = unsafe { node.as_ref() }.next.replace(self.granted);
            self.granted = node.as_ptr();
        }
    }
}

impl Request {
    /// Has all colors accept the request, in one step.
    ///
    /// # Safety
    /// The colors are alive for the call, of one runtime, and named once each; the request is allocated, and given up.
    pub(super) unsafe fn submit(this: NonNull<Request>) {
        // SAFETY: ours until it is placed.
        let request = unsafe { this.as_ref() };
        let shared = request.shared;
        // SAFETY: the caller has handles to the colors for as long as this takes.
        let shared = unsafe { &*shared };
        let placed = context::with_worker(|worker| {
            // SAFETY: promised by the caller.
            if ptr::eq(&*worker.shared, shared) { unsafe { Request::place_here(this, worker) } } else { None }
        });
        match placed.flatten() {
            // SAFETY: promised by the caller.
            Some(placed) => unsafe { Request::settle(this, shared, placed) },
            // SAFETY: as above.
            None => worker::away(|| unsafe {
                let placed = Request::place_anywhere(this, shared);
                Request::settle(this, shared, placed);
            }),
        }
    }

    /// What is left to do once the request is placed, with no lock held.
    ///
    /// # Safety
    /// As [`Request::submit`]; it is placed.
    unsafe fn settle(this: NonNull<Request>, shared: &Shared, placed: Placed) {
        // SAFETY: the notifications are ours; let in by `place`, and no lock is held; complete means that all colors
        // are held.
        unsafe {
            for color in placed.notify {
                afterwards::pass_on(shared, color);
            }
            grant_all(placed.granted);
            if placed.complete {
                Request::complete(this);
            }
        }
    }

    /// Places the request if all colors are at home on this worker.
    ///
    /// # Safety
    /// As [`Request::submit`].
    unsafe fn place_here(this: NonNull<Request>, worker: &Worker) -> Option<Placed> {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        // Relaxed: looked at under our own lock, without which no color comes here or goes.
        let at_home = |member: &Member| usize::from(member.cell().home.load(Relaxed)) == worker.index;
        let mut queue = worker.slot().lock();
        if !request.members().iter().all(at_home) {
            return None;
        }
        // SAFETY: promised by the caller; the one lock is that of all homes.
        unsafe {
            if !queue.closed && request.hold_free(worker, &mut queue) {
                return Some(Placed::NOTHING_LEFT);
            }
            Some(Request::place(this, &mut [(worker.index, queue)], Some(worker)))
        }
    }

    /// The usual case: holds all colors if they are free and to be written, and all at home here. The first one will run
    /// the request.
    ///
    /// # Safety
    /// `queue` is the lock of all homes, that of `worker`, and not closed.
    unsafe fn hold_free(&self, worker: &Worker, queue: &mut Guard<'_, RunQueue>) -> bool {
        let [runner, others @ ..] = self.members() else { return false };
        // SAFETY: promised by the caller.
        let free = |member: &Member| unsafe {
            !member.reads() && !member.cell().is_pinned() && hold::is_free(member.cell(), false)
        };
        if !free(runner) || !others.iter().all(free) {
            return false;
        }
        // Relaxed: whoever reaches the member comes through the lock.
        self.pending().store(1, Relaxed);
        // SAFETY: promised by the caller.
        unsafe {
            for member in others {
                member.set_held(true);
                member.cell().set_held(Holder::Request, Some(self.origin));
            }
            worker.push_request(queue, runner.color, NonNull::from(runner).cast());
        }
        true
    }

    /// Places the request wherever its colors are at home.
    ///
    /// # Safety
    /// As [`Request::submit`].
    unsafe fn place_anywhere(this: NonNull<Request>, shared: &Shared) -> Placed {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        let mut homes = lock_homes(shared, request.members(), context::index_in(shared));
        let placed = context::with_worker(|worker| {
            let worker = Some(worker).filter(|worker| ptr::eq(&*worker.shared, shared));
            // SAFETY: promised by the caller; all home locks are held.
            unsafe { Request::place(this, &mut homes, worker) }
        });
        // SAFETY: as above.
        let placed = placed.unwrap_or_else(|| unsafe { Request::place(this, &mut homes, None) });
        let homes: Vec<usize> = homes.into_iter().map(|(home, _)| home).collect();
        homes.into_iter().for_each(|home| _ = shared.kick(home));
        placed
    }

    /// Drains the inboxes such that the moment at which the last one was is one for all colors: who posts to one of them
    /// and later to another does not come behind the request in the one and before it in the other. True: the inboxes are
    /// frozen until each member has been placed.
    ///
    /// The home locks do not suffice for that. Pushing to an inbox takes none, and a color that runs elsewhere drains its
    /// inbox and posts to itself without any.
    ///
    /// If none runs elsewhere, only we drain, and it is enough to go round until nothing has come for a whole round. Had
    /// something been posted to a color before something else that we have drained, the next look at that color would have
    /// seen it. What is posted from then on is behind the request, which goes to the fifo, or has the color at once.
    /// Otherwise all inboxes are frozen before any of them has the request: who posts waits for us.
    ///
    /// # Safety
    /// As [`Request::place`].
    unsafe fn meet(&self, homes: &mut [Home<'_>], here: Option<usize>) -> bool {
        let members = self.members();
        // SAFETY: we hold all home locks; the inbox of a color that runs elsewhere is left to its turn.
        unsafe {
            if let [member] = members {
                if !member.is_out_of_reach(homes, here) {
                    member.cell().drain_inbox();
                }
                return false;
            }
            if !members.iter().any(|member| member.is_out_of_reach(homes, here)) {
                for _ in 0..ROUNDS_MAX {
                    let mut calm = true;
                    for member in members.iter().filter(|member| member.cell().inbox_waits()) {
                        member.cell().drain_inbox();
                        calm = false;
                    }
                    if calm {
                        return false;
                    }
                }
            }
            for member in members {
                member.cell().freeze(!member.is_out_of_reach(homes, here));
            }
        }
        true
    }

    /// Holds what is free and queues the rest, with all home locks held.
    ///
    /// # Safety
    /// As [`Request::submit`]; `homes` are the locks of all homes.
    unsafe fn place(this: NonNull<Request>, homes: &mut [Home<'_>], worker: Option<&Worker>) -> Placed {
        // SAFETY: promised by the caller.
        let request = unsafe { this.as_ref() };
        let here = worker.map(|worker| worker.index);
        // SAFETY: promised by the caller.
        let frozen = unsafe { request.meet(homes, here) };
        let mut free = 0;
        let mut closed = false;
        let mut runner = None;
        for member in request.members() {
            closed |= home_of(homes, member.cell()).1.closed;
            // SAFETY: we hold the home lock. An inbox that was left alone may have what is before us.
            unsafe {
                let waits = member.is_out_of_reach(homes, here) && member.cell().inbox_has_nodes();
                member.set_held(!waits && hold::is_free_but_for_inbox(member.cell(), member.reads()));
            }
            if member.is_held() {
                free += 1;
                if !member.reads() && (runner.is_none() || member.cell().is_pinned()) {
                    runner = Some(member);
                }
            }
        }
        if free == request.members().len() && !closed {
            // It runs in a turn of this one.
            runner.inspect(|runner| runner.set_held(false));
        }
        // SAFETY: promised by the caller.
        unsafe {
            placement::bring_together(request.shared(), homes, request.members().iter().map(|member| member.color))
        };
        let pending = request.members().iter().filter(|member| !member.is_held()).count();
        // Relaxed: whoever reaches a member comes through one of the locks, or an inbox.
        request.pending().store(pending as u32, Relaxed);
        let mut placed = Placed { granted: ptr::null_mut(), notify: Vec::new(), complete: pending == 0 };
        let from_callback = worker.is_some_and(|worker| worker.frame.color().is_some());
        let outside = worker.is_none_or(|worker| worker.dispatches.get());
        for member in request.members() {
            // SAFETY: we hold the home lock, and nothing has changed since the first look.
            unsafe { member.place(homes, here, frozen, (from_callback, outside), &mut placed) };
        }
        if from_callback {
            placement::note_request(homes);
        }
        placed
    }
}

impl Member {
    /// Whether only the inbox of the color is left to us: another worker runs it, or its worker has stopped.
    ///
    /// # Safety
    /// As [`Request::place`].
    unsafe fn is_out_of_reach(&self, homes: &mut [Home<'_>], here: Option<usize>) -> bool {
        let (home, queue) = home_of(homes, self.cell());
        // SAFETY: promised by the caller: the home lock is held.
        queue.closed || (here != Some(home) && unsafe { self.cell().state() } == State::Running)
    }

    /// One color of a request that is being placed: by a callback or not, and from outside or not.
    ///
    /// # Safety
    /// As [`Request::place`], which has looked at it.
    unsafe fn place(
        &self,
        homes: &mut [Home<'_>],
        here: Option<usize>,
        frozen: bool,
        (from_callback, outside): (bool, bool),
        placed: &mut Placed,
    ) {
        let cell = self.cell();
        let node = NonNull::from(self).cast();
        // SAFETY: promised by the caller.
        let out_of_reach = unsafe { self.is_out_of_reach(homes, here) };
        let (_, queue) = home_of(homes, cell);
        // SAFETY: promised by the caller: the home lock is held, and a color that runs here runs on this very thread.
        unsafe {
            if self.is_held() {
                hold::take(cell, self.reads(), Holder::Request, self.node.posted_from());
            } else if out_of_reach {
                if if frozen { cell.thaw_with(node, outside) } else { cell.push_inbox(node, outside) } {
                    placed.notify.push(self.color);
                }
                return;
            } else {
                push_counted(cell, node, (from_callback, outside));
                placed.grant(post::enqueue(queue, self.color));
            }
            if frozen {
                cell.thaw();
            }
        }
    }
}

impl Worker {
    /// Queues a request in a color of this worker that is idle.
    ///
    /// # Safety
    /// `queue` is this worker's lock, and the color is at home here and idle; the node is the caller's to give.
    unsafe fn push_request(&self, queue: &mut Guard<'_, RunQueue>, color: NonNull<ColorCell>, node: NonNull<Node>) {
        let turn = self.frame.color();
        // SAFETY: promised by the caller; the color that has its turn here has its fifo here.
        unsafe {
            push_counted(color.as_ref(), node, (turn.is_some(), self.dispatches.get()));
            queue.push(color);
            if let Some(turn) = turn {
                turn.as_ref().fifo(|fifo| fifo.note_traffic(placement::REQUEST_POSTS as u16, None));
            }
        }
    }
}

/// Puts the node of a request into a color, and counts it: made by a callback or not, and from outside or not.
///
/// # Safety
/// The color's home lock is held, and if the color runs, it does so on this thread; the node is the caller's to give.
unsafe fn push_counted(cell: &ColorCell, node: NonNull<Node>, (from_callback, outside): (bool, bool)) {
    // SAFETY: promised by the caller.
    unsafe {
        cell.push(node);
        cell.fifo(|fifo| {
            fifo.rank |= if outside { EXPRESS } else { 0 };
            let posts = placement::REQUEST_POSTS as u16 * u16::from(from_callback);
            fifo.posts_in = fifo.posts_in.saturating_add(posts);
        });
    }
}

/// Takes the locks of all homes, in the order of the workers, so that two who do so cannot wait for each other (whoever
/// else holds one lock only tries the next).
///
/// `besides`: the worker that posts, to which the colors may move.
pub(super) fn lock_homes<'a>(shared: &'a Shared, members: &[Member], besides: Option<usize>) -> Vec<Home<'a>> {
    // Relaxed: decided under the locks.
    let home = |member: &Member| usize::from(member.cell().home.load(Relaxed));
    loop {
        let mut homes: Vec<usize> = members.iter().map(home).chain(besides).collect();
        homes.sort_unstable();
        homes.dedup();
        let locked: Vec<Home<'a>> = homes.into_iter().map(|home| (home, shared.slots[home].lock())).collect();
        if members.iter().all(|member| locked.binary_search_by_key(&home(member), |(home, _)| *home).is_ok()) {
            return locked;
        }
    }
}

fn home_of<'a, 'g>(homes: &'a mut [Home<'g>], cell: &ColorCell) -> (usize, &'a mut Guard<'g, RunQueue>) {
    // Relaxed: its home lock is held.
    let home = usize::from(cell.home.load(Relaxed));
    let found = homes.iter_mut().find(|(index, _)| *index == home).expect("the locks of all homes are held");
    (home, &mut found.1)
}

/// Leaves each color once in a set of members: what is wanted of it twice is wanted for writing if either is. Returns how
/// many are left, at the front.
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
        members.sort_unstable_by_key(Member::color);
    }
    let mut kept = 0;
    for at in 0..members.len() {
        let color = members[at].color;
        // In a sorted set the same color can only stand directly before.
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

/// So often the inboxes are looked at before they are frozen: somebody may post all the time.
const ROUNDS_MAX: usize = 3;

/// Sets up to this size are compared each with each.
const FEW: usize = 8;
