//! A task's own part: its future, later replaced by the output, and the functions that know its
//! type.

use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

use super::handle::JoinHandle;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use super::memory;
use super::rights::Scheduled;
use super::{
    BACKGROUND, COLORED, Header, JOINED, LiveTask, Outcome, SCHEDULED, Side, Start, TaskRef, TaskVTable, side,
};
use crate::color::node::{Node, Origin};
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use crate::memory::slab::Block;
use crate::runtime::shared::Shared;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU32, Ordering::*};
use crate::task::join_error::JoinError;

#[repr(C)]
struct TaskCell<F: Future, G> {
    header: Header,
    /// Callbacks of the color use it until `DONE`, then the join handle does.
    stage: UnsafeCell<Stage<F>>,
    given: PhantomData<G>,
}

/// The task's state says which it is: the future until `DONE`; after that the output, or the error
/// if `FAILED` is set.
union Stage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<F::Output>,
    error: ManuallyDrop<JoinError>,
}

/// Makes the output of the join handle from the stored output.
trait Give<O> {
    type Given: Send + 'static;

    fn give(stored: O) -> Self::Given;
}

/// The output itself.
struct AsItIs;

impl<O: Send + 'static> Give<O> for AsItIs {
    type Given = O;

    fn give(stored: O) -> O {
        stored
    }
}

/// A boxed output.
struct FromBox;

impl<O: Send + 'static> Give<Box<O>> for FromBox {
    type Given = O;

    fn give(stored: Box<O>) -> O {
        *stored
    }
}

/// A boxed future with a boxed output.
struct Elsewhere<F>(Pin<Box<F>>);

impl<F: Future> Future for Elsewhere<F> {
    type Output = Box<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Box<F::Output>> {
        self.0.as_mut().poll(cx).map(Box::new)
    }
}

/// Starts a task. Cost: one block of memory, and the lock of a worker.
pub(crate) fn spawn<F>(start: Start, background: bool, origin: Origin, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // A future larger than a block is boxed, and the task has the pointer.
    if const { TaskCell::<F, AsItIs>::fits() } {
        begin::<F, AsItIs>(start, background, origin, future)
    } else if const { TaskCell::<Pin<Box<F>>, AsItIs>::fits() } {
        begin::<Pin<Box<F>>, AsItIs>(start, background, origin, Box::pin(future))
    } else {
        begin::<Elsewhere<F>, FromBox>(start, background, origin, Elsewhere(Box::pin(future)))
    }
}

fn begin<F, G>(start: Start, background: bool, origin: Origin, future: F) -> JoinHandle<G::Given>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    G: Give<F::Output>,
{
    let flags = SCHEDULED | JOINED | if background { BACKGROUND } else { 0 };
    let place = |shared: &Shared, word, flags| {
        if !background {
            // Relaxed: a thread that sees a worker asleep sees what the worker counted before.
            shared.tasks_live.fetch_add(1, Relaxed);
        }
        TaskCell::<F, G>::place(shared, word, flags, future)
    };
    let (task, colored) = match start {
        Start::Light(shared) => (place(&shared, side::light_word(origin), flags), false),
        Start::Colored(color) => {
            let color = color.resolved();
            (place(color.shared(), Side::share(&color, origin), flags | COLORED), true)
        }
    };
    // SAFETY: SCHEDULED is ours since the start.
    unsafe { Scheduled::new(task.task(), colored) }.enqueue();
    JoinHandle { task, taken: false, output: PhantomData }
}

impl<F, G> TaskCell<F, G>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    G: Give<F::Output>,
{
    const VTABLE: &'static TaskVTable =
        &TaskVTable { node: super::NODE, poll: Self::poll, take: Self::take, free: Self::free };

    /// Whether a block has room for it. In a model every task has an allocation of its own.
    const fn fits() -> bool {
        #[cfg(not(any(dapple_loom, dapple_shuttle)))]
        return memory::class_of(size_of::<Self>(), align_of::<Self>()).is_some();
        #[cfg(any(dapple_loom, dapple_shuttle))]
        return true;
    }

    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    const CLASS: usize = match memory::class_of(size_of::<Self>(), align_of::<Self>()) {
        Some(class) => class,
        // `spawn` boxes a future that does not fit, so this class is never used. Not a panic,
        // because the compiler also evaluates the constants of branches that never run.
        None => usize::MAX,
    };

    /// Makes the task with two counts: its own, and one for the handle.
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    fn place(shared: &Shared, word: *mut (), flags: u32, future: F) -> TaskRef {
        let block = memory::alloc(shared, Self::CLASS).into_raw().cast::<TaskCell<F, G>>();
        let node = Node::of_task(ptr::from_ref(Self::VTABLE).cast(), word);
        let at = block.as_ptr();
        // SAFETY: a block of this size, which is ours. The count is stored last, and atomically: a
        // thread that looks for live tasks may read it at any time, and reads nothing else of a
        // block with count 0.
        unsafe {
            (&raw mut (*at).header.node).write(node);
            (&raw mut (*at).header.state).write(AtomicU32::new(flags));
            (&raw mut (*at).stage).write(UnsafeCell::new(Stage { future: ManuallyDrop::new(future) }));
            // Release pairs with `retain_if_any`.
            (*at).header.refs.store(2, Release);
        }
        TaskRef(block.cast())
    }

    #[cfg(any(dapple_loom, dapple_shuttle))]
    fn place(shared: &Shared, word: *mut (), flags: u32, future: F) -> TaskRef {
        let node = Node::of_task(ptr::from_ref(Self::VTABLE).cast(), word);
        let header = Header { node, state: AtomicU32::new(flags), refs: AtomicU32::new(2), shared: shared.counted() };
        let stage = UnsafeCell::new(Stage { future: ManuallyDrop::new(future) });
        let task = NonNull::from(Box::leak(Box::new(TaskCell::<F, G> { header, stage, given: PhantomData }))).cast();
        shared.tasks.add(TaskRef(task));
        TaskRef(task)
    }

    /// # Safety
    /// The task was made by `place` for this `F`. The caller owns the stage as long as it uses the
    /// result: a callback of the color, or the light task's poll, before DONE; the one handle after
    /// it.
    unsafe fn stage<'a>(task: LiveTask<'_>) -> &'a mut Stage<F> {
        // SAFETY: promised by the caller. A future that must not move may refer to itself; then
        // neither it nor the stage is `Unpin`.
        unsafe { task.pointer().cast::<TaskCell<F, G>>().as_ref().stage.with_mut(|stage| &mut *stage) }
    }

    /// Polls the future, or without a context drops it. A panic becomes the task's result (C8),
    /// even a panic of the destructor.
    ///
    /// # Safety
    /// As [`TaskCell::stage`]; the task is not done. Afterwards the future is gone, unless the
    /// outcome is [`Outcome::Pending`].
    unsafe fn poll(task: LiveTask<'_>, cx: Option<&mut Context<'_>>) -> Outcome {
        // SAFETY: promised by the caller.
        let stage = unsafe { Self::stage(task) };
        let mut result = Err(JoinError::aborted());
        if let Some(cx) = cx {
            // SAFETY: the future is there until DONE. It does not move, and is dropped in place.
            let future = unsafe { Pin::new_unchecked(&mut *stage.future) };
            result = match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
                Ok(Poll::Pending) => return Outcome::Pending,
                Ok(Poll::Ready(output)) => Ok(output),
                Err(payload) => Err(crate::runtime::panics::of_task(payload)),
            };
        }
        // SAFETY: dropped once, here, and in place.
        let drop_future = || unsafe { ManuallyDrop::drop(&mut stage.future) };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(drop_future)) {
            let replaced = catch_unwind(AssertUnwindSafe(|| drop(result)));
            replaced.unwrap_or_else(crate::runtime::panics::discard);
            result = Err(crate::runtime::panics::of_task(payload));
        }
        match result {
            Ok(output) => {
                stage.output = ManuallyDrop::new(output);
                Outcome::Done
            }
            Err(error) => {
                stage.error = ManuallyDrop::new(error);
                Outcome::Failed
            }
        }
    }

    /// # Safety
    /// As [`TaskCell::stage`], called once after the result is stored; `failed` says whether it is
    /// an error. `to` is the address of an `Option<Result<G::Given, JoinError>>` that is `None`.
    unsafe fn take(task: LiveTask<'_>, failed: bool, to: Option<NonNull<()>>) {
        // SAFETY: promised by the caller.
        unsafe {
            let result = match Self::stage(task) {
                Stage { error } if failed => Err(ManuallyDrop::take(error)),
                Stage { output } => Ok(ManuallyDrop::take(output)),
            };
            match to {
                Some(to) => to.cast::<Option<Result<_, _>>>().write(Some(result.map(G::give))),
                None => Self::drop_result(task, result),
            }
        }
    }

    fn drop_result(task: LiveTask<'_>, result: Result<F::Output, JoinError>) {
        let color = || Some(super::ensure_color(task).cell());
        match result {
            // Nothing awaits the task or its result, so the panic goes to the handler.
            Err(error) if error.is_panic() => crate::runtime::panics::tell(task.shared(), color(), error.into_panic()),
            result => {
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(result))) {
                    crate::runtime::panics::report(task.shared(), color(), payload);
                }
            }
        }
    }

    /// # Safety
    /// The last reference is gone.
    unsafe fn free(task: NonNull<Header>) {
        // SAFETY: promised by the caller; made by `place`, and the stage is empty. Relaxed: the
        // last reference sees what all others did.
        unsafe {
            Side::release(task.as_ref().node.task_word().load(Relaxed));
            #[cfg(not(any(dapple_loom, dapple_shuttle)))]
            memory::free(Block::from_raw(task.cast()));
            #[cfg(any(dapple_loom, dapple_shuttle))]
            {
                let shared = task.as_ref().shared.clone();
                shared.tasks.remove(task);
                drop(Box::from_raw(task.cast::<TaskCell<F, G>>().as_ptr()));
            }
        }
    }
}
