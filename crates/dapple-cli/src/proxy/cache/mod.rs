//! The cache that all clients share.
//!
//! ```text
//!   hash, read the stored head     the color of the connection
//!   look-up, eviction, joining     sixteen shards, a color each
//!   fetch                          a color for each; many may wait for one
//! ```
//!
//! What is in a shard is whole: a body that is still on its way is a [`Fill`], from which all who asked meanwhile read.

pub(crate) mod fetch;
pub(crate) mod fill;
pub(crate) mod shard;
pub(crate) mod stored;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use dapple::{Color, Colored};

use super::fields::Pseudonym;
use super::tally::Tally;
use super::upstream::Upstream;

pub(crate) use self::fill::{Fill, Outcome};
pub(crate) use self::shard::{Found, Shard};
pub(crate) use self::stored::Stored;

/// All shards, and the way to what they do not have.
pub(crate) struct Cache {
    /// Keyed afresh for every process, so that nobody can aim at one shard.
    hasher: RandomState,
    pub(crate) shards: Vec<Colored<Shard>>,
    /// Bodies larger than this are passed on and not kept, in bytes.
    pub(crate) object_max: u64,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) pseudonym: Pseudonym,
    pub(crate) tally: Arc<Tally>,
}

/// What a stored response is found by: the address, and its hash.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) hash: u64,
    pub(crate) uri: Arc<[u8]>,
}

impl Cache {
    pub(crate) fn new(
        bytes_max: u64,
        object_max: u64,
        serial: bool,
        upstream: Arc<Upstream>,
        pseudonym: Pseudonym,
    ) -> Cache {
        let shard_bytes = bytes_max / SHARDS as u64;
        let colored = |shard| match serial {
            true => Colored::with_color(shard, &Color::DEFAULT),
            false => Colored::new(shard),
        };
        Cache {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| colored(Shard::new(shard_bytes))).collect(),
            object_max: object_max.min(shard_bytes / 2),
            tally: upstream.tally.clone(),
            upstream,
            pseudonym,
        }
    }

    /// Hashing costs more than the look-up, so it happens in the color of who asks.
    pub(crate) fn key(&self, uri: &str) -> Key {
        Key { hash: self.hasher.hash_one(uri.as_bytes()), uri: uri.as_bytes().into() }
    }

    /// The shard that a key belongs to, from the upper half of its hash: the maps inside use the lower bits.
    pub(crate) fn shard(&self, key: &Key) -> &Colored<Shard> {
        &self.shards[(((key.hash >> 32) * SHARDS as u64) >> 32) as usize]
    }

    /// Forgets what is stored for an address, and what is on its way: it was changed (RFC 9111, section 4.4).
    pub(crate) fn invalidate(&self, uri: &str) {
        let key = self.key(uri);
        self.shard(&key).post(move |shard| shard.invalidate(&key));
    }
}

/// More than in the papers' proxy, as there are more cores; each holds at least 16 responses.
const SHARDS: usize = 16;
