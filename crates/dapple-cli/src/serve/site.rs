//! The site: from a path to what is there, through the two caches.
//!
//! The structure is that of the papers' web server (libasync-mp thesis, section 5.1):
//!
//! ```text
//!   accept            the default color
//!   read, parse, hash the connection's color
//!   page cache        ten shards, a color each
//!   file handles      one color
//!   look, read        a color for each path that is looked at, once at a time;
//!                     the disk through io_uring, or the blocking pool
//!   write             the connection's color
//! ```
//!
//! With `--serial` all of these are the default color; nothing else changes.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dapple::{Color, Colored, Handle};
use tracing::warn;

use super::clock::now_ms;
use super::counters::Counters;
use super::disk::{FileHandle, Resolved, Root};
use super::handles::{Handles, Known};
use super::pages::{Content, Found, Joined, Page, SHARDS, Shard, shard_of};
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
    /// There are more clients than descriptors: connections end with their next response.
    crowded: AtomicBool,
}

/// How a site is served.
pub(crate) struct SiteOptions {
    pub(crate) cache_bytes: u64,
    /// Open files that the file-handle cache may keep.
    pub(crate) files_max: u64,
    pub(crate) serial: bool,
    pub(crate) status: bool,
}

impl Site {
    pub(crate) fn new(root: Root, options: &SiteOptions, handle: Handle) -> Site {
        let shard_bytes = options.cache_bytes / SHARDS as u64;
        Site {
            root: Arc::new(root),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes), options.serial)).collect(),
            handles: colored(Handles::new(options.files_max), options.serial),
            page_len_max: shard_bytes / 2,
            counters: Arc::new(Counters::new(handle.clone())),
            handle,
            started: Instant::now(),
            serial: options.serial,
            status: options.status,
            crowded: AtomicBool::new(false),
        }
    }

    /// Whether there are more clients than descriptors.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    pub(crate) fn set_crowded(&self, is_crowded: bool) {
        self.crowded.store(is_crowded, Ordering::Relaxed);
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
        let known = match self.handles.with(|handles| handles.look_up(hash, key, now_ms)).await {
            Known::Fresh(Resolved::Directory, _) => return Ok(Content::Directory),
            Known::Fresh(Resolved::Nothing, _) => return Ok(Content::Nothing),
            Known::Fresh(Resolved::File(file), checked_ms) => {
                if let Some(page) = cached.as_ref().filter(|page| page.is(file.meta.stamp)) {
                    shard.with(|shard| shard.checked(hash, key, checked_ms)).await;
                    return Ok(Content::Page(page.clone()));
                }
                if file.meta.stamp.len > self.page_len_max {
                    return Ok(Content::File(file));
                }
                Some(file)
            }
            Known::Stale(known) => known,
        };
        let content = match shard.with(|shard| shard.join(hash, key)).await {
            Joined::Wait(content) => content,
            Joined::Yours(content) => {
                // A task of its own: the others wait for it also when this connection goes away.
                self.spawn(self.loading(shard, hash, key).run(cached, known, now_ms));
                content
            }
        };
        content.await.map_err(|_| io::Error::other("the file could not be read"))
    }

    /// Starts a task with a color of its own; with `--serial`, one of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match self.serial {
            true => Color::DEFAULT.spawn(task),
            false => dapple::spawn(task),
        });
    }

    fn loading(&self, shard: &Colored<Shard>, hash: u64, key: &[u8]) -> Loading {
        let (shard, handles, root) = (shard.clone(), self.handles.clone(), self.root.clone());
        Loading { shard, handles, root, page_len_max: self.page_len_max, hash, key: key.into(), is_ended: false }
    }
}

/// A look at the file system in progress, for all who ask for one path. However it ends, the shard learns of it, so that
/// nobody waits for ever.
struct Loading {
    shard: Colored<Shard>,
    handles: Colored<Handles>,
    root: Arc<Root>,
    page_len_max: u64,
    hash: u64,
    key: Arc<[u8]>,
    is_ended: bool,
}

impl Loading {
    /// `cached` and `known` are what the caches had; what is still right of these is used again.
    async fn run(mut self, cached: Option<Arc<Page>>, known: Option<Arc<FileHandle>>, checked_ms: u64) {
        match self.look(cached, known).await {
            Ok((resolved, content)) => {
                let (hash, key) = (self.hash, &self.key);
                self.handles.with(|handles| handles.note(hash, key, resolved, checked_ms)).await;
                self.shard.with(|shard| shard.loaded(hash, key, content, checked_ms)).await;
                self.is_ended = true;
            }
            Err(error) => warn!(%error, path = %self.key.escape_ascii(), "a file could not be read"),
        }
    }

    async fn look(&self, cached: Option<Arc<Page>>, known: Option<Arc<FileHandle>>) -> io::Result<(Resolved, Content)> {
        let resolved = self.root.resolve(&self.key, known).await?;
        let content = match &resolved {
            Resolved::Directory => Content::Directory,
            Resolved::Nothing => Content::Nothing,
            Resolved::File(file) => match cached.filter(|page| page.is(file.meta.stamp)) {
                Some(page) => Content::Page(page),
                None if file.meta.stamp.len > self.page_len_max => Content::File(file.clone()),
                None => Content::Page(Arc::new(file.read_all().await?)),
            },
        };
        Ok((resolved, content))
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.is_ended {
            let (hash, key) = (self.hash, self.key.clone());
            self.shard.post(move |shard| shard.load_failed(hash, &key));
        }
    }
}

/// State with a color of its own, or with the default color when everything has that.
fn colored<T: Send + 'static>(state: T, serial: bool) -> Colored<T> {
    match serial {
        true => Colored::with_color(state, &Color::DEFAULT),
        false => Colored::new(state),
    }
}
