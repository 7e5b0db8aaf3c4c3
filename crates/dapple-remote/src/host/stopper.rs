//! Ending a host in stages.

use std::sync::Arc;

use dapple_sync::sync::watch;

/// Ends a [`Host`](super::Host). Clones end the same one.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<Stage>>);

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// All is taken.
    Serving,
    /// Nobody is accepted; clients are told to send elsewhere.
    Leaving,
    /// Connections close as soon as what is on its way has ended.
    Closing,
    /// They close as they are.
    Cutting,
}

impl Stopper {
    pub(crate) fn new() -> Stopper {
        Stopper(Arc::new(watch::Sender::new(Stage::Serving)))
    }

    /// Begins the end; see [`Host::serve`](super::Host::serve). Again, it does nothing.
    pub fn stop(&self) {
        self.advance(Stage::Leaving);
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        *self.0.borrow() > Stage::Serving
    }

    pub(crate) fn advance(&self, to: Stage) {
        self.0.send_if_modified(|stage| {
            let is_news = *stage < to;
            *stage = to.max(*stage);
            is_news
        });
    }

    /// Waits until the end has come so far. Cancel safe.
    pub(crate) async fn reached(&self, wanted: Stage) {
        // This has the sending side, so it cannot close.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= wanted).await;
    }
}
