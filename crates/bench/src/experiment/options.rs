//! The common options of all experiments, and how they run.

use super::{BlockFile, Peer, Session};
use crate::chart::make_plot_folder;
use crate::go::GoPeers;
use crate::output::Output;
use crate::words::{check_secs, name};
use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};

/// The flags that all experiments share.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    #[command(flatten)]
    output: Output,
    /// The peers (default: all)
    #[arg(long, value_delimiter = ',', value_name = "PEER,...")]
    peer: Vec<Peer>,
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Repetitions; the peers take turns within each
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Seconds measured per run, if time ends it
    #[arg(long, default_value_t = 1.0)]
    secs: f64,
    /// Also write SVG files to this folder
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Folder for the file to read, if there is one; not in memory
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Megabytes (2^20) of that file
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    file_mb: u64,
}

/// An experiment's name and its peers.
pub(crate) type Offer = (String, &'static [Peer]);

impl Options {
    pub(crate) fn workers(&self) -> Vec<usize> {
        self.workers.iter().map(|&workers| usize::from(workers)).collect()
    }

    /// The folder of measured files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Prepares everything, and lets `experiments` run; it returns the number of trials. An error
    /// if a check failed.
    pub(crate) fn run(
        &self,
        trial_command: &'static str,
        offered: &[Offer],
        reads_file: bool,
        experiments: impl FnOnce(&Session, &mut Vec<String>) -> Result<usize>,
    ) -> Result<()> {
        let mut blocks = None;
        let prepare = || {
            blocks = reads_file.then(|| BlockFile::write(&self.folder, self.file_mb)).transpose()?;
            Ok(blocks.as_ref().map(BlockFile::path).unwrap_or_default())
        };
        self.run_with(trial_command, offered, prepare, experiments)
    }

    /// As `run`; `prepare` makes the files for the trials, after the arguments have been checked.
    pub(crate) fn run_with(
        &self,
        trial_command: &'static str,
        offered: &[Offer],
        prepare: impl FnOnce() -> Result<PathBuf>,
        experiments: impl FnOnce(&Session, &mut Vec<String>) -> Result<usize>,
    ) -> Result<()> {
        check_secs(self.secs, 600.0)?;
        check_peers(&self.peer, offered)?;
        if let Some(folder) = &self.plot {
            make_plot_folder(folder)?;
        }
        let about = self.output.begin()?;
        let file = prepare()?;
        let go = GoPeers::build_for(&self.peer, offered);
        let session = Session {
            output: &self.output,
            about: &about,
            trial_command,
            peers: &self.peer,
            runs: self.runs,
            secs: self.secs,
            file,
            go_program: go.as_ref().map(GoPeers::program),
            plot: self.plot.clone(),
        };
        let mut failures = Vec::new();
        let trials = experiments(&session, &mut failures)?;
        ensure!(trials > 0, "no trial was run: the reasons are above");
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        Ok(())
    }
}

/// An error if a requested peer takes part in none of the experiments.
fn check_peers(asked: &[Peer], offered: &[Offer]) -> Result<()> {
    for peer in asked {
        if offered.iter().all(|(_, peers)| !peers.contains(peer)) {
            let names = |peers: &[Peer]| peers.iter().map(|peer| name(*peer)).collect::<Vec<_>>().join(", ");
            let lists: Vec<String> =
                offered.iter().map(|(experiment, peers)| format!("{experiment} has {}", names(peers))).collect();
            bail!("--peer {} takes no part in what is run: {}", name(*peer), lists.join("; "));
        }
    }
    Ok(())
}
