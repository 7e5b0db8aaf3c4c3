//! Options that do not go together: those of a forward proxy and those of a reverse one.

use super::args::{FORWARD_ONLY, REVERSE_ONLY};
use crate::config::Loaded;
use crate::proxy::args::Args;
use crate::proxy::error::ProxyError;

/// Looks whether all options that were given mean something.
///
/// # Errors
///
/// The first that means nothing here, where it was given, and what to do.
pub(in crate::proxy) fn belongs_together(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    let is_reverse = !args.reverse.to.is_empty();
    let strange: &[&str] = if is_reverse { &FORWARD_ONLY } else { &REVERSE_ONLY };
    let given = strange.iter().find_map(|option| Some((option.replace('_', "-"), loaded.given(option)?)));
    let Some((option, place)) = given else { return caches(args, loaded) };
    let problem = match is_reverse {
        true => {
            let why = match option.as_str() {
                "forwarded" => "with --to it is always so (unless --no-forwarded is given)",
                "no-status" => "with --to all paths are the servers' own",
                _ => "a reverse proxy (--to) reaches the servers that it is given, and no others",
            };
            format!("--{option} ({place}) is for a forward proxy only: {why}; leave it out")
        }
        false => {
            let example = "for example `dapple proxy --to http://127.0.0.1:9000`";
            format!(
                "--{option} ({place}) is for a reverse proxy only; say with --to which servers it is for, {example}"
            )
        }
    };
    Err(ProxyError::Misuse(problem))
}

/// Looks whether there is a cache, where its options were given.
fn caches(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    match loaded.given("object_max_kb") {
        Some(place) if args.cache.mb(!args.reverse.to.is_empty()) == 0 => Err(ProxyError::Misuse(format!(
            "--object-max-kb ({place}) is for a cache, and there is none; say with --cache-mb how large it is, for example `--cache-mb 256`"
        ))),
        _ => Ok(()),
    }
}
