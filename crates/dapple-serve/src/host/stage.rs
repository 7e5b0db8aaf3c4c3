//! The stages of a server's end, and waiting for them.

use std::sync::OnceLock;

use dapple_sync::task::CancellationToken;

/// How accepting ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No process listens any more.
    Stop,
    /// Another process accepts on the same sockets.
    HandOver,
}

/// Whether the server still accepts.
///
/// ```text
///   serving ── begin(ending) ──► finishing ── the runtime's shutdown ──► closing
///   accepts                      accepts what the kernel had;            idle connections close
///                                every reply is its connection's last
/// ```
///
/// A client that uses its connection all the time meets `finishing`: a reply tells it
/// `connection: close`, and it loses nothing. Only connections that are idle then are closed
/// silently, as HTTP allows at any time.
#[derive(Debug, Default)]
pub struct EndStage {
    finishing: CancellationToken,
    ending: OnceLock<Ending>,
}

impl EndStage {
    /// Ends accepting. The first call decides how.
    pub fn begin(&self, ending: Ending) {
        let _ = self.ending.set(ending);
        self.finishing.cancel();
    }

    /// Whether accepting ends, or has ended.
    pub fn is_finishing(&self) -> bool {
        self.finishing.is_cancelled()
    }

    /// Waits until accepting ends, and returns how. Cancel safe.
    pub async fn finishing(&self) -> Ending {
        self.finishing.cancelled().await;
        self.ending.get().copied().unwrap_or(Ending::Stop)
    }
}
