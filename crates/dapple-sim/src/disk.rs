//! The disk of one host: files and directories in memory, of which a crash keeps what was synced, and parts of the rest.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use dapple_io::environment::{DiskMetadata, DiskOpen};
use dapple_sched::environment::system_now;

use crate::plan::DiskFault;
use crate::random::Random;

/// Names, and the numbers of the files that they lead to.
type Names = BTreeMap<PathBuf, u64>;

/// See the module's text. It has a directory `/`, and outlives the host's program.
pub(crate) struct DiskState {
    names: Names,
    /// The names that a crash keeps in any case.
    synced: Names,
    /// Changes of names since then, in order: a crash keeps the first of them, as a journal does.
    changes: Vec<Change>,
    files: BTreeMap<u64, FileState>,
    next: u64,
    /// How it misbehaves, by the numbers of the faults; the last one counts.
    pub(crate) faults: Vec<(usize, DiskFault)>,
}

/// Names that change in one step: to a file, or to none.
type Change = Vec<(PathBuf, Option<u64>)>;

struct FileState {
    is_dir: bool,
    /// A crash keeps it: a time is worth no sync.
    modified: SystemTime,
    data: Vec<u8>,
    /// The contents that a crash keeps in any case.
    synced: Vec<u8>,
    /// Writes since then. A crash keeps each of them, or loses it, or keeps its first sectors.
    writes: Vec<Write>,
}

#[derive(Clone)]
enum Write {
    Bytes(usize, Vec<u8>),
    Len(usize),
}

impl Default for DiskState {
    fn default() -> DiskState {
        let names = Names::from([(PathBuf::from("/"), 0)]);
        let files = BTreeMap::from([(0, FileState::new(true))]);
        DiskState { synced: names.clone(), names, changes: Vec::new(), files, next: 1, faults: Vec::new() }
    }
}

impl DiskState {
    /// The time by which calls are late.
    pub(crate) fn late(&self) -> Duration {
        match self.faults.last() {
            Some((_, DiskFault::Slow(by))) => *by,
            _ => Duration::ZERO,
        }
    }

    fn may_fail(&self, random: &mut Random) -> io::Result<()> {
        let fails = matches!(self.faults.last(), Some((_, DiskFault::Errors))) && random.below(2) == 0;
        if fails { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }

    fn has_room(&self) -> io::Result<()> {
        let is_full = matches!(self.faults.last(), Some((_, DiskFault::Full)));
        if is_full { Err(io::Error::from_raw_os_error(ENOSPC)) } else { Ok(()) }
    }

    pub(crate) fn open(&mut self, path: &Path, how: DiskOpen, random: &mut Random) -> io::Result<u64> {
        self.may_fail(random)?;
        let path = normal(path);
        let number = match self.names.get(&path) {
            Some(_) if how.create_new => return Err(ErrorKind::AlreadyExists.into()),
            Some(number) => *number,
            None if how.create || how.create_new => {
                self.check_parent(&path)?;
                self.has_room()?;
                self.make(path, false)
            }
            None => return Err(ErrorKind::NotFound.into()),
        };
        let file = self.file(number)?;
        if file.is_dir && how.writes {
            return Err(ErrorKind::IsADirectory.into());
        }
        if how.truncate && !file.data.is_empty() {
            file.write(Write::Len(0));
        }
        Ok(number)
    }

    fn make(&mut self, path: PathBuf, is_dir: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.files.insert(number, FileState { modified: system_now(), ..FileState::new(is_dir) });
        self.change(vec![(path, Some(number))]);
        number
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        for dir in change.iter().filter_map(|(path, _)| self.names.get(path.parent()?)) {
            self.files.get_mut(dir).expect("names lead to files").modified = system_now();
        }
        self.changes.push(change);
    }

    /// Checks that the directory of a new name exists.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().ok_or(ErrorKind::AlreadyExists)?;
        let number = self.names.get(parent).ok_or(ErrorKind::NotFound)?;
        if self.files[number].is_dir { Ok(()) } else { Err(ErrorKind::NotADirectory.into()) }
    }

    fn file(&mut self, number: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&number).ok_or_else(|| ErrorKind::NotFound.into())
    }

    pub(crate) fn read_at(&mut self, number: u64, offset: u64, len: usize, random: &mut Random) -> io::Result<Vec<u8>> {
        self.may_fail(random)?;
        let file = self.file(number)?;
        if file.is_dir {
            return Err(ErrorKind::IsADirectory.into());
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.data.len());
        let end = start.saturating_add(len).min(file.data.len());
        Ok(file.data[start..end].to_vec())
    }

    pub(crate) fn write_at(
        &mut self,
        number: u64,
        offset: Option<u64>,
        bytes: &[u8],
        random: &mut Random,
    ) -> io::Result<()> {
        self.may_fail(random)?;
        let len = self.file(number)?.data.len();
        let start = offset.map_or(Ok(len), in_bounds)?;
        if in_bounds(start as u64 + bytes.len() as u64)? > len {
            self.has_room()?;
        }
        if !bytes.is_empty() {
            self.file(number)?.write(Write::Bytes(start, bytes.to_vec()));
        }
        Ok(())
    }

    pub(crate) fn set_len(&mut self, number: u64, len: u64, random: &mut Random) -> io::Result<()> {
        self.may_fail(random)?;
        let len = in_bounds(len)?;
        if len > self.file(number)?.data.len() {
            self.has_room()?;
        }
        self.file(number)?.write(Write::Len(len));
        Ok(())
    }

    /// For a file: its contents; for a directory: the names in it, and those that changed earlier.
    pub(crate) fn sync(&mut self, number: u64, random: &mut Random) -> io::Result<()> {
        if let Err(error) = self.may_fail(random) {
            // As in the kernel: the writes are not tried again, and the next call succeeds.
            self.file(number)?.lose_parts(random);
            return Err(error);
        }
        let file = self.file(number)?;
        // Not a copy of the contents: they have writes that an earlier, failed call lost.
        std::mem::take(&mut file.writes).iter().for_each(|write| write.apply(&mut file.synced));
        if !file.is_dir {
            return Ok(());
        }
        let in_it = |path: &Path| path.parent().is_some_and(|parent| self.names.get(parent) == Some(&number));
        let last = self.changes.iter().rposition(|change| change.iter().any(|(path, _)| in_it(path)));
        for change in self.changes.drain(..last.map_or(0, |last| last + 1)) {
            apply(&mut self.synced, &change);
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path, random: &mut Random) -> io::Result<()> {
        self.may_fail(random)?;
        let (from, to) = (normal(from), normal(to));
        let number = *self.names.get(&from).ok_or(ErrorKind::NotFound)?;
        self.check_parent(&to)?;
        if from == to {
            return Ok(());
        }
        let is_dir = self.files[&number].is_dir;
        if is_dir && to.starts_with(&from) {
            return Err(ErrorKind::InvalidInput.into());
        }
        match self.names.get(&to).map(|replaced| self.files[replaced].is_dir) {
            Some(true) if !is_dir => return Err(ErrorKind::IsADirectory.into()),
            Some(false) if is_dir => return Err(ErrorKind::NotADirectory.into()),
            Some(true) if self.has_entries(&to) => return Err(ErrorKind::DirectoryNotEmpty.into()),
            _ => {}
        }
        let moved = self.names.iter().filter(|(path, _)| path.starts_with(&from));
        let change = moved.flat_map(|(path, number)| {
            let rest = path.strip_prefix(&from).unwrap_or(path);
            let new = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
            [(path.clone(), None), (new, Some(*number))]
        });
        let change = change.collect();
        self.change(change);
        Ok(())
    }

    fn has_entries(&self, dir: &Path) -> bool {
        self.names.keys().any(|path| path.parent() == Some(dir))
    }

    pub(crate) fn create_dir(&mut self, path: &Path, all: bool, random: &mut Random) -> io::Result<()> {
        self.may_fail(random)?;
        let path = normal(path);
        if let Some(number) = self.names.get(&path) {
            let is_there = all && self.files[number].is_dir;
            return if is_there { Ok(()) } else { Err(ErrorKind::AlreadyExists.into()) };
        }
        if all {
            let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
            parents.reverse();
            for parent in parents {
                if !self.names.contains_key(parent) {
                    self.check_parent(parent)?;
                    self.has_room()?;
                    self.make(parent.to_owned(), true);
                }
            }
        }
        self.check_parent(&path)?;
        self.has_room()?;
        self.make(path, true);
        Ok(())
    }

    pub(crate) fn metadata(&mut self, path: &Path, random: &mut Random) -> io::Result<DiskMetadata> {
        self.metadata_of(*self.names.get(&normal(path)).ok_or(ErrorKind::NotFound)?, random)
    }

    pub(crate) fn metadata_of(&mut self, number: u64, random: &mut Random) -> io::Result<DiskMetadata> {
        self.may_fail(random)?;
        let file = self.file(number)?;
        Ok(DiskMetadata { is_dir: file.is_dir, len: file.data.len() as u64, modified: file.modified })
    }

    pub(crate) fn read_dir(&mut self, path: &Path, random: &mut Random) -> io::Result<Vec<(OsString, bool)>> {
        if !self.metadata(path, random)?.is_dir {
            return Err(ErrorKind::NotADirectory.into());
        }
        let dir = normal(path);
        let inside = self.names.iter().filter(|(path, _)| path.parent() == Some(&*dir));
        Ok(inside
            .filter_map(|(path, number)| Some((path.file_name()?.to_owned(), self.files[number].is_dir)))
            .collect())
    }

    pub(crate) fn remove(&mut self, path: &Path, is_dir: bool, random: &mut Random) -> io::Result<()> {
        self.may_fail(random)?;
        let path = normal(path);
        let number = self.names.get(&path).ok_or(ErrorKind::NotFound)?;
        match (self.files[number].is_dir, is_dir) {
            (true, false) => Err(ErrorKind::IsADirectory.into()),
            (false, true) => Err(ErrorKind::NotADirectory.into()),
            (true, true) if *number == 0 => Err(ErrorKind::ResourceBusy.into()),
            (true, true) if self.has_entries(&path) => Err(ErrorKind::DirectoryNotEmpty.into()),
            _ => {
                self.change(vec![(path, None)]);
                Ok(())
            }
        }
    }

    /// The machine loses its power: of what was not synced, chance decides what is left.
    pub(crate) fn crash(&mut self, random: &mut Random) {
        if !self.changes.is_empty() {
            let kept = random.below(self.changes.len() + 1);
            self.changes.drain(..).take(kept).for_each(|change| apply(&mut self.synced, &change));
        }
        self.names.clone_from(&self.synced);
        let named: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|number, _| named.contains(number));
        for file in self.files.values_mut() {
            file.lose_parts(random);
            file.data.clone_from(&file.synced);
        }
    }
}

impl FileState {
    fn new(is_dir: bool) -> FileState {
        FileState { is_dir, modified: SystemTime::UNIX_EPOCH, data: Vec::new(), synced: Vec::new(), writes: Vec::new() }
    }

    fn write(&mut self, write: Write) {
        self.modified = system_now();
        write.apply(&mut self.data);
        self.writes.push(write);
    }

    /// Chance decides which writes reach the disk.
    fn lose_parts(&mut self, random: &mut Random) {
        for mut write in std::mem::take(&mut self.writes) {
            let fate = random.below(3);
            if let (1, Write::Bytes(_, bytes)) = (fate, &mut write) {
                bytes.truncate(random.below(bytes.len()) / SECTOR * SECTOR);
            }
            if fate > 0 {
                write.apply(&mut self.synced);
            }
        }
    }
}

impl Write {
    fn apply(&self, data: &mut Vec<u8>) {
        match self {
            Write::Len(len) => data.resize(*len, 0),
            Write::Bytes(start, bytes) => {
                let end = start + bytes.len();
                if data.len() < end && !bytes.is_empty() {
                    data.resize(end, 0);
                }
                if !bytes.is_empty() {
                    data[*start..end].copy_from_slice(bytes);
                }
            }
        }
    }
}

fn apply(names: &mut Names, change: &Change) {
    // Names that go before names that come: a file may be renamed to a name of the same change.
    change.iter().filter(|(_, number)| number.is_none()).for_each(|(path, _)| _ = names.remove(path));
    let new = change.iter().filter_map(|(path, number)| Some((path.clone(), (*number)?)));
    names.extend(new);
}

/// A path from `/`, without `.` and `..`: there are no links, and the current directory is `/`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => _ = normal.pop(),
            _ => {}
        }
    }
    normal
}

fn in_bounds(len: u64) -> io::Result<usize> {
    if len <= FILE_LEN_MAX { Ok(len as usize) } else { Err(io::Error::from_raw_os_error(EFBIG)) }
}

/// A torn write ends at a multiple of this.
const SECTOR: usize = 512;

/// The longest file.
const FILE_LEN_MAX: u64 = 1 << 30;

/// The numbers of these errors on Linux.
const EIO: i32 = 5;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
