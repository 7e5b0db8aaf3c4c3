//! The deadline of the running code, from the first sender to the last host.

use std::future::Future;

use dapple_io::time::Instant;
use dapple_sync::task::WithLocal;

dapple_sync::task_local! {
    static DEADLINE: Instant;
}

/// The time by which the reply of the running code is needed, if there is one: inside [`within`],
/// and in handlers that a host runs.
///
/// ```
/// use dapple_io::time::Instant;
/// use dapple_remote::{deadline, within};
/// use std::time::Duration;
///
/// assert_eq!(deadline(), None);
/// let soon = Instant::now() + Duration::from_secs(1);
/// dapple_sched::block_on(within(soon, async { assert_eq!(deadline(), Some(soon)) }));
/// ```
pub fn deadline() -> Option<Instant> {
    DEADLINE.try_get().ok()
}

/// Runs a future with a deadline, which all its requests to remote stages carry: hosts drop late
/// requests, and so do the hosts that they ask. A deadline inside another counts only if it is
/// earlier. Tasks that the future spawns do not inherit it. As cancel safe as the future.
pub fn within<F: Future>(until: Instant, future: F) -> impl Future<Output = F::Output> + use<F> {
    let until = deadline().map_or(until, |outer| outer.min(until));
    let with: WithLocal<Instant, F> = DEADLINE.scope(until, future);
    with
}
