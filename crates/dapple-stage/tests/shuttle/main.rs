//! Stages, middleware, balance and operators under random schedules.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-stage --release --test shuttle`
//!
//! What each model was seen to catch stands in `tests/mutations.txt`.

#![cfg(dapple_shuttle)]

mod balance;
mod buffer;
mod gate;
mod operators;
mod queue;
mod stage;
/// Threads of the model as workers.
#[allow(dead_code, reason = "not all of it is of use here")]
#[path = "../../../dapple-sched/tests/shuttle/support.rs"]
mod support;
mod throttle;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use dapple_stage::time_model;

/// Runs a model under this many schedules, with a clock that begins anew in each.
fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    support::check(schedules, move || {
        time_model::begin();
        model();
    });
}

fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets others come in between.
async fn pause() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        shuttle::thread::yield_now();
        if std::mem::replace(&mut is_first, false) {
            cx.waker().wake_by_ref();
            // Who is woken may look before this one has gone.
            shuttle::thread::yield_now();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await
}

/// Sees that there are never more than so many inside.
#[derive(Clone)]
struct Inside {
    now: Arc<AtomicUsize>,
    max: usize,
}

impl Inside {
    fn new(max: usize) -> Inside {
        Inside { now: Arc::default(), max }
    }

    /// One more, until this is dropped.
    fn enter(&self) -> impl Drop + Send + 'static {
        struct Leave(Arc<AtomicUsize>);
        impl Drop for Leave {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let before = self.now.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.max, "{} inside, and {} may be", before + 1, self.max);
        Leave(self.now.clone())
    }
}
