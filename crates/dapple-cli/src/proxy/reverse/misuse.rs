//! Finds options that do not go together: those of a forward proxy and those of a reverse one.

use super::args::{FORWARD_ONLY, REVERSE_ONLY};
use crate::config::Loaded;
use crate::proxy::args::Args;
use crate::proxy::error::ProxyError;

/// Checks that all given options apply.
///
/// # Errors
///
/// The first option that does not apply, its source, and what to do.
pub(in crate::proxy) fn belongs_together(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    let is_reverse = !args.reverse.to.is_empty();
    let strange: &[&str] = if is_reverse { &FORWARD_ONLY } else { &REVERSE_ONLY };
    let given = strange.iter().find_map(|option| Some((option.replace('_', "-"), loaded.given(option)?)));
    let Some((option, place)) = given else { return caches(args, loaded) };
    let problem = match is_reverse {
        true => {
            let why = match option.as_str() {
                "forwarded" => "with --to this is always on (unless --no-forwarded is given)",
                "no-status" => "with --to all paths belong to the servers",
                _ => "a reverse proxy (--to) reaches only the servers that it is given",
            };
            format!("--{option} ({place}) is for a forward proxy only: {why}; leave it out")
        }
        false => {
            let example = "for example `dapple proxy --to http://127.0.0.1:9000`";
            format!("--{option} ({place}) is for a reverse proxy only; give its servers with --to, {example}")
        }
    };
    Err(ProxyError::Misuse(problem))
}

/// Checks that there is a cache if its options are given.
fn caches(args: &Args, loaded: &Loaded) -> Result<(), ProxyError> {
    match loaded.given("object_max_kb") {
        Some(place) if args.cache.mb(!args.reverse.to.is_empty()) == 0 => Err(ProxyError::Misuse(format!(
            "--object-max-kb ({place}) needs a cache, and there is none; set its size with --cache-mb, for example \
            `--cache-mb 256`"
        ))),
        _ => Ok(()),
    }
}
