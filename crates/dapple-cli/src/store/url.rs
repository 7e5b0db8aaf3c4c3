//! URLs of stores.

use std::path::PathBuf;

/// The place of a store, as the command line names it.
#[derive(Clone, Debug)]
pub(super) struct StoreUrl {
    pub(super) directory: PathBuf,
}

/// The reader of `redb:DIR`, for clap.
pub(super) fn store_url(text: &str) -> Result<StoreUrl, String> {
    let known = "a store is `redb:DIR`, where DIR is the directory with its files";
    let Some((engine, place)) = text.split_once(':') else { return Err(known.to_owned()) };
    if engine != "redb" {
        return Err(format!("there is no engine `{engine}`; {known}"));
    }
    let place = place.strip_prefix("//").unwrap_or(place);
    if place.is_empty() {
        return Err(format!("the directory is missing; {known}"));
    }
    Ok(StoreUrl { directory: PathBuf::from(place) })
}
