//! A file sent piece by piece.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::{ReadWriteFlags, preadv2};

use super::counters::Counters;
use super::disk::FileHandle;
use crate::http::BodyStream;

/// A file read one piece at a time: a slow client costs the memory of two pieces, or none if many
/// clients are slow.
pub(crate) struct FileStream {
    handle: Arc<FileHandle>,
    at: u64,
    end: u64,
    reading: Option<Reading>,
    /// Whether a piece was given.
    is_begun: bool,
    /// Up to where bytes are counted.
    counted: u64,
    counters: Arc<Counters>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

/// Memory for pieces of equal length, shared by all files in transit. It is zeroed once, not for
/// every piece.
struct Memory {
    free: Mutex<Vec<Vec<u8>>>,
    /// The number of pieces in use.
    in_use: AtomicUsize,
}

/// A piece of that memory.
struct Piece {
    memory: Vec<u8>,
    len: usize,
}

static MEMORY: Memory = Memory { free: Mutex::new(Vec::new()), in_use: AtomicUsize::new(0) };

impl FileStream {
    /// Sends these bytes of the file, which had its stated length when it was looked up.
    pub(crate) fn new(handle: Arc<FileHandle>, bytes: Range<u64>, counters: Arc<Counters>) -> FileStream {
        let (at, end) = (bytes.start, bytes.end);
        FileStream { handle, at, end, reading: None, is_begun: false, counted: at, counters }
    }

    /// The next piece, if the kernel has it in its cache, so that reading does not wait.
    fn read_at_once(&self) -> Option<io::Result<Bytes>> {
        // The first piece is read in the turn that answers the request, with those of other new
        // requests.
        let len_max = if self.is_begun { PIECE_LEN } else { FIRST_PIECE_LEN };
        let len = usize::try_from(self.end - self.at).unwrap_or(len_max).min(len_max);
        let mut piece = Piece { memory: MEMORY.take(), len: 0 };
        let mut slices = [IoSliceMut::new(&mut piece.memory[..len])];
        piece.len = preadv2(self.handle.file.as_std(), &mut slices, self.at, ReadWriteFlags::NOWAIT).unwrap_or(0);
        if piece.len == 0 {
            return None;
        }
        Some(self.handle.check().map(|()| Bytes::from_owner(piece)))
    }

    fn give(&mut self, piece: io::Result<Bytes>) -> Poll<Option<io::Result<Bytes>>> {
        // The length has been promised: after an error, only ending the connection can show that
        // the promise is broken.
        if let Ok(piece) = &piece {
            self.is_begun = true;
            self.at += piece.len() as u64;
            self.counters.add_bytes(self.at.saturating_sub(self.counted));
            self.counted = self.counted.max(self.at);
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

    fn take_back(&mut self, len: usize) -> bool {
        // Relaxed: only a number.
        let is_scarce = MEMORY.in_use.load(Ordering::Relaxed) > IN_USE_MAX;
        if is_scarce {
            self.at -= len as u64;
            self.reading = None;
        }
        is_scarce
    }
}

impl Memory {
    fn take(&self) -> Vec<u8> {
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| vec![0; PIECE_LEN])
    }

    fn give(&self, memory: Vec<u8>) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.push(memory);
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        MEMORY.give(std::mem::take(&mut self.memory));
    }
}

/// How much is read at once: some 20 us of copying. Twice as much is not cheaper.
const PIECE_LEN: usize = 128 * 1024;

/// The same of the first piece: it costs a newcomer behind it 3 us, not 20.
const FIRST_PIECE_LEN: usize = 16 * 1024;

/// If more pieces than this (32 MB) are in use, the pieces of clients that read nothing are freed,
/// and read again later.
const IN_USE_MAX: usize = 256;

/// How many free pieces are kept for reuse: 4 MB.
const FREE_MAX: usize = 32;
