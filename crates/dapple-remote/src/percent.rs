//! Names of stages in paths.

use super::wire::STAGES;

/// The path of a stage. What is no letter, digit or one of `-._~` is escaped.
pub(crate) fn path_of(name: &str) -> String {
    let mut path = STAGES.to_owned();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// The name in the last part of a path.
pub(crate) fn name_in(part: &str) -> Option<String> {
    let bytes = part.as_bytes();
    let mut name = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits =
                part.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
            name.push(u8::from_str_radix(digits, 16).ok()?);
            at += 3;
        } else {
            name.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(name).ok()
}

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
