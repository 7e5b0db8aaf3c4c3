//! What goes out, gathered so that one call to the kernel takes it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::observed::Observed;
use crate::http::Observer;

/// Heads and bodies in their order.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Heads, what frames chunks, and bodies that are smaller than what it costs to hand them over.
    text: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces that are written.
    done: usize,
    /// Bytes written of the piece after those.
    written: usize,
    /// Bytes that are not written.
    len: usize,
    /// Bytes that are, since the buffer was taken.
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

    /// Bytes that wait to be written.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether more can be added to what is written next. Once that has begun, what is added waits for its end: only then is memory used
    /// again.
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

    /// Tells this one of the reply whose head was added just now.
    pub(super) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observed.begin(observer, self.total + self.len as u64);
    }

    /// The last reply is added in full.
    pub(super) fn end_of_reply(&mut self) {
        if !self.observed.is_empty() {
            self.observed.end(self.total + self.len as u64);
            self.observed.written(self.total);
        }
    }

    /// Writes some of it: ready with how much, never with nothing written unless there was nothing.
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
        // One buffer is cheaper for the kernel when it comes alone.
        let written = match &slices[..count] {
            [one] => ready!(stream.poll_write(cx, one)),
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
            // The memory goes as soon as it is written.
            *piece = Piece::Text(0..0);
            self.done += 1;
        }
    }

    /// How many bytes of a piece are left, if nothing else waits to be written.
    pub(super) fn last_piece_left(&self) -> Option<usize> {
        match self.pieces.get(self.done..) {
            Some([] | [Piece::Shared(_)]) => Some(self.len),
            _ => None,
        }
    }

    /// Forgets the bytes that are not written, and their observers.
    pub(super) fn clear(&mut self) {
        self.reuse();
        self.observed.clear();
        self.total = 0;
    }

    /// Forgets what is not written, and has its memory for what comes next.
    pub(super) fn reuse(&mut self) {
        self.text.clear();
        self.pieces.clear();
        (self.done, self.written, self.len) = (0, 0, 0);
    }

    /// Whether its memory is worth keeping.
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

/// How much is gathered before it is written.
pub(super) const BATCH_LEN: usize = 64 << 10;

/// Bodies up to this length are copied behind their heads.
const COPIED_LEN_MAX: usize = 512;

/// How many pieces one call writes.
const SLICES_MAX: usize = 16;

/// Room for the text of a few replies.
const TEXT_LEN: usize = 2 << 10;
