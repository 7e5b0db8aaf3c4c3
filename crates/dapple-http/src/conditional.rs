//! Conditional requests (RFC 9110, section 13): whether a client's copy is still current, or a part
//! fits the rest that it has.

use std::time::UNIX_EPOCH;

use http::Method;

use crate::request::Fields;

/// The validators that identify a state of a representation.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag with its quotes, and with the prefix `W/` if it is weak.
    pub etag: Option<&'a [u8]>,
    /// When it was last changed, in whole seconds since 1970.
    pub modified_s: Option<u64>,
}

/// The effect of the conditions on the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were no condition.
    Proceed,
    /// `304`: the client's copy is current.
    NotModified,
    /// `412`: the state that the client expects is not there.
    Failed,
}

/// Evaluates all conditions in their order of precedence (section 13.2.2), for a request that would
/// be answered with `2xx` without them; answer other requests as if they had none. `If-Range` is
/// not included: see [`if_range_holds`].
pub fn evaluate(method: &Method, fields: Fields<'_>, current: &Validators<'_>) -> Verdict {
    let reads = method == Method::GET || method == Method::HEAD;
    let conditions = Conditions::of(fields);
    if conditions.is_empty() {
        return Verdict::Proceed;
    }
    if conditions.if_match {
        if !lists_tag(fields, "if-match", current.etag, strongly) {
            return Verdict::Failed;
        }
    } else if let Some(since_s) = only_date(fields, "if-unmodified-since")
        && current.modified_s.is_some_and(|modified_s| modified_s > since_s)
    {
        return Verdict::Failed;
    }
    if conditions.if_none_match {
        return match lists_tag(fields, "if-none-match", current.etag, weakly) {
            true if reads => Verdict::NotModified,
            true => Verdict::Failed,
            false => Verdict::Proceed,
        };
    }
    if reads
        && let Some(since_s) = only_date(fields, "if-modified-since")
        && current.modified_s.is_some_and(|modified_s| modified_s <= since_s)
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether a part may be sent to a client that has the rest (`If-Range`, section 13.1.5); true
/// without such a condition.
///
/// A tag must be strong and equal. A date must be equal and must identify a state, that is, be at
/// least a second before `now_s`, in seconds since 1970.
pub fn if_range_holds(fields: Fields<'_>, current: &Validators<'_>, now_s: u64) -> bool {
    let mut values = fields.all("if-range");
    let Some(value) = values.next() else {
        return true;
    };
    // The field is not a list, so several of them are invalid; then the whole is sent.
    if values.next().is_some() {
        return false;
    }
    if value.ends_with(b"\"") {
        return current.etag.is_some_and(|etag| strongly(value, etag));
    }
    let Some(modified_s) = current.modified_s else {
        return false;
    };
    date(value) == Some(modified_s) && modified_s < now_s
}

/// Reads a date in any of the three formats of HTTP, as seconds since 1970.
pub fn date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The conditions of a request, found in one pass: most have none.
#[derive(Default)]
struct Conditions {
    if_match: bool,
    if_none_match: bool,
    dates: bool,
}

impl Conditions {
    fn of(fields: Fields<'_>) -> Conditions {
        let mut conditions = Conditions::default();
        for field in fields.iter() {
            let name = field.name.as_bytes();
            if name.len() < "if-match".len() || !name[..3].eq_ignore_ascii_case(b"if-") {
                continue;
            }
            match &name[3..] {
                rest if rest.eq_ignore_ascii_case(b"match") => conditions.if_match = true,
                rest if rest.eq_ignore_ascii_case(b"none-match") => conditions.if_none_match = true,
                rest if rest.eq_ignore_ascii_case(b"modified-since") => conditions.dates = true,
                rest if rest.eq_ignore_ascii_case(b"unmodified-since") => conditions.dates = true,
                _ => {}
            }
        }
        conditions
    }

    fn is_empty(&self) -> bool {
        !(self.if_match || self.if_none_match || self.dates)
    }
}

/// The date of a field that occurs once; an invalid date, or several, must be ignored.
fn only_date(fields: Fields<'_>, name: &str) -> Option<u64> {
    let mut values = fields.all(name);
    let value = values.next()?;
    if values.next().is_some() { None } else { date(value) }
}

/// Whether any of the lists of this name has the tag, or is `*`, which matches any state.
fn lists_tag(fields: Fields<'_>, name: &str, etag: Option<&[u8]>, same: fn(&[u8], &[u8]) -> bool) -> bool {
    fields.all(name).any(|list| list == b"*" || etag.is_some_and(|etag| tags(list).any(|listed| same(listed, etag))))
}

/// Both tags are strong and equal (section 8.8.3.2).
fn strongly(one: &[u8], other: &[u8]) -> bool {
    one == other && one.starts_with(b"\"") && one.len() > 1
}

/// Equal except for the weak prefix.
pub(crate) fn weakly(one: &[u8], other: &[u8]) -> bool {
    one.strip_prefix(b"W/").unwrap_or(one) == other.strip_prefix(b"W/").unwrap_or(other)
}

/// The entity tags of a list. A tag may contain a comma, so splitting does not work; the first
/// element that is not a tag ends it.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while let [b' ' | b'\t' | b',', more @ ..] = rest {
            rest = more;
        }
        let opening = if rest.starts_with(b"W/") { 2 } else { 0 };
        if rest.get(opening) != Some(&b'"') {
            return None;
        }
        let inner = &rest[opening + 1..];
        let inner_len = inner.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..=0xff))?;
        if inner[inner_len] != b'"' {
            return None;
        }
        let (tag, more) = rest.split_at(opening + inner_len + 2);
        rest = more;
        Some(tag)
    })
}

#[cfg(test)]
mod tests;
