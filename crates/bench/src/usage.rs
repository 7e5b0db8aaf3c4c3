//! The processor time of processes, and their context switches.

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
    /// The number of times that a living thread went to sleep; each time, it had to be woken.
    wakes: u64,
    /// The number of times that the kernel preempted a runnable thread.
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

    /// The use since an earlier reading. The switches of threads that ended meanwhile are lost.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            wakes: self.wakes.saturating_sub(earlier.wakes),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }

    /// The switches per operation.
    pub(crate) fn switches(&self, ops: u64) -> Switches {
        let each = |count: u64| if ops == 0 { 0.0 } else { count as f64 / ops as f64 };
        Switches { switches_per_op: each(self.wakes + self.preemptions), wakes_per_op: each(self.wakes) }
    }

    fn of_threads(id: u32) -> Usage {
        let threads = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        threads.filter_map(|thread| of_status(&std::fs::read_to_string(thread.path().join("status")).ok()?)).sum()
    }
}

/// The switches in a `/proc/PID/task/ID/status`.
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

/// Context switches per operation; in the JSON lines.
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
