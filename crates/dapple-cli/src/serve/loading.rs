//! One look-up in the file system.

use std::sync::Arc;

use dapple::{Color, Colored};
use tracing::{debug, warn};

use super::clock::now_ms;
use super::disk::{Resolved, is_shortage};
use super::handles::Handles;
use super::library::{Before, Library};
use super::pages::{Content, Page, Shard};

/// A look-up in progress, for all requests for one path. The shard always learns how it ends, so
/// that no request waits for ever. If the request that started it is dropped (an HTTP/2 client
/// cancels it), the look-up continues, because others may wait.
pub(crate) struct Loading {
    pub(crate) shard: Colored<Shard>,
    pub(crate) handles: Colored<Handles>,
    pub(crate) library: Arc<Library>,
    pub(crate) hash: u64,
    pub(crate) key: Arc<[u8]>,
    pub(crate) is_ended: bool,
    /// Whether a failure is final for all waiting requests.
    pub(crate) is_last_try: bool,
    /// Whether everything has the default color.
    pub(crate) serial: bool,
}

impl Loading {
    /// Looks the path up, waiting for the disk if needed. Reuses the `cached` page, or results
    /// known from `before`, if they are still right.
    pub(crate) async fn run(mut self, cached: Option<Arc<Page>>, before: Before, checked_ms: u64) {
        self.is_last_try = true;
        let mut looked = self.library.look(&self.key, cached.as_ref(), before).await;
        for _ in 0..SHED_MAX {
            if !looked.as_ref().is_err_and(is_shortage) {
                break;
            }
            // Close files that are not being read first, and then idle connections.
            self.handles.with(Handles::let_go).await;
            self.library.admission.shed().await;
            looked = self.library.look(&self.key, cached.as_ref(), Before::Nothing).await;
        }
        match looked {
            Ok((resolved, content)) => self.end(resolved, content, checked_ms).await,
            Err(error) => warn!(%error, path = %self.key.escape_ascii(), "cannot read a file"),
        }
    }

    /// Notes the result as of `checked_ms`, and passes it to all waiting requests.
    pub(crate) async fn end(mut self, resolved: Resolved, content: Content, checked_ms: u64) {
        let (hash, key) = (self.hash, &self.key);
        debug!(file = %key.escape_ascii(), "the disk was looked at");
        if !matches!(resolved, Resolved::Read) {
            self.handles.with(|handles| handles.note(hash, key, resolved, checked_ms)).await;
        }
        let loaded = self.shard.with(|shard| {
            debug!(file = %key.escape_ascii(), "waiting requests are answered");
            shard.loaded(hash, key, content, checked_ms);
        });
        loaded.await;
        self.is_ended = true;
    }

    /// Passes an existing result to all waiting requests.
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
        // In a callback, because only there tasks can certainly be started.
        self.shard.post(move |_| {
            let task = again.run(None, Before::Nothing, now_ms());
            drop(if serial { Color::DEFAULT.spawn(task) } else { dapple::spawn(task) });
        });
    }
}

/// How often connections are asked to free descriptors for one file, some 20 ms apart.
const SHED_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use arc_swap::ArcSwap;
    use dapple::Colored;

    use super::Loading;
    use crate::serve::disk::Root;
    use crate::serve::handles::Handles;
    use crate::serve::labels::Labels;
    use crate::serve::library::Library;
    use crate::serve::pages::{Content, Found, Joined, Shard};
    use crate::serve::rules::Rules;
    use crate::server::{Admission, PerAddress};

    fn library(dir: &Path) -> Arc<Library> {
        let labels = Labels { rules: ArcSwap::from_pointee(Rules::default()), negotiates: AtomicBool::new(false) };
        let root = Root::open(dir, false).unwrap();
        let admission = Arc::new(Admission::new(1, PerAddress::Unlimited));
        let list = AtomicBool::new(false);
        Arc::new(Library { root, labels, list, hidden: false, page_len_max: 1 << 20, admission })
    }

    /// Looks up a file for a caller that leaves while another request waits; returns the result of
    /// the latter.
    async fn given_up(name: &str) -> Option<Content> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("page"), "content").unwrap();
        let (shard, handles) = (Colored::new(Shard::new(1 << 20)), Colored::new(Handles::new(10)));
        let key: Arc<[u8]> = name.as_bytes().into();
        assert!(matches!(shard.with(|shard| shard.join(7, &key)).await, Joined::Yours));
        let loading = Loading {
            shard: shard.clone(),
            handles,
            library: library(dir.path()),
            hash: 7,
            key: key.clone(),
            is_ended: false,
            is_last_try: false,
            serial: false,
        };
        let Joined::Wait(waiting) = shard.with(|shard| shard.join(7, &key)).await else { panic!("nobody looks") };
        drop(loading);
        let content = waiting.await.ok();
        // No trace is left that a later request would wait for.
        let again = shard.with(|shard| shard.look_up(7, &key, u64::MAX)).await;
        assert!(!matches!(again, Found::Loading(_)));
        content
    }

    #[dapple::test]
    async fn a_waiting_request_gets_the_result_of_an_abandoned_one() {
        let content = given_up("page").await;
        assert!(matches!(content, Some(Content::Page(page)) if page.body == "content"));
    }

    #[dapple::test]
    async fn a_waiting_request_also_learns_that_there_is_no_file() {
        assert!(matches!(given_up("other").await, Some(Content::Nothing)));
    }
}
