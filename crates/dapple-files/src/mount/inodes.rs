//! The files that the kernel knows, by its numbers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use dapple::time::Instant;
use dapple_sched::environment::{HashMap, HashSet};

use crate::lease::Lease;
use crate::path::TreePath;
use crate::tree::{Attributes, NodeId};

/// The files that the kernel knows, and the leases of this mount.
pub(super) struct Inodes {
    known: HashMap<u64, Inode>,
    numbers: HashMap<NodeId, u64>,
    device: u64,
    next: u64,
    /// The last recalls, by the grants that they took back.
    recalled: HashMap<NodeId, u64>,
    /// Grants up to this one have been recalled, of all files.
    recalled_all: Option<u64>,
}

/// A file that the kernel knows.
pub(super) struct Inode {
    pub(super) node: NodeId,
    parent: u64,
    name: Vec<u8>,
    /// How many times the kernel was told of it.
    lookups: u64,
    /// The end of its lease.
    until: Instant,
    /// The contents that the kernel may have pages of.
    tag: String,
    /// The names of this directory that the kernel knows to be free.
    free_names: HashSet<Vec<u8>>,
}

/// A part of the kernel's memory that is no longer true.
pub(super) struct Stale {
    pub(super) number: u64,
    /// Directory and name of this file, and of names that were free.
    pub(super) names: Vec<(u64, Vec<u8>)>,
}

impl Inodes {
    pub(super) fn new(root: NodeId) -> Inodes {
        let now = Instant::now();
        let inode = Inode {
            node: root,
            parent: ROOT,
            name: Vec::new(),
            lookups: 1,
            until: now,
            tag: String::new(),
            free_names: HashSet::default(),
        };
        Inodes {
            known: HashMap::from_iter([(ROOT, inode)]),
            numbers: HashMap::from_iter([(root, ROOT)]),
            device: root.device,
            next: FOREIGN,
            recalled: HashMap::default(),
            recalled_all: None,
        }
    }

    /// The path of a file; `None` if its name is not known any more.
    pub(super) fn path(&self, number: u64) -> Option<TreePath> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let inode = self.known.get(&at)?;
            if inode.name.is_empty() || names.len() > crate::path::DEPTH_MAX {
                return None;
            }
            names.push(inode.name.as_slice());
            at = inode.parent;
        }
        names.reverse();
        TreePath::parse(names.join(&b'/')).ok()
    }

    /// The path of a name in a directory.
    pub(super) fn path_in(&self, directory: u64, name: &OsStr) -> Result<TreePath, i32> {
        let parent = self.path(directory).ok_or(rustix::io::Errno::STALE.raw_os_error())?;
        parent.join(name.as_bytes()).map_err(|error| match error {
            crate::path::PathError::TooLong => rustix::io::Errno::NAMETOOLONG.raw_os_error(),
            _ => rustix::io::Errno::INVAL.raw_os_error(),
        })
    }

    pub(super) fn node(&self, number: u64) -> Option<NodeId> {
        Some(self.known.get(&number)?.node)
    }

    /// Notes a file under a name; returns its number. `is_told` counts for `forget`.
    pub(super) fn note(&mut self, parent: u64, name: &OsStr, attributes: &Attributes, is_told: bool) -> u64 {
        let node = attributes.node;
        let number = match self.numbers.get(&node) {
            Some(number) => *number,
            None => self.number_for(node),
        };
        let inode = self.known.entry(number).or_insert_with(|| Inode {
            node,
            parent,
            name: Vec::new(),
            lookups: 0,
            until: Instant::now(),
            tag: String::new(),
            free_names: HashSet::default(),
        });
        if number != ROOT {
            inode.parent = parent;
            inode.name = name.as_bytes().to_vec();
        }
        inode.lookups += u64::from(is_told);
        self.numbers.insert(node, number);
        number
    }

    /// The server's own number where that cannot be mistaken, so that programs find the same numbers after `forget` and a new mount.
    fn number_for(&mut self, node: NodeId) -> u64 {
        if node.device == self.device
            && node.inode > ROOT
            && node.inode < FOREIGN
            && !self.known.contains_key(&node.inode)
        {
            return node.inode;
        }
        self.next += 1;
        self.next
    }

    /// Notes a lease, asked for at a time; returns how long it may still be relied on.
    pub(super) fn lease(&mut self, node: NodeId, lease: Option<Lease>, asked: Instant) -> Duration {
        let Some(lease) = lease else { return Duration::ZERO };
        let recalled = self.recalled.get(&node).copied().max(self.recalled_all);
        if recalled.is_some_and(|recalled| lease.grant <= recalled) {
            return Duration::ZERO;
        }
        // A little less: the clocks of two machines differ.
        let until = asked + Duration::from_millis(u64::from(lease.duration_ms)) * 19 / 20;
        if let Some(inode) = self.numbers.get(&node).and_then(|number| self.known.get_mut(number)) {
            inode.until = inode.until.max(until);
        }
        until.saturating_duration_since(Instant::now())
    }

    /// How long the lease of a file may still be relied on.
    pub(super) fn left(&self, number: u64) -> Duration {
        let until = self.known.get(&number).map(|inode| inode.until);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Whether the kernel's pages of a file are those of these attributes; from now on they are.
    pub(super) fn has_same_data(&mut self, number: u64, attributes: &Attributes) -> bool {
        let Some(inode) = self.known.get_mut(&number) else { return false };
        let tag = attributes.tag();
        if inode.tag == tag {
            return true;
        }
        inode.tag = tag;
        false
    }

    /// Notes that the kernel knows a name to be free.
    pub(super) fn note_free(&mut self, directory: u64, name: &OsStr) {
        if let Some(inode) = self.known.get_mut(&directory) {
            inode.free_names.insert(name.as_bytes().to_vec());
        }
    }

    /// Whether one more free name may be told to the kernel.
    pub(super) fn has_room_for_free(&self, directory: u64) -> bool {
        self.known.get(&directory).is_some_and(|inode| inode.free_names.len() < FREE_NAMES_MAX)
    }

    /// A name is about to be taken: the kernel replaces what it knows of it, and holds the directory's lock until then.
    pub(super) fn take_free(&mut self, directory: u64, name: &OsStr) {
        if let Some(inode) = self.known.get_mut(&directory) {
            inode.free_names.remove(name.as_bytes());
        }
    }

    /// Notes a rename by this mount.
    pub(super) fn renamed(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let replaced = self.find(to.0, to.1);
        if let Some(inode) = replaced.and_then(|number| self.known.get_mut(&number)) {
            inode.name.clear();
        }
        if let Some(inode) = self.find(from.0, from.1).and_then(|number| self.known.get_mut(&number)) {
            (inode.parent, inode.name) = (to.0, to.1.as_bytes().to_vec());
        }
    }

    /// Notes a removal by this mount: the file has no name, and may still be open.
    pub(super) fn removed(&mut self, directory: u64, name: &OsStr) {
        if let Some(inode) = self.find(directory, name).and_then(|number| self.known.get_mut(&number)) {
            inode.name.clear();
        }
    }

    fn find(&self, directory: u64, name: &OsStr) -> Option<u64> {
        let name = name.as_bytes();
        self.known.iter().find(|(_, inode)| inode.parent == directory && inode.name == name).map(|(number, _)| *number)
    }

    /// The kernel forgets a file, as many times as it was told of it.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(inode) = self.known.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 && number != ROOT {
            let node = inode.node;
            self.known.remove(&number);
            self.numbers.remove(&node);
        }
    }

    /// Takes a recall; returns what the kernel must drop.
    pub(super) fn recall(&mut self, node: NodeId, grant: u64) -> Option<Stale> {
        if self.recalled.len() >= RECALLED_MAX {
            self.recalled_all = self.recalled.values().copied().max().max(self.recalled_all);
            self.recalled.clear();
        }
        let last = self.recalled.entry(node).or_insert(grant);
        *last = grant.max(*last);
        let number = *self.numbers.get(&node)?;
        self.stale(number)
    }

    /// Takes a recall of all leases up to a grant, or of all that there are.
    pub(super) fn recall_all(&mut self, grant: Option<u64>) -> Vec<Stale> {
        self.recalled_all = grant.max(self.recalled_all);
        if grant.is_none() {
            // Another service: its grants have numbers of their own.
            self.recalled_all = None;
            self.recalled.clear();
        }
        let numbers: Vec<u64> = self.known.keys().copied().collect();
        numbers.into_iter().filter_map(|number| self.stale(number)).collect()
    }

    fn stale(&mut self, number: u64) -> Option<Stale> {
        let inode = self.known.get_mut(&number)?;
        inode.until = Instant::now();
        inode.tag.clear();
        let mut names: Vec<(u64, Vec<u8>)> = inode.free_names.drain().map(|name| (number, name)).collect();
        if !inode.name.is_empty() {
            names.push((inode.parent, inode.name.clone()));
        }
        Some(Stale { number, names })
    }
}

/// The kernel's number of the root.
const ROOT: u64 = 1;

/// Numbers from here on are this mount's own.
const FOREIGN: u64 = 1 << 62;

/// The most free names of a directory that the kernel is told of.
const FREE_NAMES_MAX: usize = 10_000;

/// The most recalls that are remembered one by one.
const RECALLED_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::time::Duration;

    use dapple::time::Instant;

    use super::{Inodes, ROOT};
    use crate::lease::Lease;
    use crate::tree::{Attributes, FileTime, Kind, NodeId};

    fn node(inode: u64) -> NodeId {
        NodeId { device: 1, inode }
    }

    fn attributes(inode: u64) -> Attributes {
        let time = FileTime::default();
        Attributes {
            node: node(inode),
            kind: Kind::File,
            len: 0,
            blocks: 0,
            mode: 0o644,
            links: 1,
            user: 0,
            group: 0,
            accessed: time,
            modified: time,
            changed: time,
        }
    }

    #[test]
    fn paths_follow_renames_and_end_with_removals() {
        let mut inodes = Inodes::new(node(2));
        let dir = inodes.note(ROOT, OsStr::new("d"), &attributes(10), true);
        let file = inodes.note(dir, OsStr::new("f"), &attributes(11), true);
        assert_eq!(inodes.path(file).expect("a path").as_bytes(), b"d/f");
        inodes.renamed((ROOT, OsStr::new("d")), (ROOT, OsStr::new("e")));
        assert_eq!(inodes.path(file).expect("a path").as_bytes(), b"e/f");
        inodes.removed(dir, OsStr::new("f"));
        assert!(inodes.path(file).is_none() && inodes.node(file).is_some(), "it may be open");
        inodes.forget(file, 1);
        assert!(inodes.node(file).is_none());
    }

    #[test]
    fn a_lease_that_was_recalled_before_it_arrived_counts_for_nothing() {
        let mut inodes = Inodes::new(node(2));
        let file = inodes.note(ROOT, OsStr::new("f"), &attributes(11), true);
        let lease = |grant| Some(Lease { duration_ms: 10_000, grant });
        assert!(inodes.recall(node(11), 5).is_some());
        assert_eq!(inodes.lease(node(11), lease(5), Instant::now()), Duration::ZERO);
        assert!(inodes.lease(node(11), lease(6), Instant::now()) > Duration::from_secs(9));
        assert!(inodes.left(file) > Duration::from_secs(9));
        inodes.recall_all(Some(7));
        assert_eq!(
            (inodes.left(file), inodes.lease(node(11), lease(7), Instant::now())),
            (Duration::ZERO, Duration::ZERO)
        );
        // Its own number is kept where that is clear.
        assert_eq!(file, 11);
        let root_twin = inodes.note(ROOT, OsStr::new("g"), &attributes(1), true);
        assert!(root_twin > 1 << 62);
    }
}
