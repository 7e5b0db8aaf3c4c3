//! The path of a file in the tree.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The path of a file in a [`Tree`](crate::Tree): names between slashes, from the root, which is empty.
///
/// A value of this type has no name `.` or `..`, no empty name, no NUL, and none of the names that this crate keeps for itself
/// ([`RESERVED_PREFIX`]), so it cannot lead out of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct TreePath(Vec<u8>);

/// A path that names no file of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A name is empty, `.` or `..`, or contains NUL or a slash.
    #[error("a name in the path is empty, `.` or `..`, or contains a NUL or a slash")]
    Name,
    /// A name is longer than [`NAME_LEN_MAX`] bytes, the path longer than [`PATH_LEN_MAX`], or deeper than [`DEPTH_MAX`].
    #[error("the path is too long: at most 255 bytes for each name, 4,095 for the path, and 200 names")]
    TooLong,
    /// A name begins with [`RESERVED_PREFIX`].
    #[error("names that begin with `.dapple-files-` are reserved for uploads in progress")]
    Reserved,
}

impl TreePath {
    /// The root of the tree.
    pub fn root() -> TreePath {
        TreePath::default()
    }

    /// Reads a path. One slash at the beginning and one at the end do not matter.
    ///
    /// # Errors
    ///
    /// The path names no file of a tree.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<TreePath, PathError> {
        let path = path.as_ref();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = if path.len() > 1 { path.strip_suffix(b"/").unwrap_or(path) } else { path };
        if path.len() > PATH_LEN_MAX {
            return Err(PathError::TooLong);
        }
        if path.is_empty() {
            return Ok(TreePath::root());
        }
        let mut depth = 0;
        for name in path.split(|byte| *byte == b'/') {
            check(name)?;
            depth += 1;
        }
        if depth > DEPTH_MAX { Err(PathError::TooLong) } else { Ok(TreePath(path.to_vec())) }
    }

    /// The path of a file in this directory.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<TreePath, PathError> {
        let name = name.as_ref();
        check(name)?;
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let depth = path.iter().filter(|byte| **byte == b'/').count() + 1;
        if path.len() > PATH_LEN_MAX || depth > DEPTH_MAX { Err(PathError::TooLong) } else { Ok(TreePath(path)) }
    }

    /// The directory of this file; `None` for the root.
    pub fn parent(&self) -> Option<TreePath> {
        if self.is_root() {
            return None;
        }
        let slash = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(TreePath(self.0[..slash].to_vec()))
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is `above` or lies below it.
    pub fn is_in(&self, above: &TreePath) -> bool {
        let Some(rest) = self.0.strip_prefix(above.0.as_slice()) else { return false };
        above.is_root() || rest.is_empty() || rest[0] == b'/'
    }

    /// The path as text, with a slash at its beginning: bytes that are no UTF-8 as `\xff`, and each backslash twice, so that no two paths
    /// have the same text.
    ///
    /// ```
    /// let text = |path: &[u8]| dapple_files::TreePath::parse(path).map(|path| path.to_text());
    /// assert_eq!(text("é".as_bytes())?, "/é");
    /// assert_eq!((text(b"\xff")?.as_str(), text(br"\xff")?.as_str()), (r"/\xff", r"/\\xff"));
    /// # Ok::<(), dapple_files::PathError>(())
    /// ```
    pub fn to_text(&self) -> String {
        let mut text = String::from("/");
        for part in self.0.utf8_chunks() {
            text.push_str(&part.valid().replace('\\', r"\\"));
            text.extend(part.invalid().escape_ascii().map(char::from));
        }
        text
    }

    /// The bytes, without a slash at either end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of a hidden name in the directory of this file; the root has none, so it is one in the root.
    pub(crate) fn hidden(&self, name: &str) -> TreePath {
        let mut path = self.parent().unwrap_or_default().0;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        TreePath(path)
    }

    /// The path of a file below `to` that is called as this one below `from`; this one itself if it is not there.
    pub(crate) fn moved(&self, from: &TreePath, to: &TreePath) -> TreePath {
        if !self.is_in(from) {
            return self.clone();
        }
        TreePath([to.as_bytes(), &self.0[from.0.len()..]].concat())
    }

    /// For the kernel, relative to the root of the tree: `.` for the root.
    pub(crate) fn as_relative(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { Path::new(OsStr::from_bytes(&self.0)) }
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.escape_ascii())
    }
}

impl TryFrom<Vec<u8>> for TreePath {
    type Error = PathError;

    fn try_from(bytes: Vec<u8>) -> Result<TreePath, PathError> {
        TreePath::parse(bytes)
    }
}

impl From<TreePath> for Vec<u8> {
    fn from(path: TreePath) -> Vec<u8> {
        path.0
    }
}

/// Checks one name.
fn check(name: &[u8]) -> Result<(), PathError> {
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(PathError::Name);
    }
    if name.len() > NAME_LEN_MAX {
        return Err(PathError::TooLong);
    }
    if name.starts_with(RESERVED_PREFIX) { Err(PathError::Reserved) } else { Ok(()) }
}

/// The beginning of names that a tree keeps for uploads in progress; listings leave them out.
pub const RESERVED_PREFIX: &[u8] = b".dapple-files-";

/// The most bytes of a name.
pub const NAME_LEN_MAX: usize = 255;

/// The most bytes of a path.
pub const PATH_LEN_MAX: usize = 4095;

/// The most names of a path.
pub const DEPTH_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::{PathError, TreePath};

    #[test]
    fn a_path_cannot_lead_out() {
        for bad in ["..", "a/..", "../a", "a/../b", ".", "a/./b", "a//b", "//", "a\0b", "\0"] {
            assert_eq!(TreePath::parse(bad), Err(PathError::Name), "{bad:?}");
        }
        assert_eq!(TreePath::parse("a/.dapple-files-1"), Err(PathError::Reserved));
        assert_eq!(TreePath::parse("x".repeat(256)), Err(PathError::TooLong));
        assert_eq!(TreePath::parse("x/".repeat(201)), Err(PathError::TooLong));
        assert!(TreePath::parse("x/".repeat(200)).is_ok());
    }

    #[test]
    fn parts_of_a_path() {
        let path = TreePath::parse("/a/b c/\u{e4}").expect("a path");
        assert_eq!(path.name(), "\u{e4}");
        let parent = path.parent().expect("a parent");
        assert_eq!(parent.as_bytes(), b"a/b c");
        assert!(path.is_in(&parent) && path.is_in(&path) && path.is_in(&TreePath::root()) && !parent.is_in(&path));
        assert!(!TreePath::parse("a/bc").expect("a path").is_in(&TreePath::parse("a/b").expect("a path")));
        assert_eq!(parent.join("\u{e4}"), Ok(path));
        assert_eq!(TreePath::parse("/").expect("the root"), TreePath::root());
        assert_eq!((TreePath::root().parent(), TreePath::root().name().len()), (None, 0));
        assert!(TreePath::root().join("a/b").is_err());
    }
}
