//! The use that processes made of the cores: processor time, and how often their threads gave a core away.

use crate::machine::{family, family_cpu, own_cpu};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

/// The use so far, or between two moments.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    /// User and system time.
    pub(crate) cpu: Duration,
    /// How often a living thread went to sleep: each time, something had to wake it.
    wakes: u64,
    /// How often the kernel took the core from one that wanted to go on.
    preemptions: u64,
}

impl Usage {
    /// Of this process, without its children.
    pub(crate) fn own() -> Usage {
        Usage { cpu: own_cpu(), ..Usage::of_threads(std::process::id()) }
    }

    /// Of a process and of its living descendants.
    pub(crate) fn of_family(id: u32) -> Result<Usage> {
        Ok(Usage { cpu: family_cpu(id)?, ..family(id).into_iter().map(Usage::of_threads).sum() })
    }

    /// The use since an earlier look. A thread that has ended meanwhile takes its switches along.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            wakes: self.wakes.saturating_sub(earlier.wakes),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }

    /// The switches for each of so many operations.
    pub(crate) fn switches(&self, ops: u64) -> Switches {
        let each = |count: u64| if ops == 0 { 0.0 } else { count as f64 / ops as f64 };
        Switches { switches_per_op: each(self.wakes + self.preemptions), wakes_per_op: each(self.wakes) }
    }

    fn of_threads(id: u32) -> Usage {
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| of_status(&std::fs::read_to_string(thread.path().join("status")).ok()?)).sum()
    }
}

/// The switches that a `/proc/PID/task/ID/status` tells of.
fn of_status(status: &str) -> Option<Usage> {
    let count = |field: &str| status.lines().find_map(|line| line.strip_prefix(field))?.trim().parse::<u64>().ok();
    let (wakes, preemptions) = (count("voluntary_ctxt_switches:")?, count("nonvoluntary_ctxt_switches:")?);
    Some(Usage { cpu: Duration::ZERO, wakes, preemptions })
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            cpu: self.cpu + other.cpu,
            wakes: self.wakes + other.wakes,
            preemptions: self.preemptions + other.preemptions,
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), Add::add)
    }
}

/// Context switches for each operation; in the JSON lines.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Switches {
    /// All of them.
    pub(crate) switches_per_op: f64,
    /// Those of threads that went to sleep and were woken.
    pub(crate) wakes_per_op: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_counted() {
        let before = Usage::own();
        std::thread::sleep(Duration::from_millis(1));
        let switches = Usage::own().since(before).switches(1);
        assert!(switches.wakes_per_op >= 1.0 && switches.switches_per_op >= switches.wakes_per_op, "{switches:?}");
        assert!(Usage::of_family(std::process::id()).is_ok());
        assert_eq!(before.switches(0), Switches::default());
    }

    #[test]
    fn a_status_is_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = of_status(status).expect("both lines are there");
        assert_eq!(usage.switches(1), Switches { switches_per_op: 10.0, wakes_per_op: 7.0 });
        assert!(of_status("Name:\tx\n").is_none());
    }
}
