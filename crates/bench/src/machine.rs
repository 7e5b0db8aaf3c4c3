//! Access to the machine: CPU clocks, child processes that never outlive the bench, and a line that
//! says where and how a figure was measured.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::process::{getrlimit, kill_process, set_parent_process_death_signal, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Arguments of the hidden `launch` command.
#[derive(clap::Args)]
pub(crate) struct LaunchArgs {
    /// Run on these cores only
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Enter this control group
    #[arg(long)]
    group: Option<std::path::PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<std::ffi::OsString>,
}

/// Becomes another program, bound to the life of the bench and, on request, to some cores.
///
/// The bench starts itself, binds itself, and then becomes the program. This way needs neither
/// unsafe code nor `taskset`, and the program has the process id that its parent knows.
pub(crate) fn launch(args: &LaunchArgs) -> Result<()> {
    end_with_parent()?;
    if !args.cores.is_empty() {
        pin_to(&args.cores)?;
    }
    if let Some(group) = &args.group {
        let enter = std::fs::write(group.join("cgroup.procs"), std::process::id().to_string());
        enter.with_context(|| format!("cannot enter {}", group.display()))?;
    }
    open_files_max();
    let (program, rest) = args.command.split_first().context("no program named")?;
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Lets this process use only this many cores: the workers of peers with kernel threads.
pub(crate) fn pin_to_cores(cores: usize) -> Result<()> {
    pin_to(&(0..cores).collect::<Vec<usize>>())
}

/// Lets this thread, and all that it starts from now on, use these cores only.
pub(crate) fn pin_to(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        ensure!(core < CpuSet::MAX_CPU, "there is no core {core}");
        set.set(core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on the cores {cores:?}"))
}

/// The cores of a server and of its load; empty for any.
pub(crate) struct Places {
    pub(crate) server: Vec<usize>,
    pub(crate) load: Vec<usize>,
}

impl Places {
    /// As many cores as workers for each, if there are enough; otherwise they share all.
    pub(crate) fn of(workers: usize) -> Places {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        if cores < 2 * workers {
            return Places { server: Vec::new(), load: Vec::new() };
        }
        Places { server: (0..workers).collect(), load: (workers..2 * workers).collect() }
    }
}

/// Asks the kernel to end this process when its parent ends, in any way.
pub(crate) fn end_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot bind to the parent's life")
}

/// A command that starts this program again, with this subcommand.
pub(crate) fn own_command(subcommand: &str) -> Result<Command> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let mut command = Command::new(own);
    command.arg(subcommand);
    Ok(command)
}

/// Runs a trial in a separate process and reads the line that it prints.
pub(crate) fn run_apart<T: DeserializeOwned>(mut command: Command, limit: Duration) -> Result<T> {
    let line = Guard::start("the run", command.stdout(Stdio::piped()))?.output(limit)?;
    serde_json::from_str(&line).context("the run printed no result")
}

/// A command that starts `program` through `launch`, on these cores, or on any if there are none.
pub(crate) fn bound_to(program: &Path, cores: &[usize]) -> Result<Command> {
    bound_in(program, cores, None)
}

/// As `bound_to`, in a control group.
pub(crate) fn bound_in(program: &Path, cores: &[usize], group: Option<&Path>) -> Result<Command> {
    let mut command = own_command("launch")?;
    for core in cores {
        command.arg("--cores").arg(core.to_string());
    }
    if let Some(group) = group {
        command.arg("--group").arg(group);
    }
    command.arg("--").arg(program);
    Ok(command)
}

/// A child process. Dropping this value ends it and its own children.
pub(crate) struct Guard {
    child: Child,
    name: String,
}

impl Guard {
    /// Starts the command; `name` is for messages.
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Guard> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Guard { child: child.with_context(|| format!("cannot start {name}"))?, name: name.to_owned() })
    }

    /// The process id of the child.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's piped standard output, which the caller reads while the child runs; once.
    pub(crate) fn take_output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Fails if the child has already ended.
    pub(crate) fn still_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended by itself: {status}", self.name),
            None => Ok(()),
        }
    }

    /// Waits for the child to end and returns its piped standard output, which must fit into the
    /// pipe.
    pub(crate) fn output(self, limit: Duration) -> Result<String> {
        let name = self.name.clone();
        match self.outcome(limit)? {
            (status, text) if status.success() => Ok(text),
            (status, _) => bail!("{name} failed: {status}"),
        }
    }

    /// As `output`, also if the child's exit code reports a failure.
    pub(crate) fn outcome(mut self, limit: Duration) -> Result<(ExitStatus, String)> {
        if !self.ended_within(limit) {
            bail!("{} did not end within {limit:?}", self.name);
        }
        let mut text = String::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_string(&mut text).with_context(|| format!("{} wrote no text", self.name))?;
        }
        Ok((self.child.wait()?, text))
    }

    /// Asks the child to end (SIGTERM) and waits for it; an error if it does not end, or reports a
    /// failure.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<()> {
        self.still_running()?;
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.output(limit).map(drop)
    }

    /// Ends the child at once (SIGKILL), which it cannot delay.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.still_running()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn ended_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // The child has not been waited for, so its number cannot belong to another process.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if self.ended_within(Duration::from_secs(3)) {
            return;
        }
        // Listed only now: each of these still descends from a child that was not waited for.
        for member in family(self.id()).iter().filter_map(|id| Pid::from_raw(*id as i32)) {
            let _ = kill_process(member, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// User and system time of this process so far, all its threads together.
pub(crate) fn own_cpu() -> Duration {
    clock(rustix::time::ClockId::ProcessCPUTime)
}

/// User and system time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    clock(rustix::time::ClockId::ThreadCPUTime)
}

fn clock(id: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(id);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Anonymous resident memory of this process: heap and stacks, not the pages of its program.
/// Counted page by page; `/proc/self/statm` is faster, but lags by some pages per core. Reading it
/// does not allocate.
pub(crate) fn own_memory_bytes() -> Result<u64> {
    let mut text = [0; 4_096];
    let mut length = 0;
    let mut file = std::fs::File::open("/proc/self/smaps_rollup").context("cannot open /proc/self/smaps_rollup")?;
    loop {
        match file.read(&mut text[length..]).context("cannot read /proc/self/smaps_rollup")? {
            0 => break,
            more => length += more,
        }
    }
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    anonymous_bytes(text).context("no line `Anonymous: N kB` in /proc/self/smaps_rollup")
}

/// Memory that programs can still allocate; `None` if the kernel does not say.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kilobytes(&text, "MemAvailable:")
}

/// The number of files that this process may have open, after raising its limit as far as allowed.
pub(crate) fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}

fn anonymous_bytes(rollup: &str) -> Option<u64> {
    kilobytes(rollup, "Anonymous:")
}

/// The value of a line such as `Pss: 12 kB` of a file below `/proc`, in bytes.
fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// User and system time of a process and of its living descendants, in the kernel's ticks of 10 ms.
pub(crate) fn family_cpu(id: u32) -> Result<Duration> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let mut ticks = 0;
    for member in family(id) {
        // A descendant may end between the listing and this line; the process itself may not.
        match std::fs::read_to_string(format!("/proc/{member}/stat")) {
            Ok(stat) => ticks += stat_ticks(&stat).context("cannot read /proc/PID/stat")?,
            Err(error) if member == id => return Err(error).context("the server is gone"),
            Err(_) => {}
        }
    }
    Ok(Duration::from_nanos(ticks * tick_ns))
}

/// Resident memory of a process and of its living descendants in bytes: now, with shared memory
/// counted once, and the sum of each one's maximum.
pub(crate) fn family_memory(id: u32) -> Result<(u64, u64)> {
    let (mut now, mut most) = (0, 0);
    for member in family(id) {
        let rollup = std::fs::read_to_string(format!("/proc/{member}/smaps_rollup"));
        let status = std::fs::read_to_string(format!("/proc/{member}/status"));
        match (rollup, status) {
            (Ok(rollup), Ok(status)) => {
                now += kilobytes(&rollup, "Pss:").unwrap_or(0);
                most += kilobytes(&status, "VmHWM:").unwrap_or(0);
            }
            (Err(error), _) | (_, Err(error)) if member == id => return Err(error).context("the server is gone"),
            _ => {}
        }
    }
    Ok((now, most))
}

/// A process and its descendants, by the children lists of its threads.
pub(crate) fn family(id: u32) -> Vec<u32> {
    let mut members = vec![id];
    let mut next = 0;
    while next < members.len() {
        let threads = std::fs::read_dir(format!("/proc/{}/task", members[next]));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            members.extend(children.iter().flat_map(|list| list.split_whitespace()).flat_map(str::parse::<u32>));
        }
        next += 1;
    }
    members
}

/// `utime + stime` of a `/proc/PID/stat` line. The command name in it may contain anything, so
/// count from its last `)`.
fn stat_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Where and how figures were taken; every published one must say it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Processor and number of cores.
    pub(crate) machine: String,
    /// Version of the kernel.
    pub(crate) kernel: String,
    /// Short hash, with `-dirty` if code has changed since.
    pub(crate) commit: String,
    /// The day, as in 2026-11-26.
    pub(crate) date: String,
    /// The command line.
    pub(crate) command: String,
    /// The load average, if other programs are running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) busy: Option<f64>,
}

impl About {
    /// The command without its arguments: `web` of `bench web --only small`.
    pub(crate) fn subcommand(&self) -> &str {
        self.command.split(' ').nth(1).unwrap_or_default()
    }
}

/// Reads the machine's description.
pub(crate) fn about() -> About {
    let cpus = std::thread::available_parallelism().map_or(0, |count| count.get());
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown CPU", |text| text.trim_start_matches([' ', '\t', ':']));
    let command: Vec<String> = std::env::args().skip(1).collect();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    About {
        machine: format!("{model}, {cpus} cores"),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        commit: commit(),
        date: said(Command::new("date").arg("+%F")).unwrap_or_else(|| UNKNOWN.to_owned()),
        command: format!("bench {}", command.join(" ")),
        busy: load.filter(|load| *load > 0.5),
    }
}

/// The commit of the work tree. Saved runs and plots change no code.
fn commit() -> String {
    let Some(commit) = said(Command::new("git").args(["rev-parse", "--short", "HEAD"])) else {
        return UNKNOWN.to_owned();
    };
    let changed = said(Command::new("git").args(["diff", "--name-only", "HEAD", "--", ":/", ":(top,exclude)bench"]));
    if changed.is_some() { format!("{commit}-dirty") } else { commit }
}

/// The output of a program, unless it fails or prints nothing.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|text| !text.is_empty())
}

const UNKNOWN: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_with_a_hostile_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 50 60 9 9 20 0 1 0";
        assert_eq!(stat_ticks(stat), Some(110));
        assert_eq!(stat_ticks("garbage"), None);
    }

    #[test]
    fn memory_is_read() {
        assert_eq!(anonymous_bytes("Rss: 9 kB\nAnonymous:           112 kB\nKSM: 0 kB\n"), Some(112 * 1024));
        assert_eq!(anonymous_bytes("Rss: 9 kB\n"), None);
        assert!(own_memory_bytes().is_ok_and(|bytes| bytes > 0));
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn own_cpu_grows_with_work() {
        let before = own_cpu();
        while own_cpu() - before < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(family_cpu(std::process::id()).is_ok());
        assert!(family_memory(std::process::id()).is_ok_and(|(now, most)| now > 0 && most > 0));
    }

    #[test]
    fn family_of_a_missing_process_is_an_error() {
        assert!(family_cpu(u32::MAX >> 1).is_err());
    }
}
