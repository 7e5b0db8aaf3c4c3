//! The memory of a wheel's timers: 24 bytes each, in chunks that come and go with the load.
//!
//! New timers take the free places of one chunk before those of the next, in whatever order the
//! places were freed. Otherwise a million places freed at random would be taken at random, each
//! with a cache miss.
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
    /// The waker's data, if `word` has the number of its table.
    data: *const (),
    pub(super) prev: u32,
    pub(super) next: u32,
    /// The deadline without its lowest eight bits; these have the number of the waker's table, or
    /// `NO_WAKER`.
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

    /// Takes the waker out.
    pub(super) fn take_packed(&mut self) -> Option<Packed> {
        let packed = self.packed();
        self.word &= !LOW_BITS;
        packed
    }

    /// Sets the waker. The entry has none now, or one that other code has taken over.
    pub(super) fn set_packed(&mut self, packed: Packed) {
        self.data = packed.data;
        self.word = self.word & !LOW_BITS | u64::from(packed.table);
    }
}

/// See the module's text.
pub(super) struct Entries {
    chunks: Vec<Chunk>,
    /// The chunk for new timers.
    current: u32,
    /// The first of the other chunks with free places.
    open: u32,
    /// Whether an empty chunk has kept its memory.
    has_spare: bool,
    len: usize,
}

struct Chunk {
    /// Slots that were in use before; without capacity if there is no memory. Not made at once,
    /// because the first use of memory is a good part of a timer's cost.
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

    /// Number of timers.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Entry {
        &mut self.chunks[index as usize / CHUNK].entries[index as usize % CHUNK]
    }

    /// A place for a timer; `None` if there are too many timers.
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

    /// Frees a place without a waker.
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

    /// Replaces the current chunk, which is full, by another one.
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

/// The bits of a deadline that the table's number replaces in an entry; the timer's handle has
/// them.
pub(super) const LOW_BITS: u64 = 0xff;
/// Places of a chunk: 12 KiB.
pub(crate) const CHUNK: usize = 512;
/// Limits an index to 30 bits.
const CHUNKS_MAX: usize = (1 << 30) / CHUNK;
/// No entry, no chunk.
const NONE: u32 = u32::MAX;
