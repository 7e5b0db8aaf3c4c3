//! The page cache: ten shards, each with a color of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use dapple::stage::Refused;
use dapple::sync::oneshot;

use super::clock::FRESH_MS;
use super::disk::FileHandle;
use super::meta::{Meta, Stamp, State};
use super::variants::Variants;
use crate::lru::Lru;

/// A file in memory, ready to be sent; or a generated page, such as the list of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// The state of the file with this content; `None` for a generated page.
    pub(crate) state: Option<State>,
    pub(crate) meta: Meta,
    pub(crate) body: Bytes,
    /// The encoded variants of the content.
    pub(crate) variants: Variants,
    /// How often a shard has it: once or never, and twice while it replaces itself.
    cached: AtomicU32,
}

impl Page {
    pub(crate) fn new(state: Option<State>, meta: Meta, body: Bytes) -> Page {
        Page { state, meta, body, variants: Variants::default(), cached: AtomicU32::new(0) }
    }

    /// Whether its shard has it.
    pub(crate) fn is_cached(&self) -> bool {
        // Relaxed: the shard may drop it at any time.
        self.cached.load(Ordering::Relaxed) > 0
    }

    /// Whether this certainly is the content of a file in the state `stamp`.
    pub(crate) fn is(&self, stamp: Stamp) -> bool {
        self.state.is_some_and(|state| state.certain && state.stamp == stamp)
    }
}

/// One tenth of the page cache.
pub(crate) struct Shard {
    pages: Lru<Cached>,
    /// The look-ups in progress, each with the requests that wait for it, so that no file is read
    /// twice at a time.
    loads: Vec<Load>,
    /// The generation of the rules for pages; pages of older rules are not kept.
    generation: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

struct Cached {
    page: Arc<Page>,
    checked_ms: u64,
}

impl Cached {
    fn new(page: Arc<Page>, checked_ms: u64) -> Cached {
        page.cached.fetch_add(1, Ordering::Relaxed);
        Cached { page, checked_ms }
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.page.cached.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Load {
    hash: u64,
    key: Box<[u8]>,
    waiters: Vec<oneshot::Sender<Content>>,
}

/// A shard's result for a path.
pub(crate) enum Found {
    /// A page that may be sent as it is, and when it was last compared with the file.
    Fresh(Arc<Page>, u64),
    /// A page to compare with the file first. Until that is done others get this page, so that only
    /// one request reads the file.
    Stale(Arc<Page>),
    /// No page yet; a look-up is in progress. The receiver fails if the look-up does.
    Loading(oneshot::Receiver<Content>),
    /// Nothing. The caller has to look it up, and then call [`Shard::loaded`], [`Shard::answer`] or
    /// [`Shard::load_failed`].
    Missing,
}

/// The result of looking up a path.
#[derive(Clone)]
pub(crate) enum Content {
    /// A page in memory.
    Page(Arc<Page>),
    /// A file to stream.
    File(Arc<FileHandle>),
    /// A directory, named without its slash.
    Directory,
    /// Nothing that can be served.
    Nothing,
    /// A file that keeps changing, so that it could not be read in one state.
    Unsteady,
    /// The disk was not asked, because it has more work than it could do in time.
    Busy(Arc<Refused>),
}

/// How a request that the caches cannot answer gets its answer.
pub(crate) enum Joined {
    /// A look-up is in progress. The receiver fails if the look-up does.
    Wait(oneshot::Receiver<Content>),
    /// The caller has to look it up, as with [`Found::Missing`].
    Yours,
}

impl Shard {
    /// Creates an empty shard for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Shard {
        Shard { pages: Lru::new(bytes_max), loads: Vec::new(), generation: 0, hits: 0, misses: 0 }
    }

    /// Looks up the page of `key`; the caller made the hash, in its own color.
    pub(crate) fn look_up(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Found {
        match self.pages.get(hash, key) {
            Some(cached) if now_ms.saturating_sub(cached.checked_ms) < FRESH_MS => {
                self.hits += 1;
                Found::Fresh(cached.page.clone(), cached.checked_ms)
            }
            Some(cached) => {
                self.hits += 1;
                cached.checked_ms = now_ms;
                Found::Stale(cached.page.clone())
            }
            None => {
                self.misses += 1;
                match self.join(hash, key) {
                    Joined::Wait(content) => Found::Loading(content),
                    Joined::Yours => Found::Missing,
                }
            }
        }
    }

    /// Joins the look-up of `key` in the file system, or starts one.
    pub(crate) fn join(&mut self, hash: u64, key: &[u8]) -> Joined {
        match self.loads.iter().any(|load| load.hash == hash && *load.key == *key) {
            true => Joined::Wait(self.wait(hash, key)),
            false => {
                self.loads.push(Load { hash, key: key.into(), waiters: Vec::new() });
                Joined::Yours
            }
        }
    }

    /// Waits for the look-up of `key`; fails at once if there is none.
    pub(crate) fn wait(&mut self, hash: u64, key: &[u8]) -> oneshot::Receiver<Content> {
        let (tx, rx) = oneshot::channel();
        if let Some(load) = self.loads.iter_mut().find(|load| load.hash == hash && *load.key == *key) {
            load.waiters.push(tx);
        }
        rx
    }

    /// Notes that the page of `key` matched the file at `checked_ms`.
    pub(crate) fn checked(&mut self, hash: u64, key: &[u8], checked_ms: u64) {
        if let Some(cached) = self.pages.get(hash, key) {
            cached.checked_ms = checked_ms;
        }
    }

    /// Passes the result for `key` to all waiting requests.
    pub(crate) fn answer(&mut self, hash: u64, key: &[u8], content: &Content) {
        for waiter in self.end_load(hash, key) {
            // A request that went away meanwhile does not need it.
            let _ = waiter.send(content.clone());
        }
    }

    /// Takes the file system's result for `key` at `checked_ms`, and passes it to all waiting
    /// requests. Keeps a page, replacing the previous one.
    pub(crate) fn loaded(&mut self, hash: u64, key: &[u8], content: Content, checked_ms: u64) {
        self.answer(hash, key, &content);
        match content {
            Content::Page(page) if page.meta.generation < self.generation => {}
            Content::Page(page) => {
                let weight = page.body.len() as u64 + key.len() as u64 + PAGE_OVERHEAD;
                self.pages.insert(hash, key, Cached::new(page, checked_ms), weight);
            }
            // The previous page is gone.
            Content::File(_) | Content::Directory | Content::Nothing => self.pages.forget(hash, key),
            Content::Unsteady | Content::Busy(_) => {}
        }
    }

    /// Notes that `page` holds more bytes now, if it still is the page of `key`.
    pub(crate) fn grew(&mut self, hash: u64, key: &[u8], page: &Arc<Page>, by: u64) {
        if self.pages.get(hash, key).is_some_and(|cached| Arc::ptr_eq(&cached.page, page)) {
            self.pages.add_weight(hash, by);
        }
    }

    /// Forgets all pages, because the rules for pages have changed.
    pub(crate) fn begin_again(&mut self, generation: u64) {
        self.pages.clear();
        self.generation = generation;
    }

    /// Changes the size limit, and evicts until the content fits.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.pages.set_weight_max(bytes_max);
    }

    /// Abandons a look-up; all waiting requests learn of it.
    pub(crate) fn load_failed(&mut self, hash: u64, key: &[u8]) {
        drop(self.end_load(hash, key));
    }

    /// The bytes held, including the overhead of each page.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// The number of pages held.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The number of pages evicted.
    pub(crate) fn evictions(&self) -> u64 {
        self.pages.evictions()
    }

    fn end_load(&mut self, hash: u64, key: &[u8]) -> Vec<oneshot::Sender<Content>> {
        let at = self.loads.iter().position(|load| load.hash == hash && *load.key == *key);
        at.map(|at| self.loads.swap_remove(at).waiters).unwrap_or_default()
    }
}

/// The shard of a path, from the upper half of its hash: the maps inside use the lower bits.
pub(crate) fn shard_of(hash: u64) -> usize {
    (((hash >> 32) * SHARDS as u64) >> 32) as usize
}

/// As many as in the papers' server.
pub(crate) const SHARDS: usize = 10;

/// The approximate overhead of a page apart from its content: header values, the slot, the map.
const PAGE_OVERHEAD: u64 = 512;
