//! An HTTP/2 client that works on single frames, so that it can break rules and pause.

use std::io::{self, ErrorKind, Read, Write};

use crate::Wire;

/// A piece of a body.
pub const DATA: u8 = 0;
/// A head, or its beginning.
pub const HEADERS: u8 = 1;
/// One side cancels a stream.
pub const RST_STREAM: u8 = 3;
/// The settings of one side.
pub const SETTINGS: u8 = 4;
/// A check that the other side is alive.
pub const PING: u8 = 6;
/// No more streams.
pub const GOAWAY: u8 = 7;
/// Room for more of a body.
pub const WINDOW_UPDATE: u8 = 8;
/// More of a head.
pub const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One connection.
pub struct Frames {
    wire: Wire,
    /// Frames not yet [flushed](Frames::flush).
    unsent: Vec<u8>,
}

/// One frame.
#[derive(Debug)]
pub struct Frame {
    /// The type, such as [`DATA`].
    pub kind: u8,
    /// Their meaning depends on the type.
    pub flags: u8,
    /// The bytes after the nine of the frame header.
    pub payload: Vec<u8>,
}

impl Frames {
    /// Starts on a new connection, with this initial window for streams.
    ///
    /// # Errors
    ///
    /// The server has closed the connection.
    pub fn begin(wire: Wire, window: u32) -> io::Result<Frames> {
        let mut frames = Frames { wire, unsent: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec() };
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        frames.put(SETTINGS, 0, 0, &settings);
        frames.flush()?;
        Ok(frames)
    }

    /// Requests a path; `more` are further fields.
    ///
    /// # Errors
    ///
    /// The server has closed the connection.
    pub fn get(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) -> io::Result<()> {
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block(path, more))
    }

    /// Resets a stream.
    ///
    /// # Errors
    ///
    /// The server has closed the connection.
    pub fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.send(RST_STREAM, 0, stream, &CANCEL)
    }

    /// The next frame; acknowledges settings and pings. `None` if the server has ended the
    /// connection in any way.
    ///
    /// # Errors
    ///
    /// No frame came for too long.
    pub fn receive(&mut self) -> io::Result<Option<Frame>> {
        let mut head = [0; 9];
        if !self.read(&mut head)? {
            return Ok(None);
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        if !self.read(&mut payload)? {
            return Ok(None);
        }
        let frame = Frame { kind: head[3], flags: head[4], payload };
        if matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0 {
            let payload = if frame.kind == PING { &frame.payload[..] } else { &[] };
            // A server that ends the connection with this may have sent more before.
            let _ = self.send(frame.kind, ACK, 0, payload);
        }
        Ok(Some(frame))
    }

    /// Reads up to the first frame of this type, and returns it; `None` if the connection ends
    /// first.
    ///
    /// # Errors
    ///
    /// No frame came for too long.
    pub fn until(&mut self, kind: u8) -> io::Result<Option<Frame>> {
        loop {
            match self.receive()? {
                Some(frame) if frame.kind != kind => {}
                end => return Ok(end),
            }
        }
    }

    /// Sends one frame.
    ///
    /// # Errors
    ///
    /// The server has closed the connection.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.put(kind, flags, stream, payload);
        self.flush()
    }

    /// The underlying connection.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// As [`send`](Frames::send), but in one write with the next frames.
    pub(crate) fn put(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.unsent.extend(&len[1..]);
        self.unsent.extend([kind, flags]);
        self.unsent.extend(stream.to_be_bytes());
        self.unsent.extend(payload);
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let sent = self.wire.write_all(&self.unsent).and_then(|()| self.wire.flush());
        self.unsent.clear();
        sent
    }

    /// False if the connection has ended.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<bool> {
        match self.wire.read_exact(buf) {
            Ok(()) => Ok(true),
            Err(error) if is_end(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

/// The head of a request: `:method` GET and `:scheme` http as indexes, all other fields as
/// literals.
pub(crate) fn block(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x82, 0x86];
    for (name, value) in [(":path", path)].iter().chain(more) {
        block.push(0);
        for text in [name, value] {
            // Longer values are not needed here, and would have a length of several bytes.
            block.push(text.len().min(126) as u8);
            block.extend(&text.as_bytes()[..text.len().min(126)]);
        }
    }
    block
}

pub(crate) const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
