//! Commands on keys, and about the server.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::time::SystemTime;

use bytes::Bytes;
use dapple::store::HotKey;

use super::plan::{Database, Value};
use super::reply::{OK, Reply, integer};
use super::session::Context;
use super::{Service, config, glob, info, pubsub, table};

/// The version of Redis that the commands follow.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// The result of a command; errors are replies, too.
pub(super) type Answer = Result<Reply, Reply>;

/// Runs a checked command.
pub(super) async fn run(context: Context<'_>, name: &str, words: &[Bytes]) -> Answer {
    let args = &words[1..];
    if let Some(plan) = table::plan(name, args) {
        let plan = plan?;
        return plan.run(context.service, context.database().await?).await;
    }
    match name {
        "PING" => Ok(args.first().map_or(Reply::Simple("PONG"), |word| Reply::Bulk(word.clone()))),
        "ECHO" => Ok(Reply::Bulk(args[0].clone())),
        "COMMAND" => table::about(args),
        "CONFIG" => config::run(context.service, args),
        "DBSIZE" => Ok(count(context.database().await?.count().await?)),
        "KEYS" => all_keys(context.database().await?, &args[0]).await,
        "SCAN" => scan(context, context.database().await?, args).await,
        "RANDOMKEY" => random_key(context.database().await?).await,
        "FLUSHDB" | "FLUSHALL" if !may_flush(args) => Err(Reply::syntax()),
        "FLUSHDB" => flush(context.service, context.database().await?).await,
        "FLUSHALL" => {
            for database in 0..super::DATABASES {
                flush(context.service, context.service.database(database).await?).await?;
            }
            Ok(OK)
        }
        "PUBLISH" => pubsub::publish(context.service, &args[0], &args[1]).await,
        "PUBSUB" => pubsub::about(&context.service.broker, args).await,
        "DAPPLE.HOTKEYS" => hot_keys(context.database().await?).await,
        "DAPPLE.PARTITIONS" => partitions(context.service, args).await,
        "INFO" => info::info(context, args).await,
        "TIME" => Ok(time()),
        _ => Err(table::unknown(words)),
    }
}

pub(super) fn count(count: u64) -> Reply {
    Reply::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The keys with the most operations in the last minutes, each with its share in percent.
async fn hot_keys(table: &Database) -> Answer {
    let found = table.hot_keys().await?;
    let pair = |hot: HotKey<Bytes>| [Reply::Bulk(hot.key), Reply::Text(format!("{:.1}", hot.share * 100.0))];
    Ok(Reply::List(found.into_iter().flat_map(pair).collect()))
}

/// The number of partitions; with an argument, changes it while the store serves.
async fn partitions(service: &Service, args: &[Bytes]) -> Answer {
    let Some(wanted) = args.first() else { return Ok(count(service.store.partitions() as u64)) };
    let wanted = u32::try_from(integer(wanted)?);
    let wanted = wanted.map_err(|_| Reply::Error("ERR value is out of range".to_owned()))?;
    service.store.repartition(wanted, |_| {}).await?;
    Ok(OK)
}

/// The most keys that one reply of `KEYS` may have.
const KEYS_MAX: usize = 1_000_000;

async fn all_keys(table: &Database, pattern: &[u8]) -> Answer {
    glob::check(pattern)?;
    let mut found = Vec::new();
    let mut entries = table.iter();
    while let Some((key, _)) = entries.next().await? {
        if glob::matches(pattern, &key) {
            if found.len() >= KEYS_MAX {
                return Err(Reply::Error(format!("ERR more than {KEYS_MAX} keys match; use SCAN")));
            }
            found.push(Reply::Bulk(key));
        }
    }
    Ok(Reply::List(found))
}

/// Parses the cursor of a scan.
pub(super) fn cursor(word: &[u8]) -> Result<u64, Reply> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Reply::Error("ERR invalid cursor".to_owned()))
}

async fn scan(context: Context<'_>, table: &Database, args: &[Bytes]) -> Answer {
    let invalid = || Reply::Error("ERR invalid cursor".to_owned());
    let cursor = cursor(&args[0])?;
    let (mut pattern, mut wanted, mut kind) = (None, 10, None);
    for option in args[1..].chunks(2) {
        match option {
            [name, value] if name.eq_ignore_ascii_case(b"MATCH") => pattern = Some(value.clone()),
            [name, value] if name.eq_ignore_ascii_case(b"COUNT") => {
                wanted = integer(value)?.clamp(0, 10_000);
                if wanted == 0 {
                    return Err(Reply::syntax());
                }
            }
            [name, value] if name.eq_ignore_ascii_case(b"TYPE") => {
                kind = Some(value.to_ascii_lowercase());
            }
            _ => return Err(Reply::syntax()),
        }
    }
    let from = match cursor {
        0 => Bound::Unbounded,
        cursor => Bound::Excluded(context.service.scan_place(cursor).await.ok_or_else(invalid)?),
    };
    let mut entries = table.range((from, Bound::Unbounded))?;
    pattern.as_deref().map_or(Ok(()), glob::check)?;
    let (mut found, mut last) = (Vec::new(), None);
    for _ in 0..wanted {
        let Some((key, found_value)) = entries.next().await? else {
            last = None;
            break;
        };
        let is_right_type = kind.as_deref().is_none_or(|kind| match found_value.value {
            Value::Text(_) => kind == b"string",
            Value::Hash(_) => kind == b"hash",
        });
        if is_right_type && pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, &key)) {
            found.push(Reply::Bulk(key.clone()));
        }
        last = Some(key);
    }
    let next = match last {
        Some(key) => context.service.keep_scan(key).await,
        None => 0,
    };
    Ok(Reply::List(vec![Reply::Text(next.to_string()), Reply::List(found)]))
}

/// A number that clients cannot guess.
pub(super) fn random_number() -> u64 {
    BuildHasher::hash_one(&RandomState::new(), 0_u8)
}

fn time() -> Reply {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Reply::List(vec![Reply::Text(since.as_secs().to_string()), Reply::Text(since.subsec_micros().to_string())])
}

/// Returns a key near a random position in the order of keys.
async fn random_key(table: &Database) -> Answer {
    let number = u128::from(random_number());
    let total = table.count().await?;
    let skipped = if total == 0 { 0 } else { (number % u128::from(total.min(10_000))) as usize };
    let mut entries = table.iter();
    let mut found = None;
    for _ in 0..=skipped {
        match entries.next().await? {
            Some((key, _)) => found = Some(key),
            None => break,
        }
    }
    Ok(Reply::bulk(found))
}

/// Whether these are words of a flush. There is one way to flush, with each of them.
fn may_flush(args: &[Bytes]) -> bool {
    match args {
        [] => true,
        [word] => word.eq_ignore_ascii_case(b"ASYNC") || word.eq_ignore_ascii_case(b"SYNC"),
        _ => false,
    }
}

/// Removes the keys in batches: another client may see only some of them gone.
async fn flush(service: &Service, database: &Database) -> Answer {
    let mut entries = database.iter();
    loop {
        let mut batch = service.store.batch();
        while batch.len() < FLUSH_LEN
            && let Some((key, _)) = entries.next().await?
        {
            batch.remove(database, &key)?;
        }
        if batch.is_empty() {
            return Ok(OK);
        }
        batch.commit().await?;
    }
}

const FLUSH_LEN: usize = 1000;
