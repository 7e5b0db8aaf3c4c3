//! Pairs of threads that exchange messages over small pipes, while other threads wait on idle ones.
//! PLDI 2007, Figure 18.

mod floor;
mod peers;
mod talk;

use crate::experiment::{Column, Experiment, Peer, Plot, Seen, Trial, Window, workers_text};
use crate::go;
use crate::machine::{open_files_max, pin_to_cores};
use crate::usage::Switches;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use talk::Run;

/// The options of `bench threads --only fifo`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of fifo")]
pub(super) struct Flags {
    /// Pairs of threads that exchange messages of 32 KB over two pipes of 4 KB
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pairs: u16,
    /// Further threads, each of which waits on an idle descriptor of its own
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "0,1000,19000", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    idle: Vec<u32>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &idle in &self.idle {
            let case = |&workers| Case { pairs: usize::from(self.pairs), idle: idle as usize, workers };
            cases.extend(workers.iter().map(case));
        }
        cases
    }
}

pub(super) struct Fifo;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Pairs that exchange messages.
    pairs: usize,
    /// Threads that wait on idle descriptors.
    idle: usize,
    /// Kernel threads that run them; cores, if each is a kernel thread itself.
    workers: usize,
}

/// The case of the rows of `bench regret`, with this many idle threads.
pub(super) fn regret_case(idle: usize, workers: usize) -> Case {
    Case { pairs: 128, idle, workers }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Megabytes (10^6) received per second of wall-clock time.
    mb_per_s: f64,
    /// User and system time of the whole process per gigabyte (10^9).
    cpu_s_per_gb: f64,
    /// Messages received in the measured time.
    messages: u64,
    /// Context switches of the whole process per message.
    #[serde(flatten)]
    switches: Option<Switches>,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Fifo {
    const NAME: &'static str = "fifo";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::Tokio, Peer::Go, Peer::Pthreads, Peer::Epoll];
    const LEGEND: &'static str = "\
Medians. CPU is user and system time of the whole process. Each pair sends 32 KB there and 32 KB back, over pipes of 4 KB.
Each run checks every message (its number in each page, every sixteenth byte by byte), that as many were received as sent,
and that all idle threads still waited and saw the end of their pipe afterwards. pthreads with N workers: pinned to N cores.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        let case = trial.case;
        match trial.peer {
            Peer::Go => go::measure(trial, case.workers, Fifo::limit(trial)),
            peer => {
                if peer == Peer::Pthreads {
                    pin_to_cores(case.workers)?;
                }
                let run = Run::start(case, |run| peers::start(peer, run))?;
                let window = Window::of(trial.secs, || run.messages())?;
                run.finish()?;
                let mb = window.ops as f64 * talk::MESSAGE_LEN as f64 / 1e6;
                Ok(Figures {
                    mb_per_s: mb / window.secs,
                    cpu_s_per_gb: window.usage.cpu.as_secs_f64() / (mb / 1e3),
                    messages: window.ops,
                    switches: window.switches(),
                    secs: window.secs,
                })
            }
        }
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) =
            (of.messages as f64 / of.secs, of.cpu_s_per_gb * talk::MESSAGE_LEN as f64 / 1e3);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: None, switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(90.0 + trial.secs * 2.0)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        let (needed, most) = (case.pairs * 4 + case.idle + FILES_BESIDE, open_files_max());
        if needed > most {
            return Some(format!(
                "takes {needed} open files, and {most} are allowed: raise `ulimit -n`, or pass less --idle"
            ));
        }
        let threads = case.pairs * 2 + case.idle;
        (peer == Peer::Pthreads && threads > PTHREADS_MAX).then(|| {
            format!("the kernel's limit on mappings (vm.max_map_count) stands against {threads} of its threads")
        })
    }

    fn title(case: &Case) -> String {
        format!("fifo: {} pairs exchange 32 KB over pipes of 4 KB", case.pairs)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("idle", case.idle.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU s/GB", figure: |of| of.cpu_s_per_gb, decimals: 3 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: false,
            figure,
            x_title: "idle threads",
            x: |case: &Case| case.idle,
            part: |case: &Case| workers_text(case.workers),
        };
        vec![
            plot("rate", "MB per second", |of: &Figures| of.mb_per_s),
            plot("cpu", "CPU seconds per GB", |of: &Figures| of.cpu_s_per_gb),
        ]
    }
}

/// Open files besides the pipes.
const FILES_BESIDE: usize = 64;

/// The kernel's default limit of 65,530 mappings allows four for each thread.
const PTHREADS_MAX: usize = 16_000;
