//! Bytes as text on one line: printable ASCII and UTF-8 as they are, the rest as escapes.

use std::fmt::Write;

/// `\\`, `\t`, `\n`, `\r` and `\xNN` stand for a backslash, tab, line feed, carriage return and any
/// other byte.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                character if character.is_control() => {
                    let mut buffer = [0; 4];
                    escape_bytes(&mut text, character.encode_utf8(&mut buffer).as_bytes());
                }
                character => text.push(character),
            }
        }
        escape_bytes(&mut text, chunk.invalid());
    }
    text
}

fn escape_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Returns the bytes that [`escape`] wrote, or the part that is not an escape.
pub(super) fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'\\') => b'\\',
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'x') => {
                let digits = rest.as_slice().get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let number = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let number = number.ok_or("`\\x` needs two hexadecimal digits")?;
                rest.nth(1);
                number
            }
            Some(other) => {
                return Err(format!("`\\{}` is not an escape; write `\\\\` for a backslash", *other as char));
            }
            None => return Err("the line ends in a backslash; write `\\\\` for one".to_owned()),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escape(&all);
        assert!(!text.contains(['\t', '\n', '\r', '\0']));
        assert_eq!(unescape(text.as_bytes()), Ok(all));
        assert_eq!(escape("größe\\".as_bytes()), "größe\\\\");
    }

    #[test]
    fn wrong_escapes_are_named() {
        for text in ["\\q", "\\", "\\x", "\\x1", "\\xzz"] {
            assert!(unescape(text.as_bytes()).is_err(), "{text}");
        }
    }
}
