//! One part of the cache, guarded by a color of its own.

use std::sync::Arc;

use dapple_http::Fields;
use dapple_http::cache::{Control, Verdict};

use super::fill::Fill;
use super::{Key, Stored};
use crate::lru::Lru;

/// Responses by address, and responses in transit.
pub(crate) struct Shard<F> {
    /// Several for one address if they depend on the request, the latest first.
    responses: Lru<Vec<Arc<Stored>>>,
    fills: Vec<Filling<F>>,
}

struct Filling<F> {
    hash: u64,
    uri: Arc<[u8]>,
    fill: Arc<Fill<F>>,
    /// Whether other requests may still join.
    is_open: bool,
}

/// A shard's result for a request.
pub(crate) enum Found {
    /// Usable as it is; false if it is stale and the client accepts that.
    Fresh(Arc<Stored>, bool),
    /// Usable, but should be fetched again at the same time.
    FreshEnough(Arc<Stored>),
    /// The origin has to confirm it.
    Stale(Arc<Stored>),
    /// Nothing for this address.
    Missing,
    /// Only responses that other requests for this address get.
    OtherVariants,
}

/// How a request that finds nothing in the shard gets its response.
pub(crate) enum Joined<F> {
    /// The caller has to fetch it for all, and must then call [`Shard::end`].
    Yours,
    /// It is in transit.
    Wait(Arc<Fill<F>>),
}

impl<F> Shard<F> {
    /// Creates an empty shard for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Shard<F> {
        Shard { responses: Lru::new(bytes_max), fills: Vec::new() }
    }

    /// Looks up a request; the caller made the hash, in its own color.
    pub(crate) fn look_up(
        &mut self,
        key: &Key,
        request: Fields<'_>,
        asked: &Control,
        is_authorized: bool,
        now_ms: u64,
    ) -> Found {
        let Some(variants) = self.responses.get(key.hash, &key.uri) else { return Found::Missing };
        let suits = |stored: &&Arc<Stored>| {
            stored.selection.matches(request) && (!is_authorized || stored.policy.is_for_authorized())
        };
        let Some(stored) = variants.iter().find(suits).cloned() else { return Found::OtherVariants };
        match stored.policy.verdict(asked, now_ms) {
            Verdict::Fresh => Found::Fresh(stored, true),
            Verdict::Stale => Found::Fresh(stored, false),
            Verdict::StaleWhileRevalidate => Found::FreshEnough(stored),
            Verdict::Validate => Found::Stale(stored),
        }
    }

    /// Joins the fetch of this key, or enters `fill` for others to join.
    pub(crate) fn join(&mut self, key: &Key, fill: &Arc<Fill<F>>) -> Joined<F> {
        let open =
            self.fills.iter().find(|filling| filling.is_open && filling.hash == key.hash && filling.uri == key.uri);
        match open {
            Some(filling) => Joined::Wait(filling.fill.clone()),
            None => {
                self.enter(key, fill, true);
                Joined::Yours
            }
        }
    }

    /// Enters a fetch. A fetch that is not open serves only its own request, but its response may
    /// be kept.
    pub(crate) fn enter(&mut self, key: &Key, fill: &Arc<Fill<F>>, is_open: bool) {
        self.fills.push(Filling { hash: key.hash, uri: key.uri.clone(), fill: fill.clone(), is_open });
    }

    /// Ends a fetch. Keeps the stored response, unless the address was invalidated meanwhile.
    pub(crate) fn end(&mut self, key: &Key, fill: &Arc<Fill<F>>, stored: Option<Arc<Stored>>) {
        let Some(at) = self.fills.iter().position(|filling| Arc::ptr_eq(&filling.fill, fill)) else { return };
        self.fills.swap_remove(at);
        if let Some(stored) = stored {
            self.keep(key, stored);
        }
    }

    /// Forgets an address.
    pub(crate) fn invalidate(&mut self, key: &Key) {
        self.responses.take(key.hash, &key.uri);
        self.fills.retain(|filling| filling.hash != key.hash || filling.uri != key.uri);
    }

    /// Forgets one response that turned out to be wrong.
    pub(crate) fn forget(&mut self, key: &Key, wrong: &Arc<Stored>) {
        let Some(mut variants) = self.responses.take(key.hash, &key.uri) else { return };
        variants.retain(|stored| !Arc::ptr_eq(stored, wrong));
        self.put(key, variants);
    }

    fn keep(&mut self, key: &Key, stored: Arc<Stored>) {
        let mut variants = self.responses.take(key.hash, &key.uri).unwrap_or_default();
        variants.retain(|known| known.selection != stored.selection);
        variants.insert(0, stored);
        variants.truncate(VARIANTS_MAX);
        self.put(key, variants);
    }

    fn put(&mut self, key: &Key, variants: Vec<Arc<Stored>>) {
        if !variants.is_empty() {
            let weight = variants.iter().map(|stored| stored.weight()).sum::<u64>() + key.uri.len() as u64;
            self.responses.insert(key.hash, &key.uri, variants, weight);
        }
    }

    /// The bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.responses.weight()
    }

    /// The number of addresses held.
    pub(crate) fn len(&self) -> usize {
        self.responses.len()
    }

    /// The number of responses in transit.
    pub(crate) fn fills(&self) -> usize {
        self.fills.len()
    }

    /// The number of addresses evicted.
    pub(crate) fn evictions(&self) -> u64 {
        self.responses.evictions()
    }
}

/// The most responses kept for one address.
const VARIANTS_MAX: usize = 8;
