//! A parser of HTTP/1.1 responses, piece by piece. It buffers only a head that arrives in several
//! pieces.

use super::body::Body;
use super::problem::Problem;

/// Parses one response after the other of a connection.
#[derive(Default)]
pub(super) struct Reader {
    /// An incomplete head.
    head: Vec<u8>,
    /// Whether the head is complete.
    in_body: bool,
    /// Bytes of the body so far.
    at: u64,
    /// The length of the body.
    len: u64,
    close: bool,
    /// The bytes of `at` that `taken` has reported.
    told: u64,
}

/// The progress of a response.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Incomplete.
    Partial,
    /// Complete.
    Whole { close: bool },
}

impl Reader {
    /// Takes the next piece. If there is a `body`, the response must have it.
    pub(super) fn feed(&mut self, piece: &[u8], body: Option<&Body>) -> Result<Progress, Problem> {
        if self.in_body {
            return self.take(piece, body);
        }
        if self.head.is_empty() {
            return match self.parse(piece, body)? {
                Some(head_len) => self.take(&piece[head_len..], body),
                None => self.keep(piece),
            };
        }
        self.head.extend_from_slice(piece);
        let head = std::mem::take(&mut self.head);
        match self.parse(&head, body)? {
            Some(head_len) => self.take(&head[head_len..], body),
            None => {
                self.head = head;
                self.keep(&[])
            }
        }
    }

    /// Bytes of the current response's body since the last call.
    pub(super) fn taken(&mut self) -> u64 {
        let taken = self.at - self.told;
        self.told = self.at;
        taken
    }

    fn keep(&mut self, piece: &[u8]) -> Result<Progress, Problem> {
        self.head.extend_from_slice(piece);
        if self.head.len() > HEAD_LEN_MAX {
            return Err(Problem::Malformed("a head of more than 64 KB"));
        }
        Ok(Progress::Partial)
    }

    /// Parses the head; returns its length if it is complete.
    fn parse(&mut self, bytes: &[u8], body: Option<&Body>) -> Result<Option<usize>, Problem> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let head_len = match response.parse(bytes) {
            Ok(httparse::Status::Complete(head_len)) => head_len,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Problem::Malformed("what came is no response of HTTP/1.1")),
        };
        let mut len = None;
        let (mut closes, mut keeps) = (false, response.version == Some(1));
        for header in response.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let read = number(header.value).ok_or(Problem::Malformed("a Content-Length that is no number"))?;
                if len.replace(read).is_some() {
                    return Err(Problem::Malformed("more than one Content-Length"));
                }
            } else if header.name.eq_ignore_ascii_case("connection") {
                let mut options = header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                closes |= options.clone().any(|option| option.eq_ignore_ascii_case(b"close"));
                keeps |= options.any(|option| option.eq_ignore_ascii_case(b"keep-alive"));
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Err(Problem::Malformed("a chunked body, which this generator does not read"));
            }
        }
        self.close = closes || !keeps;
        match response.code {
            Some(200) => {}
            code => return Err(Problem::Status(code.unwrap_or(0))),
        }
        self.len = len.ok_or(Problem::Malformed("no Content-Length"))?;
        if body.is_some_and(|body| body.len() != self.len) {
            return Err(Problem::WrongBody);
        }
        (self.in_body, self.at, self.told) = (true, 0, 0);
        Ok(Some(head_len))
    }

    fn take(&mut self, piece: &[u8], body: Option<&Body>) -> Result<Progress, Problem> {
        if self.at + piece.len() as u64 > self.len {
            return Err(Problem::Malformed("more bytes than were announced"));
        }
        if body.is_some_and(|body| !body.holds(self.at, piece)) {
            return Err(Problem::WrongBody);
        }
        self.at += piece.len() as u64;
        if self.at < self.len {
            return Ok(Progress::Partial);
        }
        self.in_body = false;
        Ok(Progress::Whole { close: self.close })
    }
}

/// Digits only: `+5` is no length.
fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}

/// The most header lines that a response may have.
const HEADERS_MAX: usize = 64;

/// The longest head that is accepted.
const HEAD_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";

    fn read(bytes: &[u8], step: usize, body: Option<&Body>) -> Result<Progress, Problem> {
        let mut reader = Reader::default();
        let mut last = Progress::Partial;
        for piece in bytes.chunks(step) {
            assert_eq!(last, Progress::Partial);
            last = reader.feed(piece, body)?;
        }
        Ok(last)
    }

    #[test]
    fn a_response_in_pieces_of_any_size() {
        let body = Body::whole(b"hello".to_vec());
        for step in 1..=RESPONSE.len() {
            let whole = Progress::Whole { close: false };
            assert_eq!(read(RESPONSE, step, Some(&body)), Ok(whole), "pieces of {step}");
        }
    }

    #[test]
    fn bytes_are_told_as_they_come() {
        let mut reader = Reader::default();
        let head_len = RESPONSE.len() - 5;
        let mut told = Vec::new();
        for piece in [&RESPONSE[..head_len], b"he", b"llo"] {
            reader.feed(piece, None).expect("it is a response");
            told.push(reader.taken());
        }
        reader.feed(RESPONSE, None).expect("it is a response");
        told.push(reader.taken());
        assert_eq!(told, [0, 2, 3, 5]);
    }

    #[test]
    fn one_after_the_other() {
        let mut reader = Reader::default();
        for _ in 0..3 {
            assert_eq!(reader.feed(RESPONSE, None), Ok(Progress::Whole { close: false }));
        }
        for (connection, close) in [
            ("1.1 200 OK\r\nconnection: x,Close", true),
            ("1.0 200 OK\r\nx: y", true),
            ("1.0 200 OK\r\nconnection: keep-alive", false),
        ] {
            let bytes = format!("HTTP/{connection}\r\ncontent-length: 0\r\n\r\n");
            assert_eq!(reader.feed(bytes.as_bytes(), None), Ok(Progress::Whole { close }), "{connection}");
        }
    }

    #[test]
    fn what_is_wrong_is_noticed() {
        let right = Body::whole(b"hello".to_vec());
        let (other, longer) = (Body::whole(b"hellO".to_vec()), Body::whole(b"hello!".to_vec()));
        assert_eq!(read(RESPONSE, 7, Some(&other)), Err(Problem::WrongBody));
        assert_eq!(read(RESPONSE, 7, Some(&longer)), Err(Problem::WrongBody));
        let status = |bytes: &[u8]| read(bytes, 9, Some(&right));
        assert_eq!(status(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"), Err(Problem::Status(503)));
        for bad in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        ] {
            assert!(matches!(read(bad, bad.len(), None), Err(Problem::Malformed(_))), "{bad:?}");
        }
        let more = [RESPONSE, b"!"].concat();
        assert!(matches!(read(&more, more.len(), Some(&right)), Err(Problem::Malformed(_))));
        let endless = vec![b'a'; HEAD_LEN_MAX + 100];
        let head = [b"HTTP/1.1 200 OK\r\nx: ", &endless[..]].concat();
        assert!(matches!(read(&head, 1_000, None), Err(Problem::Malformed(_))));
    }
}
