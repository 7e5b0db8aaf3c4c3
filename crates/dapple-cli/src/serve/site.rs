//! The site: finds the content of a path through the two caches.
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
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use dapple::{Color, Colored, Handle};
use tracing::{Instrument, debug};

use super::clock::now_ms;
use super::counters::Counters;
use super::disk::{Resolved, Root};
use super::handles::{Handles, Known};
use super::hot::Hot;
use super::labels::Labels;
use super::library::{Before, Glance, Library};
use super::loading::Loading;
use super::looks::{self, Looks};
use super::memory::Memory;
use super::pages::{Content, Found, Joined, Page, SHARDS, Shard, shard_of};
use super::rules::Rules;
use crate::http::Limits;
use crate::observe::Observing;
use crate::server::Admission;

/// The state that all connections share.
pub(crate) struct Site {
    pub(crate) library: Arc<Library>,
    /// With a new key in every process, so that clients cannot aim at one shard or one slot.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard>>,
    pub(crate) handles: Colored<Handles>,
    pub(crate) hot: Hot,
    pub(crate) counters: Arc<Counters>,
    /// Decides which clients may connect.
    pub(crate) admission: Arc<Admission>,
    /// Decides which requests may wait for the disk; `None` if all may.
    pub(crate) looks: Option<Arc<Looks>>,
    pub(crate) memory: Memory,
    /// The bytes that the page cache may hold if memory is not short.
    pub(crate) cache_bytes: u64,
    pub(crate) handle: Handle,
    pub(crate) started: Instant,
    /// Whether everything has the default color (`--serial`).
    pub(crate) serial: bool,
    /// Whether `/-/status` answers.
    pub(crate) status: bool,
    /// Whether hidden files are served.
    pub(crate) hidden: bool,
    /// The number of pages being compressed.
    pub(crate) compressing: Arc<AtomicUsize>,
    /// The limits of one connection.
    limits: ArcSwap<Limits>,
    /// The sinks of reports about requests.
    pub(crate) observing: Observing,
    /// Whether there are more clients than descriptors, so that connections end with their next
    /// response.
    crowded: AtomicBool,
}

/// The settings of a site.
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
    pub(crate) observing: Observing,
    pub(crate) admission: Arc<Admission>,
    pub(crate) looks: Option<Looks>,
}

impl Site {
    pub(crate) fn new(root: Root, options: SiteOptions, handle: Handle) -> Site {
        let shard_bytes = options.cache_bytes / SHARDS as u64;
        let library = Library {
            root,
            labels: Labels {
                rules: ArcSwap::from_pointee(options.rules),
                negotiates: AtomicBool::new(options.compress),
            },
            list: AtomicBool::new(options.list),
            hidden: options.hidden,
            page_len_max: shard_bytes / 2,
            admission: options.admission.clone(),
        };
        Site {
            library: Arc::new(library),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes), options.serial)).collect(),
            handles: colored(Handles::new(options.files_max), options.serial),
            hot: Hot::new(if options.serial { 1 } else { handle.workers() }),
            counters: Arc::new(Counters::new(handle.clone())),
            admission: options.admission,
            looks: options.looks.map(Arc::new),
            memory: Memory::default(),
            cache_bytes: options.cache_bytes,
            handle,
            started: Instant::now(),
            serial: options.serial,
            status: options.status,
            limits: ArcSwap::from_pointee(options.limits),
            hidden: options.hidden,
            compressing: Arc::default(),
            observing: options.observing,
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

    /// The limits of a new connection.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.load_full()
    }

    /// Replaces the settings that can change at any time; [`set_rules`](Site::set_rules) then drops
    /// the pages made by the old ones.
    pub(crate) fn set_options(&self, limits: Limits, list: bool, compress: bool) {
        self.limits.store(Arc::new(limits));
        self.library.list.store(list, Ordering::Relaxed);
        self.library.labels.negotiates.store(compress, Ordering::Release);
    }

    /// Replaces the rules. When it returns, the pages made by the old settings are dropped. Only a
    /// disk look-up that began earlier may still pass its page to waiting requests, and that page
    /// is not kept.
    pub(crate) async fn set_rules(&self, mut rules: Rules) {
        let generation = self.library.labels.rules.load().generation + 1;
        rules.generation = generation;
        self.library.labels.rules.store(Arc::new(rules));
        self.hot.begin_again(generation);
        self.handles.with(move |handles| handles.begin_again(generation)).await;
        for shard in &self.shards {
            shard.with(move |shard| shard.begin_again(generation)).await;
        }
    }

    /// The hash of a key. It costs more than a look-up, so the connection makes it in its own color
    /// (section 5.1.1).
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Finds the content of `key` for a client.
    ///
    /// # Errors
    ///
    /// The disk, or the supply of file descriptors, fails.
    pub(crate) async fn find(&self, key: &[u8], client: IpAddr) -> io::Result<Content> {
        let hash = self.hash(key);
        let now_ms = now_ms();
        if let Some(page) = self.hot.find(self.counters.worker_index(), hash, key, now_ms) {
            return Ok(Content::Page(page));
        }
        let shard = &self.shards[shard_of(hash)];
        let at_once = shard.try_with(|shard| shard.look_up(hash, key, now_ms));
        let waited = at_once.is_err();
        let found = match at_once {
            Ok(found) => found,
            Err(_) => shard.with(|shard| shard.look_up(hash, key, now_ms)).await,
        };
        match found {
            Found::Fresh(page, checked_ms) => {
                if waited {
                    self.hot.keep(self.counters.worker_index(), hash, key, &page, checked_ms);
                }
                Ok(Content::Page(page))
            }
            // Both boxed: an idle connection should not reserve room for rare steps.
            Found::Stale(page) => Box::pin(self.renew(hash, key, page, now_ms, client)).await,
            Found::Loading(content) => content.await.map_err(|_| failed()),
            Found::Missing => Box::pin(self.load(self.loading(hash, key), now_ms, client)).await,
        }
    }

    /// Checks that a page still matches its name. Until then others get it as it is.
    async fn renew(&self, hash: u64, key: &[u8], page: Arc<Page>, now_ms: u64, client: IpAddr) -> io::Result<Content> {
        let shard = &self.shards[shard_of(hash)];
        match self.handles.with(|handles| handles.look_up(hash, key, now_ms)).await {
            Known::Fresh(Resolved::Listed, checked_ms) if page.state.is_none() => {
                shard.with(|shard| shard.checked(hash, key, checked_ms)).await;
                return Ok(Content::Page(page));
            }
            Known::Fresh(..) | Known::Stale(_) => {}
        }
        let (resolved, content) = match self.library.look_at_once(key, Some(&page)) {
            Glance::All(resolved, content) => (resolved, content),
            Glance::Begun(before) => {
                return match shard.with(|shard| shard.join(hash, key)).await {
                    Joined::Wait(content) => content.await.map_err(|_| failed()),
                    Joined::Yours => {
                        let loading = self.loading(hash, key);
                        self.load_elsewhere(loading, Some(page), before, now_ms, client).await
                    }
                };
            }
        };
        match &content {
            Content::Page(same) if Arc::ptr_eq(same, &page) => {}
            _ => {
                let mut loading = self.loading(hash, key);
                // The look-up was not announced, so no request waits for it.
                loading.is_ended = true;
                loading.end(resolved, content.clone(), now_ms).await;
            }
        }
        Ok(content)
    }

    /// Loads content that is not in memory.
    async fn load(&self, loading: Loading, now_ms: u64, client: IpAddr) -> io::Result<Content> {
        let (hash, key) = (loading.hash, loading.key.clone());
        let known = match self.handles.with(|handles| handles.look_up(hash, &key, now_ms)).await {
            Known::Fresh(Resolved::Directory, _) => return Ok(loading.answer(Content::Directory).await),
            Known::Fresh(Resolved::Nothing, _) => return Ok(loading.answer(Content::Nothing).await),
            Known::Fresh(Resolved::File(file), _) => {
                // Check first that the file is unchanged; otherwise the reply would be truncated.
                if file.state.stamp.len > self.library.page_len_max && file.is_as_known() {
                    return Ok(loading.answer(Content::File(file)).await);
                }
                None
            }
            Known::Fresh(Resolved::Read | Resolved::Listed, _) => None,
            Known::Stale(known) => known,
        };
        let before = match known
            .map_or_else(|| self.library.look_at_once(&key, None), |known| Glance::Begun(Before::Known(known)))
        {
            Glance::All(resolved, content) => {
                loading.end(resolved, content.clone(), now_ms).await;
                return Ok(content);
            }
            Glance::Begun(before) => before,
        };
        self.load_elsewhere(loading, None, before, now_ms, client).await
    }

    /// Loads content in a separate task, because it takes a while: others wait for it even if this
    /// connection ends. If the disk cannot answer in time, no request waits: all get the `cached`
    /// page, if there is one.
    async fn load_elsewhere(
        &self,
        loading: Loading,
        cached: Option<Arc<Page>>,
        before: Before,
        now_ms: u64,
        client: IpAddr,
    ) -> io::Result<Content> {
        let place = match &self.looks {
            Some(looks) => match looks.offer(client) {
                Ok(place) => Some((looks.clone(), place)),
                Err(refused) => {
                    debug!(%refused, "the disk is not asked");
                    return Ok(looks::refuse(looks, loading, cached, refused).await);
                }
            },
            None => None,
        };
        let (hash, key) = (loading.hash, loading.key.clone());
        let content = loading.shard.with(|shard| shard.wait(hash, &key)).await;
        let look = async move {
            match place {
                Some((looks, place)) => looks::run(&looks, place, loading, cached, before, now_ms).await,
                None => loading.run(cached, before, now_ms).await,
            }
        };
        self.spawn(look.in_current_span());
        content.await.map_err(|_| failed())
    }

    /// Starts a task with a color of its own; with `--serial`, of the default color.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(match self.serial {
            true => Color::DEFAULT.spawn(task),
            false => dapple::spawn_balanced(task),
        });
    }

    /// A look-up that the caller has to make.
    fn loading(&self, hash: u64, key: &[u8]) -> Loading {
        let shard = self.shards[shard_of(hash)].clone();
        let (handles, library) = (self.handles.clone(), self.library.clone());
        let (is_ended, is_last_try, serial) = (false, false, self.serial);
        Loading { shard, handles, library, hash, key: key.into(), is_ended, is_last_try, serial }
    }
}

fn failed() -> io::Error {
    io::Error::other("the file could not be read")
}

/// State with a color of its own, or with the default color if everything has it.
fn colored<T: Send + 'static>(state: T, serial: bool) -> Colored<T> {
    match serial {
        true => Colored::with_color(state, &Color::DEFAULT),
        false => Colored::new(state),
    }
}
