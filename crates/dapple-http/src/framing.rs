//! The conditions under which a response may be passed on.
//!
//! The end of a response must be certain: otherwise its last bytes would become the beginning of
//! the next one, and reach another client. hyper is lenient here, so this check comes first (RFC
//! 9112, sections 6.1 to 6.3).

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, Version};

/// The length of the body according to the response.
///
/// # Errors
///
/// Why its framing cannot be trusted.
pub fn framing(version: Version, status: StatusCode, headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("it changes the protocol, which was not requested");
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lens = headers.get_all(CONTENT_LENGTH).iter();
    let (coding, len) = (codings.next(), lens.next());
    if let Some(coding) = coding {
        if len.is_some() {
            return Err("it has both Transfer-Encoding and Content-Length");
        }
        if version == Version::HTTP_10 {
            return Err("it has Transfer-Encoding in HTTP/1.0");
        }
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err("its Transfer-Encoding is not just `chunked`");
        }
        if status == StatusCode::NO_CONTENT {
            return Err("it has Transfer-Encoding where there is no body");
        }
    }
    let Some(len) = len else { return Ok(None) };
    if lens.next().is_some() {
        return Err("it has several Content-Length fields");
    }
    let digits = len.as_bytes();
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err("its Content-Length is not a number");
    }
    let len = digits.iter().fold(0, |len, digit| 10 * len + u64::from(digit - b'0'));
    if status == StatusCode::NO_CONTENT && len > 0 {
        return Err("it has a Content-Length where there is no body");
    }
    Ok(Some(len))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

    use super::framing;

    #[test]
    fn framing_is_beyond_doubt_or_refused() {
        let (http_10, http_11) = (Version::HTTP_10, Version::HTTP_11);
        for (version, status, fields, expected) in [
            (http_11, 200, &[][..], Some(None)),
            (http_11, 200, &[("content-length", "12")], Some(Some(12))),
            (http_11, 200, &[("transfer-encoding", "Chunked")], Some(None)),
            (http_10, 200, &[("content-length", "0")], Some(Some(0))),
            (http_11, 304, &[("content-length", "7")], Some(Some(7))),
            (http_11, 200, &[("content-length", "12"), ("transfer-encoding", "chunked")], None),
            (http_11, 200, &[("content-length", "12"), ("content-length", "12")], None),
            (http_11, 200, &[("content-length", "12, 12")], None),
            (http_11, 200, &[("content-length", "+12")], None),
            (http_11, 200, &[("content-length", "0x12")], None),
            (http_11, 200, &[("content-length", "")], None),
            (http_11, 200, &[("content-length", "99999999999999999999")], None),
            (http_11, 200, &[("transfer-encoding", "gzip, chunked")], None),
            (http_11, 200, &[("transfer-encoding", "gzip")], None),
            (http_11, 200, &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], None),
            (http_11, 200, &[("transfer-encoding", "xchunked")], None),
            (http_10, 200, &[("transfer-encoding", "chunked")], None),
            (http_11, 204, &[("transfer-encoding", "chunked")], None),
            (http_11, 204, &[("content-length", "5")], None),
            (http_11, 101, &[], None),
        ] {
            let headers: HeaderMap = fields
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let result = framing(version, StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(result.ok(), expected, "{version:?} {status} {fields:?}");
        }
    }
}
