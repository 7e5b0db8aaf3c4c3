//! URLs of stores.

use std::path::PathBuf;

use clap::ValueEnum;

use super::engine::EngineKind;

/// The place of a store, as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct StoreUrl {
    pub(super) kind: EngineKind,
    pub(super) directory: PathBuf,
}

/// Parses `redb:DIR` and `fjall:DIR`, for clap.
pub(super) fn store_url(text: &str) -> Result<StoreUrl, String> {
    let known = "a store is `redb:DIR` or `fjall:DIR`, where DIR is the directory with its files";
    let Some((engine, place)) = text.split_once(':') else { return Err(known.to_owned()) };
    let Ok(kind) = EngineKind::from_str(engine, false) else {
        return Err(format!("there is no engine `{engine}`; {known}"));
    };
    let place = place.strip_prefix("//").unwrap_or(place);
    if place.is_empty() {
        return Err(format!("the directory is missing; {known}"));
    }
    let directory = PathBuf::from(place);
    let other = EngineKind::value_variants().iter().find(|other| **other != kind && other.is_in(&directory));
    match other.and_then(EngineKind::to_possible_value) {
        Some(other) => Err(format!("{place} holds a store of {0}: name it `{0}:{place}`", other.get_name())),
        None => Ok(StoreUrl { kind, directory }),
    }
}
