//! The last stage of a server's life, and the news of it.

use std::sync::OnceLock;

use dapple_sync::task::CancellationToken;

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nobody listens any more.
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
/// A client that uses its connection all the time meets `finishing`: it is told `connection: close` in a reply, and loses
/// nothing. Only what is idle then is closed without a word, as HTTP allows at any time.
#[derive(Debug, Default)]
pub struct Stage {
    finishing: CancellationToken,
    ending: OnceLock<Ending>,
}

impl Stage {
    /// Ends accepting. The first call decides how.
    pub fn begin(&self, ending: Ending) {
        let _ = self.ending.set(ending);
        self.finishing.cancel();
    }

    /// Whether accepting ends, or has ended.
    pub fn is_finishing(&self) -> bool {
        self.finishing.is_cancelled()
    }

    /// Waits for the end of accepting, and how it comes. Cancel safe.
    pub async fn finishing(&self) -> Ending {
        self.finishing.cancelled().await;
        self.ending.get().copied().unwrap_or(Ending::Stop)
    }
}
