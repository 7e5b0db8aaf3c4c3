//! Metrics of the process from the kernel, under the names that all exporters use.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::{Exposition, Kind};

/// Writes the metrics that are available.
pub fn write(out: &mut Exposition) {
    // REAL: of this process.
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    out.single("process_cpu_seconds_total", Kind::Counter, "Processor time used by the process.", cpu_s);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (line, name, help) in [
        ("VmRSS:", "process_resident_memory_bytes", "Resident memory of the process."),
        ("VmSize:", "process_virtual_memory_bytes", "Virtual memory of the process."),
    ] {
        if let Some(bytes) = kilobytes(&status, line) {
            out.single(name, Kind::Gauge, help, bytes);
        }
    }
    if let Ok(folder) = fs::read_dir("/proc/self/fd") {
        // One of them is the descriptor that reads the folder.
        let open = folder.count().saturating_sub(1);
        out.single("process_open_fds", Kind::Gauge, "Open file descriptors.", open as f64);
    }
    if let Some(max) = getrlimit(Resource::Nofile).current {
        out.single("process_max_fds", Kind::Gauge, "The most file descriptors that can be open.", max as f64);
    }
    if let Some(start_s) = start_time_s() {
        out.single("process_start_time_seconds", Kind::Gauge, "When the process was started, since 1970.", start_s);
    }
}

fn kilobytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<f64>().ok().map(|kilobytes| kilobytes * 1024.0)
}

/// Computed from the kernel's count of ticks since boot.
fn start_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may contain any characters.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(START_FIELD)?.parse().ok()?;
    // REAL: of this machine.
    let (since_boot, since_1970) = (clock_gettime(ClockId::Boottime), clock_gettime(ClockId::Realtime));
    let boot_s = (since_1970.tv_sec - since_boot.tv_sec) as f64;
    Some(boot_s + ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The position of the field after the name.
const START_FIELD: usize = 19;
