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
    /// The names that the kernel knows, by directory.
    by_name: HashMap<Name, u64>,
    /// The names in `all_names` of all directories, at most.
    noted: usize,
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
    /// Its names, as far as the kernel knows them: more than one if it has hard links.
    names: Vec<Name>,
    /// How many times the kernel was told of it.
    lookups: u64,
    /// The end of its lease.
    until: Instant,
    /// The contents that the kernel may have pages of.
    tag: String,
    /// The names of this directory that the kernel knows to be free.
    free_names: HashSet<Vec<u8>>,
    /// All names in this directory while its lease lasts, if they are known.
    all_names: Option<HashSet<Vec<u8>>>,
}

/// A name in a directory, which has a number.
type Name = (u64, Vec<u8>);

/// A part of the kernel's memory that is no longer true.
pub(super) struct Stale {
    pub(super) number: u64,
    /// The names of this file, and those that were free in it.
    pub(super) names: Vec<Name>,
}

impl Inodes {
    pub(super) fn new(root: NodeId) -> Inodes {
        let now = Instant::now();
        let root_inode = Inode { lookups: 1, ..Inode::new(root, now) };
        Inodes {
            known: HashMap::from_iter([(ROOT, root_inode)]),
            numbers: HashMap::from_iter([(root, ROOT)]),
            by_name: HashMap::default(),
            noted: 0,
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
            let (parent, name) = self.known.get(&at)?.names.last()?;
            if names.len() > crate::path::DEPTH_MAX {
                return None;
            }
            names.push(name.as_slice());
            at = *parent;
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

    /// The number of a file that the kernel knows by a name.
    pub(super) fn number_of(&self, directory: u64, name: &OsStr) -> Option<u64> {
        self.by_name.get(&(directory, name.as_bytes().to_vec())).copied()
    }

    /// All files that the kernel knows.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.numbers.keys().copied().collect()
    }

    /// The number of a file.
    pub(super) fn number(&self, node: NodeId) -> Option<u64> {
        self.numbers.get(&node).copied()
    }

    /// Notes a file under a name; returns its number. `is_told` counts for `forget`.
    pub(super) fn note(&mut self, parent: u64, name: &OsStr, attributes: &Attributes, is_told: bool) -> u64 {
        let node = attributes.node;
        let number = match self.numbers.get(&node) {
            Some(number) => *number,
            None => self.number_for(node),
        };
        let inode = self.known.entry(number).or_insert_with(|| Inode::new(node, Instant::now()));
        inode.lookups += u64::from(is_told);
        self.numbers.insert(node, number);
        if number != ROOT {
            self.give_name(number, (parent, name.as_bytes().to_vec()));
        }
        number
    }

    /// A file has a name, which is its own from now on.
    fn give_name(&mut self, number: u64, name: Name) {
        match self.by_name.insert(name.clone(), number) {
            Some(before) if before == number => {}
            before => {
                if let Some(before) = before {
                    self.take_name_of(before, &name);
                }
                if let Some(inode) = self.known.get_mut(&number) {
                    inode.names.push(name);
                }
            }
        }
    }

    fn take_name_of(&mut self, number: u64, name: &Name) {
        if let Some(inode) = self.known.get_mut(&number) {
            inode.names.retain(|own| own != name);
        }
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
        let now = Instant::now();
        if let Some(inode) = self.numbers.get(&node).and_then(|number| self.known.get_mut(number)) {
            if inode.until <= now {
                // Others may have changed the directory between two leases.
                inode.all_names = None;
            }
            inode.until = inode.until.max(until);
        }
        until.saturating_duration_since(now)
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
            if let Some(names) = &mut inode.all_names {
                self.noted += usize::from(names.insert(name.as_bytes().to_vec()));
            }
        }
    }

    /// Notes a rename by this mount.
    pub(super) fn renamed(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) {
        self.removed(to.0, to.1);
        let from: Name = (from.0, from.1.as_bytes().to_vec());
        self.forget_name(&from);
        if let Some(number) = self.by_name.remove(&from) {
            self.take_name_of(number, &from);
            self.give_name(number, (to.0, to.1.as_bytes().to_vec()));
        }
        self.take_free(to.0, to.1);
    }

    /// Notes a removal by this mount: the file has one name less, and may still be open.
    pub(super) fn removed(&mut self, directory: u64, name: &OsStr) {
        let name: Name = (directory, name.as_bytes().to_vec());
        self.forget_name(&name);
        if let Some(number) = self.by_name.remove(&name) {
            self.take_name_of(number, &name);
        }
    }

    fn forget_name(&mut self, name: &Name) {
        if let Some(names) = self.known.get_mut(&name.0).and_then(|directory| directory.all_names.as_mut()) {
            names.remove(&name.1);
        }
    }

    /// Notes all names of a directory, as they were when a lease of it began.
    pub(super) fn note_all(&mut self, directory: u64, names: HashSet<Vec<u8>>) {
        self.noted += 1 + names.len();
        if self.noted > ALL_NAMES_MAX {
            self.known.values_mut().for_each(|inode| inode.all_names = None);
            self.noted = 0;
        } else if let Some(inode) = self.known.get_mut(&directory) {
            inode.all_names = Some(names);
        }
    }

    /// How long a name is free for sure, without asking the server; `None` if that is not known.
    pub(super) fn is_free(&self, directory: u64, name: &OsStr) -> Option<Duration> {
        let names = self.known.get(&directory)?.all_names.as_ref()?;
        let left = self.left(directory);
        (!left.is_zero() && !names.contains(name.as_bytes())).then_some(left)
    }

    /// The kernel forgets a file, as many times as it was told of it.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(inode) = self.known.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if inode.lookups == 0 && number != ROOT {
            let (node, names) = (inode.node, std::mem::take(&mut inode.names));
            self.known.remove(&number);
            self.numbers.remove(&node);
            for name in names {
                self.by_name.remove(&name);
            }
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

    /// Takes a recall of a name that another program changed; returns what the kernel must drop, and the files concerned.
    pub(super) fn recall_entry(
        &mut self,
        directory: NodeId,
        name: Vec<u8>,
        is_name: bool,
        grant: u64,
    ) -> (Vec<Stale>, Vec<NodeId>) {
        // The look-up of the file may still be on its way.
        self.recalled_all = self.recalled_all.max(Some(grant));
        let Some(number) = self.numbers.get(&directory).copied() else { return (Vec::new(), Vec::new()) };
        let is_directory = name == b".";
        let mut numbers = Vec::new();
        numbers.extend((is_name || is_directory).then_some(number));
        let name = (number, name);
        let child = self.by_name.get(&name).copied();
        numbers.extend(child);
        let nodes = numbers.iter().filter_map(|number| self.node(*number)).collect();
        let mut stale: Vec<Stale> = numbers.into_iter().filter_map(|number| self.stale(number)).collect();
        if child.is_none() && !is_directory {
            stale.push(Stale { number, names: vec![name] });
        }
        (stale, nodes)
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
        inode.all_names = None;
        let mut names: Vec<Name> = inode.free_names.drain().map(|name| (number, name)).collect();
        names.extend(inode.names.iter().cloned());
        Some(Stale { number, names })
    }
}

impl Inode {
    fn new(node: NodeId, now: Instant) -> Inode {
        Inode {
            node,
            names: Vec::new(),
            lookups: 0,
            until: now,
            tag: String::new(),
            free_names: HashSet::default(),
            all_names: None,
        }
    }
}

/// The kernel's number of the root.
const ROOT: u64 = 1;

/// Numbers from here on are this mount's own.
const FOREIGN: u64 = 1 << 62;

/// The most free names of a directory that the kernel is told of.
const FREE_NAMES_MAX: usize = 10_000;

/// The most names of directories that are kept; then all are forgotten.
const ALL_NAMES_MAX: usize = 1_000_000;

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
        let lease = |grant| Some(Lease { duration_ms: 10_000, grant, writes: false });
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
