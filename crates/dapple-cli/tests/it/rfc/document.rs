//! `docs/rfc.md`, written from the tables.

use std::fmt::Write;

use super::table::{Level, Requirement, Standard};
use super::{CHAPTERS, Chapter};

#[test]
fn the_document_matches_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rfc.md");
    let text = document();
    if std::env::var_os("DAPPLE_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        known == text,
        "docs/rfc.md does not match the tables; `DAPPLE_WRITE_DOCS=1 cargo test -p dapple-cli --test it \
        rfc::document` writes it"
    );
}

fn document() -> String {
    let mut text = INTRODUCTION.to_owned();
    let all: Vec<_> = CHAPTERS.iter().flat_map(|chapter| (chapter.requirements)()).collect();
    let cases: usize = all.iter().map(|requirement| requirement.cases.len()).sum();
    let proven = all.iter().filter(|requirement| !requirement.cases.is_empty()).count();
    let _ = writeln!(
        text,
        "{} requirements: {proven} are shown by {cases} cases, {} do not apply or are shown elsewhere.",
        all.len(),
        all.len() - proven
    );
    for (standard, name) in
        [(Standard::Semantics, "RFC 9110, HTTP Semantics"), (Standard::Messages, "RFC 9112, HTTP/1.1")]
    {
        let _ = writeln!(text, "\n## {name}");
        for chapter in CHAPTERS.iter().filter(|chapter| chapter.standard == standard) {
            section(&mut text, chapter);
        }
    }
    text
}

fn section(text: &mut String, chapter: &Chapter) {
    let _ = writeln!(text, "\n### {}\n\n| section | | requirement | cases |\n|---|---|---|---|", chapter.title);
    for requirement in (chapter.requirements)() {
        let level = match requirement.level {
            Level::Must => "MUST",
            Level::MustNot => "MUST NOT",
            Level::Should => "SHOULD",
            Level::Rule => "",
        };
        let Requirement { section, text: words, .. } = &requirement;
        let _ = writeln!(text, "| {section} | {level} | {} | {} |", escaped(words), proof(&requirement));
    }
}

fn proof(requirement: &Requirement) -> String {
    if let Some(reason) = requirement.moot {
        return format!("*{}*", escaped(reason));
    }
    let names: Vec<_> = requirement.cases.iter().map(|case| format!("`{}`", case.name)).collect();
    match &names[..] {
        // Numbered cases are many.
        [first, .., last] if names.len() > 6 => format!("{first} … {last} ({})", names.len()),
        _ => names.join(", "),
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

const INTRODUCTION: &str = "\
# Requirements of the standards for an origin server

A test writes this page from the tables in `crates/dapple-cli/tests/it/rfc/`, which the tests play against the `dapple`
binary over plain sockets: `cargo test -p dapple-cli --test it rfc`. They send every case at once and in small pieces. If
the server has to end the connection, they send the case once more with another request after it, which must get no answer.
They check every reply strictly: status line, fields, dates, entity tags, lists, framing, `Allow`, and whether it suits the
client's version.

The requirements are in our own words. A row without a level is a description in the documents, or follows from several
requirements. The page leaves out requirements for clients, proxies, caches and gateways only, for registrations, and for
definitions of new fields. We compared sections and levels with the documents, for MUST and MUST NOT sentence by sentence.

";
