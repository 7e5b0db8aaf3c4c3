//! The requirements of RFC 9110 and RFC 9112 for an origin server of files, one by one, over raw
//! sockets.
//!
//! A requirement has a text of our own, its section, and cases: bytes to send, and the expected
//! replies. Requirements for other parties, or for features that this server lacks, say so.
//! `docs/rfc.md` is written from these tables.

mod chunked;
mod conditional;
mod connection;
mod content;
mod desync;
mod document;
mod expectation;
mod fields;
mod framing;
mod identifiers;
mod message;
mod methods;
mod persistence;
mod player;
mod range;
mod reader;
mod routing;
mod site;
mod status;
mod table;

use std::collections::HashSet;

use self::player::play_all;
use self::table::{Requirement, Standard};

/// A chapter: its source, its topic, its requirements.
struct Chapter {
    standard: Standard,
    title: &'static str,
    requirements: fn() -> Vec<Requirement>,
}

const fn chapter(standard: Standard, title: &'static str, requirements: fn() -> Vec<Requirement>) -> Chapter {
    Chapter { standard, title, requirements }
}

/// All chapters, in the order of the documents.
const CHAPTERS: &[Chapter] = &[
    chapter(Standard::Semantics, "Conformance and identifiers (2 to 4)", identifiers::requirements),
    chapter(Standard::Semantics, "Fields (5)", fields::requirements),
    chapter(Standard::Semantics, "Messages and routing (6, 7)", routing::requirements),
    chapter(Standard::Semantics, "Representations, content negotiation (8, 12)", content::requirements),
    chapter(Standard::Semantics, "Methods (9)", methods::requirements),
    chapter(Standard::Semantics, "Fields of requests and responses (10, 11)", expectation::requirements),
    chapter(Standard::Semantics, "Conditional requests (13)", conditional::requirements),
    chapter(Standard::Semantics, "Ranges (14)", range::requirements),
    chapter(Standard::Semantics, "Status codes (15)", status::requirements),
    chapter(Standard::Messages, "Messages and request lines (2, 3)", message::requirements),
    chapter(Standard::Messages, "Status line and fields (4, 5)", connection::requirements),
    chapter(Standard::Messages, "Bodies (6)", framing::requirements),
    chapter(Standard::Messages, "Chunks (7)", chunked::requirements),
    chapter(Standard::Messages, "Incomplete messages and connections (8, 9)", persistence::requirements),
    chapter(Standard::Messages, "Messages that two recipients could read differently (11)", desync::requirements),
];

/// One test for each chapter, each with its own server.
macro_rules! chapters {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                play_all($name::requirements());
            }
        )*

        #[test]
        fn no_chapter_is_left_out() {
            assert_eq!(CHAPTERS.len(), [$(stringify!($name)),*].len());
        }
    };
}

chapters!(
    identifiers,
    fields,
    routing,
    content,
    methods,
    expectation,
    conditional,
    range,
    status,
    message,
    connection,
    framing,
    chunked,
    persistence,
    desync,
);

#[test]
fn names_of_cases_are_unique() {
    let mut names = HashSet::new();
    for requirement in CHAPTERS.iter().flat_map(|chapter| (chapter.requirements)()) {
        for case in requirement.cases {
            assert!(names.insert(case.name), "{} is there twice", case.name);
        }
    }
}
