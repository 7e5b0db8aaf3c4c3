//! Wakers with a clone that is foreign code, too: it runs an action that a test chooses.

use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};

type Action = Arc<dyn Fn() + Send + Sync>;

/// A waker that calls `on_clone` when it is cloned.
pub(crate) fn on_clone(on_clone: impl Fn() + Send + Sync + 'static) -> Waker {
    let action: Action = Arc::new(on_clone);
    // SAFETY: the functions of the table take the data as the box of an action, which each waker
    // has to itself.
    unsafe { Waker::from_raw(raw(action)) }
}

fn raw(action: Action) -> RawWaker {
    RawWaker::new(Box::into_raw(Box::new(action)).cast_const().cast(), &TABLE)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: made by `raw`; the waker that is cloned has it.
        let action = unsafe { &*data.cast::<Action>() };
        action();
        raw(action.clone())
    },
    discard,
    |_| (),
    discard,
);

fn discard(data: *const ()) {
    // SAFETY: made by `raw`, and the waker that had it was dropped.
    drop(unsafe { Box::from_raw(data.cast_mut().cast::<Action>()) });
}
