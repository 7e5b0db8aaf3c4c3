//! One part of the cache, behind a color of its own.

use std::sync::Arc;

use dapple_http::Fields;
use dapple_http::cache::{Control, Verdict};

use super::fill::Fill;
use super::{Key, Stored};
use crate::lru::Lru;

/// Responses by address, and those on their way.
pub(crate) struct Shard<F> {
    /// Several for one address where they differ by the request, the latest first.
    responses: Lru<Vec<Arc<Stored>>>,
    fills: Vec<Filling<F>>,
}

struct Filling<F> {
    hash: u64,
    uri: Arc<[u8]>,
    fill: Arc<Fill<F>>,
    /// Whether others may still join.
    is_open: bool,
}

/// What a shard has for a request.
pub(crate) enum Found {
    /// May be sent as it is; false where it is stale and the client accepts that.
    Fresh(Arc<Stored>, bool),
    /// May be sent, but should be fetched again at the same time.
    FreshEnough(Arc<Stored>),
    /// The origin has to be asked whether it is still right.
    Stale(Arc<Stored>),
    /// Nothing for this address.
    Missing,
    /// Only what other requests for this address get.
    OtherVariants,
}

/// How a request that the shard has nothing for gets its response.
pub(crate) enum Joined<F> {
    /// The caller has to fetch it for all, and to call [`Shard::end`] in the end.
    Yours,
    /// It is on its way.
    Wait(Arc<Fill<F>>),
}

impl<F> Shard<F> {
    /// An empty shard for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Shard<F> {
        Shard { responses: Lru::new(bytes_max), fills: Vec::new() }
    }

    /// What there is for a request; the hash was made by the caller, in the caller's color.
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

    /// Joins the fetch of this key, or enters `fill` as the one to be joined.
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

    /// Enters a fetch; one that is not open is for its own request only, but its response may be kept.
    pub(crate) fn enter(&mut self, key: &Key, fill: &Arc<Fill<F>>, is_open: bool) {
        self.fills.push(Filling { hash: key.hash, uri: key.uri.clone(), fill: fill.clone(), is_open });
    }

    /// Ends a fetch. What is stored is kept, unless the address was invalidated while it was on its way.
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

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.responses.weight()
    }

    /// Addresses held.
    pub(crate) fn len(&self) -> usize {
        self.responses.len()
    }

    /// Responses on their way.
    pub(crate) fn fills(&self) -> usize {
        self.fills.len()
    }

    /// Addresses that had to go for others.
    pub(crate) fn evictions(&self) -> u64 {
        self.responses.evictions()
    }
}

/// How many responses are kept for one address.
const VARIANTS_MAX: usize = 8;
