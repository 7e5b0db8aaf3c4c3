//! `dapple serve --check`: whether the server would start, without starting it.

use std::io::{self, Write};

use tracing::warn;

use super::args::Args;
use super::disk::Root;
use super::error::ServeError;
use super::rules::Rules;
use crate::config::Loaded;
use crate::observe::told;
use crate::server::Tls;

/// Looks at all that the options name, and prints what would be used. Nobody is listened for: a port that is taken is not found out,
/// so that a check can go before a restart.
///
/// # Errors
///
/// The first thing that would keep the server from starting.
pub(crate) fn check(args: &Args, rules: &Rules, loaded: &Loaded) -> Result<(), ServeError> {
    let root = Root::open(&args.dir, args.files.follow).map_err(|error| ServeError::dir(&args.dir, error))?;
    drop(root);
    for key in rules.error_page_keys().filter(|key| !args.dir.join(key).is_file()) {
        warn!(file = key, "this page for errors is not in the directory; the built-in page is sent in its place");
    }
    for wanted in args.listen.wanted().into_iter().chain(args.tls.redirect()) {
        wanted.addrs()?;
    }
    told::check(&args.told)?;
    args.tls.source(&args.listen)?.map(Tls::new).transpose()?;
    // A closed stdout leaves the exit code to say it.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
