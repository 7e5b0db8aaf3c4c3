//! The process's memory limits, and how much of them is in use.
//!
//! There are two kinds of limits: those of control groups (version 2), the process's own and all
//! above it, and a configured one. The first counts memory that the kernel cannot free before it
//! would have to kill a process; it leaves out file contents and metadata. The second counts the
//! process's own memory.
//!
//! A service looks once a second, and adapts to the state:
//!
//! | state | begins | ends |
//! |---|---|---|
//! | tight | above 85 % | below 75 % |
//! | short | above 95 % | below 90 % |

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The memory limits in force.
#[derive(Debug)]
pub struct MemoryLimit {
    gauges: Vec<Gauge>,
}

/// One limit.
#[derive(Debug, PartialEq, Eq)]
enum Gauge {
    /// The folder of a control group; its limit may change at any time.
    Group(PathBuf),
    /// A limit in bytes for this process.
    Process(u64),
}

/// The use of the limit that is closest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub used: u64,
    pub limit: u64,
}

/// The state after the last measurement. All zero without a limit.
#[derive(Debug, Default)]
pub struct MemoryState {
    used: AtomicU64,
    limit: AtomicU64,
    is_tight: AtomicBool,
    is_short: AtomicBool,
}

impl MemoryState {
    /// Notes a measurement; whether memory is short from now on, if that changed. One caller at a time.
    pub fn saw(&self, seen: MemoryUse) -> Option<bool> {
        self.used.store(seen.used, Ordering::Relaxed);
        self.limit.store(seen.limit, Ordering::Relaxed);
        let percent = seen.percent();
        let is_tight = percent > if self.is_tight() { TIGHT_ENDS } else { TIGHT_BEGINS };
        self.is_tight.store(is_tight, Ordering::Relaxed);
        let is_short = percent > if self.is_short() { SHORT_ENDS } else { SHORT_BEGINS };
        (self.is_short.swap(is_short, Ordering::Relaxed) != is_short).then_some(is_short)
    }

    /// The last measurement; `None` without a limit.
    pub fn seen(&self) -> Option<MemoryUse> {
        let limit = self.limit.load(Ordering::Relaxed);
        (limit > 0).then(|| MemoryUse { used: self.used.load(Ordering::Relaxed), limit })
    }

    /// Whether caches should shrink.
    pub fn is_tight(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed)
    }

    /// Whether new work should be refused.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }
}

impl MemoryLimit {
    /// Looks for limits; `asked` is a configured one in bytes. `None` if there is none.
    pub fn find(asked: Option<u64>) -> Option<MemoryLimit> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        MemoryLimit::of(&groups, Path::new(GROUPS), asked)
    }

    fn of(groups: &str, root: &Path, asked: Option<u64>) -> Option<MemoryLimit> {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let folders = own.map(|own| folders(root, Path::new(own))).unwrap_or_default();
        let groups = folders.into_iter().filter(|folder| number(folder, "memory.max").is_some()).map(Gauge::Group);
        let gauges: Vec<Gauge> = groups.chain(asked.map(Gauge::Process)).collect();
        (!gauges.is_empty()).then_some(MemoryLimit { gauges })
    }

    /// The lowest limit, in bytes.
    pub fn bytes(&self) -> Option<u64> {
        self.gauges.iter().filter_map(Gauge::limit).min()
    }

    /// Measures the limit that is closest. Reads small kernel files, which takes about 20 us.
    pub fn look(&self) -> Option<MemoryUse> {
        let looks = self.gauges.iter().filter_map(Gauge::look);
        looks.max_by(|a, b| a.percent().total_cmp(&b.percent()))
    }
}

impl MemoryUse {
    /// The used part of the limit, in percent.
    pub fn percent(self) -> f64 {
        self.used as f64 * 100.0 / self.limit.max(1) as f64
    }
}

impl Gauge {
    fn limit(&self) -> Option<u64> {
        match self {
            Gauge::Group(folder) => number(folder, "memory.max"),
            Gauge::Process(limit) => Some(*limit),
        }
    }

    fn look(&self) -> Option<MemoryUse> {
        let used = match self {
            Gauge::Group(folder) => {
                let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
                let freeable: u64 = FREEABLE.iter().filter_map(|name| field(&stat, name)).sum();
                number(folder, "memory.current")?.saturating_sub(freeable)
            }
            Gauge::Process(_) => own(&fs::read_to_string("/proc/self/statm").ok()?)?,
        };
        Some(MemoryUse { used, limit: self.limit()? })
    }
}

/// The folder of a control group and all above it. If the process cannot see its own, it sees that
/// one as the root.
fn folders(root: &Path, own: &Path) -> Vec<PathBuf> {
    let is_visible = own.components().all(|part| matches!(part, Component::Normal(_)));
    let own = if is_visible { own } else { Path::new("") };
    own.ancestors().map(|part| root.join(part)).collect()
}

/// Reads a file that holds one number. `None` if there is no file, or it says "max".
fn number(folder: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
}

fn field(stat: &str, name: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// The process's memory without files: in `statm` the second number counts resident pages, the
/// third those of files.
fn own(statm: &str) -> Option<u64> {
    let mut numbers = statm.split_whitespace().skip(1).map(|number| number.parse::<u64>());
    let (resident, of_files) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(resident.saturating_sub(of_files) * rustix::param::page_size() as u64)
}

/// How often a service looks.
pub const MEMORY_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Below this part of the limit, in percent, caches may grow again.
pub const TIGHT_ENDS: f64 = 75.0;
const TIGHT_BEGINS: f64 = 85.0;
const SHORT_BEGINS: f64 = 95.0;
const SHORT_ENDS: f64 = 90.0;

/// The folder of control groups (version 2).
const GROUPS: &str = "/sys/fs/cgroup";

/// Memory that the kernel frees under pressure. The file lists leave out `tmpfs`, which lives in
/// memory only.
const FREEABLE: [&str; 3] = ["active_file", "inactive_file", "slab_reclaimable"];

#[cfg(test)]
mod tests {
    use super::{Gauge, MemoryLimit, MemoryState, MemoryUse, folders, own};
    use std::fs;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_state_ends_lower_than_it_begins() {
        let state = MemoryState::default();
        assert_eq!(state.seen(), None);
        for (used, is_tight, changed) in [
            (80, false, None),
            (86, true, None),
            (94, true, None),
            (96, true, Some(true)),
            (91, true, None),
            (89, true, Some(false)),
            (76, true, None),
            (75, false, None),
        ] {
            let seen = MemoryUse { used, limit: 100 };
            assert_eq!((state.saw(seen), state.is_tight(), state.seen()), (changed, is_tight, Some(seen)), "{used}");
        }
    }

    fn group(folder: &Path, max: &str, current: u64, stat: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("memory.max"), max).unwrap();
        fs::write(folder.join("memory.current"), format!("{current}\n")).unwrap();
        fs::write(folder.join("memory.stat"), stat).unwrap();
    }

    #[test]
    fn the_limit_that_is_closest_counts() {
        let root = tempfile::tempdir().unwrap();
        group(&root.path().join("a"), "1000\n", 900, "anon 300\nfile 500\ninactive_file 400\nactive_file 50\n");
        group(&root.path().join("a/b"), "max\n", 300, "anon 300\n");
        group(&root.path().join("a/b/c"), "500\n", 400, "anon 100\nslab_reclaimable 50\ninactive_file 200\n");
        let limit = MemoryLimit::of("1:name=x:/\n0::/a/b/c\n", root.path(), None).unwrap();
        assert_eq!(limit.bytes(), Some(500));
        assert_eq!(limit.look(), Some(MemoryUse { used: 450, limit: 1000 }));
        fs::write(root.path().join("a/b/c/memory.max"), "200").unwrap();
        assert_eq!(limit.look(), Some(MemoryUse { used: 150, limit: 200 }), "limits may change");
    }

    #[test]
    fn missing_files_mean_no_limit() {
        let root = tempfile::tempdir().unwrap();
        for groups in ["", "0::/\n", "0::/a\n", "5:memory:/a\n"] {
            assert!(MemoryLimit::of(groups, root.path(), None).is_none(), "{groups}");
        }
        let asked = MemoryLimit::of("", root.path(), Some(7)).unwrap();
        assert_eq!((&asked.gauges[..], asked.bytes()), (&[Gauge::Process(7)][..], Some(7)));
        assert!(asked.look().unwrap().used > 100_000, "this test takes some memory");
    }

    #[test]
    fn groups_out_of_sight_are_left_out() {
        assert_eq!(folders(Path::new("/g"), Path::new("../x")), [PathBuf::from("/g/")]);
        assert_eq!(folders(Path::new("/g"), Path::new("a")), [PathBuf::from("/g/a"), PathBuf::from("/g/")]);
    }

    #[test]
    fn own_memory_leaves_out_files() {
        assert_eq!(own("1000 300 100 5 0 90 0\n"), Some(200 * rustix::param::page_size() as u64));
        assert_eq!(own("x"), None);
    }
}
