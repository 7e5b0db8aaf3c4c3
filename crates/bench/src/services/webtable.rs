//! Requests a second of `services/webtable` by the number of its front ends and of hosts of its table (section 8.3.3 of
//! Gribble's dissertation: 60 front ends and 16 bricks).
//!
//! Each front end and each host is a process. The load's clients are spread over the front ends, and compare each body.

use super::started;
use crate::load::Summary;
use crate::machine::{About, Guard, family_cpu, own_command};
use crate::output::Report;
use crate::stats::{Table, median};
use crate::words::{checked, verdict};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Arguments for `webtable`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Front ends of `webtable`, in turn
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4", value_name = "N,...")]
    fronts: Vec<usize>,
    /// Hosts of its table, in turn
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N,...")]
    tables: Vec<usize>,
    /// Clients of all its front ends together
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    service: &'static str,
    fronts: usize,
    tables: usize,
    connections: u32,
    run: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    figures: Option<Figures>,
    checked: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    rate_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Processor time for each request: of the front ends, of the hosts of the table, and of the load.
    front_us: f64,
    table_us: f64,
    load_us: f64,
}

/// The processes of one run.
struct Processes {
    fronts: Vec<(Guard, SocketAddr)>,
    tables: Vec<(Guard, SocketAddr)>,
}

pub(super) fn run(all_args: &super::Args, about: &About) -> Result<()> {
    let args = &all_args.webtable;
    let cases: Vec<(usize, usize)> =
        args.tables.iter().flat_map(|tables| args.fronts.iter().map(|fronts| (*tables, *fronts))).collect();
    let all = all_args.output.repeat(
        all_args.runs,
        |run| cases.iter().map(|(tables, fronts)| (*tables, *fronts, run)).collect(),
        |(tables, fronts, _)| (format!("{tables} hosts of the table"), format!("{fronts} front ends")),
        |(tables, fronts, run)| {
            let figures = measure(*fronts, *tables, args.connections, all_args.secs);
            let problem = figures.as_ref().err().map(|error| format!("{error:#}"));
            Measured {
                service: "webtable",
                fronts: *fronts,
                tables: *tables,
                connections: args.connections,
                run: *run,
                figures: figures.ok(),
                checked: problem.is_none(),
                problem,
            }
        },
    )?;
    all_args.output.end(about, &report(&all, &cases, all_args))?;
    verdict(&all, |run| {
        Some(format!("{} front ends, {} hosts, run={}: {}", run.fronts, run.tables, run.run, run.problem.as_ref()?))
    })
}

fn measure(fronts: usize, tables: usize, connections: u32, secs: f64) -> Result<Figures> {
    let folder = tempfile::tempdir().context("cannot make a folder for the stores")?;
    let site = folder.path().join("site");
    let processes = Processes::start(folder.path(), fronts, tables)?;
    fill(&site, processes.fronts[0].1)?;
    let mut load = own_command("load")?;
    load.args(processes.fronts.iter().map(|(_, address)| format!("http://{address}")));
    load.arg("--expect").arg(&site).args(["--json", "--marks", "--connections", &connections.to_string()]);
    load.args(["--secs", &secs.to_string(), "--warm-up-secs", "1"]);
    let mut load = Guard::start("the load", load.stdout(Stdio::piped()))?;
    let mut lines = BufReader::new(load.take_output().context("its output is piped")?).lines();
    let mut line = || lines.next().context("the load ended early; see above")?.context("the load printed no text");
    let mut cpu_at = |word: &str| match line()? {
        found if found == word => processes.cpu_us(),
        other => bail!("the load said {other} instead of {word}"),
    };
    let (begin, end) = (cpu_at("begin")?, cpu_at("end")?);
    let load: Summary = serde_json::from_str(&line()?).context("the load printed no result")?;
    let example = || load.error_example.clone().unwrap_or_default();
    ensure!(load.errors.is_empty(), "{:?}: {}", load.errors, example());
    ensure!(load.requests > 0, "nothing was answered while it was measured");
    ensure!(load.compared == load.requests, "{} of {} bodies were compared", load.compared, load.requests);
    let known = |figure: Option<f64>| figure.context("the load printed no latency");
    Ok(Figures {
        rate_per_s: load.rate_per_s,
        p50_ms: known(load.p50_ms)?,
        p99_ms: known(load.p99_ms)?,
        front_us: (end.0 - begin.0) / load.requests as f64,
        table_us: (end.1 - begin.1) / load.requests as f64,
        load_us: load.own_cpu_us,
    })
}

impl Processes {
    fn start(folder: &Path, fronts: usize, tables: usize) -> Result<Processes> {
        let token = folder.join("token");
        std::fs::write(&token, TOKEN)?;
        let table = |number: usize| {
            let store = format!("redb:{}", folder.join(format!("store-{number}")).display());
            started("webtable", &["table", "--listen", "127.0.0.1:0", "--store", &store])
        };
        let tables = (0..tables).map(table).collect::<Result<Vec<_>>>()?;
        let addresses: Vec<String> = tables.iter().map(|(_, address)| address.to_string()).collect();
        let addresses = addresses.join(",");
        let token = token.to_string_lossy();
        let front = ["front", "--listen", "127.0.0.1:0", "--tables", &addresses, "--token-file", &token];
        let fronts = (0..fronts).map(|_| started("webtable", &front)).collect::<Result<Vec<_>>>()?;
        Ok(Processes { fronts, tables })
    }

    /// The processor time of the front ends and of the hosts so far, in microseconds.
    fn cpu_us(&self) -> Result<(f64, f64)> {
        let sum = |all: &[(Guard, SocketAddr)]| {
            let each = all.iter().map(|(process, _)| Ok(family_cpu(process.id())?.as_secs_f64() * 1e6));
            each.sum::<Result<f64>>()
        };
        Ok((sum(&self.fronts)?, sum(&self.tables)?))
    }
}

/// Makes the files, and uploads them.
fn fill(site: &Path, front: SocketAddr) -> Result<()> {
    std::fs::create_dir(site)?;
    for number in 0..FILES {
        let name = format!("{number}.txt");
        let mut body = String::new();
        while body.len() < FILE_LEN {
            body += &format!("file {number}, byte {}\n", body.len());
        }
        body.truncate(FILE_LEN);
        std::fs::write(site.join(&name), &body)?;
        let mut stream = TcpStream::connect(front)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(
            stream,
            "PUT /{name} HTTP/1.1\r\nHost: {front}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {FILE_LEN}\r\n\r\n{body}"
        )?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        ensure!(reply.starts_with("HTTP/1.1 201 "), "the upload of {name} failed: {reply}");
    }
    Ok(())
}

const LEGEND: &str = "\
Medians of the runs. Each front end and each host of the table is a process of `services/webtable`, and all share the machine with the
load, so that its cores bound the sum: read the processor time for each request, and not the rate, for what further machines would add.
200 files of 4 KiB, all equally frequent, over connections that are kept; each answer is one question of a front end to a host. Every body
is compared byte for byte.";

fn report(all: &[Measured], cases: &[(usize, usize)], args: &super::Args) -> Report {
    let head = ["hosts", "front ends", "requests/s", "p50 ms", "p99 ms", "front us", "table us", "load us", "checked"];
    let mut table = Table::new(&head);
    for (tables, fronts) in cases {
        let own = all.iter().filter(|run| run.tables == *tables && run.fronts == *fronts);
        let figures: Vec<&Figures> = own.clone().filter_map(|run| run.figures.as_ref()).collect();
        let middle = |figure: fn(&Figures) -> f64| median(&figures.iter().map(|of| figure(of)).collect::<Vec<f64>>());
        table.row(vec![
            tables.to_string(),
            fronts.to_string(),
            format!("{:.0}", middle(|of| of.rate_per_s)),
            format!("{:.2}", middle(|of| of.p50_ms)),
            format!("{:.2}", middle(|of| of.p99_ms)),
            format!("{:.0}", middle(|of| of.front_us)),
            format!("{:.0}", middle(|of| of.table_us)),
            format!("{:.0}", middle(|of| of.load_us)),
            checked(own.map(|run| run.checked)),
        ]);
    }
    Report {
        runs: format!("{} of {} s", args.runs, args.secs),
        tables: vec![(format!("webtable: {} clients", args.webtable.connections), table)],
        legend: LEGEND,
    }
}

const FILES: usize = 200;
const FILE_LEN: usize = 4096;
const TOKEN: &str = "0123456789abcdef";
