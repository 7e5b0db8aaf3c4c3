//! Memory of threads that only yield, the rate of yields, and the rate at which threads are made.
//! PLDI 2007, section 5.1.
//!
//! All threads are alive and yield while memory and rate are measured. Then they end, and each
//! reports how often it yielded: the sum must be the count of their workers. A runtime may let some
//! threads yield more often than others; the table shows the least and the most.

mod peers;
mod tally;

use crate::experiment::{Column, Experiment, Peer, Plot, Trial, workers_text};
use crate::go;
use crate::machine::{available_memory_bytes, own_cpu, own_memory_bytes};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tally::TALLY;

/// The options of `bench threads --only memory`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of memory")]
pub(super) struct Flags {
    /// Numbers of threads; 100000000 take 5 GB and more
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1000000,10000000", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    threads: Vec<u32>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &threads in &self.threads {
            cases.extend(workers.iter().map(|&workers| Case { threads: threads as usize, workers }));
        }
        cases
    }
}

pub(super) struct Memory;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Threads that live at the same time.
    pub(super) threads: usize,
    /// Kernel threads that run them.
    pub(super) workers: usize,
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The growth of the process's anonymous resident memory, over the number of threads.
    bytes_per_thread: f64,
    /// Yields per second of wall-clock time.
    yields_per_s: f64,
    /// User and system time of the whole process per yield.
    cpu_ns_per_yield: f64,
    /// Threads made per second of wall-clock time, by as many threads as there are workers.
    spawns_per_s: f64,
    /// The yields of the thread with the fewest, over its whole life.
    yields_min: u64,
    /// The yields of the thread with the most.
    yields_max: u64,
    /// Threads without a single yield when all were told to end.
    never_ran: u64,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Memory {
    const NAME: &'static str = "memory";
    const PEERS: &'static [Peer] = &[
        Peer::Dapple,
        Peer::DappleColors,
        Peer::DappleTokioContext,
        Peer::Tokio,
        Peer::Smol,
        Peer::AsyncTask,
        Peer::Go,
    ];
    const LEGEND: &'static str = "\
Medians. bytes: growth of the process's anonymous resident memory over the number of threads, all alive and detached (no
handle is kept). CPU is user and system time of the whole process. Made by the public spawn, from inside of the runtime, by
as many threads as there are workers. min and max: how often the threads yielded that did so least and most often. Each run
checks that all threads were there, that none lost a yield, and, but for tokio, which may never get to some, that each ran.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        match trial.peer {
            Peer::Go => go::measure(trial, trial.case.workers, Memory::limit(trial)),
            _ => measure(trial.peer, trial.case, trial.secs),
        }
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(30.0 + trial.secs * 2.0 + trial.case.threads as f64 * 15e-6)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        let needed = case.threads as f64 * least_bytes(peer);
        let available = available_memory_bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
        (needed > available * 0.95).then(|| {
            let (needed, available) = (needed / 1e9, available / 1e9);
            format!("takes about {needed:.1} GB, and {available:.1} GB are available; pass fewer --threads")
        })
    }

    fn title(_: &Case) -> String {
        "memory: threads that do nothing but yield".to_owned()
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("threads", case.threads.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "M yields/s", figure: |of| of.yields_per_s / 1e6, decimals: 1 },
            Column { head: "CPU ns", figure: |of| of.cpu_ns_per_yield, decimals: 1 },
            Column { head: "bytes", figure: |of| of.bytes_per_thread, decimals: 1 },
            Column { head: "min", figure: |of| of.yields_min as f64, decimals: 0 },
            Column { head: "max", figure: |of| of.yields_max as f64, decimals: 0 },
            Column { head: "M spawns/s", figure: |of| of.spawns_per_s / 1e6, decimals: 2 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: true,
            figure,
            x_title: "threads",
            x: |case: &Case| case.threads,
            part: |case: &Case| workers_text(case.workers),
        };
        vec![
            plot("bytes", "bytes per thread", |of: &Figures| of.bytes_per_thread),
            plot("yields", "million yields per second", |of: &Figures| of.yields_per_s / 1e6),
        ]
    }
}

/// The least memory of a thread, which shows in advance that a trial cannot succeed.
fn least_bytes(peer: Peer) -> f64 {
    match peer {
        Peer::Tokio => 300.0,
        Peer::Smol => 110.0,
        Peer::AsyncTask => 64.0,
        Peer::Go => 2_500.0,
        _ => 40.0,
    }
}

fn measure(peer: Peer, case: Case, secs: f64) -> Result<Figures> {
    let start = peers::start(peer, case.workers)?;
    let all = case.threads as u64;
    let before = own_memory_bytes()?;
    let begin = Instant::now();
    start(case);
    TALLY.wait_for_made(all)?;
    let spawning = begin.elapsed();
    TALLY.wait_for_started(all, Duration::from_secs_f64(5.0 + all as f64 * 1e-6));
    std::thread::sleep(Duration::from_secs_f64(secs / 4.0));

    let (yields, cpu, begin) = (TALLY.yields(), own_cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(secs));
    let (yields, cpu) = (TALLY.yields() - yields, own_cpu() - cpu);
    let secs = begin.elapsed().as_secs_f64();
    let grown = own_memory_bytes()?.saturating_sub(before);
    let ended = TALLY.end(all)?;
    ensure!(yields > 0, "no thread yielded while it was measured: pass more --secs");
    ensure!(ended.never_ran == 0 || peer == Peer::Tokio, "{} threads never ran", ended.never_ran);
    Ok(Figures {
        bytes_per_thread: grown as f64 / all as f64,
        yields_per_s: yields as f64 / secs,
        cpu_ns_per_yield: cpu.as_nanos() as f64 / yields as f64,
        spawns_per_s: all as f64 / spawning.as_secs_f64(),
        yields_min: ended.least_yields,
        yields_max: ended.most_yields,
        never_ran: ended.never_ran,
        secs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_the_bench_takes_little_itself() {
        assert_eq!(size_of_val(&tally::run(smol::future::yield_now)), 8);
        assert_eq!(size_of_val(&tally::run(dapple::yield_now)), 8);
    }

    #[test]
    fn what_does_not_fit_into_memory_is_left_out() {
        let obstacle = |threads| Memory::obstacle(Peer::Go, &Case { threads, workers: 1 });
        assert_eq!(obstacle(1), None);
        assert!(obstacle(1 << 40).is_some_and(|why| why.contains("pass fewer --threads")));
    }
}
