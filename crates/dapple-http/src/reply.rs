//! The head of a reply in HTTP/1.1.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode, Version};

/// How a reply's body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFraming {
    /// No body, and no framing field: `204`, `304`.
    None,
    /// This many bytes, or as many as there would be if the request were not `HEAD`.
    Len(u64),
    /// In chunks.
    Chunked,
    /// Until the connection ends.
    UntilClose,
}

/// The field `Date`, cached as text for its second.
#[derive(Clone, Debug)]
pub struct DateLine {
    second: u64,
    line: [u8; DATE_LINE_LEN],
}

impl DateLine {
    /// An empty cache.
    pub const fn new() -> DateLine {
        DateLine { second: u64::MAX, line: [b' '; DATE_LINE_LEN] }
    }

    /// `date: …` and a line end, for this second since 1970. Formats only when the second has
    /// changed.
    pub fn at(&mut self, second: u64) -> &[u8] {
        if self.second != second {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second.min(YEAR_9999)));
            self.line[..DATE_NAME.len()].copy_from_slice(DATE_NAME);
            self.line[DATE_NAME.len()..DATE_LINE_LEN - 2].copy_from_slice(date.as_bytes());
            self.line[DATE_LINE_LEN - 2..].copy_from_slice(b"\r\n");
            self.second = second;
        }
        &self.line
    }
}

impl Default for DateLine {
    fn default() -> DateLine {
        DateLine::new()
    }
}

/// Writes a head: the status line; `shared`, which has complete lines; the fields of `headers`;
/// `date`, a complete line; the framing and the fate of the connection; the empty line.
///
/// `version` is the client's. Skips `content-length`, `transfer-encoding` and `connection` in
/// `headers`, because this function knows them better.
#[allow(clippy::too_many_arguments, reason = "one call for one write")]
pub fn write_head(
    out: &mut Vec<u8>,
    version: Version,
    status: StatusCode,
    shared: &[u8],
    headers: &HeaderMap,
    date: &[u8],
    framing: ReplyFraming,
    keep_alive: bool,
) {
    write_status(out, status);
    out.extend_from_slice(shared);
    for (name, value) in headers {
        let name = name.as_str();
        if matches!(name, "content-length" | "transfer-encoding" | "connection" | "keep-alive") {
            continue;
        }
        write_field(out, name.as_bytes(), value.as_bytes());
    }
    out.extend_from_slice(date);
    match framing {
        ReplyFraming::None | ReplyFraming::UntilClose => {}
        ReplyFraming::Len(len) => {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        ReplyFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    match (keep_alive, version) {
        (false, _) => out.extend_from_slice(b"connection: close\r\n\r\n"),
        (true, Version::HTTP_10) => out.extend_from_slice(b"connection: keep-alive\r\n\r\n"),
        (true, _) => out.extend_from_slice(b"\r\n"),
    }
}

fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes one field as a line.
fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

const DATE_NAME: &[u8] = b"date: ";

/// The name, 29 characters, a line end.
const DATE_LINE_LEN: usize = DATE_NAME.len() + 29 + 2;

/// The last second that the format can represent.
const YEAR_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, SET_COOKIE};

    fn head(version: Version, status: u16, headers: &HeaderMap, framing: ReplyFraming, keep_alive: bool) -> String {
        let mut out = Vec::new();
        let status = StatusCode::from_u16(status).unwrap();
        let date = DateLine::new().at(784_111_777).to_vec();
        write_head(&mut out, version, status, b"etag: \"1\"\r\n", headers, &date, framing, keep_alive);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_head_says_what_is_known() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        headers.append(SET_COOKIE, HeaderValue::from_static("a=1"));
        headers.append(SET_COOKIE, HeaderValue::from_static("b=2"));
        assert_eq!(
            head(Version::HTTP_11, 200, &headers, ReplyFraming::Len(12), true),
            "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-type: text/html\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 12\r\n\r\n"
        );
        assert_eq!(
            head(Version::HTTP_11, 404, &HeaderMap::new(), ReplyFraming::Chunked, false),
            "HTTP/1.1 404 Not Found\r\netag: \"1\"\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
             transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        );
        let odd = head(Version::HTTP_10, 299, &HeaderMap::new(), ReplyFraming::None, true);
        assert!(
            odd.starts_with("HTTP/1.1 299 \r\n") && odd.ends_with("GMT\r\nconnection: keep-alive\r\n\r\n"),
            "{odd}"
        );
    }

    #[test]
    fn framing_comes_from_one_place() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let head = head(Version::HTTP_11, 200, &headers, ReplyFraming::Len(8), true);
        assert!(head.contains("content-length: 8") && !head.contains(": 7") && !head.contains("connection"), "{head}");
    }

    #[test]
    fn the_date_is_written_when_its_second_changes() {
        let mut date = DateLine::new();
        assert_eq!(date.at(0), b"date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(date.at(1), b"date: Thu, 01 Jan 1970 00:00:01 GMT\r\n");
        assert_eq!(date.at(1), b"date: Thu, 01 Jan 1970 00:00:01 GMT\r\n");
        assert_eq!(date.at(u64::MAX), b"date: Fri, 31 Dec 9999 23:59:59 GMT\r\n");
    }
}
