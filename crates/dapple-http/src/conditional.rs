//! Conditional requests (RFC 9110, section 13): whether a client's copy is still good, or a part fits to what it has.

use std::time::UNIX_EPOCH;

use http::Method;

use crate::request::Fields;

/// What tells one state of a representation from another.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag with its quotes, and with `W/` in front of a weak one.
    pub etag: Option<&'a [u8]>,
    /// When it was last changed, in whole seconds since 1970.
    pub modified_s: Option<u64>,
}

/// What the conditions of a request say about its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were no condition.
    Proceed,
    /// `304`: the client's copy is good.
    NotModified,
    /// `412`: what the client believes to be there is not.
    Failed,
}

/// Evaluates all conditions in their order of precedence (section 13.2.2), for a request that would be answered with `2xx` without
/// them; others have to be answered as if they had none. `If-Range` is not among them: see [`if_range_holds`].
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

/// Whether a part may be sent to a client that has the rest (`If-Range`, section 13.1.5); true where there is no such condition.
///
/// A tag has to be strong and the same. A date has to be the same and to tell states apart, that is, to lie at least a second back
/// from `now_s`, seconds since 1970.
pub fn if_range_holds(fields: Fields<'_>, current: &Validators<'_>, now_s: u64) -> bool {
    let mut values = fields.all("if-range");
    let Some(value) = values.next() else {
        return true;
    };
    // It is no list, so that several cannot be understood; then all is sent.
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

/// Which conditions a request has, found in one pass: most have none.
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

/// The date of a field that stands there once; what is no date, or several, has to be ignored.
fn only_date(fields: Fields<'_>, name: &str) -> Option<u64> {
    let mut values = fields.all(name);
    let value = values.next()?;
    if values.next().is_some() { None } else { date(value) }
}

/// Whether any of the lists of this name has the tag, or is `*`, which stands for whatever there is.
fn lists_tag(fields: Fields<'_>, name: &str, etag: Option<&[u8]>, same: fn(&[u8], &[u8]) -> bool) -> bool {
    fields.all(name).any(|list| list == b"*" || etag.is_some_and(|etag| tags(list).any(|listed| same(listed, etag))))
}

/// Both tags strong and the same (section 8.8.3.2).
fn strongly(one: &[u8], other: &[u8]) -> bool {
    one == other && one.starts_with(b"\"") && one.len() > 1
}

/// The same but for what makes a tag weak.
pub(crate) fn weakly(one: &[u8], other: &[u8]) -> bool {
    one.strip_prefix(b"W/").unwrap_or(one) == other.strip_prefix(b"W/").unwrap_or(other)
}

/// The entity tags of a list. A comma may stand within a tag, so that splitting would not do; the first thing that is no tag ends it.
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
