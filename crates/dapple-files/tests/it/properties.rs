//! Properties of the paths that clients send. A fuzz target searches for bytes that break them; the tests replay its corpus.

#[allow(dead_code, unreachable_pub, reason = "only the pure part of this file is used")]
#[path = "../../src/path.rs"]
mod path;

use self::path::TreePath;

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the name of their target.
pub(crate) const ALL: &[(&str, Property)] = &[("tree_path", tree_path)];

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

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }
}
