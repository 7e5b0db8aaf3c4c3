//! `dapple proxy --check`: whether the proxy would start, without starting it.

use std::io::{self, Write};

use serde::Deserialize;

use super::args::Args;
use super::error::ProxyError;
use crate::config::Loaded;
use crate::observe::told;

/// What a file has beside options: nothing. A table that stands there is said to be wrong.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoTables {}

/// Looks at all that the options name, and prints what would be used. Nobody is listened for: a port that is taken is not found out,
/// so that a check can go before a restart.
///
/// # Errors
///
/// The first thing that would keep the proxy from starting.
pub(super) fn check(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    for wanted in args.listen.wanted() {
        for addr in wanted.addrs()? {
            args.allow.may_listen(addr)?;
        }
    }
    told::check(&args.told)?;
    // A closed stdout leaves the exit code to say it.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
