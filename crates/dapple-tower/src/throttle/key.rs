//! What shares are kept by.

use std::hash::Hash;

/// What can be a key of a throttle: anything that can be compared, hashed and cloned.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}
