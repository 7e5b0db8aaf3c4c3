//! Ending a task without its join handle.

use std::fmt;

use crate::color::Color;
use crate::task::TaskRef;

/// Asks a task to end; see [`crate::JoinHandle::abort_handle`]. Cheap to clone.
///
/// It keeps the task's memory, but not its future, which is dropped when the task ends.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let task = runtime.spawn(std::future::pending::<()>());
/// let abort = task.abort_handle();
/// std::thread::spawn(move || abort.abort());
/// assert!(runtime.block_on(task).unwrap_err().is_aborted());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    task: TaskRef,
}

impl AbortHandle {
    pub(crate) fn new(task: TaskRef) -> AbortHandle {
        AbortHandle { task }
    }

    /// As [`crate::JoinHandle::abort`]; there is an example at [`AbortHandle`].
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Whether the task has ended, in whatever way.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async {});
    /// let abort = task.abort_handle();
    /// runtime.block_on(task).unwrap();
    /// assert!(abort.is_finished());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.task.is_done()
    }

    /// The color of the task.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let task = runtime.spawn(async {});
    /// assert_eq!(task.abort_handle().color(), task.color());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn color(&self) -> &Color {
        self.task.color()
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("color", self.color()).field("finished", &self.is_finished()).finish()
    }
}
