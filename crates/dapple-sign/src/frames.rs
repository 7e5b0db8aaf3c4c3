//! Reads frames from a connection.

use std::io;

use bytes::BytesMut;
use dapple::net::{ReadHalf, TcpStream};

use super::frame::{COPIED_LEN_MAX, Frame, Malformed};

/// The reading half of a connection, frame by frame.
#[derive(Debug)]
pub(super) struct Frames {
    read: ReadHalf<TcpStream>,
    /// At most two chunks, or one larger frame.
    buf: BytesMut,
    chunk: Box<[u8]>,
    task_bytes_max: usize,
}

/// The reason why there is no further frame.
#[derive(Debug)]
pub(super) enum End {
    /// The other side has finished.
    Finished,
    /// The connection ended within a frame, or the network failed.
    Cut(io::Error),
    Malformed(Malformed),
}

impl Frames {
    pub(super) fn new(read: ReadHalf<TcpStream>, task_bytes_max: usize) -> Frames {
        Frames { read, buf: BytesMut::new(), chunk: vec![0; CHUNK_LEN].into(), task_bytes_max }
    }

    /// Allows tasks of this size from now on.
    pub(super) fn allow(&mut self, task_bytes_max: usize) {
        self.task_bytes_max = task_bytes_max;
    }

    /// Whether a part of a frame has arrived.
    pub(super) fn is_amid(&self) -> bool {
        !self.buf.is_empty()
    }

    /// Waits for the length of the next frame; the rest of it may be unread. Cancel safe: bytes
    /// that have arrived stay.
    pub(super) async fn length(&mut self) -> Result<usize, End> {
        loop {
            if let Some(len) = self.announced()? {
                return Ok(len);
            }
            self.read_more().await?;
        }
    }

    /// Returns the next frame. Cancel safe: bytes that have arrived stay.
    pub(super) async fn next(&mut self) -> Result<Frame, End> {
        loop {
            if let Some(frame) = self.ready()? {
                return Ok(frame);
            }
            self.read_more().await?;
        }
    }

    /// Returns the next frame, if it has arrived already.
    pub(super) fn ready(&mut self) -> Result<Option<Frame>, End> {
        Frame::decode(&mut self.buf, self.task_bytes_max).map_err(End::Malformed)
    }

    fn announced(&self) -> Result<Option<usize>, End> {
        Frame::announced(&self.buf, self.task_bytes_max).map_err(End::Malformed)
    }

    /// Waits for more bytes. Cancel safe.
    pub(super) async fn read_more(&mut self) -> Result<(), End> {
        let wanted = match self.announced()? {
            // A large frame gets memory of its own, of just that length, without the bytes after
            // it.
            Some(len) if len > COPIED_LEN_MAX && len > self.buf.len() => {
                if self.buf.capacity() != len {
                    let mut exact = BytesMut::with_capacity(len);
                    exact.extend_from_slice(&self.buf);
                    self.buf = exact;
                }
                (len - self.buf.len()).min(CHUNK_LEN)
            }
            _ => CHUNK_LEN,
        };
        match self.read.read(&mut self.chunk[..wanted]).await {
            Ok(0) if self.buf.is_empty() => Err(End::Finished),
            Ok(0) => Err(End::Cut(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                self.buf.extend_from_slice(&self.chunk[..len]);
                Ok(())
            }
            Err(error) => Err(End::Cut(error)),
        }
    }

    /// Reads and discards further input: closing with unread bytes would reset the connection, and
    /// lose answers on their way.
    pub(super) async fn discard(&mut self) {
        while self.read.read(&mut self.chunk).await.is_ok_and(|len| len > 0) {}
    }
}

const CHUNK_LEN: usize = 16 * 1024;
