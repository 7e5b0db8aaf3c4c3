//! The memory of a wheel's timers: 24 bytes each, in chunks that come and go with the load.
//!
//! New timers take the free places of one chunk before those of the next, whatever the order in which the last ones were
//! freed: a million places freed at random would otherwise be taken at random, each a miss of the cache.
//!
//! | chunk | is in the list `open` | has memory |
//! |---|---|---|
//! | current | no | yes |
//! | with free places | yes | yes |
//! | full | no | yes |
//! | empty | yes | only one of them |

use super::packed::{NO_WAKER, Packed};

/// One timer, or a free place.
pub(super) struct Entry {
    /// The waker's, where `word` has the number of its table.
    data: *const (),
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The deadline but for its lowest eight bits; these have the number of the waker's table, or `NO_WAKER`.
    word: u64,
}

const _: () = assert!(size_of::<Entry>() == 24);

// SAFETY: the pointer is a part of a waker, which is `Send`.
unsafe impl Send for Entry {}

impl Entry {
    /// The deadline without its lowest bits.
    pub(super) fn deadline(&self) -> u64 {
        self.word & !LOW_BITS
    }

    pub(super) fn set_deadline(&mut self, nanos: u64) {
        self.word = nanos & !LOW_BITS | self.word & LOW_BITS;
    }

    pub(super) fn packed(&self) -> Option<Packed> {
        let table = (self.word & LOW_BITS) as u8;
        (table != NO_WAKER).then_some(Packed { data: self.data, table })
    }

    /// Forgets its waker, and hands it out.
    pub(super) fn take_packed(&mut self) -> Option<Packed> {
        let packed = self.packed();
        self.word &= !LOW_BITS;
        packed
    }

    /// Gives it a waker. It has none now, or one that somebody else has taken over.
    pub(super) fn set_packed(&mut self, packed: Packed) {
        self.data = packed.data;
        self.word = self.word & !LOW_BITS | u64::from(packed.table);
    }
}

/// See the module's text.
pub(super) struct Entries {
    chunks: Vec<Chunk>,
    /// Where new timers go.
    current: u32,
    /// The first of other chunks with free places.
    open: u32,
    /// Whether an empty chunk has kept its memory.
    has_spare: bool,
    len: usize,
}

struct Chunk {
    /// Places that were in use before; without capacity while there is no memory. Not made at once, as touching memory for the
    /// first time is a good part of what a timer costs.
    entries: Vec<Entry>,
    /// The first free place in the chunk, linked through `next`.
    free: u32,
    used: u32,
    next_open: u32,
}

impl Entries {
    pub(super) fn new() -> Self {
        Entries { chunks: Vec::new(), current: NONE, open: NONE, has_spare: false, len: 0 }
    }

    /// The places of a chunk that were in use before.
    pub(super) fn chunk(&self, chunk: usize) -> Option<&[Entry]> {
        self.chunks.get(chunk).map(|chunk| &chunk.entries[..])
    }

    /// Timers that there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK].entries[index as usize % CHUNK]
    }

    /// A place for a timer; `None` if there are too many.
    #[inline]
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.current == NONE || self.chunks[self.current as usize].is_full() {
            self.open_chunk()?;
        }
        let chunk = &mut self.chunks[self.current as usize];
        let mut place = chunk.free;
        if place == NONE {
            place = chunk.entries.len() as u32;
            chunk.entries.push(Entry { data: std::ptr::null(), prev: NONE, next: NONE, word: 0 });
        } else {
            chunk.free = chunk.entries[place as usize].next;
        }
        chunk.used += 1;
        self.len += 1;
        Some(self.current * CHUNK as u32 + place)
    }

    /// Makes a place free that has no waker.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let (number, place) = (index / CHUNK as u32, index % CHUNK as u32);
        let chunk = &mut self.chunks[number as usize];
        let was_full = chunk.is_full();
        chunk.entries[place as usize].next = chunk.free;
        chunk.free = place;
        chunk.used -= 1;
        self.len -= 1;
        if number == self.current {
            return;
        }
        if was_full {
            chunk.next_open = self.open;
            self.open = number;
        }
        if chunk.used == 0 {
            if self.has_spare {
                chunk.entries = Vec::new();
                chunk.free = NONE;
            }
            self.has_spare = true;
        }
    }

    /// Makes another chunk the current one, whose places are all taken.
    #[cold]
    fn open_chunk(&mut self) -> Option<()> {
        if self.open == NONE {
            if self.chunks.len() == CHUNKS_MAX {
                return None;
            }
            self.chunks.push(Chunk { entries: Vec::new(), free: NONE, used: 0, next_open: NONE });
            self.current = self.chunks.len() as u32 - 1;
        } else {
            self.current = self.open;
            self.open = self.chunks[self.open as usize].next_open;
        }
        let chunk = &mut self.chunks[self.current as usize];
        if chunk.entries.is_empty() {
            chunk.entries.reserve_exact(CHUNK);
        } else if chunk.used == 0 {
            self.has_spare = false;
        }
        Some(())
    }
}

impl Chunk {
    #[inline]
    fn is_full(&self) -> bool {
        self.free == NONE && self.entries.len() == CHUNK
    }
}

/// What fits beside the number of a table is not in an entry; the handle of the timer has it.
pub(super) const LOW_BITS: u64 = 0xff;
/// Places of a chunk: 12 KiB.
pub(crate) const CHUNK: usize = 512;
/// So that an index has 30 bits.
const CHUNKS_MAX: usize = (1 << 30) / CHUNK;
/// No entry, no chunk.
const NONE: u32 = u32::MAX;
