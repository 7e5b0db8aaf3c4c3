//! Locks of byte ranges, as POSIX has them: of one owner, a later lock replaces an earlier one where they overlap.

use serde::{Deserialize, Serialize};

/// A lock of some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// The last byte.
    pub(crate) end: u64,
    /// Whether no other owner may have any lock of these bytes; otherwise others may lock them likewise.
    pub(crate) is_exclusive: bool,
    /// The process that took it.
    pub(crate) process: u32,
}

/// The locks of a file.
#[derive(Debug)]
pub(crate) struct Ranges<O>(Vec<(O, Range)>);

impl<O> Default for Ranges<O> {
    fn default() -> Ranges<O> {
        Ranges(Vec::new())
    }
}

impl<O: Copy + Eq> Ranges<O> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(O, Range)> {
        self.0.iter()
    }

    /// A lock of another owner that is in the way of one.
    pub(crate) fn in_the_way(&self, owner: O, wanted: &Range) -> Option<(O, Range)> {
        let is_in_the_way = |(other, range): &&(O, Range)| {
            *other != owner
                && (range.is_exclusive || wanted.is_exclusive)
                && range.start <= wanted.end
                && wanted.start <= range.end
        };
        self.0.iter().find(is_in_the_way).copied()
    }

    /// Locks a range that no other owner's lock is in the way of.
    pub(crate) fn set(&mut self, owner: O, mut range: Range) {
        self.clear(owner, range.start, range.end);
        // Neighbors of the same kind become one.
        self.0.retain(|(other, one)| {
            let is_neighbor = *other == owner
                && (one.is_exclusive, one.process) == (range.is_exclusive, range.process)
                && (one.end.checked_add(1) == Some(range.start) || range.end.checked_add(1) == Some(one.start));
            if is_neighbor {
                range.start = range.start.min(one.start);
                range.end = range.end.max(one.end);
            }
            !is_neighbor
        });
        self.0.push((owner, range));
    }

    /// Unlocks the bytes from one to another.
    pub(crate) fn clear(&mut self, owner: O, start: u64, end: u64) {
        let mut after = Vec::new();
        self.0.retain_mut(|(other, range)| {
            if *other != owner || range.end < start || end < range.start {
                return true;
            }
            if range.end > end {
                after.push((owner, Range { start: end + 1, ..*range }));
            }
            match range.start < start {
                true => range.end = start - 1,
                false => return false,
            }
            true
        });
        self.0.append(&mut after);
    }

    /// Drops all locks of the owners of which this is true.
    pub(crate) fn drop_all(&mut self, is_dropped: impl Fn(O) -> bool) {
        self.0.retain(|(owner, _)| !is_dropped(*owner));
    }
}

/// The last byte that a file can have.
pub(crate) const LAST: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::{Range, Ranges};

    fn range(start: u64, end: u64, is_exclusive: bool) -> Range {
        Range { start, end, is_exclusive, process: 1 }
    }

    /// The kind of lock that an owner has of each byte.
    fn bytes(ranges: &Ranges<u8>, owner: u8) -> [Option<bool>; 16] {
        std::array::from_fn(|at| {
            let mut found = ranges
                .iter()
                .filter(|(other, range)| *other == owner && (range.start..=range.end).contains(&(at as u64)));
            let kind = found.next().map(|(_, range)| range.is_exclusive);
            assert!(found.next().is_none(), "one lock of a byte");
            kind
        })
    }

    #[test]
    fn they_are_as_if_each_byte_had_a_lock_of_its_own() {
        let mut ranges = Ranges::default();
        let mut model = [[None; 16]; 2];
        let mut seed = 1u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [owner, start, len, kind] = [60, 40, 33, 50].map(|at| seed >> at & 15);
            let (owner, end) = ((owner % 2) as u8, (start + len % 6).min(15));
            let all = start as usize..=end as usize;
            let (own, other) = (usize::from(owner), usize::from(1 - owner));
            if kind < 6 {
                ranges.clear(owner, start, end);
                model[own][all].fill(None);
                continue;
            }
            let wanted = range(start, end, kind < 11);
            let is_free = model[other][all.clone()].iter().flatten().all(|other| !other && !wanted.is_exclusive);
            assert_eq!(ranges.in_the_way(owner, &wanted).is_none(), is_free);
            if is_free {
                ranges.set(owner, wanted);
                model[own][all].fill(Some(wanted.is_exclusive));
            }
            assert_eq!([bytes(&ranges, 0), bytes(&ranges, 1)], model);
            assert!(ranges.len() <= 32);
        }
        ranges.drop_all(|owner| owner == 0);
        assert_eq!(bytes(&ranges, 0), [None; 16]);
    }

    #[test]
    fn neighbors_become_one_and_the_last_byte_has_none() {
        let mut ranges = Ranges::default();
        ranges.set(1, range(0, 4, true));
        ranges.set(1, range(10, u64::MAX, true));
        ranges.set(1, range(5, 9, true));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [&(1, range(0, u64::MAX, true))]);
        ranges.clear(1, 3, u64::MAX);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [&(1, range(0, 2, true))]);
    }
}
