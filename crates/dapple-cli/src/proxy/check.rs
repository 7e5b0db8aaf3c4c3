//! `dapple proxy --check`: checks whether the proxy would start, without starting it.

use std::io::{self, Write};

use serde::Deserialize;

use super::args::Args;
use super::error::ProxyError;
use crate::config::Loaded;
use crate::observe::told;

/// The tables of the file: none. Any table is reported as an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoTables {}

/// Checks everything that the options name, and prints the settings in use. Does not listen, so it
/// does not detect a port that is taken, and can run before a restart.
///
/// # Errors
///
/// The first problem that would keep the proxy from starting.
pub(super) fn check(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    for wanted in args.listen.wanted() {
        for addr in wanted.addrs()? {
            args.allow.may_listen(addr)?;
        }
    }
    told::check(&args.told)?;
    // With a closed stdout, the exit code still tells the result.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
