//! A parser of HTTP/1.1 replies.

use std::ops::Range;

/// The progress of a reply.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Incomplete.
    Partial,
    /// Complete.
    Whole(Reply),
    /// It cannot be parsed.
    Malformed,
}

/// A reply.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The position of its body in the bytes.
    pub(super) body: Range<usize>,
    /// Whether the connection may be used again.
    pub(super) keeps: bool,
    /// Whether it has `Retry-After`.
    pub(super) retry_after: bool,
}

/// Parses all bytes of a connection since its last reply; `ended` says that nothing will follow.
pub(super) fn read(bytes: &[u8], ended: bool) -> Progress {
    if bytes.len() > REPLY_LEN_MAX {
        return Progress::Malformed;
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head_len = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_len)) => head_len,
        Ok(httparse::Status::Partial) => return Progress::Partial,
        Err(_) => return Progress::Malformed,
    };
    let mut reply = Reply {
        status: response.code.unwrap_or(0),
        body: 0..0,
        keeps: response.version == Some(1),
        retry_after: false,
    };
    let mut body_len = None;
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            match std::str::from_utf8(header.value).map(str::parse::<usize>) {
                Ok(Ok(len)) if body_len.is_none() && len <= REPLY_LEN_MAX => body_len = Some(len),
                _ => return Progress::Malformed,
            }
        } else if is("connection") {
            let mut options = header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            reply.keeps &= !options.any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if is("retry-after") {
            reply.retry_after = true;
        } else if is("transfer-encoding") {
            return Progress::Malformed;
        }
    }
    match body_len {
        Some(len) if bytes.len() < head_len + len => return Progress::Partial,
        Some(len) if bytes.len() > head_len + len => return Progress::Malformed,
        Some(_) => {}
        // Without a length, the body ends with the connection.
        None if !ended => return Progress::Partial,
        None => reply.keeps = false,
    }
    reply.body = head_len..bytes.len();
    Progress::Whole(reply)
}

/// The most header lines that a reply may have.
const HEADERS_MAX: usize = 64;

/// Replies of these servers are short.
const REPLY_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str, ended: bool) -> Option<(u16, String, bool, bool)> {
        match read(text.as_bytes(), ended) {
            Progress::Whole(reply) => {
                Some((reply.status, text[reply.body.clone()].to_owned(), reply.keeps, reply.retry_after))
            }
            _ => None,
        }
    }

    #[test]
    fn a_reply_that_comes_byte_by_byte() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\n5000\n";
        for len in 0..text.len() {
            assert_eq!(read(&text.as_bytes()[..len], false), Progress::Partial, "{len}");
        }
        assert_eq!(whole(text, false), Some((200, "5000\n".to_owned(), true, false)));
        assert_eq!(read(format!("{text}x").as_bytes(), false), Progress::Malformed);
    }

    #[test]
    fn refusals() {
        let text = "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(whole(text, false), Some((503, String::new(), false, true)));
        let endless = "HTTP/1.1 503 Busy\r\n\r\nbusy";
        assert_eq!(whole(endless, false), None);
        assert_eq!(whole(endless, true), Some((503, "busy".to_owned(), false, false)));
        let old = "HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx";
        assert_eq!(whole(old, false), Some((200, "x".to_owned(), false, false)));
    }

    #[test]
    fn what_is_no_reply() {
        for text in [
            "220 smtp\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            assert_eq!(read(text.as_bytes(), true), Progress::Malformed, "{text}");
        }
    }
}
