//! A file that is written aside, and appears as a whole.

use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple::fs::{Beneath, File};
use rustix::fs::{self, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::{Attributes, Tree, calls};
use crate::lease::ClientId;
use crate::path::{RESERVED_PREFIX, TreePath};

/// New contents of a file, which appear under its name as a whole ([`commit`](Upload::commit)), or not at all.
///
/// Until then they have no name in the tree, so an upload that breaks off, or a crash of the server, leaves the old file, and nothing to
/// clean up. Where the file system has no nameless files (`O_TMPFILE`), they have a name that listings leave out, and which dropping the
/// upload removes.
#[derive(Debug)]
pub struct Upload {
    tree: Tree,
    path: TreePath,
    file: File,
    /// The name in the directory of the file, where the file system needs one.
    name: Option<String>,
}

impl Tree {
    /// Begins new contents of a file, or of one that does not exist yet, with these permissions in that case.
    ///
    /// # Errors
    ///
    /// `IsADirectory`; its directory does not exist; there is a link or a device of that name; errors of the kernel.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left if the future is dropped.
    pub async fn upload(&self, path: &TreePath, mode: u32) -> io::Result<Upload> {
        let at = path.clone();
        let (file, name) = self.0.dir.run_beneath(move |beneath| begin(beneath, &at, mode)).await?;
        Ok(Upload { tree: self.clone(), path: path.clone(), file: File::from_std(file), name })
    }
}

impl Upload {
    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts the contents under their name, in place of the file of that name. Waits for the leases of other clients. With `only_new` it
    /// fails if the name is taken; with `synced` it returns after contents and name are on the disk.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; errors of the kernel. The old file is unchanged then.
    ///
    /// # Cancel safety
    ///
    /// The change may happen although the future is dropped, as a whole.
    pub async fn commit(mut self, by: Option<ClientId>, only_new: bool, synced: bool) -> io::Result<Attributes> {
        let (path, file, name) = (self.path.clone(), self.file.clone(), self.name.take());
        let tree = self.tree.clone();
        tree.change(by, &[self.path.clone()], move |beneath| {
            let done = finish(beneath, &path, &file, name.as_deref(), only_new, synced);
            if let (Err(_), Some(name)) = (&done, &name) {
                let _ =
                    calls::parent(beneath, &path).map(|(dir, _)| fs::unlinkat(dir, name.as_str(), AtFlags::empty()));
            }
            done
        })
        .await
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let (tree, path) = (self.tree.clone(), self.path.clone());
        if dapple::Handle::try_current().is_none() {
            return;
        }
        drop(dapple::Color::new().spawn_background(async move {
            let job = move |beneath: &Beneath| {
                let (dir, _) = calls::parent(beneath, &path)?;
                Ok(fs::unlinkat(dir, name.as_str(), AtFlags::empty())?)
            };
            let _ = tree.0.dir.run_beneath(job).await;
        }));
    }
}

/// Makes the file, without a name if that can be had.
fn begin(beneath: &Beneath, path: &TreePath, mode: u32) -> io::Result<(std::fs::File, Option<String>)> {
    let (dir, name) = calls::parent(beneath, path)?;
    let mode = match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Attributes::of(&stat)) {
        Ok(found) => match found.kind {
            super::Kind::File => found.mode,
            super::Kind::Directory => return Err(Errno::ISDIR.into()),
            super::Kind::Link => return Err(Errno::LOOP.into()),
            _ => return Err(Errno::NXIO.into()),
        },
        Err(Errno::NOENT) => mode,
        Err(error) => return Err(error.into()),
    };
    // Without setuid and setgid, which would give new bytes the rights of the old ones.
    let mode = Mode::from_raw_mode(mode & 0o1777);
    match fs::openat(&dir, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => return Ok((file.into(), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let name = free_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::openat(&dir, name.as_str(), flags, mode)?;
    Ok((file.into(), Some(name)))
}

fn finish(
    beneath: &Beneath,
    path: &TreePath,
    file: &File,
    name: Option<&str>,
    only_new: bool,
    synced: bool,
) -> io::Result<Attributes> {
    if !only_new {
        keep_extended(beneath, path, file.as_std());
    }
    if synced {
        file.as_std().sync_all()?;
    }
    let (dir, to) = calls::parent(beneath, path)?;
    match name {
        Some(name) => rename(&dir, name, to, only_new)?,
        None => {
            let open = calls::own_descriptor(file.as_std());
            // There is no call that puts a nameless file in the place of another: it gets a name first.
            match fs::linkat(CWD, &open, &dir, to, AtFlags::SYMLINK_FOLLOW) {
                Err(Errno::EXIST) if !only_new => {
                    let name = free_name();
                    fs::linkat(CWD, &open, &dir, name.as_str(), AtFlags::SYMLINK_FOLLOW)?;
                    if let Err(error) = rename(&dir, &name, to, false) {
                        let _ = fs::unlinkat(&dir, name.as_str(), AtFlags::empty());
                        return Err(error);
                    }
                }
                linked => linked?,
            }
        }
    }
    if synced {
        calls::sync_dir(&dir)?;
    }
    Ok(Attributes::of(&fs::fstat(file.as_std())?))
}

/// Gives new contents the extended attributes of the file that they replace, among them the properties of WebDAV's clients: new bytes
/// do not change these (RFC 4918, section 9.7.1). A file system without such attributes has none to lose.
fn keep_extended(beneath: &Beneath, path: &TreePath, file: &std::fs::File) {
    for name in calls::list_extended(beneath, path).unwrap_or_default() {
        if let Ok(Some(value)) = calls::extended(beneath, path, &name)
            && let Err(error) = fs::fsetxattr(file, &name, &value, fs::XattrFlags::empty())
        {
            tracing::warn!(%error, ?name, "an upload loses an extended attribute");
        }
    }
}

fn rename(dir: &std::fs::File, from: &str, to: &OsStr, only_new: bool) -> io::Result<()> {
    let flags = if only_new { fs::RenameFlags::NOREPLACE } else { fs::RenameFlags::empty() };
    Ok(fs::renameat_with(dir, from, dir, to, flags)?)
}

/// A name that no other upload has: of this process by its count, of another by the process's number.
pub(super) fn free_name() -> String {
    let count = NAMES.fetch_add(1, Ordering::Relaxed);
    let prefix = std::str::from_utf8(RESERVED_PREFIX).unwrap_or_default();
    format!("{prefix}{:x}-{count:x}", std::process::id())
}

static NAMES: AtomicU64 = AtomicU64::new(0);
