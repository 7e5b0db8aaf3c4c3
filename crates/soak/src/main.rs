//! `soak`: good and hostile clients of `dapple serve`, mixed, for any time; `cargo xtask soak web`
//! starts it.
//!
//! Every good request must be answered correctly, whatever the others do; and after all clients
//! have left, no trace of them may remain.

#![forbid(unsafe_code)]

mod events;
mod round;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use self::round::Round;
use self::web::{Authority, Footprint, Server, Site};

struct Options {
    minutes: f64,
    seed: u64,
    /// The `dapple` under test.
    program: PathBuf,
}

fn main() -> ExitCode {
    match options(&std::env::args().skip(1).collect::<Vec<_>>()).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("soak: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let Options { minutes, seed, program } = options;
    println!("soak: --minutes {minutes} --seed {seed}");
    let runtime = dapple::builder().workers(2).build().map_err(|error| format!("no runtime: {error}"))?;
    let _entered = runtime.enter();
    let (site, authority) = (Site::make()?, Authority::make()?);
    let servers = [None, Some(&authority)].map(|authority| Server::start(program, &site.folder, authority));
    let [plain, encrypted] = servers;
    let servers = [plain?, encrypted?];
    let round = Round { servers: &servers, authority: &authority, site: &site, handle: runtime.handle() };
    // After a first round, only what the server keeps on purpose remains: pages, pools, handles.
    round.run(WARM_UP, *seed)?;
    let base = settled(&servers)?;
    round.run(Duration::from_secs_f64(60.0 * minutes), seed.wrapping_add(1))?;
    let last = settled(&servers)?;
    for server in servers {
        server.stop()?;
    }
    base.iter().zip(&last).try_for_each(|(base, last)| is_back(base, last))
}

fn options(args: &[String]) -> Result<Options, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut minutes, mut seed, mut program) = (30.0, now.as_secs(), None);
    for pair in args.chunks(2) {
        let wrong = || format!("`{}`: there are --minutes M, --seed S and --program FILE", pair.join(" "));
        let [name, value] = pair else { return Err(wrong()) };
        match name.as_str() {
            "--minutes" => minutes = value.parse().ok().filter(|minutes| *minutes > 0.0).ok_or_else(wrong)?,
            "--seed" => seed = value.parse().map_err(|_| wrong())?,
            "--program" => program = Some(PathBuf::from(value)),
            _ => return Err(wrong()),
        }
    }
    let program = program.ok_or("--program FILE says which `dapple` to run; `cargo xtask soak web` builds one")?;
    Ok(Options { minutes, seed, program })
}

fn settled(servers: &[Server]) -> Result<Vec<Footprint>, String> {
    let footprints = servers.iter().map(Server::settled).collect::<Result<Vec<_>, String>>()?;
    footprints.iter().for_each(|footprint| println!("soak: at rest {footprint}"));
    Ok(footprints)
}

fn is_back(base: &Footprint, last: &Footprint) -> Result<(), String> {
    if last.descriptors > base.descriptors + DESCRIPTORS_MORE {
        return Err(format!("{} descriptors are open, {} were before", last.descriptors, base.descriptors));
    }
    if last.resident_kb > base.resident_kb + RESIDENT_KB_MORE {
        return Err(format!("{} KB are resident, {} were before", last.resident_kb, base.resident_kb));
    }
    if last.threads > base.threads {
        return Err(format!("there are {} threads, {} were before", last.threads, base.threads));
    }
    Ok(())
}

const WARM_UP: Duration = Duration::from_secs(10);

/// Allowed fluctuation: a handle kept for the next use, a timer.
const DESCRIPTORS_MORE: usize = 4;

/// Memory that an allocator may retain.
const RESIDENT_KB_MORE: usize = 16 << 10;
