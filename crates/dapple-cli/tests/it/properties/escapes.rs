//! Text of clients, and names of files, in all places that show them: the access log, the metrics
//! page, and HTML.

use dapple_serve::metrics::exposition::{Exposition, Kind};

#[path = "../../../src/observe/log/escape.rs"]
mod access_log;
#[path = "../../../src/serve/html.rs"]
mod html;

/// No text leaves its place, and all text can be read back unchanged.
pub(super) fn escapes(data: &[u8]) {
    quoted(data);
    json(data);
    let text = String::from_utf8_lossy(data);
    label(&text);
    in_html(&text);
}

fn quoted(data: &[u8]) {
    let mut out = Vec::new();
    access_log::quoted(data, &mut out);
    let inner = out.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).expect("quotes");
    assert!(inner.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'"'));
    let mut back = Vec::new();
    let mut rest = inner.iter();
    while let Some(byte) = rest.next() {
        back.push(match byte {
            b'\\' => {
                let escape: Vec<u8> = rest.by_ref().take(3).copied().collect();
                let digits = escape.strip_prefix(b"x").and_then(|digits| std::str::from_utf8(digits).ok());
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).expect("an escape")
            }
            plain => *plain,
        });
    }
    assert_eq!(back, data);
}

fn json(data: &[u8]) {
    let mut out = Vec::new();
    access_log::json(data, &mut out);
    let written = std::str::from_utf8(&out).expect("UTF-8");
    assert!(!written.contains(char::is_control) && !written.contains(['\u{2028}', '\u{2029}']));
    let back: String = serde_json::from_str(written).expect("a string of JSON");
    assert_eq!(back, String::from_utf8_lossy(data));
}

fn label(text: &str) {
    let mut page = Exposition::new();
    page.family("a", Kind::Gauge, text);
    page.sample("a", &[("l", text), ("m", "")], 1.0);
    let page = page.finish();
    let lines: Vec<&str> = page.split('\n').collect();
    let [help, kind, sample, ""] = lines[..] else { panic!("{} lines", lines.len()) };
    assert!(help.starts_with("# HELP a ") && kind == "# TYPE a gauge");
    let value = sample.strip_prefix("a{l=\"").and_then(|rest| rest.strip_suffix("\",m=\"\"} 1")).expect("labels");
    let mut back = String::new();
    let mut signs = value.chars();
    while let Some(sign) = signs.next() {
        assert_ne!(sign, '"');
        back.push(match sign {
            '\\' => match signs.next() {
                Some('n') => '\n',
                Some(sign @ ('"' | '\\')) => sign,
                other => panic!("escaped {other:?}"),
            },
            plain => plain,
        });
    }
    assert_eq!(back, text);
}

fn in_html(text: &str) {
    let written = html::escape(text);
    assert!(!written.contains(['<', '>', '"', '\'', '{']) && !written.contains(char::is_control));
    let signs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#123;", "{"), ("&amp;", "&")];
    let back = signs.iter().fold(written, |text, (escape, sign)| text.replace(escape, sign));
    let shown: String = text.chars().map(|sign| if sign.is_control() { '\u{fffd}' } else { sign }).collect();
    assert_eq!(back, shown);
}
