//! Peers in other languages: separate programs that get a trial's parameters, and print its
//! measurements.

use super::case::Peer;
use super::trial::TrialArgs;
use crate::asio;
use crate::go::GoPeers;
use crate::machine::bound_to;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// The programs that could be built.
#[derive(Default)]
pub(crate) struct Outside {
    go: Option<GoPeers>,
    asio: Option<PathBuf>,
}

/// The program that holds a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// A peer in Go, by its name there.
    Go(&'static str),
    Asio,
}

impl Outside {
    /// Builds the programs of these peers. On a failure, prints the reason to standard error.
    pub(crate) fn build_for(peers: &[Peer]) -> Outside {
        let needs = |wanted: fn(Program) -> bool| peers.iter().filter_map(|peer| peer.program()).any(wanted);
        let failed = |what, error: anyhow::Error| eprintln!("left out: the peers {what}: {error:#}");
        let go = needs(|program| program != Program::Asio).then(GoPeers::build);
        let asio = needs(|program| program == Program::Asio).then(asio::build);
        Outside {
            go: go.and_then(|go| go.map_err(|error| failed("in Go", error)).ok()),
            asio: asio.and_then(|asio| asio.map_err(|error| failed("on Boost.Asio", error)).ok()),
        }
    }

    /// Whether the peer can be run here.
    pub(crate) fn runs(&self, peer: Peer) -> bool {
        match peer.program() {
            None => true,
            Some(Program::Go(_)) => self.go.is_some(),
            Some(Program::Asio) => self.asio.is_some(),
        }
    }

    /// The command for a trial of the peer, without the sizes; `None` for peers of this program.
    pub(crate) fn command(&self, trial: &TrialArgs) -> Result<Option<Command>> {
        let workers = trial.workers.to_string();
        let command = match trial.peer.program() {
            None => return Ok(None),
            Some(Program::Go(form)) => {
                let mut command = bound_to(&self.go.as_ref().context("no Go program was built")?.program(), &[])?;
                command.args(["colors", "--form", form]).env("GOMAXPROCS", workers);
                command
            }
            Some(Program::Asio) => {
                let mut command = bound_to(self.asio.as_ref().context("no C++ program was built")?, &[])?;
                command.args(["--workers", &workers]);
                command
            }
        };
        Ok(Some(command))
    }
}
