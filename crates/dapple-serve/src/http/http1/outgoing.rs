//! The output of a connection, collected so that one system call takes it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::observed::Observed;
use crate::http::Observer;

/// Heads and bodies in order.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Heads, chunk framing, and bodies so small that copying is cheaper than passing them on.
    text: Vec<u8>,
    pieces: Vec<Piece>,
    /// The number of pieces written.
    done: usize,
    /// The bytes written of the next piece.
    written: usize,
    /// The number of unwritten bytes.
    len: usize,
    /// The number of bytes written since the buffer was taken.
    total: u64,
    observed: Observed,
}

enum Piece {
    Text(Range<usize>),
    Shared(Bytes),
}

impl Outgoing {
    pub(super) fn new() -> Outgoing {
        Outgoing { text: Vec::with_capacity(TEXT_LEN), ..Outgoing::default() }
    }

    /// The number of bytes that wait to be written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether more can be added to the next write. After a write has begun, additions wait for its
    /// end: only then is the memory free again.
    pub(super) fn takes_more(&self) -> bool {
        self.len < BATCH_LEN && self.done == 0 && self.written == 0
    }

    /// Lets `write` append to the text.
    pub(super) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        let end = self.text.len();
        self.len += end - start;
        match self.pieces.last_mut() {
            Some(Piece::Text(range)) if range.end == start => range.end = end,
            _ => self.pieces.push(Piece::Text(start..end)),
        }
    }

    pub(super) fn bytes(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_LEN_MAX {
            return self.text(|text| text.extend_from_slice(&bytes));
        }
        self.len += bytes.len();
        self.pieces.push(Piece::Shared(bytes));
    }

    /// Adds an observer of the reply to which the last head belongs.
    pub(super) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observed.begin(observer, self.total + self.len as u64);
    }

    /// Notes that the last reply is added in full.
    pub(super) fn end_of_reply(&mut self) {
        if !self.observed.is_empty() {
            self.observed.end(self.total + self.len as u64);
            self.observed.written(self.total);
        }
    }

    /// Writes some of the output. Ready with the number of bytes, which is 0 only if there were
    /// none.
    pub(super) fn poll_write<S: dapple_io::Connection>(
        &mut self,
        stream: &S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.len == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut slices: [IoSlice<'_>; SLICES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
        let count = self.pieces.len().saturating_sub(self.done).min(SLICES_MAX);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces[self.done..]) {
            *slice = IoSlice::new(piece.bytes(&self.text));
        }
        if self.written > 0 {
            slices[0].advance(self.written);
        }
        // A single buffer is cheaper for the kernel.
        let written = match &slices[..count] {
            [one] => ready!(stream.poll_write(cx, &one[..one.len().min(WRITE_LEN_MAX)])),
            several => ready!(stream.poll_write_vectored(cx, several)),
        }?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, len: usize) {
        self.len -= len;
        self.total += len as u64;
        if !self.observed.is_empty() {
            self.observed.written(self.total);
        }
        if self.len == 0 {
            return self.reuse();
        }
        self.written += len;
        while let Some(piece) = self.pieces.get_mut(self.done)
            && self.written >= piece.bytes(&self.text).len()
        {
            self.written -= piece.bytes(&self.text).len();
            // Free the memory as soon as it is written.
            *piece = Piece::Text(0..0);
            self.done += 1;
        }
    }

    /// The number of bytes left of a piece, if no other bytes wait to be written.
    pub(super) fn last_piece_left(&self) -> Option<usize> {
        match self.pieces.get(self.done..) {
            Some([] | [Piece::Shared(_)]) => Some(self.len),
            _ => None,
        }
    }

    /// Discards the unwritten bytes, and their observers.
    pub(super) fn clear(&mut self) {
        self.reuse();
        self.observed.clear();
        self.total = 0;
    }

    /// Discards the unwritten bytes, and keeps the memory for reuse.
    pub(super) fn reuse(&mut self) {
        self.text.clear();
        self.pieces.clear();
        (self.done, self.written, self.len) = (0, 0, 0);
    }

    /// Whether the buffer is small enough to keep.
    pub(super) fn is_small(&self) -> bool {
        self.text.capacity() <= 4 * TEXT_LEN && self.pieces.capacity() <= 4 * SLICES_MAX
    }
}

impl Piece {
    fn bytes<'a>(&'a self, text: &'a [u8]) -> &'a [u8] {
        match self {
            Piece::Text(range) => &text[range.clone()],
            Piece::Shared(bytes) => bytes,
        }
    }
}

/// How many bytes are collected before they are written.
pub(super) const BATCH_LEN: usize = 64 << 10;

/// Bodies up to this length are copied after their heads.
const COPIED_LEN_MAX: usize = 512;

/// The most bytes of a single piece that one call writes: otherwise, if a client reads as fast as
/// bytes come, the kernel would take megabytes at once.
const WRITE_LEN_MAX: usize = 128 << 10;

/// The most pieces that one call writes.
const SLICES_MAX: usize = 16;

/// Room for the text of a few replies.
const TEXT_LEN: usize = 2 << 10;
