//! The protocol, version 1, without any input or output: `docs/sign.md` describes it for others.
//!
//! A frame is its length (four bytes, of what follows), its kind (one byte), and what the kind has. Numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dapple::stage::{Reason, Refused};
use std::time::Duration;

use super::digest::{DIGEST_LEN, Digest};
use super::signer::{Failure, Kind, Signed};

/// What is said over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The client's first word: the lowest and the highest version that it speaks.
    Hello { lowest: u8, highest: u8 },
    /// The server's first word.
    Welcome { version: u8, task_bytes_max: u32, in_flight_max: u32 },
    /// To be signed.
    Task { id: u64, body: Bytes },
    /// It was signed and is in the log.
    Signed { id: u64, signed: Signed },
    /// It was not signed, and is not in the log. It may be tried again after so many milliseconds.
    Refused { id: u64, reason: u8, retry_after_ms: u32, text: String },
    /// It could not be signed.
    Failed { id: u64, code: u8, text: String },
    /// The connection ends, for this reason.
    Error { code: ErrorCode, text: String },
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorCode {
    /// What came is no frame, or none that may come here.
    Malformed = 1,
    /// A task is larger than the server takes.
    TooLarge = 2,
    /// No version that both speak.
    Version = 3,
    /// As many connections as may be.
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

/// What came is no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) code: ErrorCode,
    pub(super) text: String,
}

impl Frame {
    /// The answer to a task.
    pub(super) fn answer(id: u64, result: Result<Signed, Failure>) -> Frame {
        match result {
            Ok(signed) => Frame::Signed { id, signed },
            Err(Failure::Refused(refused)) => Frame::refusal(id, &refused),
            Err(Failure::Failed(kind, text)) => Frame::Failed { id, code: kind as u8, text },
        }
    }

    fn refusal(id: u64, refused: &Refused) -> Frame {
        let reason = match refused.reason {
            Reason::Full { .. } | Reason::Memory => 1,
            Reason::Busy => 2,
            Reason::Stopping => 3,
            Reason::Unavailable => 4,
            _ => 255,
        };
        let retry_after = refused.retry_after.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
        let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
        Frame::Refused { id, reason, retry_after_ms, text: refused.reason.to_string() }
    }

    /// Appends it.
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

    /// Takes the first frame from `buf`, where it is there as a whole. No more than the length is waited for, and that is
    /// judged before the rest comes.
    ///
    /// # Errors
    ///
    /// What comes is no frame, or has more than `task_bytes_max` in it.
    pub(super) fn decode(buf: &mut BytesMut, task_bytes_max: usize) -> Result<Option<Frame>, Malformed> {
        let Some((length, _)) = buf.split_first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        let len = u32::from_be_bytes(*length) as usize;
        if len == 0 {
            return Err(malformed("a frame has a kind at least, and this one is empty"));
        }
        if len > TASK_HEAD_LEN + task_bytes_max {
            let text = format!("a frame of {len} bytes is too large: tasks have up to {task_bytes_max} bytes here");
            return Err(Malformed { code: ErrorCode::TooLarge, text });
        }
        if buf.len() < LENGTH_LEN + len {
            return Ok(None);
        }
        let mut frame = buf.split_to(LENGTH_LEN + len).freeze();
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
        _ => return Err(malformed(&format!("there are no frames of kind {kind} in version {VERSION}"))),
    };
    let is_open = matches!(kind, TASK | REFUSED | FAILED | ERROR);
    if frame.len() < needed || (frame.len() > needed && !is_open) {
        return Err(malformed(&format!("a frame of kind {kind} cannot have {} bytes", frame.len())));
    }
    if matches!(kind, HELLO | WELCOME) && frame.split_to(MAGIC.len()) != MAGIC {
        return Err(malformed("the first frame does not begin as this protocol does"));
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

impl Kind {
    /// What a code means to who reads it.
    pub(super) fn is_log_full(code: u8) -> bool {
        code == Kind::LogFull as u8
    }
}

/// The version that is spoken here.
pub(super) const VERSION: u8 = 1;

/// Frames of the server are small; a client needs no more than this.
pub(super) const REPLY_BYTES_MAX: usize = 4096;

const MAGIC: &[u8] = b"DSGN";

const LENGTH_LEN: usize = 4;

/// The kind and the number of a task.
const TASK_HEAD_LEN: usize = 1 + 8;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const TASK: u8 = 3;
const SIGNED: u8 = 4;
const REFUSED: u8 = 5;
const FAILED: u8 = 6;
const ERROR: u8 = 7;

/// Who comes back at once only finds the same.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        let signed = Signed { sequence: 7, first: [1; DIGEST_LEN], second: [2; DIGEST_LEN] };
        let refused = Refused::new(Reason::Busy, Duration::from_secs(100_000));
        vec![
            Frame::Hello { lowest: 1, highest: 3 },
            Frame::Welcome { version: 1, task_bytes_max: 5_000, in_flight_max: 9 },
            Frame::Task { id: u64::MAX, body: Bytes::from(vec![9; 5_000]) },
            Frame::Task { id: 0, body: Bytes::new() },
            Frame::answer(1, Ok(signed)),
            Frame::answer(2, Err(Failure::Refused(refused))),
            Frame::answer(3, Err(Failure::Failed(Kind::LogFull, "full".to_owned()))),
            Frame::Error { code: ErrorCode::TimeOut, text: "late".to_owned() },
        ]
    }

    #[test]
    fn frames_come_out_as_they_went_in_also_byte_by_byte() {
        let mut wire = BytesMut::new();
        all().iter().for_each(|frame| frame.encode(&mut wire));
        let (mut buf, mut came) = (BytesMut::new(), Vec::new());
        for byte in wire {
            buf.put_u8(byte);
            came.extend(Frame::decode(&mut buf, 5_000).unwrap());
        }
        assert_eq!(came, all());
        assert!(buf.is_empty());
    }

    #[test]
    fn what_is_no_frame_is_refused_before_the_rest_of_it_comes() {
        let cases: [(&[u8], ErrorCode); 6] = [
            (&[0, 0, 0, 0], ErrorCode::Malformed),
            (&[0xff, 0xff, 0xff, 0xff], ErrorCode::TooLarge),
            (&[0, 0, 0, 110, 3], ErrorCode::TooLarge),
            (&[0, 0, 0, 1, 99], ErrorCode::Malformed),
            (&[0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0], ErrorCode::Malformed),
            (&[0, 0, 0, 7, 1, b'H', b'T', b'T', b'P', 1, 1], ErrorCode::Malformed),
        ];
        for (bytes, code) in cases {
            assert_eq!(Frame::decode(&mut BytesMut::from(bytes), 100).unwrap_err().code, code, "{bytes:?}");
        }
        assert_eq!(Frame::decode(&mut BytesMut::from(&[0, 0, 0, 109, 3][..]), 100), Ok(None));
    }
}
