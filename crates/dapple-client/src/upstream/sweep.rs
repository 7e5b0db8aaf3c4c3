//! Closing the connections to a server that have waited for too long.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Weak;
use std::task::Poll;
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::Handle;

use super::Host;

/// Looks after a host's connections for as long as there are any in its pool, so that an idle program has no timer. When the runtime
/// closes, so do the connections.
pub(super) async fn sweep<B: Send + 'static>(host: Weak<Host<B>>) {
    let handle = Handle::current();
    let mut closing = pin!(handle.closing());
    let mut is_closing = false;
    loop {
        let Some(age_max) = host.upgrade().map(|host| host.idle_max()) else { return };
        let mut pause = pin!(sleep((age_max / 4).clamp(PAUSE_MIN, PAUSE_MAX)));
        // Also a runtime that closes is left to what is in flight for as long as the pause.
        is_closing = poll_fn(|cx| {
            if !is_closing && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            pause.as_mut().poll(cx).map(|()| is_closing)
        })
        .await;
        let Some(host) = host.upgrade() else { return };
        // What is in flight has the connection to its end.
        if !host.drop_old(if is_closing { Duration::ZERO } else { age_max }) {
            return;
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
