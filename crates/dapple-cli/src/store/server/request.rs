//! Requests in the Redis protocol: a list of byte strings, as RESP or as one line of words.
//!
//! A library would decode frames of any depth; requests are flat lists, so that this code needs no
//! recursion.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// The most words of one request, and the most bytes of one word.
const WORDS_MAX: usize = 1 << 20;
pub(super) const WORD_LEN_MAX: usize = 32 << 20;
/// The most bytes of one request.
pub(super) const REQUEST_LEN_MAX: usize = 64 << 20;
/// The most bytes of a line: a length, or a request in words.
const LINE_LEN_MAX: usize = 64 << 10;

/// A request that breaks the protocol; the text is the error that Redis sends before it closes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) Cow<'static, str>);

impl Malformed {
    fn new(text: &'static str) -> Malformed {
        Malformed(text.into())
    }
}

/// Reads requests from a buffer. It remembers its position, so that it reads a request in many
/// pieces only once.
#[derive(Default)]
pub(super) struct Requests {
    /// The number of missing words, if the head of a request has arrived.
    missing: Option<usize>,
    words: Vec<Range<usize>>,
    at: usize,
}

impl Requests {
    /// Takes the next request out of `buf`; `None` if it is incomplete. Ignore an empty request.
    pub(super) fn take(&mut self, buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, Malformed> {
        let mut missing = match self.missing {
            Some(missing) => missing,
            None if buf.first() != Some(&b'*') => return take_words(buf),
            None => {
                let problem = "Protocol error: invalid multibulk length";
                let Some(count) = number(buf, &mut self.at, problem)? else { return Ok(None) };
                usize::try_from(count).unwrap_or(0)
            }
        };
        if missing > WORDS_MAX {
            return Err(Malformed::new("Protocol error: invalid multibulk length"));
        }
        while missing > 0 {
            self.missing = Some(missing);
            let Some(word) = word(buf, self.at)? else { return Ok(None) };
            self.at = word.end + 2;
            self.words.push(word);
            missing -= 1;
        }
        let whole = buf.split_to(self.at).freeze();
        let words = std::mem::take(self).words;
        Ok(Some(words.into_iter().map(|word| whole.slice(word)).collect()))
    }
}

/// The range of the word that begins at `at`; `None` if it is incomplete.
fn word(buf: &[u8], mut at: usize) -> Result<Option<Range<usize>>, Malformed> {
    match buf.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(other) => {
            let found = if other.is_ascii_graphic() { char::from(*other) } else { ' ' };
            return Err(Malformed(format!("Protocol error: expected '$', got '{found}'").into()));
        }
    }
    let Some(len) = number(buf, &mut at, "Protocol error: invalid bulk length")? else { return Ok(None) };
    let len = usize::try_from(len).ok().filter(|len| *len <= WORD_LEN_MAX);
    let len = len.ok_or(Malformed::new("Protocol error: invalid bulk length"))?;
    if at + len + 2 > REQUEST_LEN_MAX {
        return Err(Malformed::new("Protocol error: too big request"));
    }
    Ok((buf.len() >= at + len + 2).then_some(at..at + len))
}

/// The number after the mark at `at`; moves `at` past the line.
fn number(buf: &[u8], at: &mut usize, problem: &'static str) -> Result<Option<i64>, Malformed> {
    const DIGITS_MAX: usize = 32;
    let rest = &buf[*at + 1..];
    let Some(len) = rest.iter().take(DIGITS_MAX).position(|byte| *byte == b'\n') else {
        return if rest.len() >= DIGITS_MAX { Err(Malformed::new(problem)) } else { Ok(None) };
    };
    let digits = rest[..len].strip_suffix(b"\r").and_then(|digits| std::str::from_utf8(digits).ok());
    *at += len + 2;
    digits.and_then(|digits| digits.parse().ok()).map(Some).ok_or(Malformed::new(problem))
}

/// Takes a request typed by hand.
fn take_words(buf: &mut BytesMut) -> Result<Option<Vec<Bytes>>, Malformed> {
    let Some(len) = buf.iter().take(LINE_LEN_MAX).position(|byte| *byte == b'\n') else {
        let is_too_long = buf.len() >= LINE_LEN_MAX;
        return if is_too_long { Err(Malformed::new("Protocol error: too big inline request")) } else { Ok(None) };
    };
    let line = buf.split_to(len).freeze();
    buf.advance(1);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        let words = quoted(&line).ok_or_else(|| Malformed::new("Protocol error: unbalanced quotes in request"))?;
        return Ok(Some(words));
    }
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Ok(Some(words.map(|word| line.slice_ref(word)).collect()))
}

/// Splits a line with quoted words; `None` if a quote does not end, or ends inside of a word.
fn quoted(line: &[u8]) -> Option<Vec<Bytes>> {
    let (mut words, mut rest) = (Vec::new(), line);
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        while let Some((&byte, more)) = rest.split_first().filter(|(byte, _)| !byte.is_ascii_whitespace()) {
            rest = match byte {
                b'"' | b'\'' => {
                    let more = quote(byte, more, &mut word)?;
                    if more.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return None;
                    }
                    more
                }
                _ => {
                    word.push(byte);
                    more
                }
            };
        }
        words.push(word.into());
    }
}

/// Reads up to the end of a quote and returns what follows.
fn quote<'a>(end: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [byte, more @ ..] if *byte == end => return Some(more),
            [b'\\', b'x', high, low, more @ ..]
                if end == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).map_or(0, |digit| digit as u8);
                word.push(digit(high) * 16 + digit(low));
                more
            }
            [b'\\', byte, more @ ..] if end == b'"' => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                more
            }
            [b'\\', b'\'', more @ ..] => {
                word.push(b'\'');
                more
            }
            [byte, more @ ..] => {
                word.push(*byte);
                more
            }
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Result<Vec<Vec<Bytes>>, Malformed> {
        let mut buf = BytesMut::from(text);
        let (mut reader, mut requests) = (Requests::default(), Vec::new());
        while !buf.is_empty() {
            let Some(request) = reader.take(&mut buf)? else { break };
            requests.push(request);
        }
        Ok(requests)
    }

    #[test]
    fn requests_come_in_pieces_and_in_rows() {
        let text = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING  x\r\n*1\r\n$0\r\n\r\n";
        let expected = [vec!["GET", "a"], vec!["PING", "x"], vec![""]];
        assert_eq!(all(text).unwrap(), expected);
        for len in 0..text.len() {
            let mut buf = BytesMut::from(&text[..len]);
            let (mut reader, mut requests) = (Requests::default(), Vec::new());
            while let Some(request) = if buf.is_empty() { None } else { reader.take(&mut buf).unwrap() } {
                requests.push(request);
            }
            buf.extend_from_slice(&text[len..]);
            while let Some(request) = if buf.is_empty() { None } else { reader.take(&mut buf).unwrap() } {
                requests.push(request);
            }
            assert_eq!(requests, expected, "cut at {len}");
        }
    }

    #[test]
    fn words_typed_by_hand_may_be_quoted() {
        let text = b"SET a \"x \\x41\\n\" 'it\\'s' b\"c\"\n";
        assert_eq!(all(text).unwrap(), [vec!["SET", "a", "x A\n", "it's", "bc"]]);
        for text in [&b"GET \"a\n"[..], b"GET \"a\"b\n", b"GET 'a\n"] {
            assert_eq!(all(text).unwrap_err().0, "Protocol error: unbalanced quotes in request");
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        for text in [
            &b"*99999999999\r\n"[..],
            b"*1\r\n$99999999999\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n*1\r\n",
            b"*x\r\n",
            b"*00000000000000000000000000000000000000",
        ] {
            assert!(all(text).is_err(), "{text:?}");
        }
        assert!(all(&vec![b'a'; LINE_LEN_MAX]).is_err());
    }
}
