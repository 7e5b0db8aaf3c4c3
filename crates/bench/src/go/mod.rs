//! The peers in Go: one small program, in this folder, which the bench builds if `go` is installed.

use crate::experiment::{Answer, Peer, Trial};
use crate::machine::run_apart;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The built program, in a folder that is removed when this value is dropped.
pub(crate) struct GoPeers {
    folder: tempfile::TempDir,
}

impl GoPeers {
    /// Builds the program if one of the experiments has a requested Go peer. On failure, prints the
    /// reason to standard error.
    pub(crate) fn build_for(asked: &[Peer], offered: &[(String, &[Peer])]) -> Option<GoPeers> {
        let asked = asked.is_empty() || asked.iter().any(|peer| peer.is_go());
        if !asked || !offered.iter().flat_map(|(_, peers)| *peers).any(|peer| peer.is_go()) {
            return None;
        }
        GoPeers::build().inspect_err(|error| eprintln!("go is left out: {error:#}")).ok()
    }

    pub(crate) fn build() -> Result<GoPeers> {
        let folder = tempfile::tempdir().context("cannot make a folder for the Go program")?;
        for (file, text) in SOURCES {
            std::fs::write(folder.path().join(file), text).context("cannot write the Go program")?;
        }
        let mut command = Command::new("go");
        command.args(["build", "-o", PROGRAM, "."]).current_dir(folder.path());
        // Go downloads nothing: the program needs only the standard library.
        command.env("GOFLAGS", "").env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("CGO_ENABLED", "0");
        let output = command.output();
        let output = output.context("cannot start `go`; https://go.dev/doc/install tells how to get it")?;
        if !output.status.success() {
            bail!("`go build` failed:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(GoPeers { folder })
    }

    /// The program's path.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join(PROGRAM)
    }
}

/// Runs a trial in the Go program, which gets the same JSON, and prints the figures or the error.
pub(crate) fn measure<C: Serialize, F: DeserializeOwned>(
    trial: &Trial<C>,
    workers: usize,
    limit: Duration,
) -> Result<F> {
    let program = trial.go_program.as_deref().context("no Go program was built")?;
    let answer: Answer<F> = run_apart(command(program, trial, workers)?, limit)?;
    match answer.problem {
        Some(problem) => bail!(problem),
        None => answer.figures.context("the Go program printed no figures"),
    }
}

fn command<C: Serialize>(program: &Path, trial: &Trial<C>, workers: usize) -> Result<Command> {
    let mut command = crate::machine::bound_to(program, &[])?;
    command.arg(serde_json::to_string(trial)?).env("GOMAXPROCS", workers.to_string());
    Ok(command)
}

const PROGRAM: &str = "peers";

const SOURCES: &[(&str, &str)] = &[
    ("go.mod", "module peers\n\ngo 1.22\n"),
    ("main.go", include_str!("main.go")),
    ("colors.go", include_str!("colors.go")),
    ("fairness.go", include_str!("fairness.go")),
    ("fifo.go", include_str!("fifo.go")),
    ("memory.go", include_str!("memory.go")),
    ("spin.go", include_str!("spin.go")),
    ("timers.go", include_str!("timers.go")),
    ("web.go", include_str!("web.go")),
];
