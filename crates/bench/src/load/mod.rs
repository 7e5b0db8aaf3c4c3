//! `bench load`: a load generator with a task per client, as that of PLDI 2007 had a thread for
//! each.

mod args;
mod body;
mod client;
mod mix;
mod pace;
mod problem;
mod progress;
mod response;
mod stalled;
mod summary;
mod tally;
mod tls;
mod wire;

pub(crate) use args::Args;
pub(crate) use summary::Summary;

use crate::machine::{end_with_parent, open_files_max, own_cpu, pin_to};
use anyhow::{Context, Result, bail, ensure};
use client::Load;
use pace::Pace;
use stalled::Stalled;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use summary::Frame;
use tally::Tally;
use wire::Route;

/// Runs the load and prints its summary; an error if requests failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let files_max = open_files_max();
    let connections = (args.connections + args.stalled) as usize;
    ensure!(
        connections + OTHER_FILES <= files_max,
        "{connections} connections take more files than the {files_max} that this process may open: raise `ulimit -n`, or \
         pass fewer --connections and --stalled"
    );
    if args.marks {
        end_with_parent()?;
    }
    if !args.cores.is_empty() {
        pin_to(&args.cores)?;
    }
    let load = Arc::new(load_of(args)?);
    load.tally.measuring.store(args.total.is_some(), Relaxed);
    let runtime = dapple::builder().workers(usize::from(args.workers)).build().context("cannot start a runtime")?;
    runtime.block_on(reach(&load))?;
    let path = args.stalled_path.as_deref().unwrap_or_default();
    let stalled = runtime.block_on(Stalled::open(&load, args.stalled, path))?;
    let starting = runtime.handle().spawn(start_clients(load.clone(), ramp(args)));
    // With many clients, the running ones leave little time to the others. A client that has not
    // started does not count as starved.
    runtime.block_on(starting).context("the clients could not be started")?;
    let summary = measure(args, &load)?;
    stalled.check()?;
    if args.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        print!("{}", summary.text());
    }
    let errors = summary.errors_total();
    // With marks, the reader of the marks judges the errors.
    if !args.marks && errors > 0 {
        bail!("{errors} requests failed, {} were answered", summary.requests);
    }
    ensure!(args.marks || summary.requests > 0, "nothing was answered while it was measured");
    // The process does not wait for clients that wait for answers.
    std::process::exit(0)
}

fn load_of(args: &Args) -> Result<Load> {
    let mix = args.mix()?;
    let (mut routes, mut requests) = (Vec::new(), Vec::new());
    for target in args.targets() {
        let tls = target.tls.then(tls::connector).transpose()?;
        routes.push(Route { to: target.address()?, sources: args.sources, tls });
        let close = if args.close { "connection: close\r\n" } else { "" };
        let host = args.origin.as_ref().unwrap_or(&target.host);
        let prefix = args.origin.as_ref().map(|origin| format!("http://{origin}")).unwrap_or_default();
        let field = args.header.as_ref().map(|field| format!("{field}\r\n")).unwrap_or_default();
        let request = |path: &str| {
            format!("GET {prefix}{path} HTTP/1.1\r\nhost: {host}\r\nuser-agent: dapple-load\r\n{field}{close}\r\n")
        };
        requests.push(mix.items.iter().map(|item| request(&item.path).into_bytes().into()).collect());
    }
    let pace = match args.rate {
        Some(rate) => Pace::open(rate, args.constant, Instant::now() + Duration::from_secs_f64(ramp(args))),
        None => Pace::Closed,
    };
    Ok(Load {
        mix,
        pace,
        tally: Tally::new(args.connections as usize, usize::from(args.workers))?,
        routes,
        requests,
        requests_max: if args.close { 1 } else { args.requests },
        total: args.total,
        asked: AtomicU64::new(0),
        limit: Duration::from_millis(args.timeout_ms),
        connections: AtomicU64::new(0),
        begun: AtomicUsize::new(0),
    })
}

/// Checks that the servers can be reached, before thousands of clients try.
async fn reach(load: &Load) -> Result<()> {
    for route in &load.routes {
        let to = route.to;
        let made = route.open(0, load.limit).await.map_err(|problem| anyhow::anyhow!("{problem}"));
        made.with_context(|| format!("cannot reach {to}: is the server running, and is this its port?"))?;
    }
    Ok(())
}

/// The time over which clients start, in seconds: no server's backlog has room for thousands at
/// once.
fn ramp(args: &Args) -> f64 {
    if args.total.is_some() { 0.0 } else { (f64::from(args.connections) * RAMP_SECS_EACH).min(args.warm_up_secs / 2.0) }
}

async fn start_clients(load: Arc<Load>, ramp_secs: f64) {
    let clients = load.tally.clients();
    let begin = Instant::now();
    for number in 0..clients {
        let due = begin + Duration::from_secs_f64(ramp_secs * number as f64 / clients as f64);
        if due > Instant::now() {
            dapple::time::sleep_until(dapple::time::Instant::from_std(due)).await;
        }
        drop(dapple::spawn(client::run(load.clone(), number)));
        if number % BACKLOG_LEN == 0 {
            dapple::yield_now().await;
        }
    }
    // In an open loop, a client starts when its first request is due.
    let until = Instant::now() + BEGIN_MAX;
    while matches!(load.pace, Pace::Closed) && load.begun.load(Relaxed) < clients && Instant::now() < until {
        dapple::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits for the warm-up, and then measures for the requested time, or until the first answer: on a
/// busy machine neither server nor client may run in a short time.
fn measure(args: &Args, load: &Arc<Load>) -> Result<Summary> {
    if args.total.is_none() {
        progress::sleep_showing(load, "warming up", args.warm_up_secs);
    }
    mark(args, "begin")?;
    let (begin, cpu) = (Instant::now(), own_cpu());
    match args.total {
        Some(total) => wait_for_all(load, total),
        None => wait_secs(load, args.secs),
    }
    load.tally.measuring.store(false, Relaxed);
    let (secs, cpu) = (begin.elapsed().as_secs_f64(), own_cpu() - cpu);
    let waiting = load.tally.waiting();
    mark(args, "end")?;
    load.tally.over.store(true, Relaxed);
    Ok(Summary::of(&load.tally.sum()?, &load.tally.per_client(), &Frame { secs, cpu, waiting }))
}

fn wait_secs(load: &Arc<Load>, secs: f64) {
    let errors = load.tally.errors.load(Relaxed);
    load.tally.measuring.store(true, Relaxed);
    progress::sleep_showing(load, "measuring ", secs);
    // By then, every client that waits for an answer has it or an error.
    let until = Instant::now() + load.limit;
    while load.tally.measured() == 0 && load.tally.errors.load(Relaxed) == errors && Instant::now() < until {
        std::thread::sleep(ANSWER_POLL);
    }
}

/// Waits until every one of these requests has its answer or an error. Each of them has a time limit, so this ends.
fn wait_for_all(load: &Load, total: u64) {
    while load.tally.measured() + load.tally.errors.load(Relaxed) < total {
        std::thread::sleep(ANSWER_POLL);
    }
}

fn mark(args: &Args, word: &str) -> Result<()> {
    if args.marks {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{word}").and_then(|()| out.flush()).context("no process reads the marks")?;
    }
    Ok(())
}

/// The interval of looks for the first answer.
const ANSWER_POLL: Duration = Duration::from_millis(5);

/// Open files besides connections.
const OTHER_FILES: usize = 64;

/// The most clients that start at once: every server's backlog has this much room.
const BACKLOG_LEN: usize = 256;

/// The longest wait for the first connections before the measurement begins without them.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// Seconds between the starts of two clients.
const RAMP_SECS_EACH: f64 = 0.000_1;
