//! The pages that many clients want at the same time, kept by each worker.
//!
//! A shard of the page cache has a color, so one request at a time looks up in it. A page that all clients want makes
//! that color hot: each request waits for the one before, on another worker, and the workers together do no more than
//! one of them. So a request that has found its shard taken keeps the page here, in the place of its worker. The next
//! requests on that worker find it here, for as long as the shard calls the page fresh and has it.
//!
//! No page lives longer for being here, and a page that its shard has replaced or evicted is not found any more.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::clock::FRESH_MS;
use super::pages::{Page, SHARDS, shard_of};

/// See the module's text.
pub(crate) struct Hot {
    /// One for each worker; none if there is one worker, which never waits for another.
    places: Box<[Place]>,
    /// The generation of the rules by which pages are made.
    generation: AtomicU64,
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Place {
    /// Only its worker takes the lock.
    kept: Mutex<[Option<Kept>; PAGES]>,
    /// The number of pages that it has had; zero spares a look-up.
    len: AtomicUsize,
    /// Pages found here, by shard.
    hits: [AtomicU64; SHARDS],
}

struct Kept {
    hash: u64,
    key: Box<[u8]>,
    page: Weak<Page>,
    checked_ms: u64,
}

impl Hot {
    pub(crate) fn new(workers: usize) -> Hot {
        let places = if workers > 1 { workers } else { 0 };
        Hot { places: (0..places).map(|_| Place::new()).collect(), generation: AtomicU64::new(0) }
    }

    /// A page that is fresh at `now_ms`, on the worker with this number.
    pub(crate) fn find(&self, worker: Option<usize>, hash: u64, key: &[u8], now_ms: u64) -> Option<Arc<Page>> {
        let place = self.places.get(worker?)?;
        // Relaxed: the worker's own word.
        if place.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let kept = place.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept[place_of(hash)].as_ref().filter(|kept| kept.hash == hash && *kept.key == *key)?;
        if now_ms.saturating_sub(kept.checked_ms) >= FRESH_MS {
            return None;
        }
        // Acquire pairs with `begin_again`.
        let generation = self.generation.load(Ordering::Acquire);
        let page = kept.page.upgrade().filter(|page| page.is_cached() && page.meta.generation == generation)?;
        // Relaxed: a count.
        place.hits[shard_of(hash)].fetch_add(1, Ordering::Relaxed);
        Some(page)
    }

    /// Keeps a page that its shard calls fresh, in place of another one if need be.
    pub(crate) fn keep(&self, worker: Option<usize>, hash: u64, key: &[u8], page: &Arc<Page>, checked_ms: u64) {
        let Some(place) = worker.and_then(|worker| self.places.get(worker)) else { return };
        let new = Kept { hash, key: key.into(), page: Arc::downgrade(page), checked_ms };
        let old = place.kept.lock().unwrap_or_else(PoisonError::into_inner)[place_of(hash)].replace(new);
        drop(old);
        place.len.fetch_add(1, Ordering::Relaxed);
    }

    /// Finds no page of older rules any more.
    pub(crate) fn begin_again(&self, generation: u64) {
        // Release pairs with `find`.
        self.generation.store(generation, Ordering::Release);
    }

    /// How many pages of a shard were found here.
    pub(crate) fn hits(&self, shard: usize) -> u64 {
        self.places.iter().map(|place| place.hits[shard].load(Ordering::Relaxed)).sum()
    }
}

impl Place {
    fn new() -> Place {
        let kept = Mutex::new([const { None }; PAGES]);
        Place { kept, len: AtomicUsize::new(0), hits: Default::default() }
    }
}

/// By the lower bits; a shard by the upper half.
fn place_of(hash: u64) -> usize {
    hash as usize % PAGES
}

/// Few pages are wanted by all clients at the same time.
const PAGES: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::pages::{Content, Found, Shard};
    use super::*;
    use crate::serve::meta::Meta;

    fn fresh(shard: &mut Shard, hash: u64, key: &[u8], now_ms: u64) -> (Arc<Page>, u64) {
        match shard.look_up(hash, key, now_ms) {
            Found::Fresh(page, checked_ms) => (page, checked_ms),
            _ => panic!("it is in the shard"),
        }
    }

    fn page(body: &'static str, generation: u64) -> Content {
        let meta = Meta::new(http::HeaderMap::new(), None, false, generation);
        Content::Page(Arc::new(Page::new(None, meta, body.into())))
    }

    #[test]
    fn a_page_is_found_while_its_shard_has_it_and_calls_it_fresh() {
        let (mut shard, hot) = (Shard::new(1 << 20), Hot::new(2));
        let (hash, key) = (7, b"/a".as_slice());
        shard.loaded(hash, key, page("one", 0), 1_000);
        assert!(hot.find(Some(0), hash, key, 1_000).is_none(), "not kept yet");
        let (one, checked_ms) = fresh(&mut shard, hash, key, 1_100);
        hot.keep(Some(0), hash, key, &one, checked_ms);
        assert!(hot.find(Some(0), hash, key, 1_000 + FRESH_MS - 1).is_some_and(|found| Arc::ptr_eq(&found, &one)));
        assert!(hot.find(Some(0), hash, key, 1_000 + FRESH_MS).is_none(), "not fresh");
        for (worker, hash, key) in [(Some(1), 7, key), (None, 7, key), (Some(0), 8, key), (Some(0), 7, b"/b")] {
            assert!(hot.find(worker, hash, key, 1_100).is_none());
        }
        shard.loaded(hash, key, page("two", 0), 1_100);
        assert!(hot.find(Some(0), hash, key, 1_100).is_none(), "replaced, although a reply still has it");
        assert_eq!(hot.hits(shard_of(hash)), 1);
        drop(one);
    }

    #[test]
    fn a_page_that_was_checked_again_is_still_found() {
        let (mut shard, hot) = (Shard::new(1 << 20), Hot::new(2));
        let (hash, key) = (7, b"/a".as_slice());
        let content = page("one", 0);
        shard.loaded(hash, key, content.clone(), 1_000);
        shard.loaded(hash, key, content, 2_000);
        let (page, checked_ms) = fresh(&mut shard, hash, key, 2_100);
        hot.keep(Some(1), hash, key, &page, checked_ms);
        assert!(hot.find(Some(1), hash, key, 2_300).is_some());
    }

    #[test]
    fn new_rules_and_eviction_end_it() {
        let (mut shard, hot) = (Shard::new(1 << 20), Hot::new(2));
        for (hash, key) in [(7, b"/a"), (8, b"/b")] {
            shard.loaded(hash, key, page("one", 0), 1_000);
            let (page, checked_ms) = fresh(&mut shard, hash, key, 1_000);
            hot.keep(Some(0), hash, key, &page, checked_ms);
        }
        hot.begin_again(1);
        assert!(hot.find(Some(0), 7, b"/a", 1_000).is_none(), "made by old rules");
        hot.begin_again(0);
        assert!(hot.find(Some(0), 7, b"/a", 1_000).is_some());
        shard.set_bytes_max(0);
        assert!(hot.find(Some(0), 7, b"/a", 1_000).is_none(), "evicted");
    }

    #[test]
    fn one_worker_keeps_nothing() {
        let (mut shard, hot) = (Shard::new(1 << 20), Hot::new(1));
        shard.loaded(7, b"/a", page("one", 0), 1_000);
        let (page, checked_ms) = fresh(&mut shard, 7, b"/a", 1_000);
        hot.keep(Some(0), 7, b"/a", &page, checked_ms);
        assert!(hot.find(Some(0), 7, b"/a", 1_000).is_none());
    }
}
