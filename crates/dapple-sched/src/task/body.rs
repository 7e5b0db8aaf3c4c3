//! A task's own part: its future, in whose place the output comes, and the functions that know its type.

use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

use super::handle::JoinHandle;
use super::{
    BACKGROUND, COLORED, FAILED, Header, JOINED, Polled, SCHEDULED, Side, Start, TaskRef, TaskVTable, drop_node,
    memory, place_in_color, run_node, side,
};
use crate::color::node::{Node, Origin, VTable};
use crate::runtime::shared::Shared;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::task::join_error::JoinError;
use crate::task::light;

#[repr(C)]
struct TaskCell<F: Future, G> {
    header: Header,
    /// Touched by callbacks of the color until `DONE`, then by the join handle.
    stage: UnsafeCell<Stage<F>>,
    given: PhantomData<G>,
}

/// The state says which of them it is: the future until `DONE`, then the output, or with `FAILED` the error.
union Stage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<F::Output>,
    error: ManuallyDrop<JoinError>,
}

/// What the join handle yields, made of what is stored.
trait Give<O> {
    type Given: Send + 'static;

    fn give(stored: O) -> Self::Given;
}

/// The output, as it is.
struct AsItIs;

impl<O: Send + 'static> Give<O> for AsItIs {
    type Given = O;

    fn give(stored: O) -> O {
        stored
    }
}

/// An output that stands elsewhere.
struct FromBox;

impl<O: Send + 'static> Give<Box<O>> for FromBox {
    type Given = O;

    fn give(stored: Box<O>) -> O {
        *stored
    }
}

/// A future that stands elsewhere, and whose output is to do so.
struct Elsewhere<F>(Pin<Box<F>>);

impl<F: Future> Future for Elsewhere<F> {
    type Output = Box<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<F::Output>> {
        self.0.as_mut().poll(cx).map(Box::new)
    }
}

/// Starts a task. Cost: one block of memory, and the lock of a worker.
pub(crate) fn spawn<F>(place: Start, background: bool, origin: Origin, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // What is larger than a block stands elsewhere, and the task has a pointer to it.
    if const { TaskCell::<F, AsItIs>::fits() } {
        start::<F, AsItIs>(place, background, origin, future)
    } else if const { TaskCell::<Pin<Box<F>>, AsItIs>::fits() } {
        start::<Pin<Box<F>>, AsItIs>(place, background, origin, Box::pin(future))
    } else {
        start::<Elsewhere<F>, FromBox>(place, background, origin, Elsewhere(Box::pin(future)))
    }
}

fn start<F, G>(place: Start, background: bool, origin: Origin, future: F) -> JoinHandle<G::Given>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    G: Give<F::Output>,
{
    let flags = SCHEDULED | JOINED | if background { BACKGROUND } else { 0 };
    let task = match place {
        Start::Light(shared) => {
            let task = TaskCell::<F, G>::place(&shared, side::light_word(origin), flags, future);
            note_start(&shared, background);
            // SAFETY: SCHEDULED is ours since the start.
            unsafe { light::enqueue(task) };
            task
        }
        Start::Colored(color) => {
            let color = color.resolved();
            // SAFETY: the handle keeps the runtime alive, and the task does from here on.
            let shared = unsafe { NonNull::from(color.shared()).as_ref() };
            let task = TaskCell::<F, G>::place(shared, Side::share(color, origin), flags | COLORED, future);
            note_start(shared, background);
            // SAFETY: SCHEDULED is ours since the start.
            unsafe { place_in_color(task) };
            task
        }
    };
    JoinHandle { task: TaskRef(task), taken: false, output: PhantomData }
}

fn note_start(shared: &Shared, background: bool) {
    if !background {
        // Relaxed: a number; what a worker has counted before it fell asleep is visible to who sees it asleep.
        shared.tasks_live.fetch_add(1, Relaxed);
    }
}

impl<F, G> TaskCell<F, G>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    G: Give<F::Output>,
{
    const VTABLE: &'static TaskVTable = &TaskVTable {
        node: VTable { run: run_node, drop: drop_node, waits: None },
        poll: Self::poll,
        abort: Self::abort,
        take: Self::take,
        drop_output: Self::drop_output,
        free: Self::free,
    };

    /// Whether a block has room for it. In a model all tasks have an allocation of their own.
    const fn fits() -> bool {
        #[cfg(not(any(dapple_loom, dapple_shuttle)))]
        return memory::class_of(size_of::<Self>(), align_of::<Self>()).is_some();
        #[cfg(any(dapple_loom, dapple_shuttle))]
        return true;
    }

    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    const CLASS: usize = match memory::class_of(size_of::<Self>(), align_of::<Self>()) {
        Some(class) => class,
        // `spawn` puts elsewhere what does not fit, so that nobody asks for this class. It is no panic, as the compiler looks at the
        // constants of a branch that is never taken, too.
        None => usize::MAX,
    };

    /// Makes the task: with a count of its own, and one for the handle.
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    fn place(shared: &Shared, word: *mut (), flags: u32, future: F) -> NonNull<Header> {
        let block = memory::alloc(shared, Self::CLASS).cast::<TaskCell<F, G>>();
        let node = Node::of_task(ptr::from_ref(Self::VTABLE).cast(), word);
        let at = block.as_ptr();
        // SAFETY: a block of this size, which is ours. The count is stored last, and atomically: whoever looks for live tasks
        // reads it at any time, and nothing else of the block where it is 0.
        unsafe {
            (&raw mut (*at).header.node).write(node);
            (&raw mut (*at).header.state).write(AtomicU32::new(flags));
            (&raw mut (*at).stage).write(UnsafeCell::new(Stage { future: ManuallyDrop::new(future) }));
            // Release pairs with `retain_if_any`.
            (*at).header.refs.store(2, Release);
        }
        block.cast()
    }

    #[cfg(any(dapple_loom, dapple_shuttle))]
    fn place(shared: &Shared, word: *mut (), flags: u32, future: F) -> NonNull<Header> {
        let node = Node::of_task(ptr::from_ref(Self::VTABLE).cast(), word);
        // SAFETY: the caller has a way to the runtime, which is in an `Arc`.
        let shared = unsafe {
            std::sync::Arc::increment_strong_count(shared);
            std::sync::Arc::from_raw(shared)
        };
        let header = Header { node, state: AtomicU32::new(flags), refs: AtomicU32::new(2), shared: shared.clone() };
        let stage = UnsafeCell::new(Stage { future: ManuallyDrop::new(future) });
        let task = NonNull::from(Box::leak(Box::new(TaskCell::<F, G> { header, stage, given: PhantomData }))).cast();
        shared.tasks.add(task);
        task
    }

    /// # Safety
    /// The caller owns the stage: a callback of the color, or the light task's poll, before DONE, or the one handle after it.
    unsafe fn stage(task: NonNull<Header>) -> *mut Stage<F> {
        // SAFETY: made by `place` for this `F`.
        let cell = unsafe { task.cast::<TaskCell<F, G>>().as_ref() };
        cell.stage.with_mut(|stage| stage)
    }

    /// Polls. A panic is the task's result (C8).
    ///
    /// # Safety
    /// As [`TaskCell::stage`]; the task is not done.
    unsafe fn poll(task: NonNull<Header>, cx: &mut Context<'_>) -> Polled {
        // SAFETY: promised by the caller; the future is there until DONE. It does not move, and is dropped in place.
        let future = unsafe { Pin::new_unchecked(&mut *(*Self::stage(task)).future) };
        match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
            Ok(Poll::Pending) => Polled::Pending,
            // SAFETY: promised by the caller.
            Ok(Poll::Ready(output)) => unsafe { Self::end(task, Ok(output)) },
            // SAFETY: as above.
            Err(payload) => unsafe { Self::end(task, Err(crate::runtime::panics::of_task(task, payload))) },
        }
    }

    /// # Safety
    /// As [`TaskCell::poll`].
    unsafe fn abort(task: NonNull<Header>) -> Polled {
        // SAFETY: promised by the caller.
        unsafe { Self::end(task, Err(JoinError::aborted())) }
    }

    /// Drops the future and stores the output. A panicking destructor becomes the result.
    ///
    /// # Safety
    /// As [`TaskCell::poll`].
    unsafe fn end(task: NonNull<Header>, result: Result<F::Output, JoinError>) -> Polled {
        // SAFETY: promised by the caller; dropped once, here, and in place.
        let dropped =
            catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut (*Self::stage(task)).future) }));
        let result = match dropped {
            Ok(()) => result,
            Err(payload) => {
                let replaced = catch_unwind(AssertUnwindSafe(|| drop(result)));
                replaced.unwrap_or_else(crate::runtime::panics::discard);
                Err(crate::runtime::panics::of_task(task, payload))
            }
        };
        // SAFETY: promised by the caller; what was there is gone.
        unsafe {
            let stage = Self::stage(task);
            match result {
                Ok(output) => {
                    (&raw mut (*stage).output).write(ManuallyDrop::new(output));
                    Polled::Done
                }
                Err(error) => {
                    (&raw mut (*stage).error).write(ManuallyDrop::new(error));
                    Polled::Failed
                }
            }
        }
    }

    /// Moves the result out.
    ///
    /// # Safety
    /// As [`TaskCell::stage`], once it is stored, and once; `failed` says whether it is an error.
    unsafe fn result(task: NonNull<Header>, failed: bool) -> Result<F::Output, JoinError> {
        // SAFETY: promised by the caller.
        unsafe {
            let stage = Self::stage(task);
            if failed {
                Err(ManuallyDrop::take(&mut (*stage).error))
            } else {
                Ok(ManuallyDrop::take(&mut (*stage).output))
            }
        }
    }

    /// Moves the result to `to`.
    ///
    /// # Safety
    /// As [`TaskCell::result`]; `to` points to an `Option<Result<G::Given, JoinError>>`.
    unsafe fn take(task: NonNull<Header>, to: *mut ()) {
        // SAFETY: promised by the caller. Relaxed: who has seen DONE sees what was set with it.
        unsafe {
            let failed = task.as_ref().state.load(Relaxed) & FAILED != 0;
            *to.cast::<Option<Result<G::Given, JoinError>>>() = Some(Self::result(task, failed).map(G::give));
        }
    }

    /// # Safety
    /// As [`TaskCell::result`].
    unsafe fn drop_output(task: NonNull<Header>, failed: bool) {
        // SAFETY: promised by the caller, who has a reference to the task.
        let (result, shared) = unsafe { (Self::result(task, failed), &*memory::shared_of(task)) };
        // SAFETY: as above.
        let color = || Some(unsafe { super::ensure_color(task) }.cell());
        match result {
            // Nobody awaits the task, or nobody has asked for its result: the panic is nobody's but the handler's.
            Err(error) if error.is_panic() => crate::runtime::panics::tell(shared, color(), error.into_panic()),
            result => {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(result))) {
                    crate::runtime::panics::report(shared, color(), payload);
                }
            }
        }
    }

    /// # Safety
    /// The last reference is gone.
    unsafe fn free(task: NonNull<Header>) {
        // SAFETY: promised by the caller. Relaxed: the last one sees what all others did.
        unsafe { Side::release(task.as_ref().node.task_word().load(Relaxed)) };
        #[cfg(not(any(dapple_loom, dapple_shuttle)))]
        // SAFETY: promised by the caller; made by `place` with this class, and the stage is empty.
        unsafe {
            memory::free(task, Self::CLASS);
        }
        #[cfg(any(dapple_loom, dapple_shuttle))]
        // SAFETY: promised by the caller; made by `place` from a box.
        unsafe {
            let shared = task.as_ref().shared.clone();
            shared.tasks.remove(task);
            drop(Box::from_raw(task.cast::<TaskCell<F, G>>().as_ptr()));
        }
    }
}
