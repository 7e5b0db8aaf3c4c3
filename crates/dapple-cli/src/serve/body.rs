//! A file that is sent piece by piece.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::counters::Counters;
use super::disk::FileHandle;
use crate::http::BodyStream;

/// A file read one piece at a time: a slow client costs one piece of memory.
pub(crate) struct FileStream {
    handle: Arc<FileHandle>,
    at: u64,
    end: u64,
    reading: Option<Reading>,
    counters: Arc<Counters>,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Vec<u8>>> + Send>>;

impl FileStream {
    /// These bytes of the file; its whole length is the one that it had when it was looked up.
    pub(crate) fn new(handle: Arc<FileHandle>, bytes: Range<u64>, counters: Arc<Counters>) -> FileStream {
        FileStream { handle, at: bytes.start, end: bytes.end, reading: None, counters }
    }
}

impl BodyStream for FileStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at == self.end {
            return Poll::Ready(None);
        }
        let reading = self.reading.get_or_insert_with(|| {
            let (handle, at, end) = (self.handle.clone(), self.at, self.end);
            Box::pin(async move { handle.read_chunk(at, end).await })
        });
        let outcome = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let chunk = match outcome {
            Ok(chunk) => chunk,
            // The length has been promised. Ending the connection is the only way left to say that it was not kept.
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        self.at += chunk.len() as u64;
        self.counters.add_bytes(chunk.len() as u64);
        Poll::Ready(Some(Ok(Bytes::from(chunk))))
    }

    fn len(&self) -> Option<u64> {
        Some(self.end - self.at)
    }
}
