//! A file that is sent piece by piece.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use super::counters::Counters;
use super::disk::FileHandle;
use crate::http::BodyStream;

/// A file read one piece at a time: a slow client costs one piece of memory.
pub(crate) struct FileStream {
    handle: Arc<FileHandle>,
    at: u64,
    end: u64,
    reading: Option<Reading>,
    /// The memory of the last piece, to be used for the next one.
    spare: Arc<Spare>,
    counters: Arc<Counters>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// Where a piece's memory goes when the piece has been sent. It is filled with zeros once, not for every piece.
#[derive(Default)]
struct Spare(Mutex<Option<Vec<u8>>>);

/// A piece in such memory.
struct Piece {
    memory: Vec<u8>,
    len: usize,
    home: Arc<Spare>,
}

impl FileStream {
    /// These bytes of the file; its whole length is the one that it had when it was looked up.
    pub(crate) fn new(handle: Arc<FileHandle>, bytes: Range<u64>, counters: Arc<Counters>) -> FileStream {
        let (at, end) = (bytes.start, bytes.end);
        FileStream { handle, at, end, reading: None, spare: Arc::default(), counters }
    }

    /// The next piece, if the kernel has it in its cache: then reading it does not wait.
    fn read_at_once(&self) -> Option<io::Result<Bytes>> {
        let len = usize::try_from(self.end - self.at).unwrap_or(PIECE_LEN).min(PIECE_LEN);
        let mut memory = self.spare.take().filter(|memory| memory.len() >= len).unwrap_or_else(|| vec![0; len]);
        let mut slices = [IoSliceMut::new(&mut memory[..len])];
        let count = preadv2(self.handle.file.as_std(), &mut slices, self.at, ReadWriteFlags::NOWAIT);
        let piece = Piece { memory, len: count.unwrap_or(0), home: self.spare.clone() };
        if piece.len == 0 {
            return None;
        }
        Some(self.handle.check().map(|()| Bytes::from_owner(piece)))
    }

    fn give(&mut self, piece: io::Result<Bytes>) -> Poll<Option<io::Result<Bytes>>> {
        // The length has been promised: after an error, ending the connection is the only way left to say that it was not kept.
        if let Ok(piece) = &piece {
            self.at += piece.len() as u64;
            self.counters.add_bytes(piece.len() as u64);
        }
        Poll::Ready(Some(piece))
    }
}

impl BodyStream for FileStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at == self.end {
            return Poll::Ready(None);
        }
        if self.reading.is_none()
            && let Some(piece) = self.read_at_once()
        {
            return self.give(piece);
        }
        let reading = self.reading.get_or_insert_with(|| {
            let (handle, at, end) = (self.handle.clone(), self.at, self.end);
            Box::pin(async move { handle.read_chunk(at, end).await })
        });
        let outcome = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        self.give(outcome.map(Bytes::from))
    }

    fn len(&self) -> Option<u64> {
        Some(self.end - self.at)
    }
}

impl Spare {
    fn take(&self) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        *self.home.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(memory);
    }
}

/// How much is read on the spot, and so in memory at a time for each response: some 20 us of copying. Twice as much is not cheaper.
const PIECE_LEN: usize = 128 * 1024;
