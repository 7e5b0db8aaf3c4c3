//! Paths of requests, and patterns of them.

use super::path::{SitePath, encode, is_hidden_name};
use super::pattern::Pattern;

/// An accepted path stays in the site, has one name for each of its parts, and prints as text that
/// parses the same.
pub(super) fn site_path(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let Ok(path) = SitePath::parse(raw) else { return };
    let key = path.key();
    assert!(!key.contains(&0) && !key.starts_with(b"/"));
    let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
    assert_eq!(parts.len(), raw.matches('/').count(), "an escape became a slash");
    for (place, part) in parts.iter().enumerate() {
        assert!(*part != b"." && *part != b"..");
        assert!(!part.is_empty() || place + 1 == parts.len());
    }
    assert_eq!(path.is_hidden(), parts.iter().any(|part| is_hidden_name(part)));
    let again = format!("/{}", encode(key));
    assert_eq!(SitePath::parse(&again).expect("an accepted path is accepted again").key(), key);
}

/// The text of a star is the text between the two ends.
pub(super) fn pattern_fits(data: &[u8]) {
    let Some(at) = data.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(text), key) = (std::str::from_utf8(&data[..at]), &data[at + 1..]) else { return };
    let Ok(pattern) = Pattern::parse(text) else { return };
    let text = text.strip_prefix('/').unwrap_or(text);
    match (pattern.rest(key), pattern.has_star()) {
        (None, false) => assert_ne!(text.as_bytes(), key),
        (None, true) => {}
        (Some(rest), true) => {
            let (start, end) = text.split_once('*').expect("it has a star");
            assert_eq!([start.as_bytes(), rest, end.as_bytes()].concat(), key);
        }
        (Some(rest), false) => assert!(rest.is_empty() && text.as_bytes() == key),
    }
}
