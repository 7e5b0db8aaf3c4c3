//! Frames of `dapple sign`.

use bytes::BytesMut;

use super::frame::{Frame, Malformed};

/// The first two bytes give the largest task size, and the lengths of the pieces in which the rest
/// arrives. Whatever these are, the same frames come out and the same error; a length is checked
/// before the bytes after it arrive; and a decoded frame encodes to bytes that decode the same.
pub(super) fn sign_frames(data: &[u8]) {
    let Some(([most, piece], data)) = data.split_first_chunk() else { return };
    let body_max = usize::from(*most) << 7;
    let pieces = [usize::from(*piece) + 1, usize::from(*piece >> 4) + 1];
    let (whole, in_pieces) = (decoded(data, &[usize::MAX], body_max), decoded(data, &pieces, body_max));
    assert_eq!(whole, in_pieces);
    for frame in whole.0 {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire);
        // Text that was not UTF-8 is written in up to three times its length.
        let again = decoded(&wire, &[usize::MAX], 3 * (body_max + 64));
        assert_eq!(again, (vec![frame], None));
    }
}

fn decoded(data: &[u8], pieces: &[usize], body_max: usize) -> (Vec<Frame>, Option<Malformed>) {
    let (mut buf, mut frames, mut rest) = (BytesMut::new(), Vec::new(), data);
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        buf.extend_from_slice(now);
        rest = later;
        loop {
            let announced = Frame::announced(&buf, body_max);
            match Frame::decode(&mut buf, body_max) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => {
                    let len = announced.expect("an incomplete frame is not an error yet");
                    assert!(len.is_none_or(|len| len > buf.len() && len <= body_max + 13));
                    break;
                }
                Err(malformed) => return (frames, Some(malformed)),
            }
        }
    }
    (frames, None)
}
