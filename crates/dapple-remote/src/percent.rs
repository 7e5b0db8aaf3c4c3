//! Names of stages in paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::wire::STAGES;

/// The path of a stage. All but letters, digits and `-._~` are escaped.
pub(crate) fn path_of(name: &str) -> String {
    format!("{STAGES}{}", utf8_percent_encode(name, ESCAPED))
}

/// The name in the last part of a path; `None` if an escape is malformed, or the bytes are not
/// text.
pub(crate) fn name_in(part: &str) -> Option<String> {
    // The library keeps malformed escapes as they are; our own paths have none.
    let is_escape = |after: &str| after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    if !part.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(part).decode_utf8().ok().map(|name| name.into_owned())
}

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use super::{name_in, path_of};

    #[test]
    fn every_name_comes_back() {
        for name in ["echo", "a/b", "größe", "50%", "%41", " ", "..", "x y?z#w"] {
            let path = path_of(name);
            assert!(path.is_ascii() && path.matches('/').count() == 2, "{path}");
            assert_eq!(name_in(path.rsplit('/').next().unwrap()).as_deref(), Some(name));
        }
        for hostile in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert_eq!(name_in(hostile), None, "{hostile}");
        }
    }
}
