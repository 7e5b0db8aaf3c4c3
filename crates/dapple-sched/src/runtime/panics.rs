//! Panics: caught, counted, and reported with their color (C8).

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::color::Color;
use crate::color::cell::ColorCell;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::task::join_error::JoinError;

/// The facts that a panic handler gets; see [`crate::Builder::panic_handler`].
#[derive(Debug)]
#[non_exhaustive]
pub struct PanicInfo<'a> {
    /// The color of the callback that panicked. For a waker, a handler or a driver, which have no
    /// color, the default color.
    pub color: &'a Color,
    /// The panic's message, if it was text.
    pub message: &'a str,
    /// The worker on which it ran; `None` for a drop on another thread, after shutdown.
    pub worker: Option<usize>,
}

impl PanicInfo<'_> {
    /// One sentence on what to do, if it is known: for libraries that find no tokio runtime.
    ///
    /// ```
    /// use dapple_sched::Runtime;
    ///
    /// let builder = Runtime::builder().panic_handler(|panic| {
    ///     eprintln!("color {}: {} ({})", panic.color, panic.message, panic.advice().unwrap_or("no advice"));
    /// });
    /// # let _ = builder;
    /// ```
    pub fn advice(&self) -> Option<&'static str> {
        advice(self.message)
    }
}

/// Counts and reports a panic that nothing awaits. This thread holds `color`; `None` if it was
/// released already.
pub(crate) fn report(shared: &Shared, color: Option<NonNull<ColorCell>>, payload: Box<dyn Any + Send>) {
    count(shared);
    tell(shared, color, payload);
}

/// Counts and reports a panic outside of callbacks: in a waker, a handler, a driver.
#[cold]
pub(super) fn report_foreign(shared: &Shared, payload: Box<dyn Any + Send>) {
    count(shared);
    handle(shared, None, payload);
}

fn count(shared: &Shared) {
    let worker = context::with_worker(|worker| worker.index);
    shared.slots[worker.unwrap_or(0).min(shared.slots.len() - 1)].counters.panic();
}

/// Reports a panic that was counted before.
pub(crate) fn tell(shared: &Shared, color: Option<NonNull<ColorCell>>, payload: Box<dyn Any + Send>) {
    handle(shared, Some(color.unwrap_or(shared.default_color())), payload);
}

/// `color`: that of the callback, if it was one.
fn handle(shared: &Shared, color: Option<NonNull<ColorCell>>, payload: Box<dyn Any + Send>) {
    let worker = context::with_worker(|worker| worker.index);
    let is_callback = color.is_some();
    // SAFETY: this thread holds the color, so it is alive; the default color always is.
    let color = unsafe { Color::retain(color.unwrap_or(shared.default_color())) };
    let info = PanicInfo { color: &color, message: message(&*payload), worker };
    let handled = catch_unwind(AssertUnwindSafe(|| match &shared.panic_handler {
        Some(handler) => handler(&info),
        None => {
            let worker =
                worker.map_or_else(|| "outside of the workers".to_owned(), |worker| format!("on worker {worker}"));
            let message = advised(info.message);
            match is_callback {
                true => eprintln!("dapple: a callback of color {color} panicked {worker}: {message}"),
                false => eprintln!("dapple: foreign code panicked {worker}: {message}"),
            }
        }
    }));
    // If a payload or a handler panics as well, the worker must continue.
    discard(payload);
    if let Err(payload) = handled {
        discard(payload);
    }
}

/// Counts a task's panic and makes it the task's result.
pub(crate) fn of_task(payload: Box<dyn Any + Send>) -> JoinError {
    context::with_worker(|worker| worker.slot().counters.panic());
    crate::observe::trace::note_panic();
    JoinError::panicked(payload)
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(no text)"
    }
}

/// Advice on a panic with this text, if there is any.
pub(crate) fn advice(message: &str) -> Option<&'static str> {
    NO_TOKIO.iter().any(|text| message.contains(text)).then_some(
        "a library made for tokio ran without its context: build the runtime with `dapple::builder().tokio()` (feature \
         `tokio-compat`), or put `.compat()` of the crate `async-compat` around the future",
    )
}

/// The text of a panic, with the advice on a separate line.
pub(crate) fn advised(message: &str) -> Cow<'_, str> {
    advice(message).map_or(message.into(), |advice| format!("{message}\n{advice}").into())
}

/// Drops a payload. Its destructor may panic, usually with a text, which is dropped as well. Any
/// other payload of that second panic is leaked: its destructor might panic again and again.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        match again.is::<&'static str>() || again.is::<String>() {
            true => drop(again),
            false => std::mem::forget(again),
        }
    }
}

/// The texts of panics in tokio, hyper-util, hickory, reqwest, sqlx and other libraries that find
/// no tokio runtime.
const NO_TOKIO: [&str; 3] =
    ["there is no reactor running", "requires a Tokio context", "must be called from the context of a Tokio"];
