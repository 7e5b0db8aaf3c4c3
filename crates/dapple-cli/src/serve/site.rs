//! The site: from a path to what is there, through the two caches.
//!
//! The structure is that of the papers' web server (libasync-mp thesis, section 5.1):
//!
//! ```text
//!   accept            the default color
//!   read, parse, hash the connection's color
//!   page cache        ten shards, a color each
//!   file handles      one color
//!   look, read        the blocking pool
//!   write             the connection's color
//! ```
//!
//! With `--serial` all of these are the default color; nothing else changes.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use dapple::blocking::spawn_blocking;
use dapple::{Color, Colored, Handle};
use tracing::warn;

use super::clock::now_ms;
use super::counters::Counters;
use super::disk::{FileHandle, Resolved, Root};
use super::handles::{Handles, Known};
use super::pages::{Found, Page, Reading, SHARDS, Shard, shard_of};
use super::path::SitePath;

/// Everything that the connections share.
pub(crate) struct Site {
    root: Arc<Root>,
    /// Keyed afresh for every process, so that nobody can aim at one shard or one slot.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard>>,
    pub(crate) handles: Colored<Handles>,
    /// Files larger than this are streamed and not cached, in bytes.
    page_len_max: u64,
    pub(crate) counters: Arc<Counters>,
    pub(crate) handle: Handle,
    pub(crate) started: Instant,
    /// Whether everything has the default color (`--serial`).
    pub(crate) serial: bool,
    /// Whether `/-/status` answers.
    pub(crate) status: bool,
    closing: AtomicBool,
}

/// How a site is served.
pub(crate) struct SiteOptions {
    pub(crate) cache_bytes: u64,
    pub(crate) serial: bool,
    pub(crate) status: bool,
}

/// What a path turned out to be.
pub(crate) enum Content {
    /// A page in memory.
    Page(Arc<Page>),
    /// A file to be streamed.
    File(Arc<FileHandle>),
    /// A directory named without its slash.
    Directory,
    /// Nothing that is served.
    Nothing,
}

impl Site {
    pub(crate) fn new(root: Root, options: &SiteOptions, handle: Handle) -> Site {
        let shard_bytes = options.cache_bytes / SHARDS as u64;
        Site {
            root: Arc::new(root),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes), options.serial)).collect(),
            handles: colored(Handles::new(), options.serial),
            page_len_max: shard_bytes / 2,
            counters: Arc::new(Counters::new(handle.clone())),
            handle,
            started: Instant::now(),
            serial: options.serial,
            status: options.status,
            closing: AtomicBool::new(false),
        }
    }

    /// Notes that the runtime is about to announce that it closes.
    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Whether it is worth asking the runtime: that costs a lock, which no request is to wait for. `Release` and
    /// `Acquire` pair the two, and the announcement wakes whoever looked too early.
    pub(crate) fn may_be_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Finds what `path` names.
    ///
    /// # Errors
    ///
    /// Where the disk, or the supply of file descriptors, fails.
    pub(crate) async fn find(&self, path: &SitePath<'_>) -> io::Result<Content> {
        let key = path.key();
        // Hashing costs more than the look-up, so it happens here, in the connection's color (section 5.1.1).
        let hash = self.hasher.hash_one(key);
        let now_ms = now_ms();
        let shard = &self.shards[shard_of(hash)];
        let cached = match shard.with(|shard| shard.look_up(hash, key, now_ms)).await {
            Found::Fresh(page) => return Ok(Content::Page(page)),
            Found::Stale(page) => Some(page),
            Found::Missing => None,
        };
        let (resolved, checked_ms) = self.resolve(hash, key, now_ms).await?;
        let file = match resolved {
            Resolved::Directory => return Ok(Content::Directory),
            Resolved::Nothing => return Ok(Content::Nothing),
            Resolved::File(file) => file,
        };
        if let Some(page) = cached.filter(|page| page.is(file.meta.stamp)) {
            shard.with(|shard| shard.checked(hash, key, checked_ms)).await;
            return Ok(Content::Page(page));
        }
        if file.meta.stamp.len > self.page_len_max {
            return Ok(Content::File(file));
        }
        self.read(shard, hash, key, file, checked_ms).await.map(Content::Page)
    }

    /// What the file-handle cache says, after a look at the file system if it has to make one.
    async fn resolve(&self, hash: u64, key: &[u8], now_ms: u64) -> io::Result<(Resolved, u64)> {
        let known = match self.handles.with(|handles| handles.look_up(hash, key, now_ms)).await {
            Known::Fresh(resolved, checked_ms) => return Ok((resolved, checked_ms)),
            Known::Stale(known) => known,
        };
        let (root, name) = (self.root.clone(), key.to_vec());
        let resolved = in_pool(move || root.resolve(&name, known)).await?;
        let noted = resolved.clone();
        self.handles.with(|handles| handles.note(hash, key, noted, now_ms)).await;
        Ok((resolved, now_ms))
    }

    /// Reads a file into the cache; of all who ask at the same time, one does.
    async fn read(
        &self,
        shard: &Colored<Shard>,
        hash: u64,
        key: &[u8],
        file: Arc<FileHandle>,
        checked_ms: u64,
    ) -> io::Result<Arc<Page>> {
        let stamp = file.meta.stamp;
        let page = match shard.with(|shard| shard.read(hash, key, stamp)).await {
            Reading::Done(page) => return Ok(page),
            Reading::Wait(page) => page,
            Reading::Yours(page) => {
                // A task of its own: the others wait for it also when this connection goes away.
                let load = Loading { shard: shard.clone(), hash, key: key.into(), ended: false };
                let _ = dapple::spawn(load.run(file, checked_ms));
                page
            }
        };
        page.await.map_err(|_| io::Error::other("the file could not be read"))
    }
}

/// A read in progress. However it ends, the shard learns of it, so that nobody waits for ever.
struct Loading {
    shard: Colored<Shard>,
    hash: u64,
    key: Box<[u8]>,
    ended: bool,
}

impl Loading {
    async fn run(mut self, file: Arc<FileHandle>, checked_ms: u64) {
        match in_pool(move || file.read_all()).await {
            Ok((body, meta)) => {
                let page = Arc::new(Page { meta, body: Bytes::from(body) });
                self.shard.with(|shard| shard.loaded(self.hash, &self.key, page, checked_ms)).await;
                self.ended = true;
            }
            Err(error) => {
                warn!(%error, path = %self.key.escape_ascii(), "a file could not be read")
            }
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.ended {
            let (hash, key) = (self.hash, std::mem::take(&mut self.key));
            self.shard.post(move |shard| shard.load_failed(hash, &key));
        }
    }
}

/// Runs what blocks in the pool.
async fn in_pool<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// State with a color of its own, or with the default color when everything has that.
fn colored<T: Send + 'static>(state: T, serial: bool) -> Colored<T> {
    match serial {
        true => Colored::with_color(state, &Color::DEFAULT),
        false => Colored::new(state),
    }
}
