//! Cores, memory and their use on this machine, from `/proc`.

use std::fs;

use dapple_sched::environment;

/// The counters of all cores at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
}

/// The use of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessUse {
    /// Processor time since its start, in hundredths of a second.
    pub(crate) ticks: u64,
    /// Memory, in 1,048,576 bytes.
    pub(crate) memory_mb: u64,
}

/// The cores that this process may use.
pub(crate) fn cores() -> f64 {
    environment::parallelism() as f64
}

/// All memory, and the part that is available, in 1,048,576 bytes.
pub(crate) fn memory_mb() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    (kb_of(&text, "MemTotal:") / 1024, kb_of(&text, "MemAvailable:") / 1024)
}

fn kb_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Ticks {
    pub(crate) fn now() -> Ticks {
        Ticks::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(text: &str) -> Ticks {
        let first = text.lines().next().unwrap_or_default();
        let fields: Vec<u64> = first.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        // Time of guests is also in that of users.
        let all = fields.iter().take(8).sum();
        let idle: u64 = fields.iter().skip(3).take(2).sum();
        Ticks { busy: u64::saturating_sub(all, idle), all }
    }

    /// Whether enough time lies between for the load to say something.
    pub(crate) fn is_later_than(self, earlier: Ticks) -> bool {
        self.all.saturating_sub(earlier.all) >= TICKS_PER_S
    }

    /// The use between two moments, in percent.
    pub(crate) fn percent_since(self, earlier: Ticks) -> u32 {
        let all = self.all.saturating_sub(earlier.all).max(1);
        (self.busy.saturating_sub(earlier.busy) * 100 / all).min(100) as u32
    }
}

/// The use of a process now; `None` if it is no more.
pub(crate) fn use_of(pid: u32) -> Option<ProcessUse> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let field = |number: usize| fields(&stat).nth(number).and_then(|field| field.parse::<u64>().ok());
    let pages: u64 = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    let page = rustix::param::page_size() as u64;
    Some(ProcessUse { ticks: field(11)? + field(12)?, memory_mb: (pages * page) >> 20 })
}

/// When a process started, in ticks since the machine did: with its number this names it for good.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    fields(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?).nth(19)?.parse().ok()
}

/// The fields after the name, which may have spaces and brackets.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Ticks in a second: the kernel tells programs hundredths, whatever its own clock is.
pub(crate) const TICKS_PER_S: u64 = 100;

#[cfg(test)]
mod tests {
    use super::{Ticks, kb_of, memory_mb, start_of, use_of};

    #[test]
    fn the_kernels_numbers_are_read() {
        let before = Ticks::of("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = Ticks::of("cpu  150 0 50 820 80 0 0 0 0 0\n");
        assert_eq!(after.percent_since(before), 50);
        assert_eq!(Ticks::of("nonsense").percent_since(before), 0);
        assert_eq!(kb_of("MemTotal:       1024 kB\nMemAvailable: 512 kB\n", "MemAvailable:"), 512);
        let (all, free) = memory_mb();
        assert!(all > 0 && free <= all);
        let own = std::process::id();
        assert!(use_of(own).is_some_and(|used| used.memory_mb > 0) && start_of(own).is_some());
        assert_eq!(use_of(u32::MAX), None);
    }
}
