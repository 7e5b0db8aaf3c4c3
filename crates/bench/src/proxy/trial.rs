//! One trial: an origin, proxies, a load through them, and the figures of each.

use super::experiment::{Case, Figures};
use super::objects::Objects;
use super::origin::Origin;
use crate::experiment::{Peer, Trial};
use crate::load::Summary;
use crate::machine::{Guard, bound_to, family_memory, own_command, pin_to};
use crate::usage::Usage;
use crate::web::{dapple_program, free_port};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Starts everything, loads it, and measures.
pub(super) fn measure(trial: &Trial<Case>) -> Result<Figures> {
    let Case { connections, cache_mb, workers } = trial.case;
    // With one worker everything else has the other core.
    let (of_proxy, of_others) = if workers == 1 && cores() > 1 { (vec![0], vec![1]) } else { (Vec::new(), Vec::new()) };
    if !of_others.is_empty() {
        pin_to(&of_others)?;
    }
    let objects = Objects::at(&trial.file);
    let origin = Origin::start(&objects)?;
    let copies = if trial.peer == Peer::DappleCopies { workers } else { 1 };
    let mut proxies = Proxies::default();
    for _ in 0..copies {
        let is_serial = trial.peer == Peer::DappleSerial;
        proxies.add(&of_proxy, workers / copies, cache_mb / copies as u64, is_serial)?;
    }
    let mut load = own_command("load")?;
    load.args(proxies.bases()).args(["--json", "--marks", "--urls"]).arg(objects.list());
    load.arg("--pattern").arg(objects.pattern()).arg("--connections").arg(connections.to_string());
    load.arg("--origin").arg(format!("127.0.0.1:{}", origin.port));
    load.arg("--secs").arg(trial.secs.to_string()).arg("--warm-up-secs").arg(warm_up_secs(trial).to_string());
    for core in &of_others {
        load.arg("--cores").arg(core.to_string());
    }
    let load = Guard::start("the load", load.stdout(Stdio::piped()))?;
    let figures = watch(load, &proxies, &origin);
    proxies.guards.iter_mut().try_for_each(Guard::still_running)?;
    figures
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Long enough for the caches to fill: the origin takes 5 ms, so 64 clients fetch at most some
/// 10,000 objects a second.
fn warm_up_secs(trial: &Trial<Case>) -> f64 {
    trial.secs.clamp(0.5, 5.0)
}

/// The processes of one peer.
#[derive(Default)]
struct Proxies {
    guards: Vec<Guard>,
    ports: Vec<u16>,
}

impl Proxies {
    fn add(&mut self, cores: &[usize], workers: usize, cache_mb: u64, serial: bool) -> Result<()> {
        let port = free_port()?;
        let mut command = bound_to(&dapple_program()?, cores)?;
        command.args(["proxy", "--allow-private", "--connections", "1000", "--port"]).arg(port.to_string());
        command.arg("--workers").arg(workers.to_string()).arg("--cache-mb").arg(cache_mb.to_string());
        if serial {
            command.arg("--serial");
        }
        // The proxy's greeting must not mix with the result lines; its errors stay visible.
        let mut guard = Guard::start("the proxy", command.stdout(Stdio::null()))?;
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            guard.still_running()?;
            ensure!(Instant::now() < end, "the proxy does not answer on port {port} after 20 s");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.guards.push(guard);
        self.ports.push(port);
        Ok(())
    }

    fn bases(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
    }

    fn usage(&self) -> Result<Usage> {
        self.guards.iter().map(|guard| Usage::of_family(guard.id())).sum()
    }

    fn resident_bytes(&self) -> Result<u64> {
        self.guards.iter().map(|guard| Ok(family_memory(guard.id())?.0)).sum()
    }
}

/// Reads the proxies' and the origin's figures at the marks of the load, and returns the load's
/// summary too.
fn watch(mut load: Guard, proxies: &Proxies, origin: &Origin) -> Result<Figures> {
    let output = load.take_output().context("the load has no output")?;
    let mut lines = BufReader::new(output).lines();
    let mut line = || lines.next().context("the load ended early; see above")?.context("the load printed no text");
    let mut seen_at = |word: &str| match line()? {
        found if found == word => Ok((proxies.usage()?, origin.requests())),
        other => bail!("the load said {other} instead of {word}"),
    };
    let (used_before, origin_before) = seen_at("begin")?;
    let (used, fetched) = seen_at("end")?;
    let resident = proxies.resident_bytes()?;
    let load: Summary = serde_json::from_str(&line()?).context("the load printed no result")?;
    let (usage, fetched) = (used.since(used_before), fetched - origin_before);
    check(&load)?;
    let known = |figure: Option<f64>| figure.context("the load printed no latency");
    Ok(Figures {
        // A fetch may start before the measured time, or end after it.
        hit_percent: 100.0 * (1.0 - fetched as f64 / load.requests as f64).max(0.0),
        origin_per_s: fetched as f64 / load.secs,
        rate_per_s: load.rate_per_s,
        mb_per_s: load.mb_per_s,
        cpu_us_per_request: usage.cpu.as_secs_f64() * 1e6 / load.requests as f64,
        p50_ms: known(load.p50_ms)?,
        p99_ms: known(load.p99_ms)?,
        resident_mb: resident as f64 / 1e6,
        errors: load.errors_total(),
        switches: Some(usage.switches(load.requests)),
        secs: load.secs,
    })
}

/// Checks that every answer was right.
fn check(load: &Summary) -> Result<()> {
    let example = || load.error_example.clone().unwrap_or_else(|| "no error".to_owned());
    ensure!(load.requests > 0, "nothing was answered while it was measured ({}): pass more --secs", example());
    ensure!(load.errors_total() == 0, "{} requests failed: {}", load.errors_total(), example());
    ensure!(load.compared == load.requests, "{} of {} bodies were compared", load.compared, load.requests);
    Ok(())
}
