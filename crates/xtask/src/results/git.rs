//! Whether code has changed since a commit.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The answer of git about the code of a table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Since {
    Same,
    Changed,
    /// git is missing, or does not have the commit, as in a shallow clone.
    Unknown,
}

/// The repository.
pub(super) struct Git {
    root: PathBuf,
    unknown: RefCell<BTreeSet<String>>,
}

impl Git {
    pub(super) fn new(root: &Path) -> Git {
        Git { root: root.to_owned(), unknown: RefCell::default() }
    }

    /// Compares the sources of crates in the work tree with those at the commit. Comments on lines
    /// of their own may differ.
    pub(super) fn since(&self, commit: &str, crates: &[String]) -> Since {
        let commit = commit.strip_suffix("-dirty").unwrap_or(commit);
        let folders: Vec<String> = crates.iter().map(|name| format!("crates/{name}/src")).collect();
        let mut arguments = vec!["diff", "--name-only", CODE, commit, "--"];
        arguments.extend(folders.iter().map(String::as_str));
        let is_there = self.said(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")]).is_some();
        match is_there.then(|| self.said(&arguments)).flatten() {
            Some(files) if files.trim().is_empty() => Since::Same,
            Some(_) => Since::Changed,
            None => {
                self.unknown.borrow_mut().insert(commit.to_owned());
                Since::Unknown
            }
        }
    }

    /// The commits that git could not find.
    pub(super) fn unknown(&self) -> Vec<String> {
        self.unknown.borrow().iter().cloned().collect()
    }

    fn said(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("git");
        let output = command.args(arguments).current_dir(&self.root).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A changed line that is neither empty nor only a comment.
const CODE: &str = "-G^[[:space:]]*([^/[:space:]]|/[^/])";

#[cfg(test)]
mod tests {
    use super::*;

    /// A repository with one crate, which has this text at the first commit. `None` without git.
    fn repository(name: &str, text: &str) -> Option<(PathBuf, String)> {
        let root = std::env::temp_dir().join(format!("dapple-xtask-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        write(&root, text);
        let git = Git::new(&root);
        git.said(&["--version"])?;
        let identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"];
        for arguments in [&["init", "-q"][..], &["add", "."], &[&identity[..], &["commit", "-q", "-m", "a"]].concat()] {
            git.said(arguments).expect("git works");
        }
        let commit = git.said(&["rev-parse", "--short", "HEAD"]).expect("there is a commit");
        Some((root, commit.trim().to_owned()))
    }

    fn write(root: &Path, text: &str) {
        let folder = root.join("crates/a/src");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("lib.rs"), text).expect("a file");
    }

    #[test]
    fn code_counts_and_comments_do_not() {
        let Some((root, commit)) = repository("code", "//! A.\n\nfn a() {}\n") else { return };
        let since = || Git::new(&root).since(&format!("{commit}-dirty"), &["a".to_owned()]);
        assert_eq!(since(), Since::Same);
        write(&root, "//! A crate.\n\n/// A function.\nfn a() {}\n    // Done.\n");
        assert_eq!(since(), Since::Same);
        write(&root, "//! A.\n\nfn a() {}\nfn b() {}\n");
        assert_eq!(since(), Since::Changed);
        std::fs::remove_dir_all(root.join("crates")).expect("it is removed");
        assert_eq!(since(), Since::Changed);
        let _ = std::fs::remove_dir_all(root);
    }

    #[test]
    fn a_commit_that_is_not_there_is_reported() {
        let Some((root, _)) = repository("gone", "fn a() {}\n") else { return };
        let git = Git::new(&root);
        assert_eq!(git.since("0123456", &["a".to_owned()]), Since::Unknown);
        assert_eq!(git.since("not saved", &["a".to_owned()]), Since::Unknown);
        assert_eq!(git.unknown(), ["0123456", "not saved"]);
        assert_eq!(Git::new(Path::new("/no/such/folder")).since("0123456", &[]), Since::Unknown);
        let _ = std::fs::remove_dir_all(root);
    }
}
