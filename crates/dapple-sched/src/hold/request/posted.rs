//! Requests with their members and their closure in one block of memory, and requests that wait.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use super::place::{home_of, lock_homes, merge_duplicates};
use super::{Member, OwnRequest, Request, Work};
use crate::color::holder::Holder;
use crate::color::node::Origin;
use crate::hold::held::Held;
use crate::hold::ticket::Ticket;
use crate::memory::alive::Alive;
use crate::memory::block;
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::UnsafeCell;
use crate::worker;
use crate::worker::placement;

/// A request with the memory for its members and its closure.
#[repr(C)]
struct Posted<M, F> {
    request: Request,
    members: M,
    closure: UnsafeCell<ManuallyDrop<F>>,
}

impl<M: AsMut<[Member]> + AsRef<[Member]>, F> Posted<M, F> {
    #[cfg(any(dapple_loom, dapple_shuttle))]
    // SAFETY: no thread uses the request any more; its memory is never used again.
    const FREE: unsafe fn(NonNull<Request>) = |request| unsafe { Request::bury(request) };

    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    const FREE: unsafe fn(NonNull<Request>) = |request| {
        // SAFETY: made by `allocate` for this type; the closure has been taken.
        unsafe {
            let posted = request.cast::<Posted<M, F>>();
            std::ptr::drop_in_place(&raw mut (*posted.as_ptr()).members);
            block::free(posted);
        }
    };

    /// Makes a request in its final place. `check` returns the members' runtime; it may change the
    /// members, and may panic.
    #[inline]
    fn allocate(
        work: &'static Work,
        members: M,
        origin: Origin,
        closure: F,
        check: impl FnOnce(&mut [Member]) -> (*const Shared, bool),
    ) -> OwnRequest {
        /// Frees the members if `check` panics.
        struct Undo<M, F>(NonNull<Posted<M, F>>);
        impl<M, F> Drop for Undo<M, F> {
            fn drop(&mut self) {
                // SAFETY: only the members have been written.
                unsafe {
                    std::ptr::drop_in_place(&raw mut (*self.0.as_ptr()).members);
                    block::free(self.0);
                }
            }
        }
        let posted = block::alloc_uninit::<Posted<M, F>>().cast::<Posted<M, F>>();
        let place = posted.as_ptr();
        // SAFETY: the block is ours, and each field is written before it is read.
        unsafe {
            (&raw mut (*place).members).write(members);
            let undo = Undo(posted);
            let members = (*place).members.as_mut();
            let (shared, pinned) = check(members);
            let len = merge_duplicates(members);
            mem::forget(undo);
            (&raw mut (*place).request).write(Request { pinned, ..Request::new(shared, work, origin) });
            (&raw mut (*place).closure).write(UnsafeCell::new(ManuallyDrop::new(closure)));
            posted.as_ref().request.adopt_members(posted.cast(), &posted.as_ref().members.as_ref()[..len]);
            OwnRequest::new(Alive::new(posted.cast()))
        }
    }

    /// # Safety
    /// The request was made by `allocate` for this type, and its closure has not been taken.
    unsafe fn take(request: NonNull<Request>) -> F {
        // SAFETY: promised by the caller.
        let posted = unsafe { request.cast::<Posted<M, F>>().as_ref() };
        // SAFETY: as above.
        posted.closure.with_mut(|closure| unsafe { ManuallyDrop::take(&mut *closure) })
    }
}

impl<M: AsMut<[Member]> + AsRef<[Member]>, F: FnOnce(Held<'_>)> Posted<M, F> {
    const WORK: &'static Work = &Work {
        // SAFETY: called once, with the request that this belongs to, while this thread has its
        // colors.
        run: |request| unsafe { Self::take(request)(Held::by_request(Alive::new(request))) },
        // SAFETY: as above.
        drop: |request| unsafe { drop(Self::take(request)) },
        free: Self::FREE,
    };
}

/// The work of a request that only waits.
struct Waits<M>(M);

impl<M: AsMut<[Member]> + AsRef<[Member]>> Waits<M> {
    const WORK: &'static Work = &Work { run: |_| (), drop: |_| (), free: Posted::<M, ()>::FREE };
}

/// Posts a closure that holds all these colors while it runs. `check` returns the members' runtime,
/// and may change the members.
///
/// # Safety
/// The colors are alive during the call, and of one runtime.
#[inline]
pub(crate) unsafe fn submit_closure<M, F>(
    members: M,
    origin: Origin,
    closure: F,
    check: impl FnOnce(&mut [Member]) -> (*const Shared, bool),
) where
    M: AsMut<[Member]> + AsRef<[Member]>,
    F: FnOnce(Held<'_>) + Send + 'static,
{
    let request = Posted::<M, F>::allocate(Posted::<M, F>::WORK, members, origin, closure, check);
    if trace::is_on() {
        request.trace();
    }
    request.submit();
}

/// Queues a wait for all these colors, on behalf of the task that polls.
///
/// # Safety
/// As [`submit_closure`].
pub(crate) unsafe fn wait_for_all<M>(shared: *const Shared, members: M, origin: Origin, waker: &Waker) -> Arc<Ticket>
where
    M: AsMut<[Member]> + AsRef<[Member]>,
{
    let request = Posted::<M, ()>::allocate(Waits::<M>::WORK, members, origin, (), |members| {
        (shared, members.iter().any(|member| member.color().is_pinned()))
    });
    let ticket = Ticket::for_request(&request, shared, origin, waker);
    request.ticket.set(Arc::into_raw(ticket.clone()));
    request.submit();
    ticket
}

/// Runs `f` while all these colors are held, if the first `wanted` ones are free. This thread has
/// the others already; they take part so that the frame of `f` names every color that `f` relies
/// on.
///
/// # Safety
/// As [`submit_closure`].
pub(crate) unsafe fn try_hold_all<F, R>(
    shared: *const Shared,
    members: &mut [Member],
    wanted: usize,
    origin: Origin,
    f: F,
) -> Result<R, F>
where
    F: FnOnce(Held<'_>) -> R,
{
    let len = merge_duplicates(&mut members[..wanted]);
    let all: &[Member] = members;
    // This call does not release the others: they are named twice, or this thread had them before.
    let members = &all[..len];
    // SAFETY: promised by the caller.
    let shared_ref = unsafe { &*shared };
    let here = context::index_in(shared_ref);
    let mut homes = worker::away(|| lock_homes(shared_ref, members, here));
    if !members.iter().all(|member| home_of(&mut homes, member.color()).is_free(member.reads())) {
        return Err(f);
    }
    for member in members {
        member.keep(home_of(&mut homes, member.color()).hold(member.reads(), Holder::here(), Some(origin)));
    }
    if here.is_some() {
        placement::note_request(&homes);
        placement::bring_together(shared_ref, &mut homes, members.iter().map(Member::color));
    }
    drop(homes);
    let request = Request::new(shared, NO_WORK, origin);
    request.adopt_members(NonNull::from(&request), all);
    // SAFETY: the request belongs to this call, and does not move.
    Ok(unsafe { OwnRequest::new(Alive::new(NonNull::from(&request))) }.holding(f))
}

const NO_WORK: &Work = &Work { run: |_| (), drop: |_| (), free: |_| () };

impl OwnRequest {
    /// Runs `f` while this thread has all colors of the request, and releases them.
    pub(crate) fn holding<R>(self, f: impl FnOnce(Held<'_>) -> R) -> R {
        struct Release(Option<OwnRequest>);
        impl Drop for Release {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(OwnRequest::finish);
            }
        }
        let release = Release(Some(self));
        let Some(request) = &release.0 else { unreachable!("it was just put there") };
        context::in_request_frame(request.alive().ptr(), |_| {
            // SAFETY: they are held until `release` is dropped.
            trace::in_line(request.colors(), || f(unsafe { Held::by_request(request.alive()) }))
        })
    }
}
