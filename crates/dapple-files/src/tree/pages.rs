//! Directories in pages, in the order of their names.
//!
//! The last name of a page is the place where the next one begins, so a listing survives all changes in between: a file that is there all
//! the time is in one page, and in one only. The kernel knows no order by names; so the names that follow a page are kept as a *window*,
//! for as long as the directory does not change, and a large directory is read once for a window and not for each page.
//!
//! Rejected: the kernel's own positions (`telldir`), which not every file system keeps when the directory is opened again.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::sync::{Arc, Mutex};

use dapple::fs::Beneath;
use dapple_sched::environment::system_now;
use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use super::attributes::{Attributes, Entry, FileTime, NodeId};
use super::leftover;
use crate::lock::lock;
use crate::path::{RESERVED_PREFIX, TreePath};

/// A part of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The directory.
    pub directory: NodeId,
    /// The entries with their attributes, without `.` and `..`, in the order of their names.
    pub entries: Vec<Entry>,
    /// The name after which the next page begins; `None` after the last page. Names of this page may have gone, so even a page without
    /// entries may have a next one.
    pub next: Option<Vec<u8>>,
}

/// The windows of the directories that were listed last.
#[derive(Debug, Default)]
pub(super) struct Windows(Mutex<VecDeque<Arc<Window>>>);

/// Names of a directory that follow one another.
#[derive(Debug)]
struct Window {
    node: NodeId,
    /// The state of the directory in which they were read.
    changed: FileTime,
    /// All names after this one, in their order, and up to the last of them.
    after: Vec<u8>,
    names: Vec<Box<[u8]>>,
    is_last: bool,
}

impl Windows {
    /// The window with the names after this one.
    fn find(&self, node: NodeId, changed: FileTime, after: &[u8]) -> Option<Arc<Window>> {
        let windows = lock(&self.0);
        let found = windows.iter().find(|window| {
            let last = window.names.last().map(|name| &**name);
            let has_next = window.is_last || last.is_some_and(|last| after < last);
            (window.node, window.changed) == (node, changed) && *window.after <= *after && has_next
        });
        found.cloned()
    }

    fn keep(&self, window: Arc<Window>) {
        let mut windows = lock(&self.0);
        windows.retain(|other| other.node != window.node || other.changed == window.changed);
        if windows.len() >= WINDOWS_MAX {
            windows.pop_front();
        }
        windows.push_back(window);
    }
}

/// The page of a directory after a name; the first one has all names after the empty one.
pub(super) fn page(beneath: &Beneath, path: &TreePath, after: &[u8], windows: &Windows) -> io::Result<Page> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let dir = beneath.open(path.as_relative(), flags.bits() as i32, 0)?;
    let found = Attributes::of(&fs::fstat(&dir)?);
    let window = match windows.find(found.node, found.changed, after) {
        Some(window) => window,
        None => {
            let (names, is_last) = names(&dir, after, WINDOW_BYTES)?;
            let (node, changed) = (found.node, found.changed);
            let window = Arc::new(Window { node, changed, after: after.to_vec(), names, is_last });
            // A change in the same tick of the kernel's clock would leave the same time.
            if window.names.len() > ENTRIES_MAX && is_older_than_a_tick(changed) {
                windows.keep(window.clone());
            }
            window
        }
    };
    let from = window.names.partition_point(|name| **name <= *after);
    let (mut entries, mut next, mut len) = (Vec::new(), None, 0);
    for (taken, name) in window.names[from..].iter().enumerate() {
        if taken >= ENTRIES_MAX || len >= PAGE_BYTES {
            break;
        }
        len += name.len() + ENTRY_LEN;
        let is_end = window.is_last && from + taken + 1 == window.names.len();
        next = (!is_end).then(|| name.to_vec());
        match fs::statat(&dir, &*CString::new(&**name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => entries.push(Entry { name: name.to_vec(), attributes: Attributes::of(&stat) }),
            // Removed meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Page { directory: found.node, entries, next })
}

/// The names after one, as many as fit, and whether these are all. Removes what crashes left in the directory.
fn names(dir: &std::fs::File, after: &[u8], bytes_max: usize) -> io::Result<(Vec<Box<[u8]>>, bool)> {
    let (mut names, mut bytes, mut hidden) = (Vec::<Box<[u8]>>::new(), 0, Vec::new());
    // Names after this one do not fit.
    let mut end: Option<Box<[u8]>> = None;
    for item in fs::Dir::read_from(dir)? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if name.starts_with(RESERVED_PREFIX) {
            if hidden.len() < HIDDEN_MAX {
                hidden.push(item.file_name().to_owned());
            }
            continue;
        }
        if matches!(name, b"." | b"..") || name <= after || end.as_ref().is_some_and(|end| *name > **end) {
            continue;
        }
        bytes += name.len() + NAME_LEN;
        names.push(name.into());
        if bytes > 2 * bytes_max {
            bytes = shorten(&mut names, bytes_max);
            end = names.last().cloned();
        }
    }
    hidden.iter().for_each(|name| leftover::sweep(dir, name));
    names.sort_unstable();
    // A file that was renamed meanwhile may be seen twice.
    names.dedup();
    Ok((names, end.is_none()))
}

/// Keeps the first names, as many as fit; returns the bytes that they take.
fn shorten(names: &mut Vec<Box<[u8]>>, bytes_max: usize) -> usize {
    names.sort_unstable();
    let mut bytes = 0;
    let fits = names.iter().take_while(|name| {
        bytes += name.len() + NAME_LEN;
        bytes <= bytes_max
    });
    let count = fits.count().max(1);
    names.truncate(count);
    names.iter().map(|name| name.len() + NAME_LEN).sum()
}

fn is_older_than_a_tick(changed: FileTime) -> bool {
    system_now().duration_since(changed.to_system_time()).is_ok_and(|age| age.as_millis() > 100)
}

/// The most entries of a page, and the bytes after which it ends.
pub(crate) const ENTRIES_MAX: usize = 4096;
const PAGE_BYTES: usize = 512 << 10;

/// The bytes of an entry without its name, about.
const ENTRY_LEN: usize = 100;

/// The most windows that are kept, with so many bytes of names each; up to twice that while a directory is read.
const WINDOWS_MAX: usize = 8;
const WINDOW_BYTES: usize = 4 << 20;

/// The bytes of a name in memory without its text, about.
const NAME_LEN: usize = 32;

/// The most hidden names that one look at a directory removes.
const HIDDEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_come_in_order_however_few_fit_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let all: Vec<String> = (0..500).map(|number| format!("{:03}", number * 7 % 500)).collect();
        all.iter().for_each(|name| std::fs::write(dir.path().join(name), "").expect("a file"));
        let opened = std::fs::File::open(dir.path()).expect("a directory");
        let (mut seen, mut after, mut parts) = (Vec::new(), Vec::new(), 0);
        loop {
            let (part, is_last) = names(&opened, &after, 350).expect("names");
            parts += 1;
            assert!(part.len() <= 20, "at most twice what fits");
            after = part.last().expect("a name").to_vec();
            seen.extend(part);
            if is_last {
                break;
            }
        }
        let mut all: Vec<Box<[u8]>> = all.into_iter().map(|name| name.into_bytes().into()).collect();
        all.sort_unstable();
        assert!(seen == all && parts > 25);
    }
}
