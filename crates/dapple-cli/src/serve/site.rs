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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use dapple::{Color, Colored, Handle};
use tracing::warn;

use super::clock::now_ms;
use super::counters::Counters;
use super::disk::{FileHandle, Resolved, Root, file_name};
use super::handles::{Handles, Known};
use super::labels::Labels;
use super::listing;
use super::pages::{Content, Found, Joined, Page, SHARDS, Shard, shard_of};
use super::path::is_directory;
use super::rules::Rules;
use crate::http::Limits;

/// Everything that the connections share.
pub(crate) struct Site {
    pub(crate) library: Arc<Library>,
    /// Keyed afresh for every process, so that nobody can aim at one shard or one slot.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard>>,
    pub(crate) handles: Colored<Handles>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) handle: Handle,
    pub(crate) started: Instant,
    /// Whether everything has the default color (`--serial`).
    pub(crate) serial: bool,
    /// Whether `/-/status` answers.
    pub(crate) status: bool,
    /// Whether hidden files are served.
    pub(crate) hidden: bool,
    /// Pages being compressed.
    pub(crate) compressing: Arc<AtomicUsize>,
    /// What one connection may cost.
    pub(crate) limits: Arc<Limits>,
    /// There are more clients than descriptors: connections end with their next response.
    crowded: AtomicBool,
}

/// How a file becomes a page: what every look at the file system needs.
pub(crate) struct Library {
    root: Root,
    pub(crate) labels: Labels,
    /// Whether directories without an index are listed.
    list: bool,
    /// Whether hidden files are listed.
    hidden: bool,
    /// Files larger than this are streamed and not cached, in bytes.
    page_len_max: u64,
}

/// How a site is served.
pub(crate) struct SiteOptions {
    pub(crate) cache_bytes: u64,
    /// Open files that the file-handle cache may keep.
    pub(crate) files_max: u64,
    pub(crate) serial: bool,
    pub(crate) status: bool,
    /// Whether directories without an index are listed.
    pub(crate) list: bool,
    /// Whether hidden files are served.
    pub(crate) hidden: bool,
    /// Whether content is sent compressed to clients that take it.
    pub(crate) compress: bool,
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
}

impl Site {
    pub(crate) fn new(root: Root, options: SiteOptions, handle: Handle) -> Site {
        let shard_bytes = options.cache_bytes / SHARDS as u64;
        let library = Library {
            root,
            labels: Labels { rules: options.rules, negotiates: options.compress },
            list: options.list,
            hidden: options.hidden,
            page_len_max: shard_bytes / 2,
        };
        Site {
            library: Arc::new(library),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes), options.serial)).collect(),
            handles: colored(Handles::new(options.files_max), options.serial),
            counters: Arc::new(Counters::new(handle.clone())),
            handle,
            started: Instant::now(),
            serial: options.serial,
            status: options.status,
            limits: Arc::new(options.limits),
            hidden: options.hidden,
            compressing: Arc::default(),
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

    /// The hash of a key. It costs more than a look-up, so that it is made in the color of the connection (section 5.1.1).
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Finds what `key` names.
    ///
    /// # Errors
    ///
    /// Where the disk, or the supply of file descriptors, fails.
    pub(crate) async fn find(&self, key: &[u8]) -> io::Result<Content> {
        let hash = self.hash(key);
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
            Known::Fresh(Resolved::Listed, checked_ms) => {
                if let Some(page) = cached.as_ref().filter(|page| page.state.is_none()) {
                    shard.with(|shard| shard.checked(hash, key, checked_ms)).await;
                    return Ok(Content::Page(page.clone()));
                }
                None
            }
            Known::Fresh(Resolved::File(file), checked_ms) => {
                if let Some(page) = cached.as_ref().filter(|page| page.is(file.state.stamp)) {
                    shard.with(|shard| shard.checked(hash, key, checked_ms)).await;
                    return Ok(Content::Page(page.clone()));
                }
                // Nobody is promised what is known to be gone: such a reply would end in the middle.
                if file.state.stamp.len > self.library.page_len_max && file.is_as_known() {
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
        let (shard, handles, library) = (shard.clone(), self.handles.clone(), self.library.clone());
        Loading { shard, handles, library, hash, key: key.into(), is_ended: false }
    }
}

impl Library {
    /// Looks at the file system. What the caches had and is still right is used again.
    async fn look(
        &self,
        key: &[u8],
        cached: Option<Arc<Page>>,
        known: Option<Arc<FileHandle>>,
    ) -> io::Result<(Resolved, Content)> {
        let resolved = self.root.resolve(key, known).await?;
        let content = match &resolved {
            Resolved::Directory => Content::Directory,
            Resolved::File(file) => self.content_of(key, file, cached).await?,
            Resolved::Nothing | Resolved::Listed => match self.listing(key).await? {
                Some(page) => return Ok((Resolved::Listed, Content::Page(page))),
                None => Content::Nothing,
            },
        };
        Ok((resolved, content))
    }

    /// The content of a file: in memory, or the file itself where it is too long for that.
    async fn content_of(&self, key: &[u8], file: &Arc<FileHandle>, cached: Option<Arc<Page>>) -> io::Result<Content> {
        if let Some(page) = cached.filter(|page| page.is(file.state.stamp)) {
            return Ok(Content::Page(page));
        }
        if file.state.stamp.len > self.page_len_max {
            file.meta(|| self.labels.plain(key, &file_name(key), &file.state));
            return Ok(Content::File(file.clone()));
        }
        Ok(match file.read_all().await? {
            Some((state, body)) => {
                let meta = self.labels.plain(key, &file_name(key), &state);
                Content::Page(Arc::new(Page::new(Some(state), meta, body)))
            }
            None => Content::Unsteady,
        })
    }

    /// The list of a directory, where lists are shown and there is one.
    async fn listing(&self, key: &[u8]) -> io::Result<Option<Arc<Page>>> {
        if !self.list || !is_directory(key) {
            return Ok(None);
        }
        let Some(directory) = self.root.open_directory(key).await? else {
            return Ok(None);
        };
        let list = listing::List { key: key.to_vec(), hidden: self.hidden, follow: self.root.follows() };
        let page = listing::page(list, self.root.dir().clone(), directory).await?;
        let meta = self.labels.made(key, "text/html; charset=utf-8", &listing::tag(&page));
        Ok(Some(Arc::new(Page::new(None, meta, page.into()))))
    }
}

/// A look at the file system in progress, for all who ask for one path. However it ends, the shard learns of it, so that
/// nobody waits for ever.
struct Loading {
    shard: Colored<Shard>,
    handles: Colored<Handles>,
    library: Arc<Library>,
    hash: u64,
    key: Arc<[u8]>,
    is_ended: bool,
}

impl Loading {
    /// `cached` and `known` are what the caches had; what is still right of these is used again.
    async fn run(mut self, cached: Option<Arc<Page>>, known: Option<Arc<FileHandle>>, checked_ms: u64) {
        match self.library.look(&self.key, cached, known).await {
            Ok((resolved, content)) => {
                let (hash, key) = (self.hash, &self.key);
                self.handles.with(|handles| handles.note(hash, key, resolved, checked_ms)).await;
                self.shard.with(|shard| shard.loaded(hash, key, content, checked_ms)).await;
                self.is_ended = true;
            }
            Err(error) => warn!(%error, path = %self.key.escape_ascii(), "a file could not be read"),
        }
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
