//! Redis's key patterns: `*`, `?`, `[a-z]`, `[^a]` and `\`.

use super::reply::Reply;

/// The longest pattern is as long as the longest key.
const PATTERN_LEN_MAX: usize = 4 << 10;

/// Refuses patterns that would take long.
pub(super) fn check(pattern: &[u8]) -> Result<(), Reply> {
    if pattern.len() <= PATTERN_LEN_MAX {
        return Ok(());
    }
    Err(Reply::Error(format!("ERR a pattern has at most {PATTERN_LEN_MAX} bytes")))
}

/// Whether all of `text` matches. The time is at most proportional to the product of both lengths.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // The position after the last star, and the text that it had not taken yet.
    let mut star = None;
    while of < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, of));
            at += 1;
            continue;
        }
        if let Some(len) = one(&pattern[at..], text[of]) {
            at += len;
            of += 1;
            continue;
        }
        let Some((behind, taken)) = star else { return false };
        star = Some((behind, taken + 1));
        (at, of) = (behind, taken + 1);
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The length of the part of the pattern that matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        b'[' => {
            let is_negated = pattern.get(1) == Some(&b'^');
            let mut at = 1 + usize::from(is_negated);
            let mut is_in = false;
            while at < pattern.len() && pattern[at] != b']' {
                if pattern.get(at + 1) == Some(&b'-') && pattern.get(at + 2).is_some_and(|end| *end != b']') {
                    let (low, high) = (pattern[at].min(pattern[at + 2]), pattern[at].max(pattern[at + 2]));
                    is_in |= (low..=high).contains(&byte);
                    at += 3;
                } else {
                    at += usize::from(pattern[at] == b'\\' && at + 1 < pattern.len());
                    is_in |= pattern[at] == byte;
                    at += 1;
                }
            }
            (is_in != is_negated).then_some((at + 1).min(pattern.len()))
        }
        plain => (plain == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("[", "x", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
