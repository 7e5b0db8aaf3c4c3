//! What a stream of HTTP/2 did in one poll, told from its body to the task that polls it.
//!
//! hyper owns the future of a stream, and the body is deep within it. Both are polled on one thread, one inside of the other, so a
//! value of the thread carries the news, without a lock and without memory of its own.

use std::cell::Cell;

/// How a stream stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the body that hyper took, which it does when the peer's window has room.
    pub(crate) taken: u64,
    /// It waits for the peer: the service has answered, and the body has more.
    pub(crate) waits_for_peer: bool,
}

thread_local! {
    static NOW: Cell<Progress> = const { Cell::new(Progress { taken: 0, waits_for_peer: false }) };
}

/// Runs `poll`, one poll of a stream, from how it stood to how it stands.
pub(super) fn watch<R>(before: Progress, poll: impl FnOnce() -> R) -> (R, Progress) {
    NOW.set(before);
    let result = poll();
    (result, NOW.get())
}

/// It is the service that is waited for.
pub(crate) fn waits_for_service() {
    NOW.set(Progress { waits_for_peer: false, ..NOW.get() });
}

/// hyper has taken so many bytes, and comes for more when the peer has room.
pub(crate) fn taken(len: usize) {
    let now = NOW.get();
    NOW.set(Progress { taken: now.taken + len as u64, waits_for_peer: true });
}
