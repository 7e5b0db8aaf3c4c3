//! The program's own event loops, next to Dapple's (PLDI 2007, section 4.5).
//!
//! Some mechanisms report events in their own way: inotify with its batches, a library with its own
//! `poll`, a device, another process's shared memory. A program that needs such events in its tasks
//! and callbacks writes an [`EventLoop`]. It runs on its own thread, waits there for any event, and
//! an [`Inbox`] connects it to the runtime:
//!
//! | direction | how |
//! |---|---|
//! | a task sends a request, and awaits the answer | [`Loop::ask`] |
//! | a callback sends a request, and another callback gets the answer | [`Loop::try_ask_then`] |
//! | the loop learns of requests | the loop polls the inbox, a descriptor, together with its own descriptors |
//! | the loop answers | [`Reply::send`], at any time, from any thread |
//! | the loop reports other events | it posts to colors, calls callbacks and wakes tasks: its thread has entered the runtime |
//! | the loop learns that it must stop | the same descriptor, and [`Inbox::is_stopping`] |
//!
//! These hold for every loop:
//!
//! - **No task waits for ever for a loop that is gone.** When the loop returns, panics or drops a
//!   request, all waiting tasks and callbacks get a [`LoopError`] that says which of these
//!   happened; later requests get it at once.
//! - **Its inbox is bounded.** `ask` waits for room, first come first served; `try_ask_then`
//!   refuses.
//! - **It does not outlive the runtime.** During shutdown, after the tasks have ended, the runtime
//!   stops it and waits for it, at most one second. The drop of the last [`Loop`] stops it, too.
//!
//! Readiness of a descriptor needs no event loop:
//! [`event::on_readable`](dapple_io::event::on_readable) watches any. Blocking calls belong into
//! [`blocking`](dapple_io::blocking). To replace the whole driver under the workers, implement
//! [`dapple_sched::Driver`].

mod ask;
mod inbox;
mod link;

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use dapple_sched::Callback;

pub use ask::Ask;
use dapple_io::companion;
pub use inbox::{Asked, Inbox, Reply};
use link::{Keeper, Link, Responder};

/// An event loop of the program's own. See the [module](self).
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::{Duration, Instant};
/// use dapple_flow::event_loop::{self, EventLoop, Inbox, Reply};
///
/// /// Answers each request after as many milliseconds as it says.
/// struct Echo;
///
/// impl EventLoop for Echo {
///     type Request = u64;
///     type Answer = u64;
///
///     fn run(self, inbox: Inbox<u64, u64>) {
///         let mut due: BTreeMap<Instant, (u64, Reply<u64>)> = BTreeMap::new();
///         while !inbox.is_stopping() {
///             while let Some(asked) = inbox.try_next() {
///                 let at = Instant::now() + Duration::from_millis(asked.request);
///                 due.insert(at, (asked.request, asked.reply));
///             }
///             while let Some(first) = due.first_entry().filter(|first| *first.key() <= Instant::now()) {
///                 let (request, reply) = first.remove();
///                 reply.send(request);
///             }
///             // A loop with descriptors would poll them here together with the inbox.
///             inbox.wait(due.first_key_value().map(|(at, _)| at.saturating_duration_since(Instant::now())));
///         }
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let echo = event_loop::start("echo", Echo)?;
///     assert_eq!(echo.ask(3).await, Ok(3));
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait EventLoop: Send + 'static {
    /// The type of its requests.
    type Request: Send + 'static;
    /// The type of its answers.
    type Answer: Send + 'static;

    /// Runs until [`Inbox::is_stopping`], on its own thread, which may block; the runtime is
    /// current there.
    ///
    /// A panic ends the loop, and becomes the error of all waiting requests. An early return ends
    /// it as well.
    fn run(self, inbox: Inbox<Self::Request, Self::Answer>);
}

/// Starts an event loop in the current runtime; its inbox holds 1,024 requests. `name` is part of
/// its thread's name.
///
/// # Errors
///
/// No runtime is current, it has shut down, or there is no thread or descriptor left.
pub fn start<L: EventLoop>(name: &str, event_loop: L) -> io::Result<Loop<L::Request, L::Answer>> {
    start_with(name, INBOX_MAX, event_loop)
}

/// As [`start`], with an inbox for this many requests (at least 1) that the loop has not taken yet.
///
/// # Errors
///
/// As [`start`].
pub fn start_with<L: EventLoop>(
    name: &str,
    inbox_max: usize,
    event_loop: L,
) -> io::Result<Loop<L::Request, L::Answer>> {
    let link = Arc::new(Link::new(inbox_max.max(1))?);
    companion::register(&link)?;
    link::start_thread(name, link.clone(), event_loop)?;
    Ok(Loop { keeper: Arc::new(Keeper(link)) })
}

/// A handle of a running [`EventLoop`], cheap to clone. The drop of the last one stops the loop.
#[must_use = "the loop stops when its last handle is dropped"]
pub struct Loop<Q: Send + 'static, A: Send + 'static> {
    keeper: Arc<Keeper<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Loop<Q, A> {
    /// Sends a request, and awaits its answer. The first poll hands the request over, or a later
    /// one when there is room in the inbox.
    ///
    /// Cancel safe: if it is dropped while it waits for room, it drops the request. If it is
    /// dropped later, [`Reply::is_awaited`] tells the loop, and an answer is discarded.
    ///
    /// # Errors
    ///
    /// The loop has ended, ends before it has answered, or drops the request.
    pub fn ask(&self, request: Q) -> Ask<Q, A> {
        Ask::new(self.link().clone(), request)
    }

    /// Sends a request, and posts the answer to the callback's color; for callbacks, which cannot
    /// wait.
    ///
    /// # Errors
    ///
    /// The inbox is full, or the loop has ended; the error has the request, and the callback does
    /// not run. Otherwise it runs once, with an error if the loop ends first; it does not run after
    /// the runtime's shutdown.
    pub fn try_ask_then(&self, request: Q, callback: Callback<Result<A, LoopError>>) -> Result<(), AskError<Q>> {
        self.link().try_push(request, Responder::Callback(callback))
    }

    /// Tells the loop to stop. The loop decides whether waiting requests get an answer or an error.
    pub fn stop(&self) {
        self.link().stop();
    }

    /// Whether the loop has ended.
    pub fn is_over(&self) -> bool {
        self.link().is_over()
    }

    fn link(&self) -> &Arc<Link<Q, A>> {
        &self.keeper.0
    }
}

impl<Q: Send + 'static, A: Send + 'static> Clone for Loop<Q, A> {
    fn clone(&self) -> Self {
        Loop { keeper: self.keeper.clone() }
    }
}

impl<Q: Send + 'static, A: Send + 'static> fmt::Debug for Loop<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

/// Why an [`EventLoop`] gave no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoopError {
    /// It has ended: it was stopped, or the runtime has shut down.
    Ended,
    /// It panicked, with this message.
    Panicked(String),
    /// It has dropped the request.
    Unanswered,
}

/// Why [`Loop::try_ask_then`] did not send the request, which it returns.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError<Q> {
    /// The inbox is full.
    Full(Q),
    /// The loop has ended.
    Over(Q),
}

impl fmt::Display for LoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoopError::Ended => f.write_str("the event loop has ended"),
            LoopError::Panicked(message) => write!(f, "the event loop has panicked: {message}"),
            LoopError::Unanswered => f.write_str("the event loop has dropped the request without an answer"),
        }
    }
}

impl Error for LoopError {}

impl From<LoopError> for io::Error {
    fn from(error: LoopError) -> io::Error {
        io::Error::other(error)
    }
}

impl<Q> fmt::Display for AskError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AskError::Full(_) => "the inbox of the event loop is full",
            AskError::Over(_) => "the event loop has ended",
        })
    }
}

impl<Q> fmt::Debug for AskError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AskError::Full(_) => "Full",
            AskError::Over(_) => "Over",
        })
    }
}

impl<Q> Error for AskError<Q> {}

/// The default size of an inbox, in requests.
const INBOX_MAX: usize = 1024;
