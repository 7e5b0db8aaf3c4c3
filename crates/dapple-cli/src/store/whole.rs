//! Commands for a whole store: they copy it, or change the number of its partitions.

use dapple::store::{AnyEngine, Copied, Store, StoreOptions, StoreUrl};
use serde_json::json;

use super::args::{Migration, Target};
use super::commands::{Done, print};
use super::error::CommandError;
use super::progress::Progress;
use super::{open, open_url, place};

/// Copies the store at `from` into a new one at `to`.
pub(super) async fn copy(from: &Target, to: &StoreUrl) -> Done {
    check_places(&from.url, to)?;
    let store = open(from, false).await?;
    let mut progress = Progress::new("keys copied");
    let engine = to.engine();
    let tell = |copied: Copied| progress.tell(copied.entries);
    let copied = store.checkpoint(engine, from.partitions.unwrap_or(0), tell).await?;
    progress.end();
    let json = json!({ "entries": copied.entries, "bytes": copied.bytes });
    print(from, &format!("{} keys copied to {}", copied.entries, place(to)), &json)
}

/// Refuses a copy of a store onto itself.
fn check_places(from: &StoreUrl, to: &StoreUrl) -> Done {
    let [source, copy] = [from, to].map(|url| url.directory().and_then(|directory| directory.canonicalize().ok()));
    if from == to || (source.is_some() && source == copy) {
        return Err(CommandError::SamePlace(place(to)));
    }
    Ok(())
}

/// Copies the copy at `from` into the command's store, which must be new.
pub(super) async fn restore(target: &Target, from: &StoreUrl) -> Done {
    let from = Target { url: from.clone(), json: target.json, partitions: target.partitions };
    copy(&from, &target.url).await
}

/// Gives a store more partitions, or fewer.
pub(super) async fn repartition(target: &Target, wanted: u32, is_split: bool) -> Done {
    let store = open(target, false).await?;
    let now = store.partitions() as u32;
    if (is_split && wanted <= now) || (!is_split && wanted >= now) {
        return Err(CommandError::Partitions { now, wanted });
    }
    let mut progress = Progress::new("keys copied");
    let copied = store.repartition(wanted, move |copied: Copied| progress.tell(copied.entries)).await?;
    let json = json!({ "partitions": wanted, "entries": copied.entries });
    print(
        target,
        &format!("{wanted} partition{}, {} keys moved", if wanted == 1 { "" } else { "s" }, copied.entries),
        &json,
    )
}

/// Copies a store to another engine or place, then compares the digests of all tables.
pub(super) async fn migrate(migration: &Migration) -> Done {
    let Migration { from, to, json, partitions } = migration;
    check_places(from, to)?;
    let source = Target { url: from.clone(), json: *json, partitions: *partitions };
    let store = open(&source, false).await?;
    let mut progress = Progress::new("keys copied");
    let tell = |copied: Copied| progress.tell(copied.entries);
    store.checkpoint(to.engine(), partitions.unwrap_or(0), tell).await?;
    progress.end();
    let copy: Store<AnyEngine> = open_url(to, StoreOptions::default()).await?;
    let mut tables = Vec::new();
    let mut text = String::new();
    for table in store.list().await {
        let (before, after) = (store.digest(&table.name).await?, copy.digest(&table.name).await?);
        if before != after {
            return Err(CommandError::Digest { table: table.name, before, after });
        }
        text += &format!("{}: {} keys, checksum {:08x}\n", table.name, after.entries, after.checksum);
        tables.push(json!({ "table": table.name, "entries": after.entries, "checksum": after.checksum }));
    }
    text += "the copy is complete; the old store is unchanged";
    print(&source, &text, &json!({ "tables": tables }))
}
