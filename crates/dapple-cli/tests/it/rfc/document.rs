//! `docs/rfc.md`, written from the tables.

use std::fmt::Write;

use super::table::{Level, Requirement, Standard};
use super::{CHAPTERS, Chapter};

#[test]
fn the_document_says_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rfc.md");
    let text = document();
    if std::env::var_os("DAPPLE_WRITE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        known == text,
        "docs/rfc.md is not what the tables say; `DAPPLE_WRITE_DOCS=1 cargo test -p dapple-cli --test it rfc::document` writes it"
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
        // Numbered ones are many.
        [first, .., last] if names.len() > 6 => format!("{first} … {last} ({})", names.len()),
        _ => names.join(", "),
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

const INTRODUCTION: &str = "\
# What the standards ask of an origin server

Written from the tables in `crates/dapple-cli/tests/it/rfc/`, which the tests play against the `dapple` binary over plain
sockets: `cargo test -p dapple-cli --test it rfc`. Every case is sent at once and in small pieces; where the server has to end
the connection, once more with another request behind it, which must stay without an answer. Every reply to every case is read
strictly: status line, fields, dates, entity tags, lists, framing, `Allow`, and whether it is fit for the client's version.

Requirements are in words of our own; rows without a level are what the documents describe without such a word, or
what follows from several of them. Requirements on clients, proxies, caches and gateways alone are left out, and those on
registrations and on definitions of new fields. Sections and levels were compared with the texts of the documents, sentence by
sentence for MUST and MUST NOT.

";
