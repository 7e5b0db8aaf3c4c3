//! URLs of stores.

use std::path::PathBuf;

use super::engine::{EngineKind, KNOWN};

/// The place of a store, as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct StoreUrl {
    pub(super) kind: EngineKind,
    pub(super) directory: PathBuf,
}

/// Parses `redb:DIR` and `fjall:DIR`, for clap.
pub(super) fn store_url(text: &str) -> Result<StoreUrl, String> {
    let Some((engine, place)) = text.split_once(':') else { return Err(KNOWN.to_owned()) };
    let kind = EngineKind::named(engine)?;
    let place = place.strip_prefix("//").unwrap_or(place);
    if place.is_empty() {
        return Err(format!("the directory is missing; {KNOWN}"));
    }
    let directory = PathBuf::from(place);
    match EngineKind::other_in(engine, &directory) {
        Some(other) => Err(format!("{place} holds a store of {other}: name it `{other}:{place}`")),
        None => Ok(StoreUrl { kind, directory }),
    }
}
