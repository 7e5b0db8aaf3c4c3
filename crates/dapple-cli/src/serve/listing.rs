//! The list of a directory without an index, as a page (`--list`).

use std::ffi::CStr;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use dapple::blocking::spawn_blocking;
use dapple::fs::{Dir, File};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use tracing::{Span, debug};

use super::html::escape;
use super::path::{encode, is_hidden_name};

/// The directory to list, and how.
pub(crate) struct List {
    /// The path of the directory, ending with a slash; empty for the site itself.
    pub(crate) key: Vec<u8>,
    /// Whether hidden files are listed.
    pub(crate) hidden: bool,
    /// Whether links may lead out of the site.
    pub(crate) follow: bool,
}

/// A file or a directory in the list.
struct Entry {
    name: Vec<u8>,
    is_directory: bool,
    /// Size in bytes; unused for a directory.
    len: u64,
    modified_s: i64,
}

/// Makes the page, on a thread that may block.
///
/// # Errors
///
/// The directory cannot be read.
pub(crate) async fn page(list: List, root: Dir, directory: File) -> io::Result<String> {
    let span = Span::current();
    let made = spawn_blocking(move || {
        let _entered = span.entered();
        let (entries, is_cut) = list.entries(&root, &directory)?;
        debug!(entries = entries.len(), "a directory was listed");
        Ok(list.html(&entries, is_cut))
    });
    made.await.map_err(io::Error::other)?
}

/// The inner part of an entity tag: equal lists have equal tags.
pub(crate) fn tag(page: &str) -> String {
    let mut hasher = DefaultHasher::new();
    page.hash(&mut hasher);
    format!("list-{:x}", hasher.finish())
}

impl List {
    /// The entries of the directory, directories first, and whether there are more than shown.
    fn entries(&self, root: &Dir, directory: &File) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let mut is_cut = false;
        for found in rustix::fs::Dir::read_from(directory)? {
            let found = found?;
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || (!self.hidden && is_hidden_name(name.to_bytes())) {
                continue;
            }
            if entries.len() == ENTRIES_MAX {
                is_cut = true;
                break;
            }
            // Entries that went away meanwhile, or lead out, are left out.
            entries.extend(self.look(root, directory, name));
        }
        entries.sort_by_cached_key(|entry| (!entry.is_directory, entry.name.to_ascii_lowercase(), entry.name.clone()));
        Ok((entries, is_cut))
    }

    /// The entry for a name that would be served: a regular file or a directory.
    fn look(&self, root: &Dir, directory: &File, name: &CStr) -> Option<Entry> {
        let mut stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if kind(&stat) == FileType::Symlink {
            stat = match self.follow {
                true => statat(directory, name, AtFlags::empty()).ok()?,
                false => {
                    let path = [&self.key, name.to_bytes()].concat();
                    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                    let flags = OFlags::PATH | OFlags::CLOEXEC;
                    fstat(openat2(root, path, flags, Mode::empty(), resolve).ok()?).ok()?
                }
            };
        }
        let is_directory = match kind(&stat) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return None,
        };
        let len = if is_directory { 0 } else { stat.st_size as u64 };
        Some(Entry { name: name.to_bytes().to_vec(), is_directory, len, modified_s: stat.st_mtime })
    }

    fn html(&self, entries: &[Entry], is_cut: bool) -> String {
        let mut rows = String::with_capacity(200 * entries.len());
        if !self.key.is_empty() {
            rows.push_str("<tr><td class=\"d\"><a href=\"../\">..</a><td><td>\n");
        }
        for entry in entries {
            let slash = if entry.is_directory { "/" } else { "" };
            let class = if entry.is_directory { " class=\"d\"" } else { "" };
            let (link, name) = (encode(&entry.name), escape(&String::from_utf8_lossy(&entry.name)));
            let size = if entry.is_directory { String::new() } else { size(entry.len) };
            let time = time(entry.modified_s);
            // Writing to a string does not fail.
            let _ = writeln!(
                rows,
                "<tr><td{class}><a href=\"{link}{slash}\"><bdi>{name}</bdi>{slash}</a><td>{size}<td>{time}"
            );
        }
        let note = match (is_cut, entries.is_empty()) {
            (true, _) => format!("This folder has more than the {ENTRIES_MAX} entries shown."),
            (_, true) => "This folder is empty.".to_owned(),
            _ => match entries.len() {
                1 => "1 entry".to_owned(),
                count => format!("{count} entries"),
            },
        };
        let title = escape(&format!("/{}", String::from_utf8_lossy(&self.key)));
        // Names come last, because they may contain braces.
        let page = include_str!("listing.html").replace("{note}", &note).replace("{crumbs}", &self.crumbs());
        let (head, tail) = page.split_once("{rows}").unwrap_or((&page, ""));
        [&head.replacen("{title}", &title, 1), &rows, tail].concat()
    }

    /// The path, each part of it a link.
    fn crumbs(&self) -> String {
        let mut crumbs = "<a href=\"/\">/</a>".to_owned();
        let mut end = 0;
        for part in self.key.split_inclusive(|byte| *byte == b'/') {
            end += part.len();
            let name = escape(&String::from_utf8_lossy(part));
            let _ = write!(crumbs, "<a href=\"/{}\"><bdi>{name}</bdi></a>", encode(&self.key[..end]));
        }
        crumbs
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// A size in human-readable form, in steps of a thousand.
fn size(len: u64) -> String {
    let mut value = len as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if value < 999.5 || units.peek().is_none() {
            return if unit == "B" || value >= 99.5 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1_000.0;
    }
    unreachable!("the last unit takes any size")
}

/// `2026-11-21 22:30`, in UTC.
fn time(seconds: i64) -> String {
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second_of_day / 3_600, second_of_day / 60 % 60)
}

/// Year, month and day of a day counted from 1970-01-01. Years start in March here, so that the
/// leap day is the last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The most entries of a list.
const ENTRIES_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::{Entry, List, size, time};

    #[test]
    fn sizes() {
        for (len, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (99_400, "99.4 kB"),
            (100_000, "100 kB"),
            (999_600, "1.0 MB"),
            (1 << 30, "1.1 GB"),
            (5_000_000_000_000_000, "5000 TB"),
        ] {
            assert_eq!(size(len), text);
        }
    }

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (4_102_444_799, "2099-12-31 23:59"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(time(seconds), text);
        }
    }

    #[test]
    fn names_are_escaped() {
        let list = List { key: b"<b>/{rows}/".to_vec(), hidden: false, follow: false };
        let name = b"\"><script>{note}{title}.html".to_vec();
        let page = list.html(&[Entry { name, is_directory: false, len: 1, modified_s: 0 }], false);
        assert!(!page.contains("<script>") && !page.contains("<b>"));
        assert!(page.contains("href=\"%22%3E%3Cscript%3E%7Bnote%7D%7Btitle%7D.html\""));
        assert!(page.contains("&lt;b&gt;/") && page.contains("&#123;note}"));
    }
}
