//! The commands on one store.

use std::io::{self, BufWriter, Write};
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use dapple::store::{AnyEngine, Durability, Error, Expect, Kind, Read, Refusal, Store, TableOptions};
use serde_json::json;

use super::args::{Action, Survives, TableTarget, Target};
use super::error::CommandError;
use super::text::escape;
use super::{TextTable, bench, bulk, open, whole};

pub(super) type Done = Result<(), CommandError>;

pub(super) async fn run(action: &Action) -> Done {
    match action {
        Action::Create { table, durability } => create(table, *durability).await,
        Action::List(target) => list(target).await,
        Action::Destroy(table) => Ok(open(&table.store, false).await?.destroy(&table.table).await?),
        Action::Get { table, key } => get(table, key).await,
        Action::Put { table, key, value, if_absent, if_version } => {
            let expect = match if_version {
                Some(version) => Some(Expect::Version(dapple::store::Version(*version))),
                None => if_absent.then_some(Expect::Absent),
            };
            put(table, key, value, expect).await
        }
        Action::Remove { table, key } => remove(table, key).await,
        Action::Scan { table, prefix, from, to, limit } => {
            let bound = |key: &Option<String>| key.clone().map(Bytes::from);
            let range = match prefix {
                Some(prefix) => (Bound::Included(Bytes::from(prefix.clone())), after_prefix(prefix.as_bytes())),
                None => (
                    bound(from).map_or(Bound::Unbounded, Bound::Included),
                    bound(to).map_or(Bound::Unbounded, Bound::Excluded),
                ),
            };
            scan(table, range, limit.unwrap_or(u64::MAX)).await
        }
        Action::Count(table) => {
            let count = existing(table).await?.count().await?;
            let json = json!({ "count": count });
            print(&table.store, &count.to_string(), &json)
        }
        Action::Load { table, file } => bulk::load(table, file).await,
        Action::Dump(table) => scan(table, (Bound::Unbounded, Bound::Unbounded), u64::MAX).await,
        Action::Stats(target) => stats(target).await,
        Action::Checkpoint { store, to } => whole::copy(store, to).await,
        Action::Restore { store, from } => whole::restore(store, from).await,
        Action::Split { store, wanted } => whole::repartition(store, *wanted, true).await,
        Action::Merge { store, wanted } => whole::repartition(store, *wanted, false).await,
        Action::Migrate(migration) => whole::migrate(migration).await,
        Action::Bench(args) => bench::run(args).await,
        Action::Serve(args) => super::server::run(args).await,
        Action::Verify(target) => {
            open(target, false).await?.verify().await?;
            print(target, "all files are whole", &json!({ "whole": true }))
        }
    }
}

async fn create(table: &TableTarget, survives: Survives) -> Done {
    let durability = match survives {
        Survives::Synced => Durability::Synced,
        Survives::Process => Durability::Process,
    };
    let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
    open(&table.store, true).await?.create_ordered::<Bytes, Bytes>(&table.table, options).await?;
    Ok(())
}

async fn existing(table: &TableTarget) -> Result<TextTable, CommandError> {
    Ok(open(&table.store, false).await?.ordered_table(&table.table).await?)
}

pub(super) async fn made_if_missing(store: &Store<AnyEngine>, name: &str) -> Result<TextTable, CommandError> {
    match store.ordered_table(name).await {
        Err(Error::NotApplied(Refusal::NoSuchTable(_))) => {}
        opened => return Ok(opened?),
    }
    match store.create_ordered(name, TableOptions::default()).await {
        Ok(table) => {
            eprintln!("dapple: created the table `{name}`");
            Ok(table)
        }
        Err(error) => Err(error.into()),
    }
}

async fn list(target: &Target) -> Done {
    let mut out = BufWriter::new(io::stdout().lock());
    for table in open(target, false).await?.list().await {
        let line = if target.json {
            json!({ "table": table.name, "ordered": table.ordered, "durability": word(table.durability) }).to_string()
        } else {
            table.name
        };
        writeln!(out, "{line}").map_err(CommandError::Output)?;
    }
    out.flush().map_err(CommandError::Output)
}

async fn get(table: &TableTarget, key: &str) -> Done {
    let found = existing(table).await?.get_versioned(&Bytes::from(key.to_owned()), Read::default()).await?;
    let found = found.ok_or_else(|| CommandError::NoValue(key.to_owned()))?;
    let json = json!({ "key": key, "value": escape(&found.value), "version": found.version.0 });
    print(&table.store, &escape(&found.value), &json)
}

async fn put(table: &TableTarget, key: &str, value: &str, expect: Option<Expect<Bytes>>) -> Done {
    let store = open(&table.store, true).await?;
    let table_handle = made_if_missing(&store, &table.table).await?;
    let (key, value) = (Bytes::from(key.to_owned()), Bytes::from(value.to_owned()));
    let written = match expect {
        Some(expect) => table_handle.cas(&key, expect, &value).await?,
        None => table_handle.put(&key, &value).await?,
    };
    if !table.store.json {
        return Ok(());
    }
    let previous = written.previous.map(|old| escape(&old.value));
    print(&table.store, "", &json!({ "version": written.version.0, "previous": previous }))
}

async fn remove(table: &TableTarget, key: &str) -> Done {
    let removed = existing(table).await?.remove(&Bytes::from(key.to_owned())).await?;
    let removed = removed.ok_or_else(|| CommandError::NoValue(key.to_owned()))?;
    print(&table.store, &escape(&removed.value), &json!({ "previous": escape(&removed.value) }))
}

async fn scan(table: &TableTarget, range: (Bound<Bytes>, Bound<Bytes>), limit: u64) -> Done {
    let mut entries = existing(table).await?.range(range)?;
    let mut out = BufWriter::new(io::stdout());
    for _ in 0..limit {
        let Some((key, found)) = entries.next().await? else { break };
        let (key, value) = (escape(&key), escape(&found.value));
        let written = if table.store.json {
            writeln!(out, "{}", json!({ "key": key, "value": value, "version": found.version.0 }))
        } else {
            writeln!(out, "{key}\t{value}")
        };
        written.map_err(CommandError::Output)?;
    }
    out.flush().map_err(CommandError::Output)
}

async fn stats(target: &Target) -> Done {
    let store = open(target, false).await?;
    let mut tables = Vec::new();
    for summary in store.list().await {
        let keys = match summary.kind {
            Kind::Ordered => Some(store.ordered_table::<Bytes, Bytes>(&summary.name).await?.count().await?),
            Kind::Hash => Some(store.table::<Bytes, Bytes>(&summary.name).await?.count().await?),
            _ => None,
        };
        tables.push(json!({ "table": summary.name, "keys": keys, "durability": word(summary.durability) }));
    }
    let bytes = target.url.directory().map(bytes_of);
    let mut text = format!("partitions  {}\n", store.partitions());
    text += &bytes.map_or_else(String::new, |bytes| format!("bytes       {bytes}\n"));
    for table in &tables {
        let word = |name: &str| table[name].as_str().unwrap_or_default();
        text += &format!("table       {}: {} keys, {}\n", word("table"), table["keys"], word("durability"));
    }
    let json = json!({ "partitions": store.partitions(), "bytes": bytes, "tables": tables });
    print(target, text.trim_end(), &json)
}

/// The bytes of all files of a directory, and of those in it: an engine may have a directory for each partition.
fn bytes_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let len = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_of(&entry.path()),
        found => found.map_or(0, |found| found.len()),
    };
    entries.map(len).sum()
}

fn word(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Process => "process",
        Durability::Memory => "memory",
    }
}

/// The end of the range of keys with this prefix.
fn after_prefix(prefix: &[u8]) -> Bound<Bytes> {
    let kept = prefix.iter().rposition(|byte| *byte < 0xff);
    kept.map_or(Bound::Unbounded, |last| {
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Bound::Excluded(end.into())
    })
}

pub(super) fn print(target: &Target, text: &str, json: &serde_json::Value) -> Done {
    let mut out = io::stdout();
    let written = if target.json { writeln!(out, "{json}") } else { writeln!(out, "{text}") };
    written.and_then(|()| out.flush()).map_err(CommandError::Output)
}
