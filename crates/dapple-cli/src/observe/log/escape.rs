//! Escapes clients' text for a log line.

/// Escapes text between quotes, like nginx and Apache: bytes that could end the quotes or the line,
/// or control a terminal, become `\xHH`.
pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => {
                out.extend_from_slice(b"\\x");
                out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789ABCDEF"[usize::from(digit)]));
            }
            plain => out.push(*plain),
        }
    }
    out.push(b'"');
}

/// Escapes text as a JSON string. Bytes that are not UTF-8 become U+FFFD; characters that control
/// terminals are escaped.
pub(super) fn json(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for sign in String::from_utf8_lossy(bytes).chars() {
        match sign {
            '"' | '\\' => out.extend([b'\\', sign as u8]),
            sign if sign.is_control() || matches!(sign, '\u{2028}' | '\u{2029}') => {
                out.extend_from_slice(format!("\\u{:04x}", sign as u32).as_bytes());
            }
            sign => out.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::{json, quoted};

    #[test]
    fn no_input_ends_a_field_or_a_line() {
        let evil = b"a\"b\\c\r\n\x1b[2J\x7f\xff \xc2\x85\xe2\x80\xa8";
        let mut one = Vec::new();
        quoted(evil, &mut one);
        assert_eq!(
            String::from_utf8(one).unwrap(),
            "\"a\\x22b\\x5Cc\\x0D\\x0A\\x1B[2J\\x7F\\xFF \\xC2\\x85\\xE2\\x80\\xA8\""
        );
        let mut other = Vec::new();
        json(evil, &mut other);
        assert!(other.iter().all(|byte| *byte >= b' ' && *byte != 0x7f), "{other:?}");
        let back: String = serde_json::from_slice(&other).unwrap();
        assert_eq!(back, String::from_utf8_lossy(evil));
    }
}
