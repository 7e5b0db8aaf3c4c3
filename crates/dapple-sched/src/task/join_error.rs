//! The end of a task without an output.

use std::any::Any;
use std::fmt;

use crate::runtime::panics;

/// The reason why a task has no output.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let task = runtime.spawn(async { panic!("on purpose") });
/// let error = runtime.block_on(task).unwrap_err();
/// assert!(error.is_panic());
/// assert_eq!(error.to_string(), "the task panicked: on purpose");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// If a library panicked because it found no tokio runtime, a second line of the text says what to
/// do.
pub struct JoinError {
    cause: Cause,
}

enum Cause {
    Aborted,
    Panicked(Box<std::sync::Mutex<Box<dyn Any + Send>>>),
}

impl JoinError {
    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
        JoinError { cause: Cause::Panicked(Box::new(std::sync::Mutex::new(payload))) }
    }

    pub(super) fn aborted() -> JoinError {
        JoinError { cause: Cause::Aborted }
    }

    /// The task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.cause, Cause::Panicked(_))
    }

    /// The task was aborted, or its runtime shut down.
    pub fn is_aborted(&self) -> bool {
        matches!(self.cause, Cause::Aborted)
    }

    /// The panic's payload, for [`std::panic::resume_unwind`], for example.
    ///
    /// # Panics
    /// If the task did not panic; ask [`JoinError::is_panic`] first.
    pub fn into_panic(self) -> Box<dyn Any + Send> {
        match self.cause {
            Cause::Panicked(payload) => payload.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()),
            Cause::Aborted => panic!("the task was aborted and holds no panic; ask is_panic() first"),
        }
    }

    fn message(&self) -> Option<String> {
        match &self.cause {
            Cause::Panicked(payload) => {
                let payload = payload.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                Some(panics::message(&**payload).to_owned())
            }
            Cause::Aborted => None,
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => write!(f, "the task panicked: {}", panics::advised(&message)),
            None => f.write_str("the task was aborted"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            Some(message) => {
                write!(f, "JoinError::Panic({message:?})")?;
                // On a separate line: `unwrap` prints this.
                panics::advice(&message).map_or(Ok(()), |advice| write!(f, "\n{advice}"))
            }
            None => f.write_str("JoinError::Aborted"),
        }
    }
}

impl std::error::Error for JoinError {}

// Any task with room for a pointer has room for it.
const _: () = assert!(std::mem::size_of::<JoinError>() == 8);
