//! Chunked bodies, valid and invalid, whole and in pieces.

use proptest::prelude::*;

use super::{BESIDE_LEN_MAX, ChunkDecoder, LAST_CHUNK, chunk_start};
use crate::refusal::Refusal;

/// The body and its encoded length; `None`: incomplete.
type Decoded = Result<Option<(Vec<u8>, usize)>, Refusal>;

fn decode_in_pieces(input: &[u8], cuts: &[usize]) -> Decoded {
    let mut decoder = ChunkDecoder::new();
    let (mut body, mut at) = (Vec::new(), 0);
    for end in cuts.iter().copied().chain([input.len()]) {
        while at < end {
            let step = decoder.step(&input[at..end])?;
            body.extend_from_slice(&input[at..end][step.data.clone()]);
            at += step.consumed;
            if step.is_end {
                assert!(decoder.is_end());
                return Ok(Some((body, at)));
            }
            assert!(step.consumed > 0, "every step makes progress");
        }
    }
    Ok(None)
}

fn decode(input: impl AsRef<[u8]>) -> Decoded {
    decode_in_pieces(input.as_ref(), &[])
}

fn encode(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        chunk_start(piece.len(), &mut out);
        out.extend_from_slice(piece);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(LAST_CHUNK);
    out
}

#[test]
fn bodies_come_out_as_they_went_in() {
    for (input, body) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world"),
        ("a\r\n0123456789\r\n0\r\n\r\n", "0123456789"),
        ("A\r\n0123456789\r\n000\r\n\r\n", "0123456789"),
        ("0000000000000002\r\nab\r\n0\r\n\r\n", "ab"),
        ("2;a\r\nab\r\n0\r\n\r\n", "ab"),
        ("2;a=b;c=\"d;\\\"\r-\"\r\nab\r\n0\r\n\r\n".replace('\r', "").replace('\n', "\r\n").as_str(), "ab"),
        ("2 ; a = b ;c\r\nab\r\n0;last\r\n\r\n", "ab"),
        ("2;a=\"\"\r\nab\r\n0\r\n\r\n", "ab"),
        ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n"),
        ("0\r\nA: b\r\nTrailer-2:\r\n\r\n", ""),
    ] {
        assert_eq!(decode(input), Ok(Some((body.as_bytes().to_vec(), input.len()))), "{input:?}");
        let behind = format!("{input}GET / ");
        assert_eq!(decode(&behind), Ok(Some((body.as_bytes().to_vec(), input.len()))), "{behind:?}");
    }
}

#[test]
fn odd_sizes_are_refused() {
    for input in [
        "\r\n",
        "x\r\n",
        "+5\r\n",
        "-5\r\n",
        " 5\r\nhello",
        "0x5\r\nhello",
        "5h\r\n",
        "\n",
        "5\nhello",
        "5\r\r\nhello",
        "5\rhello",
        "00000000000000005\r\nhello",
        "10000000000000000\r\n",
        "fffffffffffffffff\r\n",
        ";a\r\n",
        "5,\r\n",
    ] {
        assert_eq!(decode(input), Err(Refusal::ChunkSize), "{input:?}");
    }
    assert_eq!(decode("ffffffffffffffff\r\nhello"), Ok(None));
}

#[test]
fn odd_extensions_are_refused() {
    for input in [
        "5;\r\n",
        "5;;\r\n",
        "5; \r\n",
        "5 \r\nhello",
        "5\t\r\n",
        "5 a\r\n",
        "5;a b\r\n",
        "5;a=\r\n",
        "5;a=b c\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\"c\r\n",
        "5;a=\"b\nc\"\r\n",
        "5;a\n",
        "5;a=b\n",
        "5;a\0\r\n",
        "5;a=\"\0\"\r\n",
        "5;=b\r\n",
        "5;a==b\r\n",
        "5;a=b\"\r\n",
        "5;a=\"\\\r\"\r\n",
        "5;a \r\n",
        "5;a=b \r\n",
    ] {
        assert_eq!(decode(input), Err(Refusal::ChunkExtension), "{input:?}");
    }
    let long = |len: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(len));
    assert!(decode(long(BESIDE_LEN_MAX - 1)).is_ok());
    assert_eq!(decode(long(BESIDE_LEN_MAX)), Err(Refusal::ChunkExtension));
    // Many short extensions count as much as one long one.
    let many = "1;a\r\nx\r\n".repeat(BESIDE_LEN_MAX);
    assert_eq!(decode(many), Err(Refusal::ChunkExtension));
}

#[test]
fn a_chunk_is_as_long_as_its_size_says() {
    for input in ["5\r\nhello!\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\rX", "5\r\nhello0\r\n\r\n", "1\r\na\r\r\n"] {
        assert_eq!(decode(input), Err(Refusal::ChunkEnd), "{input:?}");
    }
}

#[test]
fn trailers_are_fields() {
    for input in [
        "0\r\n\n",
        "0\r\nX\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\r\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\nX: \0\r\n\r\n",
        "0\r\n\rX",
    ] {
        assert_eq!(decode(input), Err(Refusal::Trailer), "{input:?}");
    }
    let long = format!("0\r\nX: {}\r\n\r\n", "a".repeat(BESIDE_LEN_MAX));
    assert_eq!(decode(long), Err(Refusal::Trailer));
}

#[test]
fn sizes_are_written_in_hexadecimal_digits() {
    for (len, text) in
        [(1, "1\r\n"), (10, "a\r\n"), (255, "ff\r\n"), (65_536, "10000\r\n"), (usize::MAX, "ffffffffffffffff\r\n")]
    {
        let mut out = Vec::new();
        chunk_start(len, &mut out);
        assert_eq!(out, text.as_bytes());
    }
}

/// Bodies made of bytes that matter to the decoder.
fn nearly_chunked() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(&[
        "0",
        "1",
        "5",
        "a",
        "\r\n",
        "\r\n",
        "\r\n",
        "\r",
        "\n",
        "\r\n\r\n",
        ";",
        "x",
        "=",
        "\"",
        "\\",
        " ",
        "hello",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
        "X: y\r\n",
        "\0",
    ]);
    prop::collection::vec(word, 0..16).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input = encode(&pieces);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(decode_in_pieces(&input, &cuts), Ok(Some((pieces.concat(), input.len()))));
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_a_body_comes(
        input in nearly_chunked(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(decode_in_pieces(&input, &cuts), decode(&input));
    }
}
