//! One trial: a server, a load, and the server's figures.

use super::experiment::{Case, Figures, Plan};
use super::memory_limit::MemoryLimit;
use super::server::{self, Running, Setting, Weather};
use super::site::{self, Site};
use crate::experiment::{Peer, Trial};
use crate::load::Summary;
use crate::machine::{Guard, Places, own_command};
use crate::usage::Usage;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Starts the peer, loads it, and measures both.
pub(super) fn measure(plan: &Plan, weather: Weather, trial: &Trial<Case>) -> Result<Figures> {
    let Case { connections, workers, memory_mb } = trial.case;
    // Dropped after the server, which is in it.
    let limit = memory_mb.map(MemoryLimit::new).transpose()?;
    let site = Site::at(&trial.file, plan.site);
    let scratch = tempfile::tempdir_in(&trial.file).context("cannot make a folder for the server")?;
    let places = Places::of(workers);
    let mut running = server::start(
        trial.peer,
        &Setting {
            site: &site,
            scratch: scratch.path(),
            workers,
            cores: &places.server,
            cache_mb: plan.cache_mb,
            tls: plan.tls,
            weather,
            go_program: trial.go_program.as_deref(),
            group: limit.as_ref().map(MemoryLimit::folder),
        },
    )?;
    if plan.cold {
        site.forget_cached().context("the kernel does not forget the files")?;
    }
    let mut load = own_command("load")?;
    load.args(running.bases()).args(["--json", "--marks"]).arg("--urls").arg(site.list());
    load.arg("--pattern").arg(site.pattern());
    if plan.stalled {
        load.args(["--stalled-path", &site::path_of(1), "--stalled", &connections.to_string()]);
        load.args(["--connections", PROBES, "--rate", PROBES_PER_S]);
    } else {
        load.arg("--connections").arg(connections.to_string());
    }
    load.arg("--requests").arg(plan.requests.to_string()).arg("--secs").arg(trial.secs.to_string());
    load.arg("--warm-up-secs").arg(warm_up_secs(plan, trial).to_string());
    load.arg("--workers").arg(workers.to_string());
    if trial.peer == Peer::DappleFiles {
        load.args(["--header", server::LOGIN]);
    }
    for core in &places.load {
        load.arg("--cores").arg(core.to_string());
    }
    let mut load = running.beside_clients(load);
    let _flood = running.flood(weather)?;
    let load = Guard::start("the load", load.stdout(Stdio::piped()))?;
    let seen = watch(load, &running)?;
    running.still_running()?;
    figures(&seen)
}

/// Long enough for the caches to fill, and for all clients to start.
fn warm_up_secs(plan: &Plan, trial: &Trial<Case>) -> f64 {
    if plan.cold { 0.0 } else { (trial.secs / 2.0).clamp(0.5, 3.0) + trial.case.connections as f64 * 2e-4 }
}

/// The figures of a load and of the server.
struct Seen {
    load: Summary,
    usage: Usage,
    resident: (u64, u64),
}

/// Reads the server's figures at the marks of the load, and returns the load's summary too.
fn watch(mut load: Guard, running: &Running) -> Result<Seen> {
    let output = load.take_output().context("the load has no output")?;
    let mut lines = BufReader::new(output).lines();
    let mut line = || lines.next().context("the load ended early; see above")?.context("the load printed no text");
    let mut usage_at = |word: &str| match line()? {
        found if found == word => running.usage(),
        other => bail!("the load said {other} instead of {word}"),
    };
    let begin = usage_at("begin")?;
    let usage = usage_at("end")?.since(begin);
    let resident = running.memory()?;
    let load: Summary = serde_json::from_str(&line()?).context("the load printed no result")?;
    Ok(Seen { load, usage, resident })
}

fn figures(seen: &Seen) -> Result<Figures> {
    let load = &seen.load;
    let example = || load.error_example.clone().unwrap_or_else(|| "no error".to_owned());
    ensure!(load.requests > 0, "nothing was answered while it was measured ({}): pass more --secs", example());
    for kind in NEVER {
        let count = load.errors.get(kind).copied().unwrap_or(0);
        ensure!(count == 0, "{count} answers were wrong ({kind}): {}", example());
    }
    ensure!(load.compared == load.requests, "{} of {} bodies were compared", load.compared, load.requests);
    let cpu_us = seen.usage.cpu.as_secs_f64() * 1e6;
    let known = |figure: Option<f64>| figure.context("the load printed no latency");
    Ok(Figures {
        rate_per_s: load.rate_per_s,
        mb_per_s: load.mb_per_s,
        cpu_us_per_request: cpu_us / load.requests as f64,
        cpu_ms_per_100_mb: cpu_us / 1e3 / (load.mb_per_s * load.secs / 100.0),
        p50_ms: known(load.p50_ms)?,
        p99_ms: known(load.p99_ms)?,
        p999_ms: known(load.p999_ms)?,
        max_ms: known(load.max_ms)?,
        connects_per_s: load.connects as f64 / load.secs,
        connect_p99_ms: load.connect_p99_ms,
        jain: known(load.jain)?,
        starved: load.starved as f64,
        waiting_max_ms: load.waiting_max_ms,
        errors: load.errors_total(),
        resident_mb: seen.resident.0 as f64 / 1e6,
        resident_max_mb: seen.resident.1 as f64 / 1e6,
        load_cpu_us: load.own_cpu_us,
        switches: Some(seen.usage.switches(load.requests)),
        secs: load.secs,
    })
}

/// The clients that are measured beside stalled ones, and their requests a second: few, so that what they wait for is
/// not themselves.
const PROBES: &str = "64";
const PROBES_PER_S: &str = "400";

/// Errors that fail the check. Others, such as time-outs of an overloaded server, are figures.
const NEVER: [&str; 3] = ["wrong-body", "malformed", "status-404"];
