//! One look at the file system.

use std::sync::Arc;

use dapple::{Color, Colored};
use tracing::{debug, warn};

use super::clock::now_ms;
use super::disk::Resolved;
use super::handles::Handles;
use super::library::{Before, Library};
use super::pages::{Content, Page, Shard};

/// A look at the file system in progress, for all who ask for one path. However it ends, the shard learns of it, so that
/// nobody waits for ever. If the one who began it goes away (HTTP/2: takes the request back), it goes on without, as others may wait.
pub(crate) struct Loading {
    pub(crate) shard: Colored<Shard>,
    pub(crate) handles: Colored<Handles>,
    pub(crate) library: Arc<Library>,
    pub(crate) hash: u64,
    pub(crate) key: Arc<[u8]>,
    pub(crate) is_ended: bool,
    /// Where it fails now, it has failed for all.
    pub(crate) is_last_try: bool,
    /// Whether everything has the default color.
    pub(crate) serial: bool,
}

impl Loading {
    /// Looks, waiting for the disk where that is needed. What is still right of what is `cached`, or known from `before`, is used
    /// again.
    pub(crate) async fn run(mut self, cached: Option<Arc<Page>>, before: Before, checked_ms: u64) {
        self.is_last_try = true;
        match self.library.look(&self.key, cached.as_ref(), before).await {
            Ok((resolved, content)) => self.end(resolved, content, checked_ms).await,
            Err(error) => warn!(%error, path = %self.key.escape_ascii(), "a file could not be read"),
        }
    }

    /// Notes what was found at `checked_ms`, and hands it to all who wait.
    pub(crate) async fn end(mut self, resolved: Resolved, content: Content, checked_ms: u64) {
        let (hash, key) = (self.hash, &self.key);
        debug!(file = %key.escape_ascii(), "the disk was looked at");
        if !matches!(resolved, Resolved::Read) {
            self.handles.with(|handles| handles.note(hash, key, resolved, checked_ms)).await;
        }
        let loaded = self.shard.with(|shard| {
            debug!(file = %key.escape_ascii(), "those who wait are answered");
            shard.loaded(hash, key, content, checked_ms);
        });
        loaded.await;
        self.is_ended = true;
    }

    /// Hands what is known already to all who wait.
    pub(crate) async fn answer(mut self, content: Content) -> Content {
        let (hash, key) = (self.hash, &self.key);
        self.shard.with(|shard| shard.answer(hash, key, &content)).await;
        self.is_ended = true;
        content
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let (hash, key) = (self.hash, self.key.clone());
        if self.is_ended {
            return;
        }
        if self.is_last_try {
            return self.shard.post(move |shard| shard.load_failed(hash, &key));
        }
        let (shard, handles, library) = (self.shard.clone(), self.handles.clone(), self.library.clone());
        let serial = self.serial;
        let again = Loading { shard, handles, library, hash, key, is_ended: false, is_last_try: true, serial };
        // In a callback, as only there it is certain that tasks can be started.
        self.shard.post(move |_| {
            let task = again.run(None, Before::Nothing, now_ms());
            drop(if serial { Color::DEFAULT.spawn(task) } else { dapple::spawn(task) });
        });
    }
}
