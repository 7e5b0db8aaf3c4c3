//! Properties of the paths and ranges that clients send. A fuzz target searches for bytes that break them; the tests replay its corpus.

#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../src/path.rs"]
mod path;

#[allow(dead_code, reason = "only the pure part of this file is used")]
#[path = "../../src/dav/part.rs"]
mod part;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use self::path::TreePath;

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("tree_path", tree_path), ("part_range", part_range)];

/// A path that is accepted has good names only, is made of them again, and lies in each directory above it.
fn tree_path(data: &[u8]) {
    let Ok(path) = TreePath::parse(data) else { return };
    assert_eq!(TreePath::parse(path.as_bytes()).as_ref(), Ok(&path));
    let mut again = TreePath::root();
    for name in path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        assert!(name != b"." && name != b".." && name.len() <= path::NAME_LEN_MAX && !name.contains(&0));
        assert!(path.is_in(&again));
        again = again.join(name).expect("each name is good");
    }
    assert_eq!(again, path);
    let mut above = path.parent();
    let mut depth = 0;
    while let Some(directory) = above {
        assert!(path.is_in(&directory) && !directory.is_in(&path));
        above = directory.parent();
        depth += 1;
    }
    assert!(depth <= path::DEPTH_MAX);
}

/// A part that is accepted is as long as its body, and ends where files can end. The bytes are lines: a method, and fields.
fn part_range(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let Some(Ok(method)) = lines.next().map(Method::from_bytes) else { return };
    let mut fields = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(&line[colon + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.insert(name, value);
        }
    }
    if part::check(&method, &fields).is_err() {
        return;
    }
    let text = |name: &str| fields.get(name).and_then(|value| value.to_str().ok());
    let len: Option<u128> = text("content-length").and_then(|len| len.parse::<u64>().ok()).map(u128::from);
    let update =
        text("x-update-range").filter(|_| method == Method::PATCH).and_then(|range| range.strip_prefix("bytes="));
    let whole =
        text("content-range").and_then(|range| range.strip_prefix("bytes ")?.split_once('/')).map(|range| range.0);
    for range in [update, whole].into_iter().flatten() {
        let Some((Ok(first), last)) = range.split_once('-').map(|(first, last)| (first.parse::<u64>(), last)) else {
            continue;
        };
        let last = match last.parse::<u64>() {
            Ok(last) => {
                assert!(first <= last && len.is_none_or(|len| len == u128::from(last - first) + 1));
                u128::from(last)
            }
            Err(_) if len.unwrap_or(0) == 0 => continue,
            Err(_) => u128::from(first) + len.unwrap_or(0) - 1,
        };
        assert!(last < i64::MAX as u128);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
