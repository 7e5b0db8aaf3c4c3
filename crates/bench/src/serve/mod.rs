//! `bench serve`: `dapple serve` beside nginx and hyper on tokio, under wrk.

mod hyper;
mod report;
mod server;
mod site;
mod wrk;

pub(crate) use self::hyper::{HyperArgs, run_hyper};

use crate::machine::family_cpu;
use crate::output::Output;
use anyhow::{Context, Result, ensure};
use report::Measured;
use server::Server;
use site::Site;
use wrk::{CONNECTIONS, Wrk};

/// Arguments of `bench serve`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Who serves (default: all that are installed)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Server>,
    /// Numbers of workers; with 1, the server has core 0 and the load core 1 for itself
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; the servers take turns within each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, after a warm-up of one second
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    secs: u32,
}

/// Runs what the arguments ask for and reports it; an error if a run's check failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let load = server::find_program("wrk").context("wrk is not installed: apt-get install nginx wrk")?;
    let servers = servers(args)?;
    let about = args.output.begin();
    let site = Site::small()?;
    remove_on_interrupt(&site)?;
    let wrk = Wrk::new(&load, &site)?;
    let all = args.output.repeat(
        args.runs,
        |run| plans(args, &servers, run),
        |plan| format!("{}/{}w", plan.server.name(), plan.workers),
        |plan| measure(plan, &site, &wrk).unwrap_or_else(|error| Measured::failed(plan, format!("{error:#}"))),
    )?;
    args.output.end(&about, &report::report(&all, args.runs, args.secs));
    report::check(&all)
}

/// The runs of one repetition. Each starts with another server: the place in the row favors none.
fn plans(args: &Args, servers: &[Server], run: usize) -> Vec<Plan> {
    let mut turns = servers.to_vec();
    turns.rotate_left(run % servers.len());
    let plan = |server, workers| Plan { server, workers: usize::from(workers), run, secs: u64::from(args.secs) };
    args.workers.iter().flat_map(|&workers| turns.iter().map(move |&server| plan(server, workers))).collect()
}

/// The servers asked for; one that is not installed is left out with a line that says so, `dapple` is an error.
fn servers(args: &Args) -> Result<Vec<Server>> {
    let mut servers: Vec<Server> = Vec::new();
    for server in Server::ALL.into_iter().filter(|server| args.peer.is_empty() || args.peer.contains(server)) {
        match server {
            Server::Dapple | Server::DappleSerial => drop(server::dapple_program()?),
            Server::Nginx if server::find_program("nginx").is_none() => {
                eprintln!("nginx is not installed, so it is left out: apt-get install nginx wrk");
                continue;
            }
            Server::Nginx | Server::HyperTokio => {}
        }
        servers.push(server);
    }
    ensure!(!servers.is_empty(), "no server is left to measure");
    Ok(servers)
}

/// One run of one server.
pub(crate) struct Plan {
    server: Server,
    workers: usize,
    run: usize,
    secs: u64,
}

fn measure(plan: &Plan, site: &Site, wrk: &Wrk) -> Result<Measured> {
    // One worker: a core each, so that neither takes time from the other. More: they share, as there is no core to spare.
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    let apart = plan.workers == 1 && cores > 1;
    let (own_core, load_core) = if apart { (Some(0), Some(1)) } else { (None, None) };
    let mut running = server::start(plan.server, site, plan.workers, own_core)?;
    let base = running.base();
    site.check_all(&base).context("before the load")?;
    let load = |secs| wrk.run(&base, secs, plan.workers.min(cores), load_core);
    load(1).context("warm-up")?;

    let checker = site.check_on(&base);
    let cpu_before = family_cpu(running.id())?;
    let load = load(plan.secs);
    let cpu = family_cpu(running.id())?.saturating_sub(cpu_before);
    let compared = checker.finish();
    let load = load?;
    running.still_running()?;
    let problem = match &compared {
        Err(error) => Some(format!("under load: {error:#}")),
        Ok(0) => Some("no body was compared under load".to_owned()),
        Ok(_) if load.errors > 0 => Some(format!("{} answers were errors or never came", load.errors)),
        Ok(_) if load.requests == 0 => Some("nothing was answered".to_owned()),
        Ok(_) => None,
    };
    Ok(Measured {
        connections: CONNECTIONS,
        secs: load.duration_us / 1e6,
        rate_per_s: load.requests as f64 * 1e6 / load.duration_us,
        cpu_us_per_op: cpu.as_micros() as f64 / load.requests.max(1) as f64,
        p50_ms: load.p50_us / 1e3,
        p99_ms: load.p99_us / 1e3,
        errors: load.errors,
        bodies_compared: compared.as_ref().copied().unwrap_or(0) as u64,
        checked: problem.is_none(),
        problem,
        ..Measured::failed(plan, String::new())
    })
}

/// Ctrl-C and SIGTERM: the files go away here; servers and load end with this process, as each asked the kernel to.
fn remove_on_interrupt(site: &Site) -> Result<()> {
    let scratch = site.scratch().to_owned();
    ctrlc::set_handler(move || {
        let _ = std::fs::remove_dir_all(&scratch);
        std::process::exit(130);
    })
    .context("cannot watch for Ctrl-C")
}
