//! Frames from a connection.

use std::io;

use bytes::BytesMut;
use dapple::net::{ReadHalf, TcpStream};

use super::protocol::{Frame, Malformed};

/// The reading half of a connection, frame by frame.
#[derive(Debug)]
pub(super) struct Frames {
    read: ReadHalf<TcpStream>,
    /// Less than a frame and a chunk.
    buf: BytesMut,
    task_bytes_max: usize,
}

/// Why there is no further frame.
#[derive(Debug)]
pub(super) enum End {
    /// The other side has said all.
    Finished,
    /// It was cut off in a frame, or the network failed.
    Cut(io::Error),
    Malformed(Malformed),
}

impl Frames {
    pub(super) fn new(read: ReadHalf<TcpStream>, task_bytes_max: usize) -> Frames {
        Frames { read, buf: BytesMut::new(), task_bytes_max }
    }

    /// Whether a frame has begun to come.
    pub(super) fn is_amid(&self) -> bool {
        !self.buf.is_empty()
    }

    /// The next frame. Cancel safe: what has come is kept.
    pub(super) async fn next(&mut self) -> Result<Frame, End> {
        loop {
            if let Some(frame) = self.ready()? {
                return Ok(frame);
            }
            self.read_more().await?;
        }
    }

    /// The next frame, if it is here already.
    pub(super) fn ready(&mut self) -> Result<Option<Frame>, End> {
        Frame::decode(&mut self.buf, self.task_bytes_max).map_err(End::Malformed)
    }

    /// Waits for more bytes. Cancel safe.
    pub(super) async fn read_more(&mut self) -> Result<(), End> {
        let mut chunk = [0; CHUNK_LEN];
        match self.read.read(&mut chunk).await {
            Ok(0) if self.buf.is_empty() => Err(End::Finished),
            Ok(0) => Err(End::Cut(io::ErrorKind::UnexpectedEof.into())),
            Ok(len) => {
                self.buf.extend_from_slice(&chunk[..len]);
                Ok(())
            }
            Err(error) => Err(End::Cut(error)),
        }
    }

    /// Reads what still comes, and drops it: what is closed with bytes unread would be reset, and take answers on their way along.
    pub(super) async fn discard(&mut self) {
        let mut chunk = [0; CHUNK_LEN];
        while self.read.read(&mut chunk).await.is_ok_and(|len| len > 0) {}
    }
}

const CHUNK_LEN: usize = 16 * 1024;
