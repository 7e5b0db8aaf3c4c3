//! The frames of the protocol, version 1, without I/O; `docs/sign.md` describes it.
//!
//! A frame is its length (four bytes, without themselves), its kind (one byte), and the content of
//! that kind. Numbers are big-endian.
//!
//! This module uses nothing else of the program, so that the fuzz targets can include it alone.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

/// An MD5 digest.
pub(super) type Digest = [u8; DIGEST_LEN];

/// A task that was signed, and is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Signed {
    /// Its place in the log.
    pub(super) sequence: u64,
    pub(super) first: Digest,
    pub(super) second: Digest,
}

/// A message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The client's first frame: the lowest and highest version that it speaks.
    Hello { lowest: u8, highest: u8 },
    /// The server's first frame.
    Welcome { version: u8, task_bytes_max: u32, in_flight_max: u32 },
    /// A task to be signed.
    Task { id: u64, body: Bytes },
    /// The task was signed and is in the log.
    Signed { id: u64, signed: Signed },
    /// The task was not signed, and is not in the log. The client may retry after this many
    /// milliseconds.
    Refused { id: u64, reason: u8, retry_after_ms: u32, text: String },
    /// The task could not be signed.
    Failed { id: u64, code: u8, text: String },
    /// The connection ends for this reason.
    Error { code: ErrorCode, text: String },
}

/// The reason why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorCode {
    /// The input is not a frame, or the frame is not allowed here.
    Malformed = 1,
    /// A task is larger than the server accepts.
    TooLarge = 2,
    /// Client and server have no version in common.
    Version = 3,
    /// The connection limit is reached.
    Connections = 4,
    /// The client was silent for too long, or too slow with a frame.
    TimeOut = 5,
}

impl ErrorCode {
    fn from_wire(code: u8) -> Option<ErrorCode> {
        [Self::Malformed, Self::TooLarge, Self::Version, Self::Connections, Self::TimeOut]
            .into_iter()
            .find(|known| *known as u8 == code)
    }
}

/// Input that is not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) code: ErrorCode,
    pub(super) text: String,
}

impl Frame {
    /// Appends the frame to `out`.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32(0);
        match self {
            Frame::Hello { lowest, highest } => {
                out.put_u8(HELLO);
                out.put_slice(MAGIC);
                out.put_slice(&[*lowest, *highest]);
            }
            Frame::Welcome { version, task_bytes_max, in_flight_max } => {
                out.put_u8(WELCOME);
                out.put_slice(MAGIC);
                out.put_u8(*version);
                out.put_u32(*task_bytes_max);
                out.put_u32(*in_flight_max);
            }
            Frame::Task { id, body } => {
                out.put_u8(TASK);
                out.put_u64(*id);
                out.put_slice(body);
            }
            Frame::Signed { id, signed } => {
                out.put_u8(SIGNED);
                out.put_u64(*id);
                out.put_u64(signed.sequence);
                out.put_slice(&signed.first);
                out.put_slice(&signed.second);
            }
            Frame::Refused { id, reason, retry_after_ms, text } => {
                out.put_u8(REFUSED);
                out.put_u64(*id);
                out.put_u8(*reason);
                out.put_u32(*retry_after_ms);
                out.put_slice(text.as_bytes());
            }
            Frame::Failed { id, code, text } => {
                out.put_u8(FAILED);
                out.put_u64(*id);
                out.put_u8(*code);
                out.put_slice(text.as_bytes());
            }
            Frame::Error { code, text } => {
                out.put_u8(ERROR);
                out.put_u8(*code as u8);
                out.put_slice(text.as_bytes());
            }
        }
        let len = u32::try_from(out.len() - start - LENGTH_LEN).expect("frames are limited to far less than 4 GB");
        out[start..start + LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
    }

    /// The length of the first frame in `buf`, including its length field, as soon as that field
    /// has arrived. Checks it before the rest arrives.
    ///
    /// # Errors
    ///
    /// The frame is empty, or its content exceeds `task_bytes_max`.
    pub(super) fn announced(buf: &[u8], task_bytes_max: usize) -> Result<Option<usize>, Malformed> {
        let Some((length, _)) = buf.split_first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let len = u32::from_be_bytes(*length) as usize;
        if len == 0 {
            return Err(malformed("a frame has at least a kind, and this one is empty"));
        }
        if len > TASK_HEAD_LEN + task_bytes_max {
            let most = TASK_HEAD_LEN + task_bytes_max;
            let text = format!("a frame of {len} bytes is too large: the limit is {most}");
            return Err(Malformed { code: ErrorCode::TooLarge, text });
        }
        Ok(Some(LENGTH_LEN + len))
    }

    /// Takes the first frame from `buf` if it is complete. Copies a small frame, so that it keeps
    /// no other bytes in memory.
    ///
    /// # Errors
    ///
    /// The input is not a frame, or its content exceeds `task_bytes_max`.
    pub(super) fn decode(buf: &mut BytesMut, task_bytes_max: usize) -> Result<Option<Frame>, Malformed> {
        let len = match Frame::announced(buf, task_bytes_max)? {
            Some(len) if buf.len() >= len => len,
            _ => return Ok(None),
        };
        let mut frame = match len <= COPIED_LEN_MAX {
            true => {
                let frame = Bytes::copy_from_slice(&buf[..len]);
                buf.advance(len);
                frame
            }
            false => buf.split_to(len).freeze(),
        };
        frame.advance(LENGTH_LEN);
        parse(frame).map(Some)
    }
}

fn parse(mut frame: Bytes) -> Result<Frame, Malformed> {
    let kind = frame.get_u8();
    let needed = match kind {
        HELLO => MAGIC.len() + 2,
        WELCOME => MAGIC.len() + 9,
        TASK => 8,
        SIGNED => 16 + 2 * DIGEST_LEN,
        REFUSED => 13,
        FAILED => 9,
        ERROR => 1,
        _ => return Err(malformed(&format!("version {VERSION} has no frames of kind {kind}"))),
    };
    let is_open = matches!(kind, TASK | REFUSED | FAILED | ERROR);
    if frame.len() < needed || (frame.len() > needed && !is_open) {
        return Err(malformed(&format!("a frame of kind {kind} cannot have {} bytes", frame.len())));
    }
    if matches!(kind, HELLO | WELCOME) && frame.split_to(MAGIC.len()) != MAGIC {
        return Err(malformed("the first frame does not begin as this protocol requires"));
    }
    Ok(match kind {
        HELLO => Frame::Hello { lowest: frame.get_u8(), highest: frame.get_u8() },
        WELCOME => {
            Frame::Welcome { version: frame.get_u8(), task_bytes_max: frame.get_u32(), in_flight_max: frame.get_u32() }
        }
        TASK => Frame::Task { id: frame.get_u64(), body: frame },
        SIGNED => {
            let (id, sequence) = (frame.get_u64(), frame.get_u64());
            Frame::Signed { id, signed: Signed { sequence, first: digest(&mut frame), second: digest(&mut frame) } }
        }
        REFUSED => {
            let (id, reason, retry_after_ms) = (frame.get_u64(), frame.get_u8(), frame.get_u32());
            Frame::Refused { id, reason, retry_after_ms, text: text(&frame) }
        }
        FAILED => Frame::Failed { id: frame.get_u64(), code: frame.get_u8(), text: text(&frame) },
        _ => {
            let code = ErrorCode::from_wire(frame.get_u8()).unwrap_or(ErrorCode::Malformed);
            Frame::Error { code, text: text(&frame) }
        }
    })
}

fn digest(frame: &mut Bytes) -> Digest {
    let mut digest = Digest::default();
    frame.copy_to_slice(&mut digest);
    digest
}

fn text(frame: &[u8]) -> String {
    String::from_utf8_lossy(frame).into_owned()
}

fn malformed(text: &str) -> Malformed {
    Malformed { code: ErrorCode::Malformed, text: text.to_owned() }
}

/// The version of the protocol.
pub(super) const VERSION: u8 = 1;

/// Frames of the server are small; a client accepts no larger ones.
pub(super) const REPLY_BYTES_MAX: usize = 4096;

pub(super) const DIGEST_LEN: usize = 16;

const MAGIC: &[u8] = b"DSGN";

/// The size of a frame's length field.
pub(super) const LENGTH_LEN: usize = 4;

/// The kind and the number of a task.
const TASK_HEAD_LEN: usize = 1 + 8;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const TASK: u8 = 3;
const SIGNED: u8 = 4;
const REFUSED: u8 = 5;
const FAILED: u8 = 6;
const ERROR: u8 = 7;

/// Copying this many bytes costs little compared with the two digests.
pub(super) const COPIED_LEN_MAX: usize = 16 * 1024;
