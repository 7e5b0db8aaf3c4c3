//! Requests with their members and their closure in one block of memory, and those that wait.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::Waker;

use super::place::{lock_homes, merge_duplicates};
use super::{Member, Request, Work};
use crate::color::holder::Holder;
use crate::color::node::Origin;
use crate::hold;
use crate::hold::ticket::Ticket;
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
    // SAFETY: nobody uses the request any more; its memory is never used again.
    const FREE: unsafe fn(NonNull<Request>) = |request| unsafe { Request::bury(request) };

    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    const FREE: unsafe fn(NonNull<Request>) = |request| {
        // SAFETY: made by `allocate` for this type; the closure is gone.
        unsafe {
            let posted = request.cast::<Posted<M, F>>();
            std::ptr::drop_in_place(&raw mut (*posted.as_ptr()).members);
            block::free(posted);
        }
    };

    /// Makes a request in the place where it stays. `check` may still change its members, tells whose they are, and may
    /// panic.
    #[inline]
    fn allocate(
        work: &'static Work,
        members: M,
        origin: Origin,
        closure: F,
        check: impl FnOnce(&mut [Member]) -> *const Shared,
    ) -> NonNull<Request> {
        /// Frees the members if `check` panics.
        struct Undo<M, F>(NonNull<Posted<M, F>>);
        impl<M, F> Drop for Undo<M, F> {
            fn drop(&mut self) {
                // SAFETY: the members have been written, and nothing else.
                unsafe {
                    std::ptr::drop_in_place(&raw mut (*self.0.as_ptr()).members);
                    block::free(self.0);
                }
            }
        }
        let posted = block::alloc_uninit::<Posted<M, F>>().cast::<Posted<M, F>>();
        let place = posted.as_ptr();
        // SAFETY: ours, and each field is written before it is read.
        unsafe {
            (&raw mut (*place).members).write(members);
            let undo = Undo(posted);
            let members = (*place).members.as_mut();
            let shared = check(members);
            let len = merge_duplicates(members);
            members[..len].iter_mut().for_each(|member| member.set_origin(origin));
            mem::forget(undo);
            (&raw mut (*place).request).write(Request::new(shared, work, origin));
            (&raw mut (*place).closure).write(UnsafeCell::new(ManuallyDrop::new(closure)));
            posted.as_ref().request.adopt_members(posted.cast(), &posted.as_ref().members.as_ref()[..len]);
        }
        posted.cast()
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

impl<M: AsMut<[Member]> + AsRef<[Member]>, F: FnOnce()> Posted<M, F> {
    const WORK: &'static Work = &Work {
        // SAFETY: called once, with the request that this is the work of.
        run: |request| unsafe { Self::take(request)() },
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

/// Posts a closure that holds all these colors while it runs. `check` may still change the members, and tells their
/// runtime.
///
/// # Safety
/// The colors are alive for the call, and of one runtime.
#[inline]
pub(crate) unsafe fn submit_closure<M, F>(
    members: M,
    origin: Origin,
    closure: F,
    check: impl FnOnce(&mut [Member]) -> *const Shared,
) where
    M: AsMut<[Member]> + AsRef<[Member]>,
    F: FnOnce() + Send + 'static,
{
    let request = Posted::<M, F>::allocate(Posted::<M, F>::WORK, members, origin, closure, check);
    // SAFETY: promised by the caller.
    unsafe {
        if trace::is_on() {
            request.as_ref().trace();
        }
        Request::submit(request);
    }
}

/// Queues a wait for all these colors, on behalf of whoever polls.
///
/// # Safety
/// As [`submit_closure`].
pub(crate) unsafe fn wait_for_all<M>(shared: *const Shared, members: M, origin: Origin, waker: &Waker) -> Arc<Ticket>
where
    M: AsMut<[Member]> + AsRef<[Member]>,
{
    let request = Posted::<M, ()>::allocate(Waits::<M>::WORK, members, origin, (), |_| shared);
    // SAFETY: promised by the caller; the ticket is the only way to let go of the request.
    unsafe {
        let ticket = Ticket::for_request(request, shared, origin, waker);
        request.as_ref().ticket.set(Arc::into_raw(ticket.clone()));
        Request::submit(request);
        ticket
    }
}

/// Runs `f` while all these colors are held, if the first so many (`wanted`) are free. This thread has the others already; they
/// take part so that the frame of `f` names every color on which that relies.
///
/// # Safety
/// As [`submit_closure`].
pub(crate) unsafe fn try_hold_all<R>(
    shared: *const Shared,
    members: &mut [Member],
    wanted: usize,
    origin: Origin,
    f: impl FnOnce() -> R,
) -> Option<R> {
    struct Release<'a>(&'a Request);
    impl Drop for Release<'_> {
        fn drop(&mut self) {
            // SAFETY: held below.
            unsafe { self.0.release_held(None) };
        }
    }
    let len = merge_duplicates(&mut members[..wanted]);
    let all: &[Member] = members;
    // The others are not ours to let go of: they are named twice, or this thread had them before.
    let members = &all[..len];
    // SAFETY: promised by the caller.
    let shared_ref = unsafe { &*shared };
    let here = context::index_in(shared_ref);
    let mut homes = worker::away(|| lock_homes(shared_ref, members, here));
    // SAFETY: all home locks are held.
    unsafe {
        if !members.iter().all(|member| hold::is_free(member.cell(), member.reads())) {
            return None;
        }
        for member in members {
            hold::take(member.cell(), member.reads(), Holder::here(), origin);
            member.set_held(true);
        }
        if here.is_some() {
            placement::note_request(&homes);
            placement::bring_together(shared_ref, &mut homes, members.iter().map(|member| member.color));
        }
    }
    drop(homes);
    let request = Request::new(shared, NO_WORK, origin);
    request.adopt_members(NonNull::from(&request), all);
    let release = Release(&request);
    // SAFETY: held until `release` is dropped.
    let result = context::in_request_frame(NonNull::from(&request), |_| unsafe { trace::in_line(request.colors(), f) });
    drop(release);
    Some(result)
}

const NO_WORK: &Work = &Work { run: |_| (), drop: |_| (), free: |_| () };

/// Runs `f` on behalf of a waiter to whom all colors were handed over, and lets go of them.
///
/// # Safety
/// They were, and the caller forgets the request.
pub(crate) unsafe fn holding_all<R>(request: NonNull<Request>, f: impl FnOnce() -> R) -> R {
    struct Release(NonNull<Request>);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: promised by the caller of `holding_all`.
            unsafe { Request::finish(self.0) };
        }
    }
    let _release = Release(request);
    // SAFETY: promised by the caller; held until `_release` is dropped.
    context::in_request_frame(request, |_| unsafe { trace::in_line(request.as_ref().colors(), f) })
}
