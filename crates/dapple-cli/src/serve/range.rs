//! A part of a file: `Range: bytes=…`, which players use to jump and downloads to go on where they stopped.

use std::ops::Range;

use dapple_http::Fields;

use super::meta::Meta;

/// What to send of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it: nothing else was asked for, or in a way that need not be understood (RFC 9110, 14.2).
    Whole,
    /// These bytes; never empty.
    Bytes(Range<u64>),
    /// Bytes were asked for that the file does not have.
    Outside,
}

/// What a request wants of a file that is `len` bytes long.
pub(crate) fn wanted(request: Fields<'_>, meta: &Meta, len: u64) -> Part {
    let Some(range) = request.first("range") else {
        return Part::Whole;
    };
    // The part has to belong to the very file of which the client has the rest, so a weak tag will not do.
    if let Some(condition) = request.first("if-range")
        && meta.etag != condition
        && meta.last_modified != condition
    {
        return Part::Whole;
    }
    std::str::from_utf8(range).map_or(Part::Whole, |range| parse(range, len))
}

/// Several ranges at once are legal to ignore, and hardly anybody asks for them other than to do harm.
fn parse(range: &str, len: u64) -> Part {
    let bounds = range.strip_prefix("bytes=").filter(|bounds| !bounds.contains(','));
    let Some((first, last)) = bounds.and_then(|bounds| bounds.trim().split_once('-')) else {
        return Part::Whole;
    };
    let (start, end) = match (number(first), number(last)) {
        // The last so many bytes.
        (None, Some(count)) if first.is_empty() => (len.saturating_sub(count), len),
        (Some(start), None) if last.is_empty() => (start, len),
        (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(len)),
        _ => return Part::Whole,
    };
    if start < end { Part::Bytes(start..end) } else { Part::Outside }
}

/// Digits only: `parse` alone would take a sign as well. A number too large for any file counts as the largest.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{Part, parse};

    #[test]
    fn parts_of_ten_bytes() {
        for (range, part) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
            ("bytes=9-99999999999999999999999", 9..10),
            ("bytes=0-18446744073709551615", 0..10),
        ] {
            assert_eq!(parse(range, 10), Part::Bytes(part), "{range}");
        }
    }

    #[test]
    fn parts_that_are_not_there() {
        for range in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99999999999999999999-"] {
            assert_eq!(parse(range, 10), Part::Outside, "{range}");
        }
        assert_eq!(parse("bytes=-5", 0), Part::Outside);
    }

    #[test]
    fn what_is_not_understood_is_ignored() {
        for range in
            ["", "bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "bytes=+1-2", "bytes=a-b", "lines=1-2", "bytes=1"]
        {
            assert_eq!(parse(range, 10), Part::Whole, "{range}");
        }
    }
}
