//! The papers' experiments and the peers, in the same run.
//!
//! Every experiment checks its own result, interleaves the peers, so that a drifting machine treats
//! them alike, and exits non-zero if a check failed. `crates/bench/README.md` says how to run it
//! and describes the fields.

#![forbid(unsafe_code)]

mod asio;
mod chart;
mod colors;
mod experiment;
mod go;
mod idle;
mod insight;
mod io;
mod load;
mod machine;
mod measured;
mod memory;
mod output;
mod overload;
mod proxy;
mod reads;
mod regret;
mod rng;
mod services;
mod settings;
mod signserver;
mod soak;
mod stats;
mod store;
mod threads;
mod usage;
mod web;
mod words;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The papers' experiments and the peers, in the same run.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Callbacks that are serial per color and parallel across colors, compared with current
    /// alternatives
    Colors(colors::Args),
    /// Table 2 of the libasync-smp paper: the gain from each part of the scheduler
    Table2(colors::table2::Args),
    /// Whether a second worker ever hurts: every row of the other commands with one worker and with
    /// more, and a verdict
    Regret(regret::Args),
    /// Bytes per color, per handle and per waiting callback
    Memory(memory::Args),
    /// CPU time of a runtime without work
    Idle(idle::Args),
    /// The cost of recording callbacks: no recorder, one that is off, one that is on; and predictions of other numbers of
    /// workers, compared with what is measured
    Insight(insight::Args),
    /// `dapple serve` compared with nginx, Apache, hyper and Go: the papers' experiments, under
    /// `load`
    Web(web::Args),
    /// `dapple serve` over TCP of its own, compared with the kernel's, in network namespaces
    Net(web::NetArgs),
    /// Locked instructions of `dapple serve` for each request, with colors and with --serial, counted under valgrind
    Locks(web::LocksArgs),
    /// `dapple proxy`: one process with one cache, compared with as many copies with a share of it
    /// each
    Proxy(proxy::Args),
    /// Servers under more load than their capacity: goodput, latency and refusals under an open
    /// loop
    Overload(Box<overload::Args>),
    /// `dapple sign`, built four times: throughput and latency by load, and while one of two
    /// servers is killed and restarted
    Signserver(signserver::Args),
    /// The services: harvest and yield of `search` over time, while its partitions are killed and come back; `webtable` by
    /// the number of front ends and of hosts of the table
    Services(services::Args),
    /// Gain and cost of the runtime's settings of time: poll interval, time slice, share of events
    Settings(settings::Args),
    /// A load generator: closed and open loop, latency from the due time of a request, every body
    /// compared
    Load(Box<load::Args>),
    /// Random programs for hours: nothing lost, doubled, stuck or left behind
    Soak(soak::Args),
    /// The cost of a program written as threads: the experiments of PLDI 2007 and of Gribble,
    /// compared with the peers
    Threads(threads::Args),
    /// The figures of the I/O core: packets, round trips, cached and uncached reads
    Io(io::Args),
    /// Tables on disk, compared with their engines without Dapple
    Store(store::Args),
    /// One run of `store`, in a separate process
    #[command(hide = true)]
    StoreTrial(store::TrialArgs),
    /// One run of `colors`, in a separate process
    #[command(hide = true)]
    ColorsTrial(colors::TrialArgs),
    /// One run of `table2`, in a separate process
    #[command(hide = true)]
    Table2Trial(colors::table2::TrialArgs),
    /// One run of `memory`, in a separate process
    #[command(hide = true)]
    MemoryTrial(memory::TrialArgs),
    /// One run of `idle`, in a separate process
    #[command(hide = true)]
    IdleTrial(idle::TrialArgs),
    /// One run of `insight`, in a separate process
    #[command(hide = true)]
    InsightTrial(insight::TrialArgs),
    /// One run of `insight --only predictions`, in a separate process
    #[command(hide = true)]
    InsightPredict(insight::PredictArgs),
    /// One run of `threads`, in a separate process
    #[command(hide = true)]
    ThreadsTrial(threads::TrialArgs),
    /// One run of `io`, in a separate process
    #[command(hide = true)]
    IoTrial(io::TrialArgs),
    /// The client of `threads --only spectrum`
    #[command(hide = true)]
    SpectrumClient(threads::ClientArgs),
    /// One run of `web`, in a separate process
    #[command(hide = true)]
    WebTrial(web::TrialArgs),
    /// The flood of `net`
    #[command(hide = true)]
    SynFlood(web::FloodArgs),
    /// One run of `proxy`, in a separate process
    #[command(hide = true)]
    ProxyTrial(proxy::TrialArgs),
    /// A program with a known number of locked instructions, by which `locks` checks itself
    #[command(hide = true)]
    LocksKnown(web::KnownArgs),
    /// The hyper-on-tokio peer of `web`
    #[command(hide = true)]
    WebHyper(web::HyperArgs),
    /// The floor of `web`
    #[command(hide = true)]
    WebFloor(web::FloorArgs),
    /// One run of `overload`, in a separate process
    #[command(hide = true)]
    OverloadTrial(overload::TrialArgs),
    /// One run of `signserver`, in a separate process
    #[command(hide = true)]
    SignserverTrial(signserver::TrialArgs),
    /// The peers of `overload` with hyper on tokio
    #[command(hide = true)]
    OverloadHyper(overload::HyperArgs),
    /// Becomes another program that ends when this bench ends
    #[command(hide = true)]
    Launch(machine::LaunchArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Colors(args) => colors::run(&args),
        Command::Table2(args) => colors::table2::run(&args),
        Command::Regret(args) => regret::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Idle(args) => idle::run(&args),
        Command::Insight(args) => insight::run(&args),
        Command::InsightTrial(args) => insight::run_trial(&args),
        Command::InsightPredict(args) => insight::run_predict(&args),
        Command::Web(args) => web::run(&args),
        Command::WebTrial(args) => web::run_trial(&args),
        Command::Net(args) => web::run_net(&args),
        Command::SynFlood(args) => web::run_flood(&args),
        Command::Locks(args) => web::run_locks(&args),
        Command::LocksKnown(args) => web::run_known(&args),
        Command::Proxy(args) => proxy::run(&args),
        Command::ProxyTrial(args) => proxy::run_trial(&args),
        Command::WebHyper(args) => web::run_hyper(&args),
        Command::WebFloor(args) => web::run_floor(&args),
        Command::Overload(args) => overload::run(&args),
        Command::OverloadTrial(args) => overload::run_trial(&args),
        Command::OverloadHyper(args) => overload::run_hyper(&args),
        Command::Signserver(args) => signserver::run(&args),
        Command::SignserverTrial(args) => signserver::run_trial(&args),
        Command::Services(args) => services::run(&args),
        Command::Settings(args) => settings::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Threads(args) => threads::run(&args),
        Command::ThreadsTrial(args) => threads::run_trial(&args),
        Command::Io(args) => io::run(&args),
        Command::Store(args) => store::run(&args),
        Command::StoreTrial(args) => store::run_trial(&args),
        Command::IoTrial(args) => io::run_trial(&args),
        Command::SpectrumClient(args) => threads::run_client(&args),
        Command::Soak(args) => soak::run(&args),
        Command::ColorsTrial(args) => colors::run_trial(&args),
        Command::Table2Trial(args) => colors::table2::run_trial(&args),
        Command::MemoryTrial(args) => memory::run_trial(&args),
        Command::IdleTrial(args) => idle::run_trial(&args),
        Command::Launch(args) => machine::launch(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn whatever_saves_results_names_the_crates_that_it_measures() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in a folder");
        let mut saving = 0;
        for command in Cli::command().get_subcommands() {
            if command.get_arguments().any(|argument| argument.get_id() == "save") {
                saving += 1;
                let named = measured::crates(command.get_name());
                assert!(!named.is_empty(), "{} names no crate in measured.rs", command.get_name());
                for name in named {
                    assert!(crates.join(name).join("src").is_dir(), "there is no crate {name}");
                }
            }
        }
        assert!(saving >= 13, "{saving} commands");
    }
}
