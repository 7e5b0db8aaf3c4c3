//! The keys of throttles.

use std::hash::Hash;

/// A key of a throttle: any type that can be compared, hashed and cloned.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}
