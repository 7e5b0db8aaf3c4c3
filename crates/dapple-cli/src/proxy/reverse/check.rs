//! `dapple proxy --to … --check`: checks whether the proxy would start, without starting it.

use std::io::{self, Write};

use super::{certificates, encryption};
use crate::config::Loaded;
use crate::observe::told;
use crate::proxy::args::Args;
use crate::proxy::error::ProxyError;
use crate::server::Tls;

/// Checks everything that the options name, and prints the settings in use. Does not listen, and
/// connects to no upstream: one that is down now may be up later.
///
/// # Errors
///
/// The first problem that would keep the proxy from starting.
pub(super) fn check(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    for wanted in args.listen.wanted() {
        wanted.addrs()?;
    }
    told::check(&args.told)?;
    encryption(args)?;
    certificates(args)?.map(Tls::new).transpose()?;
    // With a closed stdout, the exit code still tells the result.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
