//! How stages are put together. `DAPPLE_SHUTTLE_PERCENT` scales how many schedules run.

mod aggregate;
mod commit;
mod flow;
mod receiver;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Runs a model under this many schedules, half of them random, half with few, well-placed preemptions.
fn check(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let percent = std::env::var("DAPPLE_SHUTTLE_PERCENT").map_or(100, |text| text.parse().expect("a number"));
    let half = (schedules * percent).div_ceil(200);
    shuttle::check_random(model.clone(), half);
    shuttle::check_pct(model, half, 3);
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
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await
}
