//! Buffers shared by connections: each takes one when bytes come or go, and returns it before it
//! waits.
//!
//! A pool belongs to a thread, so it needs no lock. It keeps a few buffers and frees the others.

use std::cell::RefCell;

/// The most bytes read at once: four full records.
pub(crate) const INCOMING: usize = 64 * 1024;
/// The most plaintext encrypted and written at once: eight full records.
pub(crate) const PLAINTEXT: usize = 128 * 1024;
/// `PLAINTEXT` encrypted: a record adds 22 bytes in TLS 1.3 and 29 in 1.2, and there may be small
/// records among them.
const OUTGOING: usize = PLAINTEXT + 4 * 1024;
/// A remainder up to this size moves to memory of its own size when its connection waits.
const SMALL: usize = 32 * 1024;
/// The limit for each kind and thread.
const KEPT_MAX: usize = 4;

/// The kinds of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Incoming,
    Outgoing,
}

/// Bytes in order: added at the end, taken at the front. Needs no memory when empty.
#[derive(Debug)]
pub(crate) struct Buffer {
    kind: Kind,
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

thread_local! {
    static POOLS: RefCell<[Vec<Vec<u8>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

impl Buffer {
    pub(crate) fn new(kind: Kind) -> Self {
        Buffer { kind, memory: Vec::new(), start: 0, end: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }

    /// Room of at least `least` bytes at the end; more if the buffer has it.
    pub(crate) fn spare(&mut self, least: usize) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        if self.memory.len() - self.end < least {
            self.make_room(least);
        }
        &mut self.memory[self.end..]
    }

    /// Adds the `count` bytes written to the room.
    pub(crate) fn add(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.memory.len(), "more was added than there was room for");
    }

    /// Removes `count` bytes from the front.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more was consumed than was there");
    }

    /// Releases memory that is not needed while the connection waits.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() {
            give(self.kind, std::mem::take(&mut self.memory));
            (self.start, self.end) = (0, 0);
        } else if self.memory.len() >= self.kind.size() && self.end - self.start <= SMALL {
            let rest = self.filled().to_vec();
            (self.start, self.end) = (0, rest.len());
            give(self.kind, std::mem::replace(&mut self.memory, rest));
        }
    }

    /// Makes room in a pooled buffer if that is large enough, at its front.
    fn make_room(&mut self, least: usize) {
        let len = self.end - self.start;
        if self.start > 0 && self.memory.len() - len >= least {
            self.memory.copy_within(self.start..self.end, 0);
        } else {
            let mut memory = take(self.kind);
            if memory.len() < len + least {
                memory.resize(len + least, 0);
            }
            memory[..len].copy_from_slice(self.filled());
            give(self.kind, std::mem::replace(&mut self.memory, memory));
        }
        (self.start, self.end) = (0, len);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give(self.kind, std::mem::take(&mut self.memory));
    }
}

impl Kind {
    fn size(self) -> usize {
        match self {
            Kind::Incoming => INCOMING,
            Kind::Outgoing => OUTGOING,
        }
    }
}

fn take(kind: Kind) -> Vec<u8> {
    let pooled = POOLS.try_with(|pools| pools.borrow_mut()[kind as usize].pop()).ok().flatten();
    pooled.unwrap_or_else(|| vec![0; kind.size()])
}

fn give(kind: Kind, memory: Vec<u8>) {
    // Other sizes are remainders and grown buffers.
    if memory.len() == kind.size() {
        // A thread that ends has no pool any more; then the memory is freed here.
        let _ = POOLS.try_with(|pools| {
            let pool = &mut pools.borrow_mut()[kind as usize];
            if pool.len() < KEPT_MAX {
                pool.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Kind};

    #[test]
    fn bytes_come_out_in_order_whatever_is_done_in_between() {
        let mut buffer = Buffer::new(Kind::Incoming);
        let (mut next_in, mut next_out) = (0_u8, 0_u8);
        for round in 1..2000_usize {
            let count = round * 7919 % 5000;
            let room = buffer.spare(count);
            assert!(room.len() >= count);
            for byte in &mut room[..count] {
                *byte = next_in;
                next_in = next_in.wrapping_add(1);
            }
            buffer.add(count);
            let taken = buffer.filled().len().min(round * 104_729 % 6000);
            for byte in &buffer.filled()[..taken] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            buffer.consume(taken);
            if round % 3 == 0 {
                buffer.rest();
            }
        }
    }

    #[test]
    fn a_buffer_without_bytes_has_no_memory_while_it_rests() {
        let mut buffer = Buffer::new(Kind::Outgoing);
        buffer.spare(10)[0] = 1;
        buffer.add(1);
        buffer.rest();
        assert_eq!(buffer.memory.len(), 1);
        buffer.consume(1);
        buffer.rest();
        assert_eq!(buffer.memory.capacity(), 0);
    }
}
