//! The answer to a task, as a frame.

use std::time::Duration;

use dapple::stage::{Reason, Refused};

use super::frame::{Frame, Signed};
use super::signer::{Failure, Kind};

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
}

impl Kind {
    /// Whether a code means that the log is full.
    pub(super) fn is_log_full(code: u8) -> bool {
        code == Kind::LogFull as u8
    }
}

/// A client that retries sooner would find the same.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{DIGEST_LEN, ErrorCode, Malformed};

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
    fn frames_survive_encoding_also_byte_by_byte() {
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
    fn malformed_frames_are_refused_before_the_rest_arrives() {
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

    fn any_frame() -> impl Strategy<Value = Frame> {
        let digest = any::<[u8; DIGEST_LEN]>;
        let signed = (any::<u64>(), digest(), digest());
        let signed = signed.prop_map(|(sequence, first, second)| Signed { sequence, first, second });
        let code = prop::sample::select(vec![
            ErrorCode::Malformed,
            ErrorCode::TooLarge,
            ErrorCode::Version,
            ErrorCode::Connections,
            ErrorCode::TimeOut,
        ]);
        let body = prop_oneof![prop::collection::vec(any::<u8>(), 0..200), Just(vec![7; BODY_MAX])];
        prop_oneof![
            any::<(u8, u8)>().prop_map(|(lowest, highest)| Frame::Hello { lowest, highest }),
            any::<(u8, u32, u32)>().prop_map(|(version, task_bytes_max, in_flight_max)| {
                Frame::Welcome { version, task_bytes_max, in_flight_max }
            }),
            (any::<u64>(), body).prop_map(|(id, body)| Frame::Task { id, body: body.into() }),
            (any::<u64>(), signed).prop_map(|(id, signed)| Frame::Signed { id, signed }),
            any::<(u64, u8, u32, String)>()
                .prop_map(|(id, reason, retry_after_ms, text)| { Frame::Refused { id, reason, retry_after_ms, text } }),
            any::<(u64, u8, String)>().prop_map(|(id, code, text)| Frame::Failed { id, code, text }),
            (code, any::<String>()).prop_map(|(code, text)| Frame::Error { code, text }),
        ]
    }

    /// Decodes bytes that arrive in pieces of these lengths, repeated.
    fn decoded(bytes: &[u8], pieces: &[usize]) -> (Vec<Frame>, Option<Malformed>) {
        let (mut buf, mut frames, mut rest) = (BytesMut::new(), Vec::new(), bytes);
        for piece in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            buf.extend_from_slice(now);
            rest = later;
            loop {
                match Frame::decode(&mut buf, BODY_MAX) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(malformed) => return (frames, Some(malformed)),
                }
            }
        }
        (frames, None)
    }

    proptest! {
        #[test]
        fn any_frames_survive_encoding_however_they_are_split(
            frames in prop::collection::vec(any_frame(), 0..8),
            pieces in prop::collection::vec(1..30_000_usize, 1..8),
        ) {
            let mut wire = BytesMut::new();
            frames.iter().for_each(|frame| frame.encode(&mut wire));
            prop_assert_eq!(decoded(&wire, &pieces), (frames, None));
        }

        #[test]
        fn any_bytes_are_frames_or_an_error_however_they_are_split(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            lengths in prop::collection::vec((any::<prop::sample::Index>(), 0..40_u8), 0..6),
            pieces in prop::collection::vec(1..50_usize, 1..8),
        ) {
            let mut bytes = bytes;
            // Random bytes alone hardly ever contain a small length.
            for (at, len) in lengths {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, [0, 0, 0, len, len % 9]);
            }
            prop_assert_eq!(decoded(&bytes, &pieces), decoded(&bytes, &[usize::MAX]));
        }
    }

    /// Large enough for both kinds of frames: copied, and taken as they are.
    const BODY_MAX: usize = 20_000;
}
