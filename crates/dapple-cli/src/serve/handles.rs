//! The file-handle cache: the file of each path, checked at most every few hundred milliseconds.

use std::sync::Arc;

use super::clock::FRESH_MS;
use super::disk::{FileHandle, Resolved};
use crate::lru::Lru;

/// Paths and their look-up results. One color guards it, as in the papers' server.
pub(crate) struct Handles {
    entries: Lru<Entry>,
    /// The weight of an open file, which bounds their number.
    file_weight: u64,
    /// The generation of the rules for fields of files; results of older rules are not kept.
    generation: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

struct Entry {
    resolved: Resolved,
    checked_ms: u64,
}

/// A cached fact about a path.
pub(crate) enum Known {
    /// Checked at this time, which is recent enough to serve.
    Fresh(Resolved, u64),
    /// Must be looked up; includes the previous open file, which need not be opened again if it is
    /// unchanged.
    Stale(Option<Arc<FileHandle>>),
}

impl Handles {
    /// Creates a cache that keeps at most `files_max` files open.
    pub(crate) fn new(files_max: u64) -> Handles {
        let file_weight = WEIGHT_MAX / files_max.max(1);
        Handles { entries: Lru::new(WEIGHT_MAX), file_weight, generation: 0, hits: 0, misses: 0 }
    }

    /// The cached fact about `key` at `now_ms`.
    pub(crate) fn look_up(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Known {
        match self.entries.get(hash, key) {
            Some(entry) if now_ms.saturating_sub(entry.checked_ms) < FRESH_MS => {
                self.hits += 1;
                Known::Fresh(entry.resolved.clone(), entry.checked_ms)
            }
            Some(Entry { resolved: Resolved::File(handle), .. }) => {
                self.misses += 1;
                Known::Stale(Some(handle.clone()))
            }
            _ => {
                self.misses += 1;
                Known::Stale(None)
            }
        }
    }

    /// Notes the result for `key` as of `checked_ms`.
    pub(crate) fn note(&mut self, hash: u64, key: &[u8], resolved: Resolved, checked_ms: u64) {
        if matches!(&resolved, Resolved::File(file) if file.generation() < self.generation) {
            return;
        }
        let weight =
            key.len() as u64 + if matches!(resolved, Resolved::File(_)) { self.file_weight } else { ENTRY_WEIGHT };
        self.entries.insert(hash, key, Entry { resolved, checked_ms }, weight);
    }

    /// Forgets all paths, because the rules for fields of files have changed.
    pub(crate) fn begin_again(&mut self, generation: u64) {
        self.entries.clear();
        self.generation = generation;
    }

    /// Forgets all paths, so that files that are not being read are closed.
    pub(crate) fn let_go(&mut self) {
        self.entries.clear();
    }

    /// The number of cached paths.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Weights are in bytes; an open file has a weight for its descriptor.
const WEIGHT_MAX: u64 = 4 << 20;
const ENTRY_WEIGHT: u64 = 128;

#[cfg(test)]
mod tests {
    use super::{FRESH_MS, Handles, Known};
    use crate::serve::disk::Resolved;
    use crate::server::FILES_MAX;

    #[test]
    fn an_answer_is_good_for_a_while() {
        let mut handles = Handles::new(FILES_MAX);
        assert!(matches!(handles.look_up(1, b"a", 1_000), Known::Stale(None)));
        handles.note(1, b"a", Resolved::Nothing, 1_000);
        let last_ms = 1_000 + FRESH_MS - 1;
        assert!(matches!(handles.look_up(1, b"a", last_ms), Known::Fresh(Resolved::Nothing, 1_000)));
        assert!(matches!(handles.look_up(1, b"a", last_ms + 1), Known::Stale(None)));
        assert_eq!((handles.hits, handles.misses), (1, 2));
    }

    #[test]
    fn invented_names_do_not_fill_the_memory() {
        let mut handles = Handles::new(FILES_MAX);
        for hash in 0..100_000_u64 {
            handles.note(hash, &[b'x'; 1_000], Resolved::Nothing, 0);
        }
        assert!(handles.len() < 4_000);
    }
}
