//! A map, bounded by weight, that evicts the least recently used value. Plain data: the owner's
//! color guards it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use slab::Slab;

/// Values by key. The caller passes in the key's hash, so that hashing happens without holding a
/// color.
///
/// Two keys with the same 64-bit hash cannot both be in the map: the later one replaces the earlier
/// one. With a keyed hash that costs a very rare reload; the two are never confused, because the
/// map compares the key itself.
pub(crate) struct Lru<V> {
    /// The slot of each key, by hash.
    places: HashMap<u64, usize, BuildHasherDefault<Unchanged>>,
    slots: Slab<Slot<V>>,
    /// The most and least recently used slots; `NONE` when empty.
    newest: usize,
    oldest: usize,
    weight: u64,
    weight_max: u64,
    evictions: u64,
}

struct Slot<V> {
    hash: u64,
    key: Box<[u8]>,
    value: V,
    weight: u64,
    newer: usize,
    older: usize,
}

impl<V> Lru<V> {
    /// Creates an empty map that holds at most `weight_max` in total.
    pub(crate) fn new(weight_max: u64) -> Lru<V> {
        let (newest, oldest) = (NONE, NONE);
        Lru { places: HashMap::default(), slots: Slab::new(), newest, oldest, weight: 0, weight_max, evictions: 0 }
    }

    /// Returns the value of `key`, and makes it the most recently used.
    pub(crate) fn get(&mut self, hash: u64, key: &[u8]) -> Option<&mut V> {
        let place = *self.places.get(&hash)?;
        if *self.slots[place].key != *key {
            return None;
        }
        if self.newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
        Some(&mut self.slots[place].value)
    }

    /// Inserts `value`, replacing the value of `key`, and evicts others until the weight fits.
    /// Drops a value that is too heavy alone.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], value: V, weight: u64) {
        self.remove(hash);
        if weight > self.weight_max {
            return;
        }
        self.make_room(weight);
        let slot = Slot { hash, key: key.into(), value, weight, newer: NONE, older: NONE };
        let place = self.slots.insert(slot);
        self.places.insert(hash, place);
        self.weight += weight;
        self.link_newest(place);
    }

    /// Removes the value of `key`.
    pub(crate) fn forget(&mut self, hash: u64, key: &[u8]) {
        if self.get(hash, key).is_some() {
            self.remove(hash);
        }
    }

    /// Adds weight to the value of this hash, and evicts until the total fits; the value itself
    /// goes last.
    pub(crate) fn add_weight(&mut self, hash: u64, weight: u64) {
        let Some(&place) = self.places.get(&hash) else { return };
        if self.newest != place {
            self.unlink(place);
            self.link_newest(place);
        }
        self.slots[place].weight += weight;
        self.weight += weight;
        self.make_room(0);
    }

    /// Removes and returns the value of `key`.
    pub(crate) fn take(&mut self, hash: u64, key: &[u8]) -> Option<V> {
        let place = *self.places.get(&hash)?;
        if *self.slots[place].key != *key {
            return None;
        }
        self.remove(hash)
    }

    /// Changes the maximum weight, and evicts until the total fits.
    pub(crate) fn set_weight_max(&mut self, weight_max: u64) {
        self.weight_max = weight_max;
        self.make_room(0);
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.slots.clear();
        (self.newest, self.oldest, self.weight) = (NONE, NONE, 0);
    }

    /// The weight of everything in the map.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of values evicted since the start.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    fn make_room(&mut self, weight: u64) {
        while self.weight + weight > self.weight_max {
            let oldest = self.slots[self.oldest].hash;
            self.remove(oldest);
            self.evictions += 1;
        }
    }

    fn remove(&mut self, hash: u64) -> Option<V> {
        let place = self.places.remove(&hash)?;
        self.unlink(place);
        let slot = self.slots.remove(place);
        self.weight -= slot.weight;
        Some(slot.value)
    }

    fn unlink(&mut self, place: usize) {
        let (newer, older) = (self.slots[place].newer, self.slots[place].older);
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older].newer = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let older = self.newest;
        self.slots[place].newer = NONE;
        self.slots[place].older = older;
        match older {
            NONE => self.oldest = place,
            older => self.slots[older].newer = place,
        }
        self.newest = place;
    }
}

/// The hasher for keys that are hashes already.
#[derive(Default)]
pub(crate) struct Unchanged(u64);

impl Hasher for Unchanged {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only 64-bit hashes are looked up here")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// No slot: the end of the list.
const NONE: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::Lru;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(3);
        for (hash, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            lru.insert(hash, key, hash, 1);
        }
        assert_eq!(lru.get(1, b"a"), Some(&mut 1));
        lru.insert(4, b"d", 4, 1);
        assert_eq!(lru.get(2, b"b"), None);
        assert_eq!((lru.len(), lru.weight(), lru.evictions()), (3, 3, 1));
        for (hash, key) in [(3, b"c"), (1, b"a"), (4, b"d")] {
            assert_eq!(lru.get(hash, key), Some(&mut hash.clone()));
        }
    }

    #[test]
    fn weight_is_bounded_and_too_heavy_values_are_not_kept() {
        let mut lru = Lru::new(10);
        lru.insert(1, b"a", (), 4);
        lru.insert(2, b"b", (), 4);
        lru.insert(3, b"c", (), 11);
        assert_eq!((lru.len(), lru.weight()), (2, 8));
        lru.insert(3, b"c", (), 9);
        assert_eq!((lru.len(), lru.weight(), lru.evictions()), (1, 9, 2));
        lru.insert(3, b"c", (), 2);
        assert_eq!((lru.len(), lru.weight()), (1, 2));
    }

    #[test]
    fn equal_hashes_of_different_keys_are_not_confused() {
        let mut lru = Lru::new(10);
        lru.insert(1, b"a", 'a', 1);
        assert_eq!(lru.get(1, b"b"), None);
        lru.insert(1, b"b", 'b', 1);
        assert_eq!(lru.get(1, b"a"), None);
        assert_eq!(lru.get(1, b"b"), Some(&mut 'b'));
        assert_eq!(lru.len(), 1);
    }

    #[test]
    fn a_growing_value_evicts_others() {
        let mut lru = Lru::new(10);
        lru.insert(1, b"a", (), 4);
        lru.insert(2, b"b", (), 4);
        lru.add_weight(1, 2);
        assert_eq!((lru.len(), lru.weight()), (2, 10));
        lru.add_weight(1, 1);
        assert_eq!((lru.get(1, b"a").is_some(), lru.get(2, b"b").is_some(), lru.weight()), (true, false, 7));
        lru.add_weight(1, 4);
        assert_eq!((lru.len(), lru.weight(), lru.evictions()), (0, 0, 2));
        lru.add_weight(1, 4);
        assert_eq!(lru.weight(), 0);
    }

    #[test]
    fn a_lower_limit_applies_at_once_and_an_emptied_map_still_works() {
        let mut lru = Lru::new(10);
        for (hash, key) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            lru.insert(hash, key, (), 3);
        }
        lru.set_weight_max(6);
        assert_eq!((lru.len(), lru.weight(), lru.evictions()), (2, 6, 1));
        lru.set_weight_max(0);
        assert_eq!((lru.len(), lru.weight()), (0, 0));
        lru.set_weight_max(10);
        lru.insert(1, b"a", (), 3);
        lru.clear();
        assert_eq!((lru.len(), lru.weight(), lru.get(1, b"a").is_none()), (0, 0, true));
        lru.insert(1, b"a", (), 3);
        assert_eq!((lru.get(1, b"a").is_some(), lru.weight()), (true, 3));
    }

    /// Compares the outcome of every step with that of a plain list.
    #[test]
    fn it_behaves_like_a_list() {
        let mut lru = Lru::new(20);
        let mut list: Vec<(u64, u64)> = Vec::new();
        let mut state = 7_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (hash, weight) = ((state >> 33) & 15, (state >> 40) & 7);
            let key = hash.to_le_bytes();
            let at = list.iter().position(|(known, _)| *known == hash);
            if (state >> 60) & 1 == 0 {
                assert_eq!(lru.get(hash, &key).is_some(), at.is_some());
                if let Some(at) = at {
                    let entry = list.remove(at);
                    list.push(entry);
                }
            } else {
                lru.insert(hash, &key, (), weight);
                if let Some(at) = at {
                    list.remove(at);
                }
                while list.iter().map(|(_, weight)| weight).sum::<u64>() + weight > 20 {
                    list.remove(0);
                }
                list.push((hash, weight));
            }
            assert_eq!(lru.len(), list.len());
            assert_eq!(lru.weight(), list.iter().map(|(_, weight)| weight).sum::<u64>());
        }
    }
}
