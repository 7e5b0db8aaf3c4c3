//! Callbacks that are worth nothing after a time, and what runs instead (drop callbacks).

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dapple_io::event::{self, Registration};
use dapple_sched::{Callback, Color, Handle};

use crate::{Reason, Refused};

/// Posts a callback that is to begin before `deadline`. If its turn has not come by then, it is dropped at that time, with all
/// that it holds, and `instead` is called (proposed in the thesis, section 7.1).
///
/// Exactly one of the two is called, unless the runtime shuts down before. The closure is dropped where the deadline is
/// noticed, in a color of its own and not in `color`, which is busy: that is what frees its state at once.
///
/// Cost: that of [`Color::post`], an allocation, and a timer that is set and mostly taken back.
///
/// # Errors
///
/// No runtime is current, so that nobody would look at the clock; nothing has been posted then.
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
        return Err(io::Error::other("no Dapple runtime runs in this process, so that nobody looks at the clock"));
    }
    let waiting = Arc::new(Mutex::new(Waiting { f: Some(f), timer: None }));
    let late = {
        let (waiting, instead) = (waiting.clone(), instead.clone());
        Color::new().wrap(move |()| {
            // Dropped before anybody hears of it, and without the lock.
            if let Some(f) = take(&waiting) {
                drop(f);
                instead.call(refused());
            }
        })
    };
    let timer = event::after(deadline.saturating_duration_since(Instant::now()), late)?;
    waiting.lock().unwrap_or_else(PoisonError::into_inner).timer = Some(timer);
    color.post(move || {
        if let Some(f) = take(&waiting) {
            // The timer may be late, too, where all workers are busy.
            if Instant::now() <= deadline {
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
    /// Dropping it takes the timer back.
    timer: Option<Registration>,
}

/// Who gets the closure decides what becomes of it.
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
