//! `dapple proxy --to … --check`: whether the proxy would start, without starting it.

use std::io::{self, Write};

use super::{certificates, encryption};
use crate::config::Loaded;
use crate::observe::told;
use crate::proxy::args::Args;
use crate::proxy::error::ProxyError;
use crate::server::Tls;

/// Looks at all that the options name, and prints what would be used. Nobody is listened for, and no upstream is asked: one that is down
/// now may be there when it counts.
///
/// # Errors
///
/// The first thing that would keep the proxy from starting.
pub(super) fn check(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    for wanted in args.listen.wanted() {
        wanted.addrs()?;
    }
    told::check(&args.told)?;
    encryption(args)?;
    certificates(args)?.map(Tls::new).transpose()?;
    // A closed stdout leaves the exit code to say it.
    let _ = io::stdout().lock().write_all(loaded.show().as_bytes());
    Ok(())
}
