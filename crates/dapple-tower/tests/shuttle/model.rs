//! Common parts of the models of services.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use dapple_tower::time_model;

use super::support;

/// Runs a model under this many schedules, with a new clock in each.
pub(crate) fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    support::check(schedules, move || {
        time_model::begin();
        model();
    });
}

pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets other threads run in between.
pub(crate) async fn pause() {
    let mut is_first = true;
    std::future::poll_fn(|cx| {
        shuttle::thread::yield_now();
        if std::mem::replace(&mut is_first, false) {
            cx.waker().wake_by_ref();
            // A woken thread may check before this one has ended.
            shuttle::thread::yield_now();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await
}

/// Checks that there are never more than this many inside.
#[derive(Clone)]
pub(crate) struct Inside {
    now: Arc<AtomicUsize>,
    max: usize,
}

impl Inside {
    pub(crate) fn new(max: usize) -> Inside {
        Inside { now: Arc::default(), max }
    }

    /// Counts one more, until this is dropped.
    pub(crate) fn enter(&self) -> impl Drop + Send + 'static {
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
