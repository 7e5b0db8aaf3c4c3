//! The blocking calls of the tree, each in one visit to the pool.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use dapple::fs::Beneath;
use rustix::fs::{
    self, AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::attributes::{AttributeChange, Attributes, FileTime, Kind, NewTime, NodeId, Space};
use super::foreign::Watched;
use super::pages::{self, Windows};
use crate::journal::Identity;
use crate::path::TreePath;

/// The attributes of a file, or of a link itself.
pub(super) fn stat(beneath: &Beneath, path: &TreePath) -> io::Result<Attributes> {
    let file = beneath.open(path.as_relative(), (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32, 0)?;
    Ok(Attributes::of(&fs::fstat(&file)?))
}

/// The attributes and the identity of a file; `None` if there is none of this name.
pub(super) fn found(beneath: &Beneath, path: &TreePath) -> io::Result<Option<(Attributes, Identity)>> {
    let file = match handle(beneath, path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = Attributes::of(&fs::fstat(&file)?);
    Ok(Some((found, Identity { node: found.node, born: born(&file)? })))
}

/// When an open file was made.
pub(super) fn born(file: impl AsFd) -> io::Result<Option<FileTime>> {
    let found = fs::statx(file, "", AtFlags::EMPTY_PATH, fs::StatxFlags::BTIME)?;
    let is_known = found.stx_mask & fs::StatxFlags::BTIME.bits() != 0;
    let time = FileTime { seconds: found.stx_btime.tv_sec, nanoseconds: found.stx_btime.tv_nsec };
    Ok(is_known.then_some(time))
}

/// As [`stat`], once its directory is watched, and the file itself if it is one.
pub(super) fn stat_watched(beneath: &Beneath, path: &TreePath, watched: Option<&Watched>) -> io::Result<Attributes> {
    let Some(watched) = watched else { return stat(beneath, path) };
    let open = |path: &TreePath| beneath.open(path.as_relative(), (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32, 0);
    if let Some(parent) = path.parent() {
        let directory = open(&parent)?;
        watched.cover(&directory, Attributes::of(&fs::fstat(&directory)?).node);
    }
    let file = open(path)?;
    let found = Attributes::of(&fs::fstat(&file)?);
    if !found.is_dir() {
        return Ok(found);
    }
    watched.cover(&file, found.node);
    Ok(Attributes::of(&fs::fstat(&file)?))
}

/// The identities of the files that a change of these paths concerns: of those that exist, and of their directories.
pub(super) fn nodes(beneath: &Beneath, paths: &[TreePath]) -> io::Result<Vec<NodeId>> {
    let mut nodes = Vec::with_capacity(2 * paths.len());
    for path in paths.iter().flat_map(|path| [path.parent(), Some(path.clone())]).flatten() {
        match stat(beneath, &path) {
            Ok(found) => nodes.push(found.node),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(_) => {}
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// Opens a regular file; a pipe or a device is refused before it is opened.
pub(super) fn open(beneath: &Beneath, path: &TreePath, flags: OFlags, mode: u32) -> io::Result<std::fs::File> {
    if !flags.contains(OFlags::CREATE) {
        return reopen(&handle(beneath, path)?, flags);
    }
    if !flags.contains(OFlags::EXCL) {
        match stat(beneath, path) {
            Ok(found) => regular(&found)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = beneath.open(path.as_relative(), (flags | safe).bits() as i32, mode & 0o7777)?;
    regular(&Attributes::of(&fs::fstat(&file)?))?;
    let set = fs::fcntl_getfl(&file)?;
    fs::fcntl_setfl(&file, set - OFlags::NONBLOCK)?;
    Ok(file)
}

/// A handle of whatever has this name, which stays the same file when others rename it. It can be neither read nor written.
fn handle(beneath: &Beneath, path: &TreePath) -> io::Result<std::fs::File> {
    beneath.open(path.as_relative(), (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32, 0)
}

/// Opens the regular file of a handle.
fn reopen(handle: &std::fs::File, flags: OFlags) -> io::Result<std::fs::File> {
    regular(&Attributes::of(&fs::fstat(handle)?))?;
    let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(fs::open(own_descriptor(handle), flags, Mode::empty())?.into())
}

fn regular(found: &Attributes) -> io::Result<()> {
    match found.kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(Errno::ISDIR.into()),
        Kind::Link => Err(Errno::LOOP.into()),
        _ => Err(Errno::NXIO.into()),
    }
}

pub(super) fn make_dir(beneath: &Beneath, path: &TreePath, mode: u32) -> io::Result<Attributes> {
    let (parent, name) = parent(beneath, path)?;
    fs::mkdirat(&parent, name, Mode::from_raw_mode(mode & 0o7777))?;
    Ok(Attributes::of(&fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Makes the name of a pipe or a socket.
pub(super) fn make_node(beneath: &Beneath, path: &TreePath, kind: Kind, mode: u32) -> io::Result<Attributes> {
    let kind = match kind {
        Kind::Pipe => fs::FileType::Fifo,
        Kind::Socket => fs::FileType::Socket,
        _ => return Err(Errno::PERM.into()),
    };
    let (parent, name) = parent(beneath, path)?;
    fs::mknodat(&parent, name, kind, Mode::from_raw_mode(mode & 0o7777), 0)?;
    Ok(Attributes::of(&fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

pub(super) fn remove(beneath: &Beneath, path: &TreePath, is_dir: bool) -> io::Result<()> {
    let (parent, name) = parent(beneath, path)?;
    let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    match fs::unlinkat(&parent, name, flags) {
        // Names that a crash left may be all that it holds, and no client sees them.
        Err(Errno::NOTEMPTY) if pages::page(beneath, path, b"", &Windows::default())?.entries.is_empty() => {
            Ok(fs::unlinkat(&parent, name, flags)?)
        }
        removed => Ok(removed?),
    }
}

pub(super) fn rename(beneath: &Beneath, from: &TreePath, to: &TreePath, replace: bool) -> io::Result<()> {
    let (from_dir, from_name) = parent(beneath, from)?;
    let (to_dir, to_name) = parent(beneath, to)?;
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    Ok(fs::renameat_with(&from_dir, from_name, &to_dir, to_name, flags)?)
}

pub(super) fn link(beneath: &Beneath, from: &TreePath, to: &TreePath) -> io::Result<Attributes> {
    let (from_dir, from_name) = parent(beneath, from)?;
    let (to_dir, to_name) = parent(beneath, to)?;
    fs::linkat(&from_dir, from_name, &to_dir, to_name, AtFlags::empty())?;
    Ok(Attributes::of(&fs::statat(&to_dir, to_name, AtFlags::SYMLINK_NOFOLLOW)?))
}

pub(super) fn symlink(beneath: &Beneath, target: &[u8], path: &TreePath) -> io::Result<Attributes> {
    let (parent, name) = parent(beneath, path)?;
    fs::symlinkat(OsStr::from_bytes(target), &parent, name)?;
    Ok(Attributes::of(&fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
}

pub(super) fn read_link(beneath: &Beneath, path: &TreePath) -> io::Result<Vec<u8>> {
    let (parent, name) = parent(beneath, path)?;
    Ok(fs::readlinkat(&parent, name, Vec::new())?.into_bytes())
}

/// Changes attributes; those of a link itself, where the kernel can. All of one file, whatever others rename meanwhile.
pub(super) fn set_attributes(beneath: &Beneath, path: &TreePath, change: &AttributeChange) -> io::Result<Attributes> {
    let file = handle(beneath, path)?;
    if let Some(len) = change.len {
        reopen(&file, OFlags::WRONLY)?.set_len(len)?;
    }
    if change.user.is_some() || change.group.is_some() {
        let (user, group) = (change.user.map(Uid::from_raw), change.group.map(Gid::from_raw));
        fs::chownat(&file, "", user, group, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = change.mode {
        // Links have no permissions.
        if fs::FileType::from_raw_mode(fs::fstat(&file)?.st_mode) == fs::FileType::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        fs::chmod(own_descriptor(&file), Mode::from_raw_mode(mode & 0o7777))?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        let times = Timestamps { last_access: timespec(change.accessed), last_modification: timespec(change.modified) };
        fs::utimensat(&file, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(Attributes::of(&fs::fstat(&file)?))
}

/// Changes the attributes of an open file.
pub(super) fn set_open(file: &std::fs::File, change: &AttributeChange) -> io::Result<Attributes> {
    if let Some(len) = change.len {
        file.set_len(len)?;
    }
    if change.user.is_some() || change.group.is_some() {
        fs::fchown(file, change.user.map(Uid::from_raw), change.group.map(Gid::from_raw))?;
    }
    if let Some(mode) = change.mode {
        fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        let times = Timestamps { last_access: timespec(change.accessed), last_modification: timespec(change.modified) };
        fs::futimens(file, &times)?;
    }
    Ok(Attributes::of(&fs::fstat(file)?))
}

fn timespec(time: Option<NewTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(NewTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(NewTime::At(time)) => Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.min(999_999_999).into() },
    }
}

pub(super) fn space(beneath: &Beneath) -> io::Result<Space> {
    let found = fs::fstatvfs(beneath)?;
    Ok(Space {
        total: found.f_blocks.saturating_mul(found.f_frsize),
        free: found.f_bfree.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
        files: found.f_files,
        files_free: found.f_ffree,
        name_len_max: found.f_namemax as u32,
    })
}

/// An extended attribute in the `user` namespace; `None` if the file has none of this name.
pub(super) fn extended(beneath: &Beneath, path: &TreePath, name: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let file = for_extended(beneath, path)?;
    let mut value = Vec::with_capacity(EXTENDED_LEN_MAX);
    match fs::fgetxattr(&file, &*name_of(name)?, rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn set_extended(beneath: &Beneath, path: &TreePath, name: &OsStr, value: Option<&[u8]>) -> io::Result<()> {
    let (file, name) = (for_extended(beneath, path)?, name_of(name)?);
    match value {
        Some(value) => Ok(fs::fsetxattr(&file, &*name, value, XattrFlags::empty())?),
        None => match fs::fremovexattr(&file, &*name) {
            Err(Errno::NODATA) => Ok(()),
            removed => Ok(removed?),
        },
    }
}

/// The names of all extended attributes in the `user` namespace.
pub(super) fn list_extended(beneath: &Beneath, path: &TreePath) -> io::Result<Vec<OsString>> {
    let file = for_extended(beneath, path)?;
    let mut names = Vec::with_capacity(EXTENDED_LEN_MAX);
    fs::flistxattr(&file, rustix::buffer::spare_capacity(&mut names))?;
    let names = names.split(|byte: &u8| *byte == 0).filter(|name| name.starts_with(b"user."));
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

/// Only these are open to clients: others have effects on the server.
fn name_of(name: &OsStr) -> io::Result<CString> {
    if !name.as_bytes().starts_with(b"user.") {
        return Err(Errno::OPNOTSUPP.into());
    }
    CString::new(name.as_bytes()).map_err(|_| Errno::INVAL.into())
}

fn for_extended(beneath: &Beneath, path: &TreePath) -> io::Result<std::fs::File> {
    let file = handle(beneath, path)?;
    match Attributes::of(&fs::fstat(&file)?).kind {
        Kind::File => reopen(&file, OFlags::RDONLY),
        Kind::Directory => Ok(fs::openat(&file, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into()),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

/// Writes a directory's entries to the disk, so that a crash keeps the names made, changed and removed in it.
pub(super) fn sync_dir(dir: impl AsFd) -> io::Result<()> {
    // A descriptor of O_PATH cannot be synced.
    let dir = fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(fs::fsync(dir)?)
}

pub(super) fn parent<'n>(beneath: &Beneath, path: &'n TreePath) -> io::Result<(std::fs::File, &'n OsStr)> {
    if path.is_root() {
        // The root has no name in the tree, so it can be neither made nor removed.
        return Err(Errno::BUSY.into());
    }
    beneath.parent(path.as_relative())
}

/// The name by which the kernel finds an open file again, without looking at names that others may change.
pub(super) fn own_descriptor(file: &std::fs::File) -> std::path::PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

/// The path of an open file, as the kernel knows it now; `None` if it is not one of the tree.
pub(super) fn path_of(beneath: &Beneath, file: &std::fs::File) -> io::Result<Option<TreePath>> {
    let root = beneath.open(".", (OFlags::PATH | OFlags::DIRECTORY).bits() as i32, 0)?;
    let [root, path] = [&root, file].map(|file| fs::readlink(own_descriptor(file), Vec::new()));
    let (root, path) = (root?.into_bytes(), path?.into_bytes());
    let below = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root)).filter(|below| below.starts_with(b"/"));
    let Some(path) = below.and_then(|below| TreePath::parse(below).ok()) else { return Ok(None) };
    // The kernel shows a removed file by the name that it had, with a mark that a name may have, too.
    let is_same = stat(beneath, &path)
        .is_ok_and(|found| fs::fstat(file).is_ok_and(|stat| found.node == Attributes::of(&stat).node));
    Ok(is_same.then_some(path))
}

/// The most bytes of an extended attribute, and of the list of their names: the kernel's limit.
pub(super) const EXTENDED_LEN_MAX: usize = 65_536;
