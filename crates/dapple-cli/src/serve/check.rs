//! `dapple serve --check`: checks whether the server would start, without starting it.

use std::io::{self, Write};

use tracing::warn;

use super::args::Args;
use super::disk::Root;
use super::error::ServeError;
use super::rules::Rules;
use crate::config::Loaded;
use crate::observe::told;
use crate::server::Tls;

/// Checks everything that the options name, and prints the settings in use. Does not listen, so it
/// does not detect a port that is taken, and can run before a restart.
///
/// # Errors
///
/// The first problem that would keep the server from starting.
pub(crate) fn check(args: &Args, rules: &Rules, loaded: &Loaded) -> Result<(), ServeError> {
    let root = Root::open(&args.dir, args.files.follow).map_err(|error| ServeError::dir(&args.dir, error))?;
    drop(root);
    for key in rules.error_page_keys().filter(|key| !args.dir.join(key).is_file()) {
        warn!(file = key, "this error page is not in the directory; the built-in page is sent instead");
    }
    for wanted in args.listen.wanted().into_iter().chain(args.tls.redirect()) {
        wanted.addrs()?;
    }
    args.listen.net.check().map_err(ServeError::Runtime)?;
    told::check(&args.told)?;
    args.tls.source(&args.listen)?.map(Tls::new).transpose()?;
    // With a closed stdout, the exit code still tells the result.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
