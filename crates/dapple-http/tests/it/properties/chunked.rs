//! Chunked bodies.

use dapple_http::{ChunkDecoder, LAST_CHUNK, Refusal, chunk_start};

/// The decoded body does not depend on the pieces. A decoded body, and any bytes at all, survive
/// writing and reading unchanged.
pub(crate) fn chunked(data: &[u8]) {
    let whole = decode(data, data.len().max(1));
    assert_eq!(whole, decode(data, 1), "byte by byte");
    assert_eq!(whole, decode(data, 5), "in pieces");
    if let Ok((body, Some(end))) = &whole {
        assert!(*end <= data.len() && body.len() < *end);
        assert_eq!(decode(&data[..*end - 1], 3).map(|(_, end)| end), Ok(None), "a byte less is not the end");
        round_trip(body);
    }
    round_trip(data);
}

/// The body, and the position of its end.
fn decode(data: &[u8], piece_len: usize) -> Result<(Vec<u8>, Option<usize>), Refusal> {
    let mut decoder = ChunkDecoder::new();
    let (mut body, mut done) = (Vec::new(), 0);
    for piece in data.chunks(piece_len) {
        let mut rest = piece;
        while !rest.is_empty() {
            let step = decoder.step(rest)?;
            assert!(
                step.consumed <= rest.len() && step.data.end <= step.consumed && (step.consumed > 0 || step.is_end)
            );
            assert_eq!(step.is_end, decoder.is_end());
            body.extend_from_slice(&rest[step.data]);
            done += step.consumed;
            rest = &rest[step.consumed..];
            if step.is_end {
                return Ok((body, Some(done)));
            }
        }
    }
    Ok((body, None))
}

fn round_trip(body: &[u8]) {
    let mut written = Vec::new();
    for piece in body.chunks(17) {
        chunk_start(piece.len(), &mut written);
        written.extend_from_slice(piece);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(LAST_CHUNK);
    assert_eq!(decode(&written, 11), Ok((body.to_vec(), Some(written.len()))));
}
