//! The served files, and the list of requests and expected answers for the load.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A set of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum SiteKind {
    /// 700 of 4 KB, each as often as the others.
    Small,
    /// 720, 100 MB in all, as SPECweb99 has them: four classes, Zipf's law among folders and among the files of each.
    Specweb,
    /// One of 13 bytes.
    Hello,
    /// One of 200 MB.
    Large,
    /// One of 13 bytes, and one of 200 MB, which the list does not ask for.
    HelloAndLarge,
    /// Many of 16 KB, each as often as the others.
    Many,
}

impl SiteKind {
    fn name(self) -> &'static str {
        match self {
            SiteKind::Small => "small",
            SiteKind::Specweb => "specweb",
            SiteKind::Hello => "hello",
            SiteKind::Large => "large",
            SiteKind::HelloAndLarge => "hello-and-large",
            SiteKind::Many => "many",
        }
    }

    /// Length and weight of each file; `many` is how many `Many` has.
    fn files(self, many: usize) -> Vec<(u64, f64)> {
        match self {
            SiteKind::Small => vec![(4_096, 1.0); 700],
            SiteKind::Specweb => specweb(),
            SiteKind::Hello => vec![(13, 1.0)],
            SiteKind::Large => vec![(200_000_000, 1.0)],
            SiteKind::HelloAndLarge => vec![(13, 1.0), (200_000_000, 0.0)],
            SiteKind::Many => vec![(16_384, 1.0); many],
        }
    }
}

/// 20 folders with nine files of each class. More than eight of ten requests go to files of less
/// than 10 KB, and most bytes are in the others.
fn specweb() -> Vec<(u64, f64)> {
    let mut files = Vec::new();
    for folder in 1..=SPECWEB_FOLDERS {
        for (step_len, share) in SPECWEB_CLASSES {
            // By the rank of each of the nine in its class: the fifth is the most popular one.
            let ranks = [9.0, 6.0, 4.0, 2.0, 1.0, 3.0, 5.0, 7.0, 8.0];
            let sum: f64 = ranks.iter().map(|rank: &f64| 1.0 / rank).sum();
            for (index, rank) in ranks.iter().enumerate() {
                files.push((step_len * (index as u64 + 1), share / rank / sum / folder as f64));
            }
        }
    }
    files
}

const SPECWEB_FOLDERS: u64 = 20;

/// The growth of the nine files of a class, and the class's share of the requests in percent.
const SPECWEB_CLASSES: [(u64, f64); 4] = [(102, 35.0), (1_024, 50.0), (10_240, 14.0), (102_400, 1.0)];

/// A folder with files, inside a folder for its list and pattern.
#[derive(Clone)]
pub(super) struct Site {
    folder: PathBuf,
}

impl Site {
    /// Writes the files below `parent`.
    pub(super) fn write(parent: &Path, kind: SiteKind, many: usize) -> Result<Site> {
        let site = Site::at(parent, kind);
        let problem = || format!("cannot write files to {}: set TMPDIR to another folder", parent.display());
        std::fs::create_dir_all(site.root()).with_context(problem)?;
        let pattern = pattern();
        std::fs::write(site.pattern(), &pattern).with_context(problem)?;
        let mut list = String::new();
        for (number, (len, weight)) in kind.files(many).into_iter().enumerate() {
            let start = number as u64 * START_STEP % pattern.len() as u64;
            let path = path_of(number);
            let body = cut(&pattern, start as usize, len as usize);
            std::fs::write(site.root().join(&path[1..]), body).with_context(problem)?;
            let _ = writeln!(list, "{weight} {path} {start} {len}");
        }
        std::fs::write(site.list(), list).with_context(problem)?;
        Ok(site)
    }

    /// A site that exists.
    pub(super) fn at(parent: &Path, kind: SiteKind) -> Site {
        Site { folder: parent.join(kind.name()) }
    }

    /// The folder to serve.
    pub(super) fn root(&self) -> PathBuf {
        self.folder.join("www")
    }

    /// The list of requests for `bench load --urls`.
    pub(super) fn list(&self) -> PathBuf {
        self.folder.join("list")
    }

    /// The bytes from which all files are cut.
    pub(super) fn pattern(&self) -> PathBuf {
        self.folder.join("pattern")
    }

    /// Makes the kernel forget the files, so that they are read from the disk again.
    pub(super) fn forget_cached(&self) -> Result<()> {
        // Only written pages can be forgotten.
        rustix::fs::syncfs(std::fs::File::open(self.root())?)?;
        for entry in std::fs::read_dir(self.root())? {
            let file = std::fs::File::open(entry?.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// The path of a file. All paths have the same length, so that the floor finds the number without
/// parsing.
pub(super) fn path_of(number: usize) -> String {
    format!("/{number:06}.html")
}

/// The position of the number in a request for such a path, and its digits.
pub(super) const NUMBER_AT: usize = "GET /".len();
pub(super) const NUMBER_DIGITS: usize = 6;

/// This many bytes from there on, and again from the beginning.
fn cut(pattern: &[u8], start: usize, len: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(len);
    let mut at = start;
    while body.len() < len {
        let count = (len - body.len()).min(pattern.len() - at);
        body.extend_from_slice(&pattern[at..at + count]);
        at = 0;
    }
    body
}

/// Random letters. Short enough to stay in the processor's cache together with the load, which
/// compares with them.
fn pattern() -> Vec<u8> {
    let mut rng = crate::rng::Rng::new(0x5173);
    (0..PATTERN_LEN).map(|_| b'a' + rng.below(26) as u8).collect()
}

/// A prime, so that pieces of round lengths begin everywhere.
const PATTERN_LEN: usize = 131_071;

/// The distance between the starts of two files in the pattern: it is prime to the pattern's
/// length, so that no two of the first 131,071 files start alike.
const START_STEP: u64 = 7_919;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specweb_is_as_its_authors_say() {
        let files = specweb();
        assert_eq!(files.len(), 720);
        let total: u64 = files.iter().map(|(len, _)| len).sum();
        assert!((95_000_000..=105_000_000).contains(&total), "{total}");
        let weight: f64 = files.iter().map(|(_, weight)| weight).sum();
        let of_class = |class: usize| -> f64 {
            let own = files.iter().enumerate().filter(|(index, _)| index / 9 % 4 == class);
            own.map(|(_, (_, weight))| weight).sum::<f64>() / weight
        };
        for (class, due) in [0.35, 0.5, 0.14, 0.01].into_iter().enumerate() {
            assert!((of_class(class) - due).abs() < 1e-9, "class {class}: {}", of_class(class));
        }
        let mean: f64 = files.iter().map(|(len, share)| *len as f64 * share).sum::<f64>() / weight;
        assert!((13_000.0..=16_000.0).contains(&mean), "bytes a request: {mean}");
        // The most popular file of nine has 35.3 % of their requests, and the first folder twice as
        // many as the second.
        assert!((files[4].1 / files[..9].iter().map(|(_, weight)| weight).sum::<f64>() - 0.353).abs() < 0.001);
        assert!((files[0].1 / files[36].1 - 2.0).abs() < 1e-9);
    }

    #[test]
    fn files_differ_and_are_what_the_list_says() {
        let parent = tempfile::tempdir().expect("a folder");
        let site = Site::write(parent.path(), SiteKind::Small, 0).expect("it is written");
        let list = std::fs::read_to_string(site.list()).expect("a list");
        assert_eq!(list.lines().count(), 700);
        assert!(list.starts_with("1 /000000.html 0 4096\n1 /000001.html 7919 4096\n"), "{}", &list[..60]);
        let file = |name: &str| std::fs::read(site.root().join(name)).expect("a file");
        assert!(file("000000.html").len() == 4_096 && file("000000.html") != file("000001.html"));
        site.forget_cached().expect("the kernel is told");
        assert_eq!(&format!("GET {}", path_of(123))[NUMBER_AT..NUMBER_AT + NUMBER_DIGITS], "000123");
    }
}
