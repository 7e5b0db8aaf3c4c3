//! The number of processors that the process may use, by the affinity of its threads and the quotas
//! of its control groups.
//!
//! The standard library's `available_parallelism` reads both, but rounds a quota down: with 1.9
//! processors a runtime would have a single worker, and leave nearly half of the quota unused.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::runtime::WORKERS_MAX;
use crate::sync::atomic::AtomicUsize;

/// For a runtime with workers that follow the number of processors. `worker::rest` says how workers
/// rest.
pub(crate) struct Cpus {
    /// The number of workers in use; the others rest.
    pub(crate) active: AtomicUsize,
    /// The root of the system's files; differs from `/` only in tests.
    root: PathBuf,
    /// The time of the monitor's next check, in nanoseconds since the runtime started. A hint.
    look_at_ns: AtomicU64,
}

impl Cpus {
    pub(crate) fn new(active: usize, root: PathBuf) -> Cpus {
        Cpus { active: AtomicUsize::new(active), root, look_at_ns: AtomicU64::new(LOOK_EVERY_NS) }
    }

    /// Whether the quota must be read again.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        // Relaxed, here and below: a hint. Only the monitor changes it.
        now_ns >= self.look_at_ns.load(Relaxed)
    }

    /// Looks again. Reads files, which takes some 50 us.
    pub(crate) fn look(&self, now_ns: u64) -> usize {
        self.look_at_ns.store(now_ns + LOOK_EVERY_NS, Relaxed);
        available(&self.root)
    }
}

/// The number of workers that the program asks for, or else the environment variable
/// `DAPPLE_WORKERS`; `None` if neither does.
///
/// # Errors
///
/// `InvalidInput`: it is not a number from 1 to [`WORKERS_MAX`].
pub(crate) fn asked(program: Option<usize>) -> io::Result<Option<usize>> {
    let Some(workers) = program else { return std::env::var_os(VARIABLE).map(|value| parse(&value)).transpose() };
    if !RANGE.contains(&workers) {
        let message = format!("{workers} workers: choose a number from 1 to {WORKERS_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(program)
}

fn parse(value: &OsStr) -> io::Result<usize> {
    let number = value.to_str().and_then(|text| text.trim().parse().ok());
    number.filter(|number| RANGE.contains(number)).ok_or_else(|| {
        let message =
            format!("{VARIABLE} is {value:?}: set it to a number of workers from 1 to {WORKERS_MAX}, or unset it");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

const RANGE: RangeInclusive<usize> = 1..=WORKERS_MAX;
const VARIABLE: &str = "DAPPLE_WORKERS";

/// The number of processors that the calling thread may use, limited by the quota of its process,
/// rounded up; at least 1.
pub(crate) fn available(root: &Path) -> usize {
    let by_affinity = match rustix::thread::sched_getaffinity(None) {
        Ok(set) => set.count() as usize,
        // A machine with more processors than the set can hold.
        // REAL: a simulation says how many workers each of its runtimes has.
        Err(_) => thread::available_parallelism().map_or(1, usize::from),
    };
    by_affinity.min(quota(root).unwrap_or(usize::MAX)).max(1)
}

/// The smallest quota of the process's control groups and of their parents, in processors, rounded
/// up; `None` if there is none.
fn quota(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let quotas = groups.lines().filter_map(|line| {
        let [_, controllers, group] = fields(line.splitn(3, ':'))?;
        // Version 2 has one hierarchy, without a name.
        let version = match controllers {
            "" => Version::Two,
            _ if controllers.split(',').any(|name| name == "cpu") => Version::One,
            _ => return None,
        };
        let (mounted_at, path) = mounts.lines().find_map(|line| version.place(line, group))?;
        smallest_up_to(&root.join(mounted_at.trim_start_matches('/')), &path, version)
    });
    quotas.min()
}

/// The smallest quota from a group up to the mount point of its hierarchy.
fn smallest_up_to(mounted_at: &Path, group: &Path, version: Version) -> Option<usize> {
    group.ancestors().filter_map(|group| version.quota_of(&mounted_at.join(group))).min()
}

/// The version of control groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The mount point of the hierarchy and the path of the group, if a line of `mountinfo` mounts
    /// the hierarchy; otherwise `None`.
    fn place<'a>(self, line: &'a str, group: &str) -> Option<(&'a str, PathBuf)> {
        let (mount, file_system) = line.split_once(" - ")?;
        let [kind, _, options] = fields(file_system.split(' '))?;
        let is_it = match self {
            Version::One => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            Version::Two => kind == "cgroup2",
        };
        let [_, _, _, mounted_group, mounted_at] = fields(mount.split(' '))?;
        // In a container the mounted group may be the process's own, or one that the process does
        // not see.
        let below = Path::new(group).strip_prefix(mounted_group).unwrap_or(Path::new(""));
        is_it.then(|| (mounted_at, below.to_owned()))
    }

    /// The quota of one group.
    fn quota_of(self, group: &Path) -> Option<usize> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let (quota_us, period_us) = match self {
            Version::One => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
            Version::Two => {
                let both = read("cpu.max")?;
                let (quota_us, period_us) = both.trim().split_once(' ')?;
                (quota_us.to_owned(), period_us.to_owned())
            }
        };
        // "max" and -1 do not parse as such numbers: they mean that there is no quota.
        let (quota_us, period_us) = (quota_us.trim().parse::<u64>().ok()?, period_us.trim().parse::<u64>().ok()?);
        (period_us > 0).then(|| usize::try_from(quota_us.div_ceil(period_us)).unwrap_or(usize::MAX))
    }
}

/// The first `N` fields of a line, if it has as many.
fn fields<'a, const N: usize>(mut all: impl Iterator<Item = &'a str>) -> Option<[&'a str; N]> {
    let mut first = [""; N];
    for field in &mut first {
        *field = all.next()?;
    }
    Some(first)
}

const LOOK_EVERY_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_environment_asks_for_a_number_of_workers() {
        for (value, expected) in [("1", 1), (" 1024 ", 1024), ("8", 8)] {
            assert_eq!(parse(OsStr::new(value)).unwrap(), expected, "{value}");
        }
        for value in ["", "0", "1025", "-1", "two", "1.5"] {
            let error = parse(OsStr::new(value)).unwrap_err().to_string();
            assert!(error.contains("DAPPLE_WORKERS") && error.contains("from 1 to 1024"), "{error}");
        }
    }

    /// A folder that replaces the system's root.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let path = std::env::temp_dir().join(format!("dapple-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("there is a folder for temporary files");
            Root(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("it is in the root")).expect("a folder can be made");
            fs::write(&path, text).expect("a file can be written");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_quota_of_version_two_is_the_smallest_on_the_way_up_and_rounded_up() {
        let root = Root::new("v2");
        root.write("proc/self/cgroup", "0::/a/b\n");
        let mounts =
            "20 1 0:5 / /proc rw - proc proc rw\n30 1 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        root.write("proc/self/mountinfo", mounts);
        assert_eq!(quota(&root.0), None);
        root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
        assert_eq!(quota(&root.0), None);
        root.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
        assert_eq!(quota(&root.0), Some(3));
        root.write("sys/fs/cgroup/a/b/cpu.max", "10000 100000\n");
        assert_eq!(quota(&root.0), Some(1));
        assert_eq!(available(&root.0), 1);
        // A text that is not a quota counts as none.
        for text in ["", "x 100000", "100000", "100000 0", "-1 100000"] {
            root.write("sys/fs/cgroup/a/b/cpu.max", text);
            assert_eq!(quota(&root.0), Some(3), "{text:?}");
        }
    }

    #[test]
    fn a_quota_of_version_one_is_found_where_the_controller_is_mounted() {
        let root = Root::new("v1");
        root.write("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/docker/x/y\n1:cpuset:/\n0::/\n");
        // The container sees its own group as the root of the mount.
        let mounts = "40 1 0:30 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      41 1 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        root.write("proc/self/mountinfo", mounts);
        root.write("sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_period_us", "100000\n");
        root.write("sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_quota_us", "-1\n");
        assert_eq!(quota(&root.0), None);
        root.write("sys/fs/cgroup/cpu,cpuacct/y/cpu.cfs_quota_us", "150000\n");
        assert_eq!(quota(&root.0), Some(2));
    }

    #[test]
    fn without_control_groups_the_affinity_decides() {
        let root = Root::new("none");
        assert_eq!(quota(&root.0), None);
        assert!(available(&root.0) >= 1);
        assert!(available(Path::new("/")) <= available(&root.0));
    }
}
