//! The cache that all clients share, of a forward proxy and of a reverse one.
//!
//! ```text
//!   hash, read the stored head     the color of the connection
//!   look-up, eviction, joining     sixteen shards, a color each
//!   fetch                          a color for each; many may wait for one
//! ```
//!
//! The two proxies differ in the [`Source`] that is asked, and in the [`Address`] by which a response is found. All rules are one.
//!
//! What is in a shard is whole: a body that is still on its way is a [`Fill`], from which all who asked meanwhile read.

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
use super::fields::Pseudonym;
use super::tally::Tally;

pub(crate) use self::fill::{Fill, Outcome};
pub(crate) use self::shard::{Found, Shard};
pub(crate) use self::source::Source;
pub(crate) use self::stored::Stored;

/// All shards, and the way to what they do not have.
pub(crate) struct Cache<S: Source> {
    /// Keyed afresh for every process, so that nobody can aim at one shard.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard<S::Failure>>>,
    /// Bodies larger than this are passed on and not kept, in bytes.
    pub(crate) object_max: u64,
    pub(crate) source: S,
    pub(crate) pseudonym: Pseudonym,
    pub(crate) tally: Arc<Tally>,
}

/// What a response is found by, written in one way only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// What else the server was told that may make a difference; often empty.
    pub(crate) scope: String,
    /// `http://host`, without the port that is understood.
    pub(crate) base: String,
    /// The path with its query.
    pub(crate) target: String,
}

/// What a stored response is found by: the address, and its hash.
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
    /// An empty cache of `cache_mb`.
    pub(crate) fn new(
        cache_mb: u64,
        args: &CacheArgs,
        serial: bool,
        source: S,
        pseudonym: Pseudonym,
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
            pseudonym,
            tally,
        }
    }

    /// Hashing costs more than the look-up, so it happens in the color of who asks.
    pub(crate) fn key(&self, address: &Address) -> Key {
        let uri = address.text().into_bytes();
        Key { hash: self.hasher.hash_one(&*uri), uri: uri.into() }
    }

    /// The shard that a key belongs to, from the upper half of its hash: the maps inside use the lower bits.
    pub(crate) fn shard(&self, key: &Key) -> &Colored<Shard<S::Failure>> {
        &self.shards[(((key.hash >> 32) * SHARDS as u64) >> 32) as usize]
    }

    /// A request that may have changed something got this answer: what is stored for its address is forgotten, and for others of the same
    /// host that the answer names (RFC 9111, section 4.4).
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

    /// Forgets what is stored for an address, and what is on its way.
    fn invalidate(&self, address: &Address) {
        let key = self.key(address);
        self.shard(&key).post(move |shard| shard.invalidate(&key));
    }
}

/// More than in the papers' proxy, as there are more cores; each holds at least 16 responses.
const SHARDS: usize = 16;
