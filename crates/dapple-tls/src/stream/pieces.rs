//! Splits several buffers into pieces that are worth a record.

use std::io::IoSlice;

use super::session::RECORD;
use crate::buffers::{Buffer, Kind};

/// Small buffers are joined, because a record costs more than copying them; large ones are used
/// directly.
pub(crate) struct Pieces<'a, 'b> {
    bufs: &'a [IoSlice<'b>],
    /// The processed part of the first buffer.
    start: usize,
    joined: Buffer,
}

impl<'a, 'b> Pieces<'a, 'b> {
    pub(crate) fn new(bufs: &'a [IoSlice<'b>]) -> Self {
        Pieces { bufs, start: 0, joined: Buffer::new(Kind::Incoming) }
    }

    /// The total number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.bufs.iter().map(|buf| buf.len()).sum::<usize>() - self.start
    }

    /// The next piece, at most `limit` bytes.
    pub(crate) fn next(&mut self, limit: usize) -> Option<&[u8]> {
        let len = self.skip_empty()?;
        if len >= JOINED_BELOW.min(limit) || self.bufs.len() == 1 {
            let piece = &self.bufs[0][self.start..][..len.min(limit)];
            self.start += piece.len();
            return Some(piece);
        }
        self.joined.consume(self.joined.filled().len());
        let mut room = limit.min(RECORD);
        while room > 0 {
            let Some(len) = self.skip_empty() else { break };
            let count = len.min(room);
            self.joined.spare(room)[..count].copy_from_slice(&self.bufs[0][self.start..][..count]);
            self.joined.add(count);
            self.start += count;
            room -= count;
        }
        Some(self.joined.filled())
    }

    /// Advances to the first non-empty buffer, and returns its remaining length.
    fn skip_empty(&mut self) -> Option<usize> {
        while self.start == self.bufs.first()?.len() {
            self.bufs = &self.bufs[1..];
            self.start = 0;
        }
        Some(self.bufs[0].len() - self.start)
    }
}

/// A buffer from this size on gets its own records.
const JOINED_BELOW: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use proptest::prelude::*;

    use super::{Pieces, RECORD};

    #[test]
    fn a_head_and_a_body_are_one_record() {
        let (head, body) = (vec![1; 200], vec![2; 4000]);
        let bufs = [IoSlice::new(&head), IoSlice::new(&body)];
        let mut pieces = Pieces::new(&bufs);
        assert_eq!(pieces.next(100_000).map(<[u8]>::len), Some(4200));
        assert_eq!(pieces.next(100_000), None);
    }

    proptest! {
        #[test]
        fn pieces_are_the_buffers(lens in proptest::collection::vec(0..40_000_usize, 0..6), limit in 1..200_000_usize) {
            let mut all = Vec::new();
            let buffers: Vec<Vec<u8>> = lens.iter().enumerate().map(|(index, len)| {
                let buffer: Vec<u8> = (0..*len).map(|at| u8::try_from((at * 7 + index) % 251).expect("small")).collect();
                all.extend_from_slice(&buffer);
                buffer
            }).collect();
            let bufs: Vec<IoSlice<'_>> = buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
            let mut pieces = Pieces::new(&bufs);
            prop_assert_eq!(pieces.len(), all.len());
            let mut seen = Vec::new();
            while let Some(piece) = pieces.next(limit) {
                prop_assert!(!piece.is_empty() && piece.len() <= limit.max(RECORD));
                seen.extend_from_slice(piece);
            }
            prop_assert_eq!(seen, all);
        }
    }
}
