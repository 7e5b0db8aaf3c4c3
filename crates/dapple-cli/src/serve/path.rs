//! Turns the path of a request into a name inside the served directory.
//!
//! This module refuses everything that could lead elsewhere, before any name reaches the file
//! system; `disk` refuses symbolic links, which only the file system knows.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// A decoded path inside the site: `a/b.html`, `a/` for a directory, the empty name for the site
/// itself.
///
/// It has no leading slash, no empty, `.` or `..` part, and no NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitePath<'a> {
    name: Cow<'a, [u8]>,
    is_hidden: bool,
}

/// The reason why a request's path names nothing in the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathError {
    /// Not a path at all: broken `%` escapes, a NUL, an encoded slash, or parts that climb (`..`).
    Bad,
    /// A well-formed path that can name no file, such as one with an empty part.
    Missing,
}

impl<'a> SitePath<'a> {
    /// Parses the path of a request from the request line, without its query.
    pub(crate) fn parse(raw: &'a str) -> Result<SitePath<'a>, PathError> {
        let raw = raw.strip_prefix('/').ok_or(PathError::Bad)?;
        let name = match raw.contains('%') {
            false => Cow::Borrowed(raw.as_bytes()),
            true => Cow::Owned(decode(raw.as_bytes())?),
        };
        if name.contains(&0) {
            return Err(PathError::Bad);
        }
        let mut is_hidden = false;
        let mut parts = name.split(|byte| *byte == b'/').peekable();
        while let Some(part) = parts.next() {
            match part {
                b".." => return Err(PathError::Bad),
                b"." => return Err(PathError::Missing),
                // Only the last part may be empty: it names a directory.
                b"" if parts.peek().is_some() => return Err(PathError::Missing),
                part => is_hidden |= is_hidden_name(part),
            }
        }
        Ok(SitePath { name, is_hidden })
    }

    /// Whether any part of it is the name of a hidden file.
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// The decoded bytes, which are the key of this path in both caches.
    pub(crate) fn key(&self) -> &[u8] {
        &self.name
    }
}

/// Whether this key names a directory; then its `index.html` is served.
pub(crate) fn is_directory(key: &[u8]) -> bool {
    key.is_empty() || key.ends_with(b"/")
}

/// Whether a file of this name is hidden: `.git`, `.env`, and anything else that begins with a dot.
/// `.well-known` is meant to be public (RFC 8615).
pub(crate) fn is_hidden_name(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name != b".well-known"
}

/// Encodes a name, or several with slashes between, as a part of a URL.
pub(crate) fn encode(name: &[u8]) -> String {
    percent_encoding::percent_encode(name, NOT_IN_A_PATH).to_string()
}

/// Decodes `%xx`. Refuses an encoded slash: it would be one name in the URL and two in the file
/// system.
fn decode(raw: &[u8]) -> Result<Vec<u8>, PathError> {
    let mut name = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            name.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (bytes.next().and_then(hex), bytes.next().and_then(hex)) else {
            return Err(PathError::Bad);
        };
        match (high << 4) | low {
            b'/' => return Err(PathError::Bad),
            decoded => name.push(decoded),
        }
    }
    Ok(name)
}

/// All characters but unreserved ones and the slash: the others allowed in a path have a meaning
/// elsewhere.
const NOT_IN_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

fn hex(digit: &u8) -> Option<u8> {
    char::from(*digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::{PathError, SitePath, is_directory};

    fn key(raw: &str) -> Result<Vec<u8>, PathError> {
        SitePath::parse(raw).map(|path| path.key().to_vec())
    }

    #[test]
    fn plain_and_encoded_names_are_the_same() {
        assert_eq!(key("/a/b.html"), Ok(b"a/b.html".to_vec()));
        assert_eq!(key("/a/%62.html"), Ok(b"a/b.html".to_vec()));
        assert_eq!(key("/a%20b"), Ok(b"a b".to_vec()));
        assert_eq!(key("/%C3%a9"), Ok("é".as_bytes().to_vec()));
        assert_eq!(key("/"), Ok(Vec::new()));
        assert!(is_directory(&key("/").unwrap()) && is_directory(&key("/a/").unwrap()));
        assert!(!is_directory(&key("/a").unwrap()));
    }

    #[test]
    fn dots_in_names_are_allowed() {
        assert_eq!(key("/..a/b..c/...").as_deref(), Ok(&b"..a/b..c/..."[..]));
    }

    #[test]
    fn hidden_names_are_known() {
        let is_hidden = |raw| SitePath::parse(raw).unwrap().is_hidden();
        for raw in ["/.git/config", "/a/.env", "/%2eenv", "/.well-known/.secret", "/.git", "/.git/", "/..."] {
            assert!(is_hidden(raw), "{raw}");
        }
        for raw in ["/", "/a.b/c", "/.well-known/acme-challenge/x", "/a./b"] {
            assert!(!is_hidden(raw), "{raw}");
        }
    }

    #[test]
    fn names_survive_encoding() {
        let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        let written = format!("/x{}", super::encode(&all));
        assert!(written.is_ascii() && !written.contains([' ', '"', '<', '>', '&', '\\', '?', '#']));
        assert_eq!(key(&written).unwrap()[1..], all);
    }

    #[test]
    fn no_path_climbs() {
        for raw in
            ["/..", "/../x", "/a/../../x", "/%2e%2e/x", "/.%2E/x", "/%2E./x", "/a/..%2fx", "/a%2F..%2Fx", "/a/.."]
        {
            assert_eq!(key(raw), Err(PathError::Bad), "{raw}");
        }
        for raw in ["//etc/passwd", "/a//b", "/./x", "/a/%2e", "///"] {
            assert_eq!(key(raw), Err(PathError::Missing), "{raw}");
        }
    }

    #[test]
    fn malformed_paths_are_refused() {
        for raw in ["", "*", "a", "/%", "/%2", "/%zz", "/%00", "/a%00.html", "/%+1"] {
            assert_eq!(key(raw), Err(PathError::Bad), "{raw}");
        }
    }
}
