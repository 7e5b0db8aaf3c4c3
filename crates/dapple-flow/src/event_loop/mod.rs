//! Event loops of the program's own, beside Dapple's (PLDI 2007, section 4.5).
//!
//! Some mechanisms report what happens in a way of their own: inotify with its batches, a library that wants to call its
//! `poll`, a device, another process's shared memory. A program that wants such events in its tasks and callbacks writes
//! an [`EventLoop`]: it runs on a thread of its own, waits there for whatever it likes, and is joined to the runtime by
//! an [`Inbox`]:
//!
//! | direction | how |
//! |---|---|
//! | a task asks, and awaits the answer | [`Loop::ask`] |
//! | a callback asks, and another one gets the answer | [`Loop::try_ask_then`] |
//! | the loop learns of requests | the inbox is a descriptor that can be polled, beside the loop's own |
//! | the loop answers | [`Reply::send`], at any time, from any thread |
//! | the loop reports what nobody asked for | it posts to colors, calls callbacks and wakes tasks: its thread has entered the runtime |
//! | it is told to stop | the same descriptor, and [`Inbox::is_stopping`] |
//!
//! What holds whatever the loop does:
//!
//! - **Nobody waits for ever because of a loop that is gone.** When it returns, panics or drops a request, all who wait for an
//!   answer get a [`LoopError`] that says which of these it was; who asks later gets it at once.
//! - **Its inbox is bounded.** `ask` waits for room, first come first served; `try_ask_then` refuses.
//! - **It does not outlive the runtime.** At the shutdown, after the tasks have ended, it is told to stop and waited for, one
//!   second at most. It is told as well when the last [`Loop`] is dropped.
//!
//! What is readiness of a descriptor needs none of this: [`event::on_readable`](dapple_io::event::on_readable) watches any.
//! What merely blocks is for [`blocking`](dapple_io::blocking). A whole driver under the workers is
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
///             // Its own waiting: a loop with descriptors would poll them together with the inbox.
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
    /// What it can be asked for.
    type Request: Send + 'static;
    /// What it answers.
    type Answer: Send + 'static;

    /// Runs until [`Inbox::is_stopping`], on a thread of its own that may block; the runtime is current there.
    ///
    /// A panic ends the loop, and is the error of all who wait for an answer. To return early is allowed, and ends it
    /// as well.
    fn run(self, inbox: Inbox<Self::Request, Self::Answer>);
}

/// Starts an event loop in the current runtime; its inbox holds 1,024 requests. `name` is part of its thread's name.
///
/// # Errors
///
/// There is no runtime here, it has shut down, or there is no thread or descriptor left.
pub fn start<L: EventLoop>(name: &str, event_loop: L) -> io::Result<Loop<L::Request, L::Answer>> {
    start_with(name, INBOX_MAX, event_loop)
}

/// As [`start`], with an inbox for as many requests (1 at least): those that the loop has not taken yet.
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

/// The way to an [`EventLoop`] that was started; cheap to clone. The loop is told to stop when the last one is dropped.
#[must_use = "the loop is told to stop when the last handle is dropped"]
pub struct Loop<Q: Send + 'static, A: Send + 'static> {
    keeper: Arc<Keeper<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Loop<Q, A> {
    /// Asks the loop, and awaits its answer. The request is handed over in the first poll, or when there is room in the
    /// inbox.
    ///
    /// Cancel safe: dropped while it waits for room, it takes the request along; dropped later, the loop finds out by
    /// [`Reply::is_awaited`], and an answer is thrown away.
    ///
    /// # Errors
    ///
    /// The loop is over, or ends before it has answered, or drops the request.
    pub fn ask(&self, request: Q) -> Ask<Q, A> {
        Ask::new(self.link().clone(), request)
    }

    /// Asks the loop, and has the answer posted to the callback's color; for callbacks, which cannot wait.
    ///
    /// # Errors
    ///
    /// There is no room in the inbox, or the loop is over; the request is in the error, and the callback is not called.
    /// Otherwise it is called once, with an error if the loop ends first; but not after the runtime's shutdown.
    pub fn try_ask_then(&self, request: Q, callback: Callback<Result<A, LoopError>>) -> Result<(), AskError<Q>> {
        self.link().try_push(request, Responder::Callback(callback))
    }

    /// Tells the loop to stop; who waits for an answer gets one or an error, as the loop does it.
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
    /// It has ended: it was told to, or the runtime has shut down.
    Ended,
    /// It panicked, with this message.
    Panicked(String),
    /// It has dropped the request.
    Unanswered,
}

/// Why [`Loop::try_ask_then`] did not ask. The request is in it.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError<Q> {
    /// As many requests wait as the inbox holds.
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

/// Requests that an inbox holds if nothing is said.
const INBOX_MAX: usize = 1024;
