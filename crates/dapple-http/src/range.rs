//! Parts of a representation: `Range: bytes=…` (RFC 9110, section 14). Players use it to seek,
//! downloads to resume.

use std::ops::Range;

/// The part of a representation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: no part was requested, or the request must be ignored, or costs too much (section
    /// 14.2).
    Whole,
    /// These bytes; never empty.
    One(Range<u64>),
    /// Two or more parts that neither overlap nor nearly touch, in the requested order; none is
    /// empty.
    Several(Vec<Range<u64>>),
    /// `416`: none of the requested bytes exists.
    Outside,
}

/// The part that a `Range` value requests from a representation of `len` bytes.
///
/// Parts that overlap or nearly touch are merged. A request with more than [`RANGES_MAX`] parts, or
/// with more than two overlaps, gets the whole: little more than was requested, and never less.
pub fn wanted(value: &[u8], len: u64) -> Wanted {
    let Some(specs) = specs(value) else {
        return Wanted::Whole;
    };
    let mut parts: Vec<Range<u64>> = Vec::new();
    let (mut count, mut overlaps, mut wants_nothing_of_nothing) = (0, 0, false);
    for spec in specs {
        let Some(spec) = spec else {
            return Wanted::Whole;
        };
        count += 1;
        if count > RANGES_MAX {
            return Wanted::Whole;
        }
        // The last bytes of nothing exist, but cannot be written as a part.
        wants_nothing_of_nothing |= len == 0 && matches!(spec, Spec::Last(count) if count > 0);
        let part = spec.of(len);
        if !part.is_empty() {
            overlaps += usize::from(parts.iter().any(|other| part.start < other.end && other.start < part.end));
            join(&mut parts, part);
        }
    }
    match parts.len() {
        _ if count == 0 || wants_nothing_of_nothing || overlaps > OVERLAPS_MAX => Wanted::Whole,
        0 => Wanted::Outside,
        1 => Wanted::One(parts.swap_remove(0)),
        _ => Wanted::Several(parts),
    }
}

/// One part of a request, as written.
enum Spec {
    /// From here to there, both inclusive.
    From(u64, Option<u64>),
    /// The last bytes, this many.
    Last(u64),
}

impl Spec {
    fn of(&self, len: u64) -> Range<u64> {
        match *self {
            Spec::From(first, last) => {
                let end = last.map_or(len, |last| last.saturating_add(1).min(len));
                first.min(end)..end
            }
            Spec::Last(count) => len.saturating_sub(count)..len,
        }
    }
}

/// The parts of a value in bytes; a `None` among them makes the whole value invalid.
fn specs(value: &[u8]) -> Option<impl Iterator<Item = Option<Spec>>> {
    let (unit, set) = std::str::from_utf8(value).ok()?.split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then(|| {
        // A list may have empty elements (section 5.6.1.2).
        let elements = set.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty());
        elements.map(spec)
    })
}

fn spec(text: &str) -> Option<Spec> {
    let (first, last) = text.split_once('-')?;
    match (number(first), number(last)) {
        (None, Some(count)) if first.is_empty() => Some(Spec::Last(count)),
        (Some(first), None) if last.is_empty() => Some(Spec::From(first, None)),
        (Some(first), Some(last)) if first <= last => Some(Spec::From(first, Some(last))),
        _ => None,
    }
}

/// Digits only: `parse` alone would accept a sign. A number too large for any file counts as the
/// largest.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Adds a part, merged with all those that it overlaps or nearly touches, in the place of the first
/// of them.
fn join(parts: &mut Vec<Range<u64>>, mut part: Range<u64>) {
    let near = |one: &Range<u64>, other: &Range<u64>| {
        one.start <= other.end.saturating_add(GAP_MAX) && other.start <= one.end.saturating_add(GAP_MAX)
    };
    let mut place = parts.len();
    // A grown part may reach others that were not near before.
    while let Some(at) = parts.iter().position(|other| near(other, &part)) {
        let other = parts.remove(at);
        part = part.start.min(other.start)..part.end.max(other.end);
        place = place.min(at);
    }
    parts.insert(place.min(parts.len()), part);
}

/// The limit of parts in one request.
pub const RANGES_MAX: usize = 32;

/// How many parts may overlap with earlier ones; repeated requests for the same bytes are abuse.
const OVERLAPS_MAX: usize = 2;

/// Parts this close together are sent as one: a part's header lines are as long.
const GAP_MAX: u64 = 80;

#[cfg(test)]
mod tests;
