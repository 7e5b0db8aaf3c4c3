//! A folder in place of the system's root, in which a test sets the quota of its process.

use std::fs;
use std::path::PathBuf;

pub(crate) struct Quota(pub(crate) PathBuf);

impl Quota {
    /// No quota yet.
    pub(crate) fn new(name: &str) -> Quota {
        let path = std::env::temp_dir().join(format!("dapple-quota-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("proc/self")).unwrap();
        fs::create_dir_all(path.join("sys/fs/cgroup/own")).unwrap();
        fs::write(path.join("proc/self/cgroup"), "0::/own\n").unwrap();
        let mounts = "30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        fs::write(path.join("proc/self/mountinfo"), mounts).unwrap();
        Quota(path)
    }

    /// Sets this many processors in one step, because the runtime may read them at any time.
    pub(crate) fn set(&self, processors: usize) {
        let beside = self.0.join("new");
        fs::write(&beside, format!("{} 100000\n", processors * 100_000)).unwrap();
        fs::rename(beside, self.0.join("sys/fs/cgroup/own/cpu.max")).unwrap();
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
