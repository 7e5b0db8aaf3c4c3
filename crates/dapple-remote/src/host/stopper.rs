//! Ends a host.

use dapple_sync::task::CancellationToken;

/// Ends a [`Host`](super::Host). Clones end the same one.
#[derive(Clone, Debug)]
pub struct Stopper(CancellationToken);

impl Stopper {
    pub(crate) fn new() -> Stopper {
        Stopper(CancellationToken::new())
    }

    /// Starts the end; see [`Host::serve`](super::Host::serve). Further calls do nothing.
    pub fn stop(&self) {
        self.0.cancel();
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the end begins. Cancel safe.
    pub(crate) async fn stopped(&self) {
        self.0.cancelled().await;
    }
}
