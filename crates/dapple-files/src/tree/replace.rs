//! Files and directories that take the place of others in one step.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;

use dapple::fs::{Beneath, File};
use rustix::fs::{self, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Needed, Tree, calls, leftover};
use crate::path::TreePath;

/// A file or a directory with a hidden name, which is to take the place of another as a whole. Dropping it leaves what is there, and
/// removes the hidden one.
#[derive(Debug)]
pub(crate) struct Aside {
    tree: Tree,
    /// The hidden name, in the same directory as the place.
    path: TreePath,
    place: TreePath,
    /// Holds the lock of the hidden name.
    _held: std::fs::File,
    is_over: bool,
}

impl Tree {
    /// Makes an empty directory that is to take a place.
    pub(crate) async fn aside(&self, place: &TreePath, mode: u32) -> io::Result<Aside> {
        let path = place.hidden(&leftover::free_name());
        let at = path.clone();
        let made = self.inner.dir.run_beneath(move |beneath| {
            calls::make_dir(beneath, &at, mode)?;
            let made = beneath.open(at.as_relative(), (OFlags::RDONLY | OFlags::DIRECTORY).bits() as i32, 0)?;
            leftover::hold(&made);
            Ok(made)
        });
        Ok(Aside { tree: self.clone(), path, place: place.clone(), _held: made.await?, is_over: false })
    }

    /// A file that is about to get a hidden name, and is to take a place.
    pub(crate) fn aside_file(&self, hidden: &TreePath, place: &TreePath, file: &File) -> io::Result<Aside> {
        let (path, place, held) = (hidden.clone(), place.clone(), file.as_std().try_clone()?);
        Ok(Aside { tree: self.clone(), path, place, _held: held, is_over: false })
    }

    /// A hidden name in the directory of a file.
    pub(crate) fn hidden_beside(&self, path: &TreePath) -> TreePath {
        path.hidden(&leftover::free_name())
    }

    /// Renames a file or a directory in place of whatever has the new name, which is there at every moment: the old or the new one.
    pub(crate) async fn replace(&self, needed: &Needed, from: &TreePath, to: &TreePath) -> io::Result<()> {
        let during = self.inner.leases.change_alone(None, &self.nodes(&[from.clone(), to.clone()]).await?).await;
        let (from, to, needed) = (from.clone(), to.clone(), *needed);
        let job = move |beneath: &Beneath| {
            needed.check(beneath, &from)?;
            replace(beneath, &from, &to)
        };
        self.run_during(during, job).await
    }
}

impl Aside {
    /// The path below the hidden name for one below the place.
    pub(crate) fn map(&self, path: &TreePath) -> TreePath {
        path.moved(&self.place, &self.path)
    }

    /// Takes the place, and removes what was there.
    pub(crate) async fn commit(mut self) -> io::Result<()> {
        self.tree.replace(&Needed::Any, &self.path, &self.place).await?;
        self.is_over = true;
        Ok(())
    }

    /// Leaves the place as it is.
    pub(crate) async fn give_up(mut self) {
        self.is_over = true;
        discard(self.tree.clone(), self.path.clone()).await;
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_over && dapple::Handle::try_current().is_some() {
            drop(dapple::Color::new().spawn_background(discard(self.tree.clone(), self.path.clone())));
        }
    }
}

async fn discard(tree: Tree, path: TreePath) {
    let removed = tree.inner.dir.run_beneath(move |beneath| remove_hidden(beneath, &path)).await;
    if let Err(error) = removed {
        tracing::warn!(%error, "the rest of a copy that failed stays under a hidden name");
    }
}

fn replace(beneath: &Beneath, from: &TreePath, to: &TreePath) -> io::Result<()> {
    let (from_dir, from_name) = calls::parent(beneath, from)?;
    let (to_dir, to_name) = calls::parent(beneath, to)?;
    let rename = |flags| fs::renameat_with(&from_dir, from_name, &to_dir, to_name, flags);
    let hidden = from.hidden(&leftover::free_name());
    loop {
        // The kernel puts files in place of files, and directories in place of empty directories.
        match rename(RenameFlags::empty()) {
            Err(Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {}
            renamed => return Ok(renamed?),
        }
        match rename(RenameFlags::EXCHANGE) {
            Ok(()) => break,
            // It has gone meanwhile.
            Err(Errno::NOENT) if calls::stat(beneath, from).is_ok() => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => return replace_in_two(beneath, from, to),
            Err(error) => return Err(error.into()),
        }
    }
    // The old file has the other name now, and gets a hidden one until it is removed.
    let (hidden_dir, hidden_name) = calls::parent(beneath, &hidden)?;
    if let Err(error) = fs::renameat(&from_dir, from_name, &hidden_dir, hidden_name) {
        rename(RenameFlags::EXCHANGE)?;
        return Err(error.into());
    }
    remove_old(beneath, &hidden);
    Ok(())
}

/// For file systems that cannot exchange two names: the place is empty for a moment.
fn replace_in_two(beneath: &Beneath, from: &TreePath, to: &TreePath) -> io::Result<()> {
    let hidden = to.hidden(&leftover::free_name());
    // It may have to come back: no other process may take it for what a crash left.
    let old = beneath.open(to.as_relative(), (OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32, 0);
    let _held = old.inspect(|old| leftover::hold(old));
    calls::rename(beneath, to, &hidden, false)?;
    if let Err(error) = calls::rename(beneath, from, to, false) {
        calls::rename(beneath, &hidden, to, false)?;
        return Err(error);
    }
    remove_old(beneath, &hidden);
    Ok(())
}

fn remove_old(beneath: &Beneath, hidden: &TreePath) {
    if let Err(error) = remove_hidden(beneath, hidden) {
        tracing::warn!(%error, "what was replaced stays under a hidden name");
    }
}

fn remove_hidden(beneath: &Beneath, hidden: &TreePath) -> io::Result<()> {
    let (dir, name) = calls::parent(beneath, hidden)?;
    leftover::remove_all(&dir, &CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?)
}
