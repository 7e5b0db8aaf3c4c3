//! The page cache: ten shards, each with a color of its own.

use std::sync::Arc;

use bytes::Bytes;
use dapple::stage::Refused;
use dapple::sync::oneshot;

use super::clock::FRESH_MS;
use super::disk::FileHandle;
use super::meta::{Meta, Stamp, State};
use super::variants::Variants;
use crate::lru::Lru;

/// A file in memory, ready to be sent; or a page that was made, such as the list of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// The state of the file that this is the content of; nothing for what was made.
    pub(crate) state: Option<State>,
    pub(crate) meta: Meta,
    pub(crate) body: Bytes,
    /// The same with a coding.
    pub(crate) variants: Variants,
}

impl Page {
    pub(crate) fn new(state: Option<State>, meta: Meta, body: Bytes) -> Page {
        Page { state, meta, body, variants: Variants::default() }
    }

    /// Whether this surely is the content of a file in the state `stamp`.
    pub(crate) fn is(&self, stamp: Stamp) -> bool {
        self.state.is_some_and(|state| state.certain && state.stamp == stamp)
    }
}

/// One tenth of the page cache.
pub(crate) struct Shard {
    pages: Lru<Cached>,
    /// Paths being looked up and read, each with those who wait for it, so that no file is read twice at a time.
    loads: Vec<Load>,
    /// Of the rules by which pages are made; those by older ones are not kept.
    generation: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

struct Cached {
    page: Arc<Page>,
    checked_ms: u64,
}

struct Load {
    hash: u64,
    key: Box<[u8]>,
    waiters: Vec<oneshot::Sender<Content>>,
}

/// What a shard has for a path.
pub(crate) enum Found {
    /// A page that may be sent as it is.
    Fresh(Arc<Page>),
    /// A page to be compared with the file first. Until that is done others are served this page, so that one request
    /// makes the look and not all.
    Stale(Arc<Page>),
    /// Nothing yet; somebody sees to it. The receiver fails if that does.
    Loading(oneshot::Receiver<Content>),
    /// Nothing. The caller has to see to it, and then call [`Shard::loaded`], [`Shard::answer`] or [`Shard::load_failed`].
    Missing,
}

/// What a path turned out to be.
#[derive(Clone)]
pub(crate) enum Content {
    /// A page in memory.
    Page(Arc<Page>),
    /// A file to be streamed.
    File(Arc<FileHandle>),
    /// A directory named without its slash.
    Directory,
    /// Nothing that is served.
    Nothing,
    /// A file that somebody writes to all the time: no moment was found at which it could be read.
    Unsteady,
    /// The disk was not asked, as it has more to do than it could do in time.
    Busy(Arc<Refused>),
}

/// How a request that the caches cannot answer gets its answer.
pub(crate) enum Joined {
    /// Somebody sees to it already. The receiver fails if that does.
    Wait(oneshot::Receiver<Content>),
    /// The caller has to see to it, as with [`Found::Missing`].
    Yours,
}

impl Shard {
    /// An empty shard for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Shard {
        Shard { pages: Lru::new(bytes_max), loads: Vec::new(), generation: 0, hits: 0, misses: 0 }
    }

    /// The page of `key`; the hash was made by the caller, in the caller's color.
    pub(crate) fn look_up(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Found {
        match self.pages.get(hash, key) {
            Some(cached) if now_ms.saturating_sub(cached.checked_ms) < FRESH_MS => {
                self.hits += 1;
                Found::Fresh(cached.page.clone())
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

    /// Joins the load of `key`, which asks the file system, or starts one.
    pub(crate) fn join(&mut self, hash: u64, key: &[u8]) -> Joined {
        match self.loads.iter().any(|load| load.hash == hash && *load.key == *key) {
            true => Joined::Wait(self.wait(hash, key)),
            false => {
                self.loads.push(Load { hash, key: key.into(), waiters: Vec::new() });
                Joined::Yours
            }
        }
    }

    /// Waits for the load of `key`; fails at once where there is none.
    pub(crate) fn wait(&mut self, hash: u64, key: &[u8]) -> oneshot::Receiver<Content> {
        let (tx, rx) = oneshot::channel();
        if let Some(load) = self.loads.iter_mut().find(|load| load.hash == hash && *load.key == *key) {
            load.waiters.push(tx);
        }
        rx
    }

    /// Notes that the page of `key` was compared with the file at `checked_ms` and is right.
    pub(crate) fn checked(&mut self, hash: u64, key: &[u8], checked_ms: u64) {
        if let Some(cached) = self.pages.get(hash, key) {
            cached.checked_ms = checked_ms;
        }
    }

    /// Hands what was found for `key` to all who wait.
    pub(crate) fn answer(&mut self, hash: u64, key: &[u8], content: &Content) {
        for waiter in self.end_load(hash, key) {
            // Who went away meanwhile does not need it.
            let _ = waiter.send(content.clone());
        }
    }

    /// Takes what the file system had for `key` at `checked_ms`, and hands it to all who wait. A page is kept, in place of what there was.
    pub(crate) fn loaded(&mut self, hash: u64, key: &[u8], content: Content, checked_ms: u64) {
        self.answer(hash, key, &content);
        match content {
            Content::Page(page) if page.meta.generation < self.generation => {}
            Content::Page(page) => {
                let weight = page.body.len() as u64 + key.len() as u64 + PAGE_OVERHEAD;
                self.pages.insert(hash, key, Cached { page, checked_ms }, weight);
            }
            // What was there is there no more.
            Content::File(_) | Content::Directory | Content::Nothing => self.pages.forget(hash, key),
            Content::Unsteady | Content::Busy(_) => {}
        }
    }

    /// Notes that `page` holds more bytes now, in case it still is the page of `key`.
    pub(crate) fn grew(&mut self, hash: u64, key: &[u8], page: &Arc<Page>, by: u64) {
        if self.pages.get(hash, key).is_some_and(|cached| Arc::ptr_eq(&cached.page, page)) {
            self.pages.add_weight(hash, by);
        }
    }

    /// Forgets all pages, as there are new rules by which they are made.
    pub(crate) fn begin_again(&mut self, generation: u64) {
        self.pages.clear();
        self.generation = generation;
    }

    /// Changes how much it holds at most; what does not fit goes.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.pages.set_weight_max(bytes_max);
    }

    /// Gives up a load; all who wait learn of it.
    pub(crate) fn load_failed(&mut self, hash: u64, key: &[u8]) {
        drop(self.end_load(hash, key));
    }

    /// Bytes held, with what each page costs beside its content.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages.weight()
    }

    /// Number of pages held.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Number of pages that had to go for others.
    pub(crate) fn evictions(&self) -> u64 {
        self.pages.evictions()
    }

    fn end_load(&mut self, hash: u64, key: &[u8]) -> Vec<oneshot::Sender<Content>> {
        let at = self.loads.iter().position(|load| load.hash == hash && *load.key == *key);
        at.map(|at| self.loads.swap_remove(at).waiters).unwrap_or_default()
    }
}

/// The shard that a path belongs to, from the upper half of its hash: the maps inside use the lower bits.
pub(crate) fn shard_of(hash: u64) -> usize {
    (((hash >> 32) * SHARDS as u64) >> 32) as usize
}

/// As many as in the papers' server.
pub(crate) const SHARDS: usize = 10;

/// About what a page costs beside its content: header values, the slot, the map.
const PAGE_OVERHEAD: u64 = 512;
