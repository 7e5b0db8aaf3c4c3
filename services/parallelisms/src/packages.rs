//! Debian's lists of packages: a paragraph of fields for each package.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};

use serde::{Deserialize, Serialize};

/// A package, with the facts that the service keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Package {
    /// The name of its source package; its own name, if the list has no other.
    pub(crate) source: String,
    /// The first line of its description; empty if the list has none.
    pub(crate) summary: String,
    /// Its categories, such as `section:httpd`, `tag:protocol::http`, `needs:libssl3` and `provides:httpd`.
    pub(crate) categories: BTreeSet<String>,
    /// The sum of the weights of its categories; the catalog computes it.
    pub(crate) weight: f64,
}

/// Packages by name.
pub(crate) type Packages = BTreeMap<String, Package>;

/// The reason why a list cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("line {line}: {what}; is this a list of Debian packages?")]
    Syntax { line: usize, what: String },
    #[error("it is compressed; decompress it first, or write `apt-cache dumpavail | parallelisms load -`")]
    Compressed,
    #[error("it has no package")]
    Empty,
}

/// Reads a list into `packages`, calls `progress` after each package, and returns the number of paragraphs.
///
/// A package that is there already, for example in an older version, gets the categories of both.
pub(crate) fn read(
    mut input: impl BufRead,
    packages: &mut Packages,
    mut progress: impl FnMut(usize),
) -> Result<usize, ListError> {
    if COMPRESSED.iter().any(|magic| input.fill_buf().is_ok_and(|start| start.starts_with(magic))) {
        return Err(ListError::Compressed);
    }
    let (mut paragraph, mut line_number, mut count) = (Paragraph::default(), 0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        line_number += 1;
        let len = (&mut input).take(LINE_LEN_MAX).read_until(b'\n', &mut bytes)?;
        let line = String::from_utf8_lossy(bytes.trim_ascii_end());
        let syntax = |what: String| ListError::Syntax { line: line_number, what };
        if len as u64 == LINE_LEN_MAX {
            return Err(syntax(format!("the line has {LINE_LEN_MAX} bytes or more")));
        }
        if !line.is_empty() {
            paragraph.add(&line).map_err(syntax)?;
            continue;
        }
        if !paragraph.0.is_empty() {
            let (name, package) = std::mem::take(&mut paragraph).package().map_err(syntax)?;
            merge(packages, name, package);
            count += 1;
            progress(count);
        }
        if len == 0 {
            return if count == 0 { Err(ListError::Empty) } else { Ok(count) };
        }
    }
}

/// Adds a package, or adds what is new about it.
pub(crate) fn merge(packages: &mut Packages, name: String, package: Package) {
    let known = packages.entry(name).or_default();
    if known.source.is_empty() {
        known.source = package.source;
    }
    if known.summary.is_empty() {
        known.summary = package.summary;
    }
    known.categories.extend(package.categories);
}

/// The fields of one package, and the name of the last one, which a line that begins with a space continues.
#[derive(Default)]
struct Paragraph(BTreeMap<&'static str, String>, &'static str);

impl Paragraph {
    fn add(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with([' ', '\t']) {
            let value = self.0.get_mut(self.1).ok_or("a paragraph begins with a space")?;
            // The description's further lines are not kept.
            if self.1 != "Description" {
                value.push_str(line);
            }
            return Ok(());
        }
        let (name, value) = line.split_once(':').ok_or("there is no colon")?;
        // All fields that do not matter share the last name.
        self.1 = FIELDS.iter().find(|field| field.eq_ignore_ascii_case(name)).unwrap_or(&OTHER);
        self.0.insert(self.1, value.trim().to_owned());
        Ok(())
    }

    fn package(self) -> Result<(String, Package), String> {
        let field = |name: &str| self.0.get(name).map_or("", String::as_str);
        let name = field("Package");
        if !is_name(name) {
            return Err(format!("the paragraph above has no valid name of a package: {name:?}"));
        }
        let source = first_word(field("Source"));
        let mut categories = BTreeSet::new();
        let mut add = |kind: &str, value: &str| {
            if !value.is_empty() && value.len() <= NAME_LEN_MAX && categories.len() < CATEGORIES_MAX {
                categories.insert(format!("{kind}:{value}"));
            }
        };
        add("section", field("Section"));
        field("Tag").split(',').for_each(|tag| add("tag", tag.trim()));
        // `a (>= 1) | b:any` names both `a` and `b`.
        for list in [field("Pre-Depends"), field("Depends")] {
            list.split([',', '|']).for_each(|needed| add("needs", first_word(needed)));
        }
        field("Provides").split(',').for_each(|provided| add("provides", first_word(provided)));
        let source = if is_name(source) { source } else { name }.to_owned();
        let summary = field("Description").chars().take(NAME_LEN_MAX).collect();
        Ok((name.to_owned(), Package { source, summary, categories, weight: 0.0 }))
    }
}

/// Whether this may be the name of a package.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
    !text.is_empty() && text.len() <= NAME_LEN_MAX && text.bytes().all(is_letter)
}

/// The name in `name (>= 1.0)` and `name:any`.
fn first_word(text: &str) -> &str {
    text.trim().split([' ', ':', '(', '[']).next().unwrap_or_default()
}

/// The fields that matter.
const FIELDS: [&str; 8] = ["Package", "Source", "Section", "Tag", "Depends", "Pre-Depends", "Provides", "Description"];
const OTHER: &str = "other";
/// The first bytes of lz4, gzip, xz, zstd and bzip2.
const COMPRESSED: [&[u8]; 5] = [b"\x04\x22\x4d\x18", b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"BZh"];
const LINE_LEN_MAX: u64 = 1 << 20;
const NAME_LEN_MAX: usize = 200;
/// A package with more categories than this keeps the first ones.
const CATEGORIES_MAX: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Packages, String> {
        let mut packages = Packages::new();
        read(text.as_bytes(), &mut packages, |_| {}).map_err(|error| error.to_string())?;
        Ok(packages)
    }

    #[test]
    fn fields_become_categories() {
        let text = "Package: g++\nSource: gcc (4:12)\nTag: devel::compiler,\n role::program\nSection: devel\n\
            Pre-Depends: dpkg (>= 1)\nDepends: perl:any, a | b (>= 2) [amd64]\nProvides: c++-compiler\n\
            Description: GNU compiler\n with a long text\n\n\n\nPackage: g++\nTag: role::new\nDescription: other\n";
        let packages = read_text(text).unwrap();
        let package = &packages["g++"];
        assert_eq!((package.source.as_str(), package.summary.as_str()), ("gcc", "GNU compiler"));
        let categories: Vec<&str> = package.categories.iter().map(String::as_str).collect();
        let needs = ["needs:a", "needs:b", "needs:dpkg", "needs:perl"];
        let others =
            ["provides:c++-compiler", "section:devel", "tag:devel::compiler", "tag:role::new", "tag:role::program"];
        assert_eq!(categories, [&needs[..], &others[..]].concat());
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let line = |text: &str| read_text(text).unwrap_err();
        assert!(line("Package: a\nno field\n").starts_with("line 2: there is no colon; is this"));
        assert!(line("Package: a\n\n continued\n").starts_with("line 3: a paragraph begins with a space"));
        assert!(line("Section: a\n\n").starts_with("line 2: the paragraph above has no valid name of a package: \"\""));
        assert!(line("Package: a<b\n").contains("\"a<b\""));
        assert_eq!(line(" \n\n"), "it has no package");
        assert!(line(&"a".repeat(LINE_LEN_MAX as usize)).contains("1048576 bytes or more"));
        assert!(read(&b"\x1f\x8bxyz"[..], &mut Packages::new(), |_| {}).unwrap_err().to_string().contains("dumpavail"));
    }

    #[test]
    fn hostile_lists_stay_within_limits() {
        let needs: String = (0..5000).map(|number| format!("lib{number}, ")).collect();
        let text =
            format!("Package: a\nDepends: {needs}\nTag: {}\nDescription: {}\n", "t".repeat(300), "é".repeat(500));
        let package = &read_text(&text).unwrap()["a"];
        assert_eq!((package.categories.len(), package.summary.chars().count()), (CATEGORIES_MAX, NAME_LEN_MAX));
    }
}
