//! Paths with one star in them.

use super::rules::RuleError;

/// `/exact`, `/below/*`, `*.css`, `/docs/*.html`: the star stands for any text, including none, and
/// slashes.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// Without the leading slash.
    start: String,
    /// The text after the star, if there is one.
    end: Option<String>,
}

impl Pattern {
    /// Parses a pattern in readable form, not percent-encoded.
    ///
    /// # Errors
    ///
    /// The pattern does not start with a slash or a star, or has several stars.
    pub(crate) fn parse(text: &str) -> Result<Pattern, RuleError> {
        let path = match text.strip_prefix('/') {
            Some(path) => path,
            None if text.starts_with('*') => text,
            None => return Err(RuleError::Slash(text.to_owned())),
        };
        match path.split_once('*') {
            Some((_, end)) if end.contains('*') => Err(RuleError::Stars(text.to_owned())),
            Some((start, end)) => Ok(Pattern { start: start.to_owned(), end: Some(end.to_owned()) }),
            None => Ok(Pattern { start: path.to_owned(), end: None }),
        }
    }

    pub(crate) fn has_star(&self) -> bool {
        self.end.is_some()
    }

    /// The text for the star in this path, which has no leading slash; `None` if the pattern does
    /// not match.
    pub(crate) fn rest<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        let rest = key.strip_prefix(self.start.as_bytes())?;
        match &self.end {
            Some(end) => rest.strip_suffix(end.as_bytes()),
            None => rest.is_empty().then_some(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, key, rest) in [
            ("/a", "a", Some("")),
            ("/a", "a/", None),
            ("/a", "ab", None),
            ("/", "", Some("")),
            ("/*", "", Some("")),
            ("/*", "a/b", Some("a/b")),
            ("*", "a/b", Some("a/b")),
            ("*.css", "a/b.css", Some("a/b")),
            ("/a/*", "a/b/c", Some("b/c")),
            ("/a/*", "a", None),
            ("/a/*.js", "a/b.js", Some("b")),
            ("/a/*.js", "a/b.jsx", None),
            // The two ends must not overlap.
            ("/ab*ba", "aba", None),
        ] {
            let found = Pattern::parse(pattern).unwrap().rest(key.as_bytes()).map(<[u8]>::to_vec);
            assert_eq!(found.as_deref(), rest.map(str::as_bytes), "{pattern} {key}");
        }
        assert!(Pattern::parse("a").is_err() && Pattern::parse("/*/*").is_err() && Pattern::parse("").is_err());
    }
}
