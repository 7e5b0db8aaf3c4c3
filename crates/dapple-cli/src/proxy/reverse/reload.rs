//! Reading again, on SIGHUP, what can change while the proxy runs: its upstreams, and its certificates. What is broken stays as it was,
//! and what cannot change is said.

use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use dapple::blocking::spawn_blocking;
use tracing::{error, info, warn};

use super::misuse::belongs_together;
use super::reverse::Reverse;
use crate::config::{Loaded, Problems, load_again};
use crate::proxy::args::Args;
use crate::server::Tls;

/// What a reload needs.
pub(super) struct Reload {
    pub(super) reverse: Arc<Reverse>,
    /// What was read at the start.
    pub(super) first: Loaded,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Reload {
    /// Reads the file and the certificates. The access log is opened anew elsewhere.
    pub(super) async fn run(&mut self) {
        if self.first.sections.is_any() {
            match spawn_blocking(read).await {
                Ok(Ok((loaded, args))) => self.apply(&loaded, &args),
                Ok(Err(problem)) => error!("the upstreams stay as they were: {problem}"),
                Err(error) => error!("the upstreams stay as they were: {error}"),
            }
        }
        if let Some(tls) = &self.tls {
            match tls.reload().await {
                Ok(()) => info!("the certificates were read again"),
                Err(error) => error!("the certificates stay as they were: {error}"),
            }
        }
    }

    fn apply(&self, loaded: &Loaded, args: &Args) {
        self.reverse.set_upstreams(&args.reverse.to);
        let upstreams = self.reverse.list.all().len();
        info!(upstreams, "the upstreams were read again");
        // `config` names the file that was just read.
        for option in self.first.changed(loaded).into_iter().filter(|option| !["to", "config"].contains(option)) {
            warn!(
                option,
                "this option has changed, and counts only from the start on: restart, or send SIGUSR2, which leaves no gap"
            );
        }
    }
}

/// The same words and variables, and the file as it is now. Blocks.
fn read() -> Result<(Loaded, Box<Args>), String> {
    let loaded = load_again(crate::Cli::command(), std::env::args_os().collect(), std::env::vars_os());
    let loaded = loaded.map_err(|problems| problems.to_string())?;
    let matches = loaded.matches.subcommand_matches("proxy").unwrap_or(&loaded.matches);
    let args = Args::from_arg_matches(matches).map_err(|error| Problems::words(&error).to_string())?;
    if args.reverse.to.is_empty() {
        return Err("`to` names no upstream any more; a reverse proxy needs one".to_owned());
    }
    belongs_together(&args, &loaded).map_err(|error| error.to_string())?;
    Ok((loaded, Box::new(args)))
}
