//! Callbacks with a deadline, and the drop callbacks that replace them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dapple_io::event::{self, Registration};
use dapple_sched::environment;
use dapple_sched::{Callback, Color, Handle};

use crate::{Reason, Refused};

/// Posts a callback that must begin before `deadline`. Otherwise it is dropped at that time, with
/// all that it holds, and `instead` runs (proposed in the thesis, section 7.1).
///
/// Exactly one of the two runs, unless the runtime shuts down first. A late closure is dropped in a
/// new color, because `color` is busy; this frees its state at once.
///
/// Cost: that of [`Color::post`], an allocation, and a timer that is usually canceled.
///
/// # Errors
///
/// If no runtime is current, no timer can run; nothing has been posted then.
///
/// ```
/// use dapple_sched::Color;
/// use dapple_stage::post_before;
/// use std::sync::mpsc;
/// use std::time::{Duration, Instant};
///
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// let (tx, rx) = mpsc::channel();
/// let answers = Color::new();
/// let (done, late) = (tx.clone(), tx);
/// let instead = answers.wrap(move |refused| late.send(format!("{refused}")).unwrap());
/// let deadline = Instant::now() + Duration::from_secs(60);
/// post_before(&Color::new(), deadline, move || done.send("in time".to_owned()).unwrap(), instead)?;
/// assert_eq!(rx.recv().unwrap(), "in time");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn post_before<F>(color: &Color, deadline: Instant, f: F, instead: Callback<Refused>) -> io::Result<()>
where
    F: FnOnce() + Send + 'static,
{
    if Handle::try_current().is_none() {
        return Err(io::Error::other("no Dapple runtime runs in this process, so no timer can run"));
    }
    let waiting = Arc::new(Mutex::new(Waiting { f: Some(f), timer: None }));
    let late = {
        let (waiting, instead) = (waiting.clone(), instead.clone());
        Color::new().wrap(move |()| {
            // Drop it before `instead` runs, and without the lock.
            if let Some(f) = take(&waiting) {
                drop(f);
                instead.call(refused());
            }
        })
    };
    let timer = event::after(deadline.saturating_duration_since(environment::now()), late)?;
    waiting.lock().unwrap_or_else(PoisonError::into_inner).timer = Some(timer);
    color.post(move || {
        if let Some(f) = take(&waiting) {
            // The timer, too, may be late when all workers are busy.
            if environment::now() <= deadline {
                return f();
            }
            drop(f);
            instead.call(refused());
        }
    });
    Ok(())
}

struct Waiting<F> {
    f: Option<F>,
    /// Dropping it cancels the timer.
    timer: Option<Registration>,
}

/// Takes the closure. The caller that gets it decides whether it runs or is dropped.
fn take<F>(waiting: &Mutex<Waiting<F>>) -> Option<F> {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let timer = waiting.timer.take();
    let f = waiting.f.take();
    drop(waiting);
    drop(timer);
    f
}

fn refused() -> Refused {
    Refused::new(Reason::Deadline, Duration::ZERO)
}
