//! Closes a connection so that the last reply arrives.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use super::watch::Watch;
use crate::http::Limits;
use crate::http::clock::now_ms;
use crate::http::pace::millis;

/// Shuts down the sending side, and reads until the client has ended as well: closing with unread
/// bytes would reset the connection, and the client would lose bytes that it has not read yet.
pub(super) async fn linger<S: dapple_io::Connection>(stream: S, watch: &mut Watch, limits: &Limits) {
    let deadline_ms = now_ms().saturating_add(millis(limits.linger_timeout));
    // Errors do not matter: the connection is over.
    let _ = poll_fn(|cx| {
        if watch.poll_deadline(deadline_ms, now_ms(), cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        stream.poll_end(cx)
    })
    .await;
    let mut left = DROPPED_LEN_MAX;
    let _: io::Result<()> = poll_fn(|cx| {
        let mut memory = [0; 2048];
        while watch.poll_deadline(deadline_ms, now_ms(), cx).is_pending() && left > 0 {
            let len = ready!(stream.poll_read(cx, &mut memory))?;
            if len == 0 {
                break;
            }
            left = left.saturating_sub(len);
        }
        Poll::Ready(Ok(()))
    })
    .await;
}

/// If a client sends more than this meanwhile, it is not reading.
const DROPPED_LEN_MAX: usize = 1 << 20;
