//! Limits of a replica, by a cgroup of its own where the machine allows that.
//!
//! A host makes `dapple-HOST` below its own cgroup (version 2), and in it one for each replica. A shell writes its number into the
//! replica's `cgroup.procs` and then becomes the program, so that the limits hold before the program's first instruction; `unsafe` code
//! between fork and exec is not needed for that.
//!
//! The kernel lets controllers be used below a cgroup only if that has no process of its own. So the host first moves itself into
//! `dapple-HOST/agent`, if it is alone in its cgroup.
//!
//! | the machine has | memory | cores | processes |
//! |---|---|---|---|
//! | cgroups with the controllers | `memory.max`: the kernel ends the replica | `cpu.max`: the kernel lets it wait | `pids.max` |
//! | none, or no right to make them | the host measures, and ends a replica above its limit | no limit | no limit |
//!
//! [`Limits::text`] says which holds, in the log and in the host's report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::record::Service;

/// The limits that can be kept on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The cgroup above those of the replicas; `None`: there are none.
    root: Option<PathBuf>,
    has_memory: bool,
    has_cpu: bool,
    has_pids: bool,
    text: String,
}

impl Limits {
    /// Looks at what this machine allows, and prepares it.
    pub(crate) fn of_machine(host: &str) -> Limits {
        match own_cgroup() {
            Ok(own) => Limits::below(&own, host),
            Err(error) => Limits::none(format!("there is no cgroup of version 2 for this process ({error})")),
        }
    }

    fn none(reason: String) -> Limits {
        let text = format!(
            "{reason}: memory is measured, and a replica above its limit ended; cores and the number of processes have no limit"
        );
        Limits { root: None, has_memory: false, has_cpu: false, has_pids: false, text }
    }

    fn below(own: &Path, host: &str) -> Limits {
        let root = own.join(format!("dapple-{host}"));
        if let Err(error) = fs::create_dir(&root).or_else(|error| exists(&root, error)) {
            return Limits::none(format!("no cgroup can be made in {} ({error})", own.display()));
        }
        let wanted = ["memory", "cpu", "pids"];
        let has = |folder: &Path, name: &str| {
            let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
            text.split_whitespace().any(|one| one == name)
        };
        // The kernel's tree allows it at its root; elsewhere only if no process is in the cgroup itself.
        if wanted.iter().any(|name| has(own, name) && !has(&root, name)) {
            let agent = root.join("agent");
            let _first_try = wanted.map(|name| fs::write(own.join("cgroup.subtree_control"), format!("+{name}")));
            if wanted.iter().any(|name| has(own, name) && !has(&root, name)) && is_alone(own) {
                let moved = fs::create_dir(&agent).or_else(|error| exists(&agent, error));
                let _moved = moved.and_then(|()| fs::write(agent.join("cgroup.procs"), "0"));
                let _second_try = wanted.map(|name| fs::write(own.join("cgroup.subtree_control"), format!("+{name}")));
            }
        }
        for name in wanted {
            let _as_far_as_possible = fs::write(root.join("cgroup.subtree_control"), format!("+{name}"));
        }
        let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        let is_on = |name: &str| enabled.split_whitespace().any(|one| one.trim_start_matches('+') == name);
        let (has_memory, has_cpu, has_pids) = (is_on("memory"), is_on("cpu"), is_on("pids"));
        let missing: Vec<&str> = wanted.into_iter().filter(|name| !is_on(name)).collect();
        let text = match missing.is_empty() {
            true => format!("by the kernel, with cgroups in {}", root.display()),
            false => format!(
                "the cgroups in {} have no controller for {}: {}",
                root.display(),
                missing.join(", "),
                "memory without one is measured, and a replica above its limit ended; the others have no limit"
            ),
        };
        Limits { root: Some(root), has_memory, has_cpu, has_pids, text }
    }

    /// Which limits hold here, in words.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the kernel keeps all limits.
    pub(crate) fn are_complete(&self) -> bool {
        self.has_memory && self.has_cpu && self.has_pids
    }

    /// Whether the host itself has to measure memory.
    pub(crate) fn measures_memory(&self) -> bool {
        !self.has_memory
    }

    /// A command that starts the program within the limits.
    ///
    /// # Errors
    ///
    /// The limits could not be set: the replica must not run without them.
    pub(crate) fn command(&self, replica: &str, service: &Service, words: &[String]) -> io::Result<Command> {
        let (program, rest) = words.split_first().ok_or_else(|| io::Error::other("there is no program"))?;
        let Some(root) = &self.root else {
            let mut command = Command::new(program);
            command.args(rest);
            return Ok(command);
        };
        let group = root.join(replica);
        fs::create_dir(&group).or_else(|error| exists(&group, error))?;
        if self.has_memory {
            fs::write(group.join("memory.max"), (service.memory_mb << 20).to_string())?;
            // Without it a replica at its limit would use swap instead of ending. Not all kernels have swap.
            let _no_swap = fs::write(group.join("memory.swap.max"), "0");
        }
        if self.has_cpu {
            let quota_us = (service.cores * f64::from(CPU_PERIOD_US)) as u64;
            fs::write(group.join("cpu.max"), format!("{} {CPU_PERIOD_US}", quota_us.max(1000)))?;
        }
        if let Some(max) = service.tasks_max.filter(|_| self.has_pids) {
            fs::write(group.join("pids.max"), max.to_string())?;
        }
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg("echo 0 > \"$0\" && exec \"$@\"").arg(group.join("cgroup.procs")).arg(program).args(rest);
        Ok(command)
    }

    /// Ends all processes of a replica, also those that left its process group, and removes its cgroup.
    pub(crate) fn clear(&self, replica: &str) {
        let Some(root) = &self.root else { return };
        let group = root.join(replica);
        // Linux 5.14 has the file. Processes take a moment to end; the next clearing removes the folder then.
        let _killed = fs::write(group.join("cgroup.kill"), "1");
        let _removed = fs::remove_dir(&group);
    }
}

fn exists(path: &Path, error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() { Ok(()) } else { Err(error) }
}

fn is_alone(cgroup: &Path) -> bool {
    let own = std::process::id().to_string();
    fs::read_to_string(cgroup.join("cgroup.procs")).is_ok_and(|text| text.lines().all(|pid| pid == own))
}

/// This process's cgroup of version 2.
fn own_cgroup() -> io::Result<PathBuf> {
    let missing = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts.lines().find_map(mount_of_cgroup2).ok_or_else(|| missing("none is mounted"))?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(|| missing("it is in none"))?;
    Ok(Path::new(mount).join(own))
}

/// The folder of a line of `mountinfo`, if it is a mount of cgroup2.
fn mount_of_cgroup2(line: &str) -> Option<&str> {
    let (before, after) = line.split_once(" - ")?;
    after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4)).flatten()
}

const CPU_PERIOD_US: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::{Limits, mount_of_cgroup2};
    use crate::record::Service;
    use std::fs;

    #[test]
    fn the_mount_is_found() {
        let line = "36 25 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(mount_of_cgroup2(line), Some("/sys/fs/cgroup/unified"));
        assert_eq!(mount_of_cgroup2("36 25 0:30 / /sys rw - cgroup cgroup rw,cpu"), None);
    }

    #[test]
    fn limits_are_written_where_the_controllers_are_and_their_lack_is_told() {
        // A folder that looks like a cgroup in which all may be done.
        let own = tempfile::tempdir().unwrap();
        let root = own.path().join("dapple-a");
        fs::create_dir(&root).unwrap();
        fs::write(own.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        fs::write(root.join("cgroup.controllers"), "cpu memory pids").unwrap();
        let limits = Limits::below(own.path(), "a");
        // The kernel adds to the file; this folder has the last write.
        assert!(limits.has_pids && !limits.are_complete() && limits.measures_memory(), "{limits:?}");
        assert!(limits.text().contains("no controller for memory, cpu"), "{}", limits.text());
        let all = Limits { has_memory: true, has_cpu: true, ..limits };
        let service = Service { cores: 0.5, tasks_max: Some(9), ..Service::new("echo", ["x"]) };
        let command = all.command("echo.1", &service, &["true".to_owned(), "a b".to_owned()]).unwrap();
        assert!(format!("{command:?}").ends_with(r#""true" "a b""#), "{command:?}");
        let read = |name: &str| fs::read_to_string(root.join("echo.1").join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("cpu.max"), read("pids.max")),
            ("268435456".into(), "50000 100000".into(), "9".into())
        );
        let none = Limits::below(&own.path().join("missing"), "a");
        assert!(none.measures_memory() && none.text().contains("no cgroup can be made"), "{none:?}");
    }
}
