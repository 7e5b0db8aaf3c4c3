//! Reads again, on SIGHUP, what can change while the server runs. Broken settings leave the old
//! ones in place, and changed options that need a restart are logged.

use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use dapple::blocking::spawn_blocking;
use tracing::{error, info, warn};

use super::args::Args;
use super::front::Front;
use super::rules::Rules;
use super::site::Site;
use crate::config::{Loaded, Problems, load_again};
use crate::server::{AdmissionLimits, Tls, connection_limits};

/// The state that a reload needs.
pub(super) struct Reload {
    pub(super) site: Arc<Site>,
    /// The options at the start.
    pub(super) first: Loaded,
    pub(super) tls: Option<Arc<Tls>>,
    /// How long the end may take.
    pub(super) drain: Duration,
}

impl Reload {
    /// Reads the file and the certificates. Other code reopens the access log.
    pub(super) async fn run(&mut self, front: &Front) {
        if self.first.sections.is_any() {
            match spawn_blocking(read).await {
                Ok(Ok(news)) => self.apply(news).await,
                Ok(Err(problems)) => error!("options and rules stay unchanged: {problems}"),
                Err(error) => error!("options and rules stay unchanged: {error}"),
            }
        }
        if let Some(tls) = &self.tls {
            match tls.reload().await.map(|()| front.renew()) {
                Ok(Ok(())) => info!("read the certificates again"),
                Ok(Err(error)) => error!("the certificates of HTTP/3 stay unchanged: {error}"),
                Err(error) => error!("the certificates stay unchanged: {error}"),
            }
        }
    }

    async fn apply(&mut self, (loaded, args, rules): News) {
        self.drain = args.limits.drain();
        self.site.set_options(connection_limits(&args.connection), args.files.list, !args.files.no_compress);
        let log = self.site.observing.sinks().and_then(|sinks| sinks.log.as_ref());
        let is_logged = log.zip(args.told.access_log.as_ref()).map(|(log, path)| {
            log.set_format(args.told.access_log_format);
            log.reopen_at(path);
        });
        self.site.set_rules(rules).await;
        info!("read options and rules again");
        // A reload cannot start or end a log, only move it.
        let is_applied = |option: &str| APPLIED.contains(&option) || (option == "access_log" && is_logged.is_some());
        for option in self.first.changed(&loaded).into_iter().filter(|option| !is_applied(option)) {
            warn!(
                option,
                "this option has changed, and takes effect at the next start: restart, or send SIGUSR2 to restart \
                without a gap"
            );
        }
    }
}

type News = (Loaded, Box<Args>, Rules);

/// Reads the options again: the same command line and variables, and the current file. Blocks.
fn read() -> Result<News, Problems> {
    let loaded = load_again(crate::Cli::command(), std::env::args_os().collect(), std::env::vars_os())?;
    let rules = loaded.sections.read()?;
    let matches = loaded.matches.subcommand_matches("serve").unwrap_or(&loaded.matches);
    let args = Args::from_arg_matches(matches).map_err(|error| Problems::words(&error))?;
    Ok((loaded, Box::new(args), rules))
}

/// Options that a reload applies; those of connections apply to later connections.
const APPLIED: [&str; 15] = [
    "head_max_kb",
    "target_max_kb",
    "fields_max",
    "head_timeout_s",
    "idle_timeout_s",
    "pause_timeout_s",
    "request_timeout_s",
    "receive_rate_min",
    "send_rate_min",
    "rate_grace_s",
    "drain_s",
    "list",
    "no_compress",
    "access_log_format",
    // Names the file that was just read.
    "config",
];
