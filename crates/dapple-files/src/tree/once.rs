//! Changes that happen once, although the server ends in the middle.

use std::io;
use std::sync::Arc;

use dapple::fs::{Beneath, File};
use rustix::io::Errno;

use super::attributes::NodeId;
use super::{Tree, calls, of_file};
use crate::journal::{CallId, End, Facts, Identity, Journal};
use crate::path::TreePath;

/// The call for which a tree makes changes, and the log that notes them.
#[derive(Clone, Debug)]
pub(crate) struct Once {
    pub(crate) journal: Arc<Journal>,
    pub(crate) call: Arc<CallId>,
}

/// A change of names.
#[derive(Debug)]
pub(super) enum What {
    Makes(TreePath),
    Removes(TreePath),
    Renames(TreePath, TreePath),
}

/// An append that is noted.
pub(crate) struct Appending(Once);

impl Tree {
    /// The tree for the changes of one call.
    pub(crate) fn once(&self, once: Option<Once>) -> Tree {
        Tree { once, ..self.clone() }
    }

    /// Whether this tree makes the change of a call, which is noted.
    pub(crate) fn is_noted(&self) -> bool {
        self.once.is_some()
    }

    /// A job that is noted if this tree makes the change of a call. It runs alone.
    pub(super) fn noted<T>(
        &self,
        what: What,
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static {
        let once = self.once.clone();
        move |beneath: &Beneath| {
            let Some(once) = once else { return job(beneath) };
            // Without facts the kernel refuses the change, and there is nothing to decide.
            let Ok(Some(facts)) = what.facts(beneath) else { return job(beneath) };
            once.journal.begins(&once.call, facts);
            crash::at("begun");
            let outcome = job(beneath);
            crash::at("changed");
            once.journal.ended(&once.call, &outcome);
            crash::at("ended");
            outcome
        }
    }

    /// Notes that bytes are about to be appended to an open file, if this tree makes the change of a call.
    pub(crate) async fn appends(&self, file: &File, node: NodeId, more: u64) -> io::Result<Option<Appending>> {
        let Some(once) = self.once.clone() else { return Ok(None) };
        let (file, noting) = (file.clone(), once.clone());
        let note = move |beneath: &Beneath| {
            // A file that has lost its name is lost to a server that starts anew, too.
            if let Some(path) = calls::path_of(beneath, file.as_std())? {
                let len = of_file(&file)?.len;
                let file = Identity { node, born: calls::born(&file)? };
                noting.journal.begins(&noting.call, Facts::Appends { path, file, len, more });
            }
            crash::at("begun");
            Ok(())
        };
        self.inner.dir.run_beneath(note).await?;
        Ok(Some(Appending(once)))
    }

    /// Opens the log of a tree, and decides what became of the changes that it has without an outcome.
    pub(crate) async fn journal(&self, dir: std::path::PathBuf, boot: u64) -> io::Result<Journal> {
        let open = move |beneath: &Beneath| {
            Journal::open(&dir, boot, |facts, is_same_boot| decide(beneath, facts, is_same_boot))
        };
        self.inner.dir.run_beneath(open).await
    }
}

impl Appending {
    /// Notes the outcome.
    pub(crate) async fn ended(self, outcome: io::Result<()>) -> io::Result<()> {
        crash::at("changed");
        let noted = dapple::blocking::spawn_blocking(move || {
            self.0.journal.ended(&self.0.call, &outcome);
            outcome
        });
        noted.await.map_err(io::Error::other)?
    }
}

impl What {
    fn facts(&self, beneath: &Beneath) -> io::Result<Option<Facts>> {
        let find = |path: &TreePath| calls::found(beneath, path);
        Ok(match self {
            What::Makes(path) => find(path)?.is_none().then(|| Facts::Makes(path.clone())),
            What::Removes(path) => find(path)?.map(|(_, file)| Facts::Removes(path.clone(), file)),
            What::Renames(from, to) => {
                let (old, new) = (find(from)?, find(to)?);
                // Of two names of one file the kernel changes neither.
                let file = old.map(|(_, file)| file).filter(|file| new.is_none_or(|(_, new)| new != *file));
                file.map(|file| Facts::Renames { from: from.clone(), to: to.clone(), file })
            }
        })
    }
}

/// The outcome of a change; `None` if it did not happen.
fn decide(beneath: &Beneath, facts: &Facts, is_same_boot: bool) -> Option<End> {
    // A device may have another number after the machine has started anew.
    let is = |found: &Identity, file: &Identity| {
        let is_device = found.node.device == file.node.device || !is_same_boot;
        is_device && found.node.inode == file.node.inode && found.born == file.born
    };
    let find = |path: &TreePath| calls::found(beneath, path).map_err(|_| End::Unknown);
    let has_parent = |path: &TreePath| path.parent().is_some_and(|parent| matches!(find(&parent), Ok(Some(_))));
    let decided = || match facts {
        Facts::Makes(path) => Ok(match find(path)? {
            Some((found, _)) => Some(End::Made(found)),
            None if has_parent(path) => None,
            None => Some(End::Unknown),
        }),
        Facts::Removes(path, file) => Ok(match find(path)? {
            Some((_, found)) if is(&found, file) => None,
            Some(_) => Some(End::Done),
            None => Some(if has_parent(path) { End::Done } else { End::Unknown }),
        }),
        Facts::Renames { from, to, file } => {
            let (old, new) = (find(from)?, find(to)?);
            Ok(match (old, new) {
                (Some((_, old)), _) if is(&old, file) => None,
                (_, Some((_, new))) if is(&new, file) => Some(End::Done),
                _ => Some(End::Unknown),
            })
        }
        Facts::Appends { path, file, len, more } => Ok(match find(path)?.filter(|(_, found)| is(found, file)) {
            Some((found, _)) if found.len == *len => None,
            Some((found, _)) if found.len >= len + more => Some(End::Done),
            Some((found, _)) if found.len > *len => Some(End::Partly(found.len - len)),
            _ => Some(End::Unknown),
        }),
    };
    decided().unwrap_or_else(Some)
}

/// Kills this process between the steps of a change, in tests.
pub(crate) mod crash {
    #[cfg(not(test))]
    pub(crate) fn at(_: &str) {}

    #[cfg(test)]
    pub(crate) fn at(step: &str) {
        if std::env::var("DAPPLE_TEST_CRASH_AT").is_ok_and(|at| at == step) {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
            std::thread::park();
        }
    }
}

/// The answer to a change with an outcome that nothing shows.
pub(crate) const UNDECIDED: Errno = Errno::IO;
