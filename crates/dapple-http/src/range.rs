//! Parts of a representation: `Range: bytes=…` (RFC 9110, section 14), which players use to jump and downloads to go on where they
//! stopped.

use std::ops::Range;

/// What to send of a representation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it: nothing else was asked for, or in a way that has to be ignored, or that costs too much (section 14.2).
    Whole,
    /// These bytes; never empty.
    One(Range<u64>),
    /// Two or more parts that neither overlap nor nearly touch, in the order in which they were asked for; none is empty.
    Several(Vec<Range<u64>>),
    /// `416`: bytes were asked for, and none of them is there.
    Outside,
}

/// What the value of `Range` asks for of a representation that is `len` bytes long.
///
/// Parts that overlap or nearly touch become one. More than [`RANGES_MAX`] parts, or more than two that overlap, are not worth an
/// effort: all is sent then, which is never more than was asked for by much, nor less.
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
        // The last bytes of nothing are there, but cannot be written as a part.
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

/// One of the parts of a request, as it was written.
enum Spec {
    /// From here to there, both included.
    From(u64, Option<u64>),
    /// The last so many bytes.
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

/// The parts that a value names, where it is about bytes at all; `None` among them for what makes the whole value invalid.
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

/// Digits only: `parse` alone would take a sign as well. A number too large for any file counts as the largest.
fn number(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Adds a part, and makes one of it and all those that it overlaps or nearly touches, in the place of the first of them.
fn join(parts: &mut Vec<Range<u64>>, mut part: Range<u64>) {
    let near = |one: &Range<u64>, other: &Range<u64>| {
        one.start <= other.end.saturating_add(GAP_MAX) && other.start <= one.end.saturating_add(GAP_MAX)
    };
    let mut place = parts.len();
    // A part that has grown may reach others that were not near before.
    while let Some(at) = parts.iter().position(|other| near(other, &part)) {
        let other = parts.remove(at);
        part = part.start.min(other.start)..part.end.max(other.end);
        place = place.min(at);
    }
    parts.insert(place.min(parts.len()), part);
}

/// How many parts are looked at in one request.
pub const RANGES_MAX: usize = 32;

/// How many parts may overlap with earlier ones; who asks for the same bytes again and again is up to no good.
const OVERLAPS_MAX: usize = 2;

/// Parts this close together are sent as one: the lines in front of a part take as much.
const GAP_MAX: u64 = 80;

#[cfg(test)]
mod tests;
