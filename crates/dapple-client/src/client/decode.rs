//! Decompression into pieces of bounded size, however small the input is.

use bytes::{Buf, Bytes};
use dapple_http::coding::Coding;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use super::Error;

/// The decoder of one body.
pub(super) struct Decoder {
    state: State,
    coding: Coding,
    input: Bytes,
    /// Whether some input has arrived.
    is_begun: bool,
    /// Whether the input so far ends at the end of a frame or member.
    is_whole: bool,
    /// Whether output may come without input.
    has_more: bool,
}

enum State {
    Gzip(Decompress),
    Br(Box<BrotliState>),
    Zstd(zstd::stream::raw::Decoder<'static>),
}

type BrotliState =
    brotli::BrotliState<brotli::enc::StandardAlloc, brotli::enc::StandardAlloc, brotli::enc::StandardAlloc>;

/// The result of one step.
struct Step {
    read: usize,
    written: usize,
    is_whole: bool,
}

impl Decoder {
    /// Creates a decoder for a value of `Content-Encoding`; `None` for several codings, or an
    /// unknown one.
    pub(super) fn of(name: &[u8]) -> Option<Decoder> {
        let name = std::str::from_utf8(name).ok()?.trim().to_ascii_lowercase();
        let name = if name == "x-gzip" { "gzip" } else { &name };
        let coding = Coding::ALL.into_iter().find(|coding| coding.name() == name)?;
        let state = match coding {
            Coding::Gzip => State::Gzip(Decompress::new_gzip(15)),
            Coding::Br => {
                let alloc = brotli::enc::StandardAlloc::default;
                // No windows of more than 16 MiB, which are not part of RFC 7932.
                State::Br(Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())))
            }
            Coding::Zstd => {
                let mut decoder = zstd::stream::raw::Decoder::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).ok()?;
                State::Zstd(decoder)
            }
        };
        Some(Decoder { state, coding, input: Bytes::new(), is_begun: false, is_whole: false, has_more: false })
    }

    /// Adds input, once [`next`](Decoder::next) has nothing more.
    pub(super) fn feed(&mut self, input: Bytes) {
        self.is_begun |= !input.is_empty();
        self.input = input;
    }

    /// Returns the next piece; an empty one if more input is needed.
    pub(super) fn next(&mut self) -> Result<Bytes, Error> {
        // A complete input has no more output; zstd would start another frame.
        while !self.input.is_empty() || (self.has_more && !self.is_whole) {
            let mut piece = vec![0; PIECE_LEN];
            let step = self.step(&mut piece).ok_or_else(|| self.wrong())?;
            self.input.advance(step.read);
            (self.is_whole, self.has_more) = (step.is_whole, step.written == PIECE_LEN);
            if step.written > 0 {
                piece.truncate(step.written);
                return Ok(piece.into());
            }
            if step.read == 0 && !step.is_whole && !self.input.is_empty() {
                return Err(self.wrong());
            }
        }
        Ok(Bytes::new())
    }

    /// Ends the input.
    pub(super) fn end(&self) -> Result<(), Error> {
        if self.is_whole || !self.is_begun { Ok(()) } else { Err(self.wrong()) }
    }

    fn wrong(&self) -> Error {
        Error::Decompress(self.coding.name())
    }

    /// Decodes one step. `None` if the input is malformed.
    fn step(&mut self, out: &mut [u8]) -> Option<Step> {
        if self.is_whole && !self.input.is_empty() {
            // Gzip members may follow one another; zstd starts its next frame itself.
            match &mut self.state {
                State::Gzip(state) => *state = Decompress::new_gzip(15),
                State::Br(_) => return None,
                State::Zstd(_) => {}
            }
        }
        match &mut self.state {
            State::Gzip(state) => {
                let (read, written) = (state.total_in(), state.total_out());
                let status = state.decompress(&self.input, out, FlushDecompress::None).ok()?;
                let (read, written) = ((state.total_in() - read) as usize, (state.total_out() - written) as usize);
                Some(Step { read, written, is_whole: status == Status::StreamEnd })
            }
            State::Br(state) => {
                let (mut left, mut read, mut room, mut written) = (self.input.len(), 0, out.len(), 0);
                let result = brotli::BrotliDecompressStream(
                    &mut left,
                    &mut read,
                    &self.input,
                    &mut room,
                    &mut written,
                    out,
                    &mut 0,
                    state,
                );
                let is_whole = matches!(result, brotli::BrotliResult::ResultSuccess);
                let is_wrong = matches!(result, brotli::BrotliResult::ResultFailure);
                (!is_wrong).then_some(Step { read, written, is_whole })
            }
            State::Zstd(state) => {
                let (mut input, mut output) = (InBuffer::around(&self.input), OutBuffer::around(out));
                let hint = state.run(&mut input, &mut output).ok()?;
                Some(Step { read: input.pos(), written: output.pos(), is_whole: hint == 0 })
            }
        }
    }
}

/// The size of one piece of output.
const PIECE_LEN: usize = 16 << 10;

/// Windows of 8 MiB, which all HTTP receivers must accept (RFC 9659); a server could use larger
/// ones to make a client hold memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::{Decoder, PIECE_LEN};

    fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
        match coding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "br" => {
                let mut out = Vec::new();
                brotli::CompressorWriter::new(&mut out, 4096, 3, 20).write_all(text).unwrap();
                out
            }
            _ => zstd::stream::encode_all(text, 1).unwrap(),
        }
    }

    fn unpacked(coding: &str, packed: &[u8], piece_len: usize) -> Result<Vec<u8>, String> {
        let mut decoder = Decoder::of(coding.as_bytes()).unwrap();
        let mut all = Vec::new();
        for piece in packed.chunks(piece_len) {
            decoder.feed(Bytes::copy_from_slice(piece));
            loop {
                let out = decoder.next().map_err(|error| error.to_string())?;
                assert!(out.len() <= PIECE_LEN);
                if out.is_empty() {
                    break;
                }
                all.extend_from_slice(&out);
            }
        }
        decoder.end().map(|()| all).map_err(|error| error.to_string())
    }

    #[test]
    fn bodies_are_decoded_however_they_are_split() {
        let text: Vec<u8> = (0..200_000_u32).map(|at| (at % 251 * (at % 7)) as u8).collect();
        let zeros = vec![0; 3_000_000];
        for coding in ["gzip", "br", "zstd"] {
            for text in [&text[..], &text[..PIECE_LEN], &zeros, &zeros[..2 * PIECE_LEN], b"x", b""] {
                let packed = packed(coding, text);
                for piece_len in [1, 7, 4_096, usize::MAX >> 1] {
                    assert!(unpacked(coding, &packed, piece_len).unwrap() == text, "{coding}, {piece_len}");
                }
            }
            assert_eq!(unpacked(coding, b"", 1).unwrap(), b"", "no body has no coding");
        }
        let twice = [packed("gzip", b"ab"), packed("gzip", b"cd")].concat();
        assert_eq!(unpacked("x-gzip", &twice, 5).unwrap_or_default(), b"abcd");
    }

    #[test]
    fn truncated_and_other_input_is_an_error() {
        for coding in ["gzip", "br", "zstd"] {
            let packed = packed(coding, &[7; 50_000]);
            assert!(unpacked(coding, &packed[..packed.len() - 1], 100).is_err(), "{coding}");
            assert!(unpacked(coding, b"this is plain text, and longer than any head", 100).is_err(), "{coding}");
        }
        let mut decoder = Decoder::of(b"br").unwrap();
        decoder.feed(Bytes::from_static(&[0x11, 30, 0]));
        assert!(decoder.next().is_err(), "a window of 1 GiB");
        assert!(Decoder::of(b"gzip, br").is_none() && Decoder::of(b"identity").is_none());
    }
}
