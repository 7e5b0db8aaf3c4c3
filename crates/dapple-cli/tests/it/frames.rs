//! A client of HTTP/2 that speaks in single frames, so that it can break rules and take its time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One connection.
pub(crate) struct Frames(TcpStream);

/// One frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Connects and says that streams have this much of a window at first.
    pub(crate) fn connect(port: u16, window: u32) -> Frames {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut frames = Frames(stream);
        frames.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut settings = vec![0, 4];
        settings.extend(window.to_be_bytes());
        frames.send(SETTINGS, 0, 0, &settings).unwrap();
        frames
    }

    /// Asks for a path; `more` are further fields.
    pub(crate) fn get(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) -> io::Result<()> {
        // :method GET, :scheme http by their numbers; all others spelled out.
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(":path", path)].iter().chain(more) {
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend(text.as_bytes());
            }
        }
        self.send(HEADERS, END_STREAM | END_HEADERS, stream, &block)
    }

    /// Takes a stream back.
    pub(crate) fn reset(&mut self, stream: u32) -> io::Result<()> {
        self.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
    }

    /// The next frame; settings and pings are acknowledged. `None` at the end, however it came.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        let mut read = |buf: &mut [u8]| match self.0.read_exact(buf) {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
            Err(error) => panic!("no frame: {error}"),
        };
        if !read(&mut head) {
            return None;
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        if !read(&mut payload) {
            return None;
        }
        let frame = Frame { kind: head[3], flags: head[4], payload };
        if matches!(frame.kind, SETTINGS | PING) && frame.flags & ACK == 0 {
            let payload = if frame.kind == PING { &frame.payload[..] } else { &[] };
            let _ = self.send(frame.kind, ACK, 0, payload);
        }
        Some(frame)
    }

    /// The frames up to the first of this kind, which is the last; `None` where the connection ends first.
    pub(crate) fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next()?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The status of the next reply, where it is one of those that have a number of their own.
    pub(crate) fn status(&mut self) -> u16 {
        let frame = self.until(HEADERS).expect("a reply");
        match frame.payload[0] {
            0x88 => 200,
            0x8b => 304,
            0x8c => 400,
            0x8d => 404,
            0x8e => 500,
            other => panic!("{other:x} is none of them"),
        }
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame)
    }
}

/// How long a test waits for a frame before it fails.
const PATIENCE: Duration = Duration::from_secs(40);
