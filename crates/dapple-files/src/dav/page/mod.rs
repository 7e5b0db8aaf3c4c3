//! The page of a directory, for browsers.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::path::TreePath;
use crate::tree::Entry;

/// The page of a directory: a list that works without scripts, and with them, if the user may write, upload, new directories, renaming
/// and removal.
pub(super) fn page(path: &TreePath, entries: &[Entry], has_more: bool, may_write: bool) -> String {
    let mut rows = String::with_capacity(256 * entries.len());
    if !path.is_root() {
        rows.push_str("<tr class=\"up\"><td><a href=\"../\">..</a></td><td></td><td></td><td></td></tr>\n");
    }
    let (dirs, files): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|entry| entry.attributes.is_dir());
    for entry in dirs.into_iter().chain(files) {
        let is_dir = entry.attributes.is_dir();
        let slash = if is_dir { "/" } else { "" };
        let (link, name) = (encode(&entry.name), escape(&String::from_utf8_lossy(&entry.name)));
        let len = if is_dir { String::new() } else { size(entry.attributes.len) };
        let time = httpdate::fmt_http_date(entry.attributes.modified.to_system_time());
        // Writing to a string does not fail.
        let _ = writeln!(
            rows,
            "<tr data-name=\"{name}\"><td><a href=\"./{link}{slash}\"><bdi>{name}</bdi>{slash}</a></td><td>{len}</td>\
             <td>{}</td><td class=\"do\"></td></tr>",
            time.get(5..22).unwrap_or_default()
        );
    }
    let count = entries.len();
    let noun = match count {
        _ if has_more => "entries, and more, which other clients show",
        1 => "entry",
        _ => "entries",
    };
    PAGE.replace("{title}", &escape(&format!("/{}", String::from_utf8_lossy(path.as_bytes()))))
        .replace("{write}", if may_write { " data-write" } else { "" })
        .replace("{crumbs}", &crumbs(path))
        .replace("{note}", &format!("{count} {noun}"))
        // The last one, since names may contain the marks of the others.
        .replace("{rows}", &rows)
}

/// The way to this directory, each part a link.
fn crumbs(path: &TreePath) -> String {
    let mut crumbs = String::from("<a href=\"/\">files</a>");
    let mut link = String::from("/");
    for name in path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        link.push_str(&encode(name));
        link.push('/');
        let _ = write!(crumbs, " / <a href=\"{link}\">{}</a>", escape(&String::from_utf8_lossy(name)));
    }
    crumbs
}

fn size(len: u64) -> String {
    let mut value = len as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            return if unit == "B" { format!("{len} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// A name, in a path of a URL.
pub(crate) fn encode(name: &[u8]) -> String {
    percent_encode(name, KEPT).to_string()
}

/// Text, in HTML. The braces of marks are escaped too.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '{' => escaped.push_str("&#123;"),
            c => escaped.push(c),
        }
    }
    escaped
}

const KEPT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'&')
    .add(b'\'')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'[')
    .add(b']')
    .add(b':')
    .add(b'/')
    .add(b';')
    .add(b'=')
    .add(b'+');

const PAGE: &str = include_str!("page.html");

/// The script of the page.
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// The style of the page.
pub(crate) const STYLE: &str = include_str!("page.css");

/// The page runs its own script only, whatever names it shows.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

#[cfg(test)]
mod tests {
    use super::{encode, page, size};
    use crate::path::TreePath;

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let path = TreePath::parse("a{rows}/<script>\"'").expect("a path");
        let page = page(&path, &[], false, true);
        assert!(!page.contains("<script>\"") && page.contains("&lt;script&gt;&quot;&#39;"), "{page}");
        assert!(!page.contains("a{rows}"));
        assert_eq!(encode("a b%/\u{e4}\"".as_bytes()), "a%20b%25%2F%C3%A4%22");
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([0, 999, 1000, 999_499, 1_500_000].map(size), ["0 B", "999 B", "1.0 kB", "999.5 kB", "1.5 MB"]);
    }
}
