//! A memory limit for a server and the kernel's cache of its files together, by a control group.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A control group that is removed when this value is dropped.
pub(super) struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// Makes one with this limit. Programs enter it through `launch`.
    pub(super) fn new(megabytes: u64) -> Result<MemoryLimit> {
        let (parent, file) = place().context(ADVICE)?;
        let folder = parent.join(format!("dapple-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("cannot make {}: {ADVICE}", folder.display()))?;
        let limit = MemoryLimit { folder };
        let bytes = (megabytes << 20).to_string();
        std::fs::write(limit.folder.join(file), bytes).with_context(|| format!("cannot set the limit: {ADVICE}"))?;
        Ok(limit)
    }

    /// The group's folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The reason why this machine cannot have one; `None` if it can.
    pub(super) fn obstacle() -> Option<String> {
        MemoryLimit::new(64).err().map(|error| format!("{error:#}"))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Possible only after all its processes have ended; they have been told to.
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.folder).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The folder of groups and the name of the file with the limit, in either version of control groups.
fn place() -> Option<(PathBuf, &'static str)> {
    let first = Path::new("/sys/fs/cgroup/memory");
    if first.join("memory.limit_in_bytes").exists() {
        return Some((first.to_owned(), "memory.limit_in_bytes"));
    }
    let second = Path::new("/sys/fs/cgroup");
    let handed_down = std::fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    handed_down.split_whitespace().any(|name| name == "memory").then(|| (second.to_owned(), "memory.max"))
}

const ADVICE: &str =
    "memory cannot be limited here: run as root where control groups of memory are, or pass --memory-mb 0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_and_goes_away_or_says_what_to_do() {
        match MemoryLimit::new(100) {
            Ok(limit) => {
                let folder = limit.folder().to_owned();
                assert!(folder.join("cgroup.procs").exists());
                drop(limit);
                assert!(!folder.exists());
            }
            Err(error) => assert!(format!("{error:#}").contains("--memory-mb 0"), "{error:#}"),
        }
    }
}
