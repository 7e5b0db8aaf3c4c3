//! The cache that all clients share, in a forward or a reverse proxy.
//!
//! ```text
//!   hash, read the stored head     the color of the connection
//!   look-up, eviction, joining     sixteen shards, a color each
//!   fetch                          a color for each; many may wait for one
//! ```
//!
//! The two proxies differ in the [`Source`] that they ask, and in the [`Address`] of a response.
//! The rules are the same.
//!
//! A shard holds complete responses: a body in transit is a [`Fill`], from which all clients that
//! asked meanwhile read.

pub(crate) mod fetch;
pub(crate) mod fill;
pub(crate) mod numbers;
pub(crate) mod shard;
pub(crate) mod source;
pub(crate) mod stored;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use dapple::{Color, Colored};

use http::HeaderMap;
use http::header::{CONTENT_LOCATION, LOCATION};

use super::args::CacheArgs;
use super::tally::Tally;
use dapple_client::relay::Via;

pub(crate) use self::fill::{Fill, Outcome};
pub(crate) use self::shard::{Found, Shard};
pub(crate) use self::source::Source;
pub(crate) use self::stored::Stored;

/// All shards, and the source of missing responses.
pub(crate) struct Cache<S: Source> {
    /// With a new key in every process, so that clients cannot aim at one shard.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard<S::Failure>>>,
    /// Larger bodies are passed on and not kept, in bytes.
    pub(crate) object_max: u64,
    pub(crate) source: S,
    pub(crate) via: Via,
    pub(crate) tally: Arc<Tally>,
}

/// The address of a response, in one spelling only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Further facts in the request to the server that may change the response; often empty.
    pub(crate) scope: String,
    /// `http://host`, without the default port.
    pub(crate) base: String,
    /// The path with its query.
    pub(crate) target: String,
}

/// The key of a stored response: the address, and its hash.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) hash: u64,
    pub(crate) uri: Arc<[u8]>,
}

impl Address {
    fn text(&self) -> String {
        let Address { scope, base, target } = self;
        [scope.as_str(), base, target].concat()
    }
}

impl<S: Source> Cache<S> {
    /// Creates an empty cache of `cache_mb` MiB.
    pub(crate) fn new(
        cache_mb: u64,
        args: &CacheArgs,
        serial: bool,
        source: S,
        via: Via,
        tally: Arc<Tally>,
    ) -> Cache<S> {
        let shard_bytes = (cache_mb << 20) / SHARDS as u64;
        let colored = |shard| match serial {
            true => Colored::with_color(shard, &Color::DEFAULT),
            false => Colored::new(shard),
        };
        Cache {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes))).collect(),
            object_max: (args.object_max_kb << 10).min(shard_bytes / 2),
            source,
            via,
            tally,
        }
    }

    /// Hashes an address. Hashing costs more than the look-up, so it happens in the caller's color.
    pub(crate) fn key(&self, address: &Address) -> Key {
        let uri = address.text().into_bytes();
        Key { hash: self.hasher.hash_one(&*uri), uri: uri.into() }
    }

    /// The shard of a key, from the upper half of its hash: the maps inside use the lower bits.
    pub(crate) fn shard(&self, key: &Key) -> &Colored<Shard<S::Failure>> {
        &self.shards[(((key.hash >> 32) * SHARDS as u64) >> 32) as usize]
    }

    /// Handles the response to a request that may have changed a resource: forgets the stored
    /// response of its address, and of other addresses on the same host that the response names
    /// (RFC 9111, section 4.4).
    pub(crate) fn changed(&self, address: &Address, answer: &HeaderMap) {
        self.invalidate(address);
        for name in [LOCATION, CONTENT_LOCATION] {
            let Some(location) = answer.get(name).and_then(|location| location.to_str().ok()) else { continue };
            let location = location.split('#').next().unwrap_or(location);
            let is_rooted = |target: &&str| target.starts_with('/') && !target.starts_with("//");
            let target = location.strip_prefix(&*address.base).filter(|target| target.starts_with('/'));
            if let Some(target) = target.or(Some(location).filter(is_rooted)) {
                self.invalidate(&Address { target: target.to_owned(), ..address.clone() });
            }
        }
    }

    /// Forgets the stored response of an address, and the response in transit.
    fn invalidate(&self, address: &Address) {
        let key = self.key(address);
        self.shard(&key).post(move |shard| shard.invalidate(&key));
    }
}

/// More than in the papers' proxy, because there are more cores; each holds at least 16 responses.
const SHARDS: usize = 16;
