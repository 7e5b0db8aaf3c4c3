//! Reads again, on SIGHUP, the upstreams and the certificates. Broken settings leave the old ones
//! in place, and changed options that need a restart are logged.

use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use dapple::blocking::spawn_blocking;
use tracing::{error, info, warn};

use super::misuse::belongs_together;
use super::reverse::Reverse;
use crate::config::{Loaded, Problems, load_again};
use crate::proxy::args::Args;
use crate::server::Tls;

/// The state that a reload needs.
pub(super) struct Reload {
    pub(super) reverse: Arc<Reverse>,
    /// The options at the start.
    pub(super) first: Loaded,
    pub(super) tls: Option<Arc<Tls>>,
}

impl Reload {
    /// Reads the file and the certificates. Other code reopens the access log.
    pub(super) async fn run(&mut self) {
        if self.first.sections.is_any() {
            match spawn_blocking(read).await {
                Ok(Ok((loaded, args))) => self.apply(&loaded, &args),
                Ok(Err(problem)) => error!("the upstreams stay unchanged: {problem}"),
                Err(error) => error!("the upstreams stay unchanged: {error}"),
            }
        }
        if let Some(tls) = &self.tls {
            match tls.reload().await {
                Ok(()) => info!("read the certificates again"),
                Err(error) => error!("the certificates stay unchanged: {error}"),
            }
        }
    }

    fn apply(&self, loaded: &Loaded, args: &Args) {
        self.reverse.set_upstreams(&args.reverse.to);
        let upstreams = self.reverse.list.all().len();
        info!(upstreams, "read the upstreams again");
        // `config` names the file that was just read.
        for option in self.first.changed(loaded).into_iter().filter(|option| !["to", "config"].contains(option)) {
            warn!(
                option,
                "this option has changed, and takes effect at the next start: restart, or send SIGUSR2 to restart \
                without a gap"
            );
        }
    }
}

/// Reads the options again: the same command line and variables, and the current file. Blocks.
fn read() -> Result<(Loaded, Box<Args>), String> {
    let loaded = load_again(crate::Cli::command(), std::env::args_os().collect(), std::env::vars_os());
    let loaded = loaded.map_err(|problems| problems.to_string())?;
    let matches = loaded.matches.subcommand_matches("proxy").unwrap_or(&loaded.matches);
    let args = Args::from_arg_matches(matches).map_err(|error| Problems::words(&error).to_string())?;
    if args.reverse.to.is_empty() {
        return Err("`to` no longer names an upstream; a reverse proxy needs one".to_owned());
    }
    belongs_together(&args, &loaded).map_err(|error| error.to_string())?;
    Ok((loaded, Box::new(args)))
}
