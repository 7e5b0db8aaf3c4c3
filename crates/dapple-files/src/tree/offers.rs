//! The abilities of a directory's file system.

use std::ffi::OsStr;
use std::io;

use dapple::fs::Beneath;
use rustix::fs::{self, Mode, OFlags, XattrFlags};

use super::Tree;
use super::calls;

/// The abilities of a directory; without one of these the service works with less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offers {
    /// This user may make files in it.
    pub writing: bool,
    /// Uploads need no name before they are whole (`O_TMPFILE`); otherwise they have a hidden one, which a crash leaves behind.
    pub unnamed_files: bool,
    /// Files have extended attributes, in which properties of WebDAV's clients are kept.
    pub extended_attributes: bool,
    /// Changes by other programs end the leases of mounts at once; otherwise they are seen when leases end.
    pub foreign_changes: bool,
}

impl Tree {
    /// Finds out what the directory offers. It may make a file without a name there for a moment, or one with a hidden name.
    ///
    /// # Errors
    ///
    /// Errors of the kernel: the directory cannot be used.
    pub async fn offers(&self) -> io::Result<Offers> {
        let inner = self.inner.clone();
        self.inner
            .dir
            .run_beneath(move |beneath| {
                let foreign_changes = match &inner.watched {
                    Some(watched) => {
                        let root = beneath.open(".", (OFlags::PATH | OFlags::DIRECTORY).bits() as i32, 0)?;
                        watched.cover(&root, calls::stat(beneath, &crate::path::TreePath::root())?.node)
                    }
                    None => false,
                };
                look(beneath, foreign_changes)
            })
            .await
    }
}

fn look(beneath: &Beneath, foreign_changes: bool) -> io::Result<Offers> {
    let mut found = Offers { writing: false, unnamed_files: false, extended_attributes: false, foreign_changes };
    let mode = Mode::from_raw_mode(0o600);
    let file = match fs::openat(beneath, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => {
            found.unnamed_files = true;
            file
        }
        Err(_) => {
            let name = super::leftover::free_name();
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let Ok(file) = fs::openat(beneath, name.as_str(), flags, mode) else { return Ok(found) };
            fs::unlinkat(beneath, name.as_str(), fs::AtFlags::empty())?;
            file
        }
    };
    found.writing = true;
    let name = OsStr::new("user.dapple.check");
    found.extended_attributes = fs::fsetxattr(&file, name, b"x", XattrFlags::empty()).is_ok();
    Ok(found)
}
