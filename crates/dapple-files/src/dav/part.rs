//! The place of a part of a file, in an upload of a part.
//!
//! dav-server's arithmetic overflows at the end of all numbers, so a range that no file has is refused before.

use http::{HeaderMap, Method, StatusCode};

/// Checks the fields `Content-Range` and `X-Update-Range`.
///
/// # Errors
///
/// The status and the text of the refusal.
pub(super) fn check(method: &Method, fields: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let text = |name: &str| fields.get(name).map(|value| value.to_str().map_err(|_| MALFORMED)).transpose();
    let len: Option<u64> = text("content-length")?.and_then(|len| len.parse().ok());
    if let Some(range) = text("content-range")? {
        let range = range.strip_prefix("bytes ").and_then(|range| range.split_once('/')).ok_or(MALFORMED)?.0;
        if range != "*" {
            let (first, last) = range.split_once('-').ok_or(MALFORMED)?;
            check_range(number(first)?, number(last)?, len)?;
        }
    }
    let Some(range) = text("x-update-range")?.filter(|range| *method == Method::PATCH && *range != "append") else {
        return Ok(());
    };
    let (first, last) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or(MALFORMED)?;
    match (first, last, len.unwrap_or(0)) {
        // The last bytes of the file: dav-server compares their number with its length.
        ("", last, _) => number(last).map(drop),
        (first, "", 0) => number(first).map(drop),
        (first, "", len) => check_range(number(first)?, number(first)?.saturating_add(len - 1), None),
        (first, last, _) => check_range(number(first)?, number(last)?, len),
    }
}

fn number(text: &str) -> Result<u64, (StatusCode, &'static str)> {
    text.parse().map_err(|_| MALFORMED)
}

fn check_range(first: u64, last: u64, len: Option<u64>) -> Result<(), (StatusCode, &'static str)> {
    if first > last {
        return Err((StatusCode::RANGE_NOT_SATISFIABLE, "the range of the part ends before it begins"));
    }
    if last >= i64::MAX as u64 {
        return Err((StatusCode::PAYLOAD_TOO_LARGE, "the part ends beyond 2^63-1 bytes, where all files end"));
    }
    if len.is_some_and(|len| len != last - first + 1) {
        return Err((StatusCode::RANGE_NOT_SATISFIABLE, "the range of the part is not as long as the body"));
    }
    Ok(())
}

const MALFORMED: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "the range of the part cannot be read");
