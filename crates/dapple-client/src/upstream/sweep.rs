//! The task that closes connections to a server after they were idle for too long.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Weak;
use std::task::Poll;
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::Handle;

use super::Host;

/// The mark that a host has a sweeping task. If a runtime drops the task early, the next connection
/// starts another one.
pub(super) struct Mark<B>(pub(super) Weak<Host<B>>);

impl<B> Drop for Mark<B> {
    fn drop(&mut self) {
        if let Some(host) = self.0.upgrade() {
            host.is_not_swept();
        }
    }
}

/// Sweeps a host's connections as long as its pool has any, so that an idle program has no timer.
/// When the runtime closes, so do the connections.
pub(super) async fn sweep<B: Send + 'static>(mut mark: Mark<B>) {
    let handle = Handle::current();
    let mut closing = pin!(handle.closing());
    let mut is_closing = false;
    loop {
        let Some(age_max) = mark.0.upgrade().map(|host| host.idle_max()) else { return };
        let mut pause = pin!(sleep((age_max / 4).clamp(PAUSE_MIN, PAUSE_MAX)));
        // Even a closing runtime leaves requests in flight as much time as the pause.
        is_closing = poll_fn(|cx| {
            if !is_closing && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            pause.as_mut().poll(cx).map(|()| is_closing)
        })
        .await;
        let Some(host) = mark.0.upgrade() else { return };
        // Requests in flight keep their connection to the end.
        if !host.drop_old(if is_closing { Duration::ZERO } else { age_max }) {
            // Another task may sweep it from here on.
            mark.0 = Weak::new();
            return;
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
