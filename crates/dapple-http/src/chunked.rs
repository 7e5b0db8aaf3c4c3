//! Chunked bodies (RFC 9112, section 7.1).

use std::ops::Range;

use crate::head::is_token;
use crate::refusal::Refusal;

/// Decodes a chunked body. Checks and bounds extensions and trailers; drops extensions.
///
/// | state | input | next |
/// |---|---|---|
/// | `Size` | hexadecimal digits | `Extension`, `SizeEnd` |
/// | `Extension`, `Quoted`, `Escaped` | text after a semicolon | `SizeEnd` |
/// | `SizeEnd` | LF | `Data`, or `TrailerStart` after the last chunk |
/// | `Data` | the bytes of the chunk | `DataEnd` |
/// | `DataEnd`, `DataEndLf` | CR, LF | `Size` |
/// | `TrailerStart` | a trailer, or CR | `TrailerName`, `EndLf` |
/// | `TrailerName`, `TrailerValue`, `TrailerLf` | a field | `TrailerStart` |
/// | `EndLf` | LF | `End` |
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    state: State,
    /// Digits of the size so far, including leading zeros.
    digits: u32,
    /// Bytes of the chunk still to come.
    left: u64,
    /// Bytes of extensions and trailers so far, in the whole body.
    beside_len: usize,
    extension: Extension,
    /// The trailers as lines, each ended by a line feed.
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    Quoted,
    Escaped,
    SizeEnd,
    Data,
    DataEnd,
    DataEndLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

/// The decoder's position in `; name = value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// After the size or a value, perhaps in white space: a semicolon may follow.
    Before,
    /// White space between the size and a semicolon: only the semicolon may follow.
    SpaceBefore,
    /// After a semicolon, in white space.
    NameStart,
    Name,
    /// White space behind a name.
    SpaceAfterName,
    /// After an equals sign, in white space.
    ValueStart,
    Value,
}

/// The meaning of a part of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// The number of bytes consumed.
    pub consumed: usize,
    /// The body bytes among them; empty if there are none.
    pub data: Range<usize>,
    /// Whether the body is complete.
    pub is_end: bool,
}

impl ChunkDecoder {
    /// A decoder for a body that begins with the next byte.
    pub fn new() -> ChunkDecoder {
        ChunkDecoder {
            state: State::Size,
            digits: 0,
            left: 0,
            beside_len: 0,
            extension: Extension::Before,
            trailers: Vec::new(),
        }
    }

    /// Whether the body is complete.
    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// The trailer fields so far, with their names as sent and their values without surrounding
    /// white space.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.trailers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Consumes input up to the end of a piece of the body, the end of the body, or the end of the
    /// input. Without data and end, all input was consumed and more is needed.
    ///
    /// # Errors
    ///
    /// The body is malformed, and stays so: close the connection.
    pub fn step(&mut self, input: &[u8]) -> Result<ChunkStep, Refusal> {
        let mut at = 0;
        while self.state != State::End && at < input.len() {
            if self.state == State::Data {
                let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len() - at);
                self.left -= len as u64;
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                return Ok(ChunkStep { consumed: at + len, data: at..at + len, is_end: false });
            }
            self.state = self.next(input[at])?;
            at += 1;
        }
        Ok(ChunkStep { consumed: at, data: at..at, is_end: self.is_end() })
    }

    /// The state after one byte that is not data.
    fn next(&mut self, byte: u8) -> Result<State, Refusal> {
        Ok(match (self.state, byte) {
            (State::Size, _) => return self.size(byte),
            (State::Extension | State::Quoted | State::Escaped, _) => return self.extension(byte),
            (State::SizeEnd, b'\n') => {
                self.digits = 0;
                self.extension = Extension::Before;
                if self.left > 0 { State::Data } else { State::TrailerStart }
            }
            (State::SizeEnd, _) => return Err(Refusal::ChunkSize),
            (State::DataEnd, b'\r') => State::DataEndLf,
            (State::DataEndLf, b'\n') => State::Size,
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => {
                self.trailer(byte)?;
                State::TrailerName
            }
            (State::TrailerName, b':') => {
                self.trailers.push(byte);
                State::TrailerValue
            }
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => {
                self.trailer(byte)?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => {
                self.trailers.push(byte);
                State::TrailerStart
            }
            (State::EndLf, b'\n') => State::End,
            (State::DataEnd | State::DataEndLf, _) => return Err(Refusal::ChunkEnd),
            _ => return Err(Refusal::Trailer),
        })
    }

    fn size(&mut self, byte: u8) -> Result<State, Refusal> {
        if let Some(digit) = (byte as char).to_digit(16) {
            self.digits += 1;
            // 16 digits fill the number. Leading zeros count, so that they cannot keep a connection
            // busy.
            if self.digits > SIZE_DIGITS_MAX {
                return Err(Refusal::ChunkSize);
            }
            self.left = self.left << 4 | u64::from(digit);
            return Ok(State::Size);
        }
        match byte {
            _ if self.digits == 0 => Err(Refusal::ChunkSize),
            b'\r' => Ok(State::SizeEnd),
            b';' | b' ' | b'\t' => self.extension(byte),
            _ => Err(Refusal::ChunkSize),
        }
    }

    /// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`; the scanner keeps none of
    /// it.
    fn extension(&mut self, byte: u8) -> Result<State, Refusal> {
        use Extension::{Before, Name, NameStart, SpaceAfterName, SpaceBefore, Value, ValueStart};
        if byte != b'\r' || self.state != State::Extension {
            self.count_beside(Refusal::ChunkExtension)?;
        }
        match (self.state, byte) {
            (State::Quoted, b'"') => {
                self.extension = Before;
                return Ok(State::Extension);
            }
            (State::Quoted, b'\\') => return Ok(State::Escaped),
            (State::Quoted | State::Escaped, b'\t' | b' '..=b'~' | 0x80..) => return Ok(State::Quoted),
            (State::Quoted | State::Escaped, _) => return Err(Refusal::ChunkExtension),
            _ => {}
        }
        self.extension = match (self.extension, byte) {
            (Before | Name | Value, b'\r') => return Ok(State::SizeEnd),
            (Before | SpaceBefore | Name | SpaceAfterName | Value, b';') => NameStart,
            (Before | SpaceBefore | Value, b' ' | b'\t') => SpaceBefore,
            (NameStart, b' ' | b'\t') => NameStart,
            (Name | SpaceAfterName, b' ' | b'\t') => SpaceAfterName,
            (NameStart | Name, _) if is_token(byte) => Name,
            (Name | SpaceAfterName, b'=') => ValueStart,
            (ValueStart, b' ' | b'\t') => ValueStart,
            (ValueStart, b'"') => return Ok(State::Quoted),
            (ValueStart | Value, _) if is_token(byte) => Value,
            _ => return Err(Refusal::ChunkExtension),
        };
        Ok(State::Extension)
    }

    fn trailer(&mut self, byte: u8) -> Result<(), Refusal> {
        self.count_beside(Refusal::Trailer)?;
        self.trailers.push(byte);
        Ok(())
    }

    fn count_beside(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.beside_len += 1;
        if self.beside_len > BESIDE_LEN_MAX { Err(refusal) } else { Ok(()) }
    }
}

impl Default for ChunkDecoder {
    fn default() -> ChunkDecoder {
        ChunkDecoder::new()
    }
}

/// Writes the line before a chunk's data, which must be followed by CR LF: the size in hexadecimal
/// digits and a line end. A chunk of no bytes would end the body: that is [`LAST_CHUNK`].
pub fn chunk_start(len: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 16];
    let mut at = digits.len();
    let mut rest = len;
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// The end of a chunked body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Digits of a size: as many as a 64-bit number has.
const SIZE_DIGITS_MAX: u32 = 16;

/// The limit of bytes in extensions and trailers of one body.
const BESIDE_LEN_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests;
