//! A file that is written aside, and appears as a whole.

use std::ffi::OsStr;
use std::io;

use dapple::fs::{Beneath, File};
use rustix::fs::{self, AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::needed::Needed;
use super::{Attributes, Tree, calls, leftover};
use crate::lease::ClientId;
use crate::path::TreePath;

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
    /// Whether the file keeps its owner, permissions and extended attributes with the new contents.
    keeps: bool,
}

impl Tree {
    /// Begins new contents of a file, or of one that does not exist yet, with these permissions in that case. Permissions, access list and
    /// extended attributes of the file stay, and its owner as far as this process may set it; other names of the old file (hard links)
    /// keep the old contents.
    ///
    /// # Errors
    ///
    /// `IsADirectory`; its directory does not exist; there is a link or a device of that name; errors of the kernel.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left if the future is dropped.
    pub async fn upload(&self, path: &TreePath, mode: u32) -> io::Result<Upload> {
        self.begin_upload(path, mode, true).await
    }

    /// As [`upload`](Self::upload), of a new file that takes nothing from one that it replaces.
    pub(crate) async fn upload_new(&self, path: &TreePath, mode: u32) -> io::Result<Upload> {
        self.begin_upload(path, mode, false).await
    }

    async fn begin_upload(&self, path: &TreePath, mode: u32, keeps: bool) -> io::Result<Upload> {
        let at = path.clone();
        let (file, name) = self.inner.dir.run_beneath(move |beneath| begin(beneath, &at, mode)).await?;
        Ok(Upload { tree: self.clone(), path: path.clone(), file: File::from_std(file), name, keeps })
    }
}

impl Upload {
    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the contents an extended attribute of an open file, if that has it.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub(crate) async fn copy_extended(&self, from: &File, name: &OsStr) -> io::Result<()> {
        let (from, to, name) = (from.clone(), self.file.clone(), name.to_owned());
        let copy = move |_: &Beneath| {
            let mut value = Vec::with_capacity(calls::EXTENDED_LEN_MAX);
            match fs::fgetxattr(from.as_std(), &name, rustix::buffer::spare_capacity(&mut value)) {
                Ok(_) => Ok(fs::fsetxattr(to.as_std(), &name, &value, fs::XattrFlags::empty())?),
                // It has none, or its file system has no such attributes.
                Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(error.into()),
            }
        };
        self.tree.inner.dir.run_beneath(copy).await
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
    pub async fn commit(self, by: Option<ClientId>, only_new: bool, synced: bool) -> io::Result<Attributes> {
        self.commit_if(Needed::Any, by, only_new, synced).await
    }

    /// As [`commit`](Self::commit), if the file under the name is then the one that is needed.
    pub(crate) async fn commit_if(
        mut self,
        needed: Needed,
        by: Option<ClientId>,
        only_new: bool,
        synced: bool,
    ) -> io::Result<Attributes> {
        if synced {
            // Before others wait for this change.
            self.file.sync_all().await?;
        }
        let tree = self.tree.clone();
        let during = tree.begin_change(&needed, by, std::slice::from_ref(&self.path)).await?;
        let (path, file, name, keeps) =
            (self.path.clone(), self.file.clone(), self.name.take(), self.keeps && !only_new);
        let job = move |beneath: &Beneath| {
            let done = needed.check(beneath, &path).and_then(|()| {
                if keeps {
                    keep(beneath, &path, file.as_std());
                }
                finish(beneath, &path, &file, name.as_deref(), only_new, synced)
            });
            if let (Err(_), Some(name)) = (&done, &name) {
                let _ =
                    calls::parent(beneath, &path).map(|(dir, _)| fs::unlinkat(dir, name.as_str(), AtFlags::empty()));
            }
            done
        };
        tree.run_during(during, job).await
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
            let _ = tree.inner.dir.run_beneath(job).await;
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
        Ok(file) => {
            leftover::hold(&file);
            return Ok((file.into(), None));
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let name = leftover::free_name();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = fs::openat(&dir, name.as_str(), flags, mode)?;
    leftover::hold(&file);
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
    if synced {
        // Its attributes; the contents are on the disk already.
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
                    let name = leftover::free_name();
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

/// Gives new contents the owner, permissions, access list and extended attributes of the file that they replace, among them the
/// properties of WebDAV's clients: new bytes do not change these (RFC 4918, section 9.7.1). The rest stays as it is: this
/// process may not set it, or the file system does not have it.
fn keep(beneath: &Beneath, path: &TreePath, file: &std::fs::File) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(old) = calls::stat(beneath, path) else { return };
    let Ok(new) = fs::fstat(file).map(|stat| Attributes::of(&stat)) else { return };
    if (old.user, old.group) != (new.user, new.group) {
        let (user, group) = (Some(Uid::from_raw(old.user)), Some(Gid::from_raw(old.group)));
        if fs::fchown(file, user, group).is_err() {
            let _ = fs::fchown(file, None, group);
        }
    }
    if let Err(error) = fs::fchmod(file, Mode::from_raw_mode(old.mode & 0o1777)) {
        tracing::warn!(%error, "an upload loses the permissions of the file");
    }
    if let Ok(old) = beneath.open(path.as_relative(), flags.bits() as i32, 0) {
        keep_access_list(&old, file);
    }
    for name in calls::list_extended(beneath, path).unwrap_or_default() {
        if let Ok(Some(value)) = calls::extended(beneath, path, &name)
            && let Err(error) = fs::fsetxattr(file, &name, &value, fs::XattrFlags::empty())
        {
            tracing::warn!(%error, ?name, "an upload loses an extended attribute");
        }
    }
}

fn keep_access_list(old: &std::fs::File, new: &std::fs::File) {
    let mut list = Vec::with_capacity(ACCESS_LIST_LEN_MAX);
    if fs::fgetxattr(old, ACCESS_LIST, rustix::buffer::spare_capacity(&mut list)).is_ok()
        && let Err(error) = fs::fsetxattr(new, ACCESS_LIST, &list, fs::XattrFlags::empty())
    {
        tracing::warn!(%error, "an upload loses the access list of the file");
    }
}

fn rename(dir: &std::fs::File, from: &str, to: &OsStr, only_new: bool) -> io::Result<()> {
    let flags = if only_new { fs::RenameFlags::NOREPLACE } else { fs::RenameFlags::empty() };
    Ok(fs::renameat_with(dir, from, dir, to, flags)?)
}

/// The attribute in which the kernel shows an access list.
const ACCESS_LIST: &str = "system.posix_acl_access";
const ACCESS_LIST_LEN_MAX: usize = 65_536;
