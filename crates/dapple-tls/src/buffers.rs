//! Buffers that connections share: each takes one when bytes come or go, and gives it back before it waits.
//!
//! A pool belongs to a thread, so nothing is locked. It keeps a few buffers; what is given back beyond that is freed.

use std::cell::RefCell;

/// How much is read at once: four full records.
pub(crate) const INCOMING: usize = 64 * 1024;
/// How much plaintext is encrypted and written at once: eight full records.
pub(crate) const PLAINTEXT: usize = 128 * 1024;
/// `PLAINTEXT` encrypted: a record adds 22 bytes in TLS 1.3 and 29 in 1.2, and there may be small records among them.
const OUTGOING: usize = PLAINTEXT + 4 * 1024;
/// A rest up to this size moves to memory of its own size when its connection waits.
const SMALL: usize = 32 * 1024;
/// Of each kind, for each thread.
const KEPT_MAX: usize = 4;

/// The kinds of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Incoming,
    Outgoing,
}

/// Bytes in order: added at the end, taken at the front. Without bytes it need not have memory.
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

    /// Room of at least `least` bytes at the end; more where the buffer has it.
    pub(crate) fn spare(&mut self, least: usize) -> &mut [u8] {
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
        if self.memory.len() - self.end < least {
            self.make_room(least);
        }
        &mut self.memory[self.end..]
    }

    /// `count` bytes were written to the room.
    pub(crate) fn add(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.memory.len(), "more was added than there was room for");
    }

    /// `count` bytes at the front are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "more was consumed than there was");
    }

    /// Gives memory back that is not needed while the connection waits.
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

    /// To a pooled buffer if that is enough, to the front of it.
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
    // Others are odd ones: rests, and what had to grow.
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
