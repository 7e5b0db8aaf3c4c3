//! A program under callgrind with some requests and with twice as many, and the instructions that the second half took.

use super::disassembly::{locked, places};
use super::profile::{Object, Profile};
use crate::load::Summary;
use crate::machine::{Guard, bound_to, end_with_parent, own_command};
use crate::web::server::{Setting, dapple_arguments, dapple_program, free_port};
use crate::web::site::Site;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::hint::black_box;
use std::io::BufReader;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The cost of a request, as the difference between two runs.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// Instructions of all kinds.
    pub(super) instructions: f64,
    /// Those that lock memory, by the function and the file that they stand in.
    pub(super) locked: HashMap<(String, String), f64>,
}

impl Cost {
    /// All instructions that lock memory.
    pub(super) fn locked_total(&self) -> f64 {
        self.locked.values().sum()
    }

    /// The cost of an operation, where `more` has so many operations more than `less`.
    fn between(less: &Profile, more: &Profile, operations: u64) -> Result<Cost> {
        let each = |count: f64| count / operations as f64;
        let mut cost = Cost { instructions: each(more.total as f64 - less.total as f64), ..Cost::default() };
        for (path, object) in &more.objects {
            // Without a file: what the kernel lends to every process.
            if Path::new(path).is_file() {
                let earlier = less.objects.get(path);
                for (place, count) in locked_counts(path, object, earlier)? {
                    *cost.locked.entry(place).or_default() += each(count);
                }
            }
        }
        Ok(cost)
    }
}

/// How often the locking instructions of an object ran more than earlier, by function and file.
fn locked_counts(path: &str, object: &Object, earlier: Option<&Object>) -> Result<Vec<((String, String), f64)>> {
    let locked = locked(path, object)?;
    let addresses: Vec<u64> = locked.into_keys().collect();
    let places = if addresses.is_empty() { Vec::new() } else { places(path, &addresses)? };
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let mut counts = Vec::new();
    for (address, place) in addresses.iter().zip(places) {
        let before = earlier.and_then(|earlier| earlier.get(address)).map_or(0, |earlier| earlier.count);
        let place = match place {
            Some(place) => (place.function, place.line.rsplit_once(':').map_or("", |(file, _)| file).to_owned()),
            None => (object[address].symbol.clone(), name.clone().into_owned()),
        };
        counts.push((place, object[address].count as f64 - before as f64));
    }
    Ok(counts)
}

/// Why nothing can be counted here.
pub(super) fn obstacle() -> Option<&'static str> {
    let runs = |program: &str| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        Some("only instructions of x86-64 are known")
    } else if !runs("valgrind") {
        Some("valgrind is not installed: apt-get install valgrind")
    } else if !runs("objdump") || !runs("addr2line") {
        Some("objdump or addr2line is not installed: apt-get install binutils")
    } else if !runs("cc") {
        Some("cc is not installed: apt-get install gcc")
    } else {
        None
    }
}

/// The cost of a request to `dapple serve`, over `requests` requests after as many others.
pub(super) fn server(setting: &Setting, load: &LoadOf, serial: bool, requests: u64) -> Result<Cost> {
    let once = |requests| {
        let output = setting.scratch.join(format!("callgrind.{requests}"));
        let port = free_port()?;
        let mut command = callgrind(&output, &dapple_program()?)?;
        dapple_arguments(&mut command, setting, port, serial);
        let mut guard = Guard::start("the server under valgrind", command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let end = Instant::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            guard.still_running()?;
            ensure!(Instant::now() < end, "the server does not answer on port {port} after {START_MAX:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        load.run(port, requests)?;
        guard.stop(END_MAX)?;
        read(&output)
    };
    Cost::between(&once(requests)?, &once(2 * requests)?, requests)
}

/// The load of a server.
pub(super) struct LoadOf<'a> {
    pub(super) site: &'a Site,
    pub(super) connections: usize,
    /// Requests over one connection; 0 for any number.
    pub(super) per_connection: u64,
}

impl LoadOf<'_> {
    /// Makes so many requests; an error where not every one of them was answered with the right body.
    fn run(&self, port: u16, requests: u64) -> Result<()> {
        let mut load = own_command("load")?;
        load.arg(format!("http://127.0.0.1:{port}")).arg("--json").arg("--urls").arg(self.site.list());
        load.arg("--pattern").arg(self.site.pattern()).args(["--connections", &self.connections.to_string()]);
        load.args(["--requests", &self.per_connection.to_string(), "--total", &requests.to_string()]);
        load.args(["--timeout-ms", &ANSWER_MAX.as_millis().to_string()]);
        let line = Guard::start("the load", load.stdout(Stdio::piped()))?.output(LOAD_MAX)?;
        let summary: Summary = serde_json::from_str(&line).context("the load printed no result")?;
        ensure!(
            summary.requests == requests && summary.compared == requests,
            "{} of {requests} requests were answered, {} bodies compared",
            summary.requests,
            summary.compared
        );
        Ok(())
    }
}

/// Counts a program of which the result is known; an error where the count is another one.
pub(super) fn check(scratch: &Path) -> Result<()> {
    let own = std::env::current_exe().context("cannot find the bench's own executable")?;
    let once = |rounds: u64| {
        let output = scratch.join(format!("callgrind.known.{rounds}"));
        let mut command = callgrind(&output, &own)?;
        command.arg("locks-known").arg(rounds.to_string());
        Guard::start("the program of known locks", &mut command)?.output(END_MAX)?;
        read(&output)
    };
    let cost = Cost::between(&once(KNOWN_ROUNDS)?, &once(2 * KNOWN_ROUNDS)?, KNOWN_ROUNDS)?;
    let due = KNOWN_EACH as f64;
    ensure!(
        cost.locked_total() == due,
        "a program that locks memory {due} times a round was counted with {}: {:?}",
        cost.locked_total(),
        cost.locked
    );
    Ok(())
}

/// Arguments of the hidden `locks-known` command.
#[derive(clap::Args)]
pub(crate) struct KnownArgs {
    rounds: u64,
}

/// Locks memory three times a round: with a prefix, by `xchg`, and with a prefix again.
pub(crate) fn run_known(args: &KnownArgs) -> Result<()> {
    end_with_parent()?;
    let word = AtomicU64::new(0);
    for round in 0..args.rounds {
        let word = black_box(&word);
        black_box(word.fetch_add(1, SeqCst));
        black_box(word.swap(round, SeqCst));
        let _ = black_box(word.compare_exchange(round, round + 1, SeqCst, SeqCst));
        // A plain load and a relaxed store lock nothing.
        word.store(black_box(word.load(SeqCst)), std::sync::atomic::Ordering::Relaxed);
    }
    ensure!(word.load(SeqCst) == args.rounds, "the word has another value than the last round left");
    Ok(())
}

/// How many instructions of a round of `run_known` lock memory.
const KNOWN_EACH: u64 = 3;

/// Both this and twice this have four digits, so that both runs parse as long a command line.
const KNOWN_ROUNDS: u64 = 2_000;

fn callgrind(output: &Path, program: &Path) -> Result<Command> {
    let library = output.with_file_name("no_vdso.so");
    if !library.exists() {
        build_library(&library)?;
    }
    let mut command = bound_to(Path::new("env"), &[])?;
    let mut preload = OsStr::new("LD_PRELOAD=").to_owned();
    preload.push(&library);
    command.arg(preload).arg("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]);
    // Otherwise one thread may keep the processor for long, and a second worker has nothing to do.
    command.args(["--fair-sched=yes", "--vgdb=no"]);
    let mut file = OsStr::new("--callgrind-out-file=").to_owned();
    file.push(output);
    command.arg(file).arg(program);
    Ok(command)
}

fn build_library(library: &Path) -> Result<()> {
    let source = library.with_extension("c");
    std::fs::write(&source, include_str!("no_vdso.c")).context("cannot write a source")?;
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(&source).status();
    ensure!(built.context("cannot start cc: apt-get install gcc")?.success(), "cc cannot build no_vdso.c");
    Ok(())
}

fn read(output: &Path) -> Result<Profile> {
    let file = File::open(output).with_context(|| format!("callgrind has not written {}", output.display()))?;
    Profile::read(BufReader::new(file))
}

/// How long a server may take to start under valgrind.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a program may take to end, and callgrind to write its profile.
const END_MAX: Duration = Duration::from_secs(120);
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(120);
const LOAD_MAX: Duration = Duration::from_secs(1_200);
