//! Commands on keys, and about the server.

use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;

use super::plan::{Database, Plan, Value};
use super::reply::{OK, Reply, integer};
use super::session::{Context, wrong_number};
use super::{Service, glob, hashes, keys, pubsub, strings};

/// The version of Redis that the commands follow.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// The result of a command; errors are replies, too.
pub(super) type Answer = Result<Reply, Reply>;

/// The fewest and the most words of a command, including its name.
const COMMANDS: &[(&str, usize, usize)] = &[
    ("APPEND", 3, 3),
    ("AUTH", 2, MANY),
    ("CLIENT", 2, MANY),
    ("COMMAND", 1, MANY),
    ("CONFIG", 2, MANY),
    ("DAPPLE.PARTITIONS", 1, 2),
    ("DBSIZE", 1, 1),
    ("DECR", 2, 2),
    ("DECRBY", 3, 3),
    ("DEL", 2, MANY),
    ("DISCARD", 1, 1),
    ("ECHO", 2, 2),
    ("EXEC", 1, 1),
    ("EXISTS", 2, MANY),
    ("EXPIRE", 3, 3),
    ("EXPIREAT", 3, 3),
    ("FLUSHALL", 1, 2),
    ("FLUSHDB", 1, 2),
    ("GET", 2, 2),
    ("GETDEL", 2, 2),
    ("GETEX", 2, 4),
    ("GETRANGE", 4, 4),
    ("GETSET", 3, 3),
    ("HDEL", 3, MANY),
    ("HELLO", 1, MANY),
    ("HEXISTS", 3, 3),
    ("HGET", 3, 3),
    ("HGETALL", 2, 2),
    ("HINCRBY", 4, 4),
    ("HKEYS", 2, 2),
    ("HLEN", 2, 2),
    ("HMGET", 3, MANY),
    ("HMSET", 4, MANY),
    ("HSET", 4, MANY),
    ("HSETNX", 4, 4),
    ("HSTRLEN", 3, 3),
    ("HVALS", 2, 2),
    ("INCR", 2, 2),
    ("INCRBY", 3, 3),
    ("INFO", 1, MANY),
    ("KEYS", 2, 2),
    ("MGET", 2, MANY),
    ("MSET", 3, MANY),
    ("MULTI", 1, 1),
    ("PERSIST", 2, 2),
    ("PEXPIRE", 3, 3),
    ("PEXPIREAT", 3, 3),
    ("PING", 1, 2),
    ("PSETEX", 4, 4),
    ("PSUBSCRIBE", 2, MANY),
    ("PTTL", 2, 2),
    ("PUBLISH", 3, 3),
    ("PUBSUB", 2, MANY),
    ("PUNSUBSCRIBE", 1, MANY),
    ("QUIT", 1, MANY),
    ("RANDOMKEY", 1, 1),
    ("RENAME", 3, 3),
    ("RENAMENX", 3, 3),
    ("RESET", 1, 1),
    ("SCAN", 2, MANY),
    ("SELECT", 2, 2),
    ("SET", 3, MANY),
    ("SETEX", 4, 4),
    ("SETNX", 3, 3),
    ("SETRANGE", 4, 4),
    ("STRLEN", 2, 2),
    ("SUBSCRIBE", 2, MANY),
    ("TTL", 2, 2),
    ("TYPE", 2, 2),
    ("UNLINK", 2, MANY),
    ("UNSUBSCRIBE", 1, MANY),
    ("UNWATCH", 1, 1),
    ("WATCH", 2, MANY),
];
const MANY: usize = usize::MAX;

/// Checks that the command exists, and that it may have this many words.
pub(super) fn check(name: &str, words: &[Bytes]) -> Result<(), Reply> {
    let Ok(at) = COMMANDS.binary_search_by_key(&name, |(known, ..)| known) else { return Err(unknown(words)) };
    let (_, least, most) = COMMANDS[at];
    if (least..=most).contains(&words.len()) { Ok(()) } else { Err(wrong_number(name)) }
}

/// The plan of a checked command on keys; `None` for other commands.
pub(super) fn plan(name: &str, args: &[Bytes]) -> Option<Result<Plan, Reply>> {
    if args.is_empty() {
        return None;
    }
    let hash = || name.starts_with('H').then(|| hashes::plan(name, args));
    strings::plan(name, args).or_else(|| keys::plan(name, args)).or_else(hash)
}

/// Runs a checked command.
pub(super) async fn run(context: Context<'_>, name: &str, words: &[Bytes]) -> Answer {
    let args = &words[1..];
    if let Some(plan) = plan(name, args) {
        let plan = plan?;
        return plan.run(&context.service.store, context.database().await?).await;
    }
    match name {
        "PING" => Ok(args.first().map_or(Reply::Simple("PONG"), |word| Reply::Bulk(word.clone()))),
        "ECHO" => Ok(Reply::Bulk(args[0].clone())),
        "COMMAND" => Ok(about_commands(args)),
        "CONFIG" => config(args),
        "DBSIZE" => Ok(count(context.database().await?.count().await?)),
        "KEYS" => all_keys(context.database().await?, &args[0]).await,
        "SCAN" => scan(context, context.database().await?, args).await,
        "RANDOMKEY" => random_key(context.database().await?).await,
        "FLUSHDB" => flush(context.service, context.database().await?).await,
        "FLUSHALL" => {
            for database in 0..super::DATABASES {
                flush(context.service, context.service.database(database).await?).await?;
            }
            Ok(OK)
        }
        "PUBLISH" => pubsub::publish(context.service, &args[0], &args[1]).await,
        "PUBSUB" => pubsub::about(&context.service.broker, args).await,
        "DAPPLE.PARTITIONS" => partitions(context.service, args).await,
        "INFO" => info(context).await,
        _ => Err(unknown(words)),
    }
}

fn unknown(words: &[Bytes]) -> Reply {
    const SHOWN_MAX: usize = 128;
    let text = |word: &Bytes| String::from_utf8_lossy(&word[..word.len().min(SHOWN_MAX)]).into_owned();
    let args: String = words[1..].iter().take(8).map(|word| format!("'{}' ", text(word))).collect();
    Reply::Error(format!("ERR unknown command '{}', with args beginning with: {args}", text(&words[0])))
}

pub(super) fn count(count: u64) -> Reply {
    Reply::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

fn about_commands(args: &[Bytes]) -> Reply {
    match args.first().map(|word| word.to_ascii_uppercase()).as_deref() {
        Some(b"COUNT") => count(COMMANDS.len() as u64),
        Some(b"DOCS") => Reply::Map(Vec::new()),
        _ => Reply::List(Vec::new()),
    }
}

/// Answers the settings that clients ask for when they connect, and benchmarks before they start.
fn config(args: &[Bytes]) -> Answer {
    if !args[0].eq_ignore_ascii_case(b"GET") {
        return Err(Reply::Error(
            "ERR only CONFIG GET is supported; options are given when the server starts".to_owned(),
        ));
    }
    const SETTINGS: &[(&str, &str)] =
        &[("appendfsync", "always"), ("appendonly", "yes"), ("databases", "16"), ("maxmemory", "0"), ("save", "")];
    let is_asked =
        |name: &str| args[1..].iter().any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()));
    let found = SETTINGS.iter().filter(|(name, _)| is_asked(name));
    let text = |text: &str| Reply::Text(text.to_owned());
    Ok(Reply::Map(found.map(|(name, value)| (text(name), text(value))).collect()))
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

async fn scan(context: Context<'_>, table: &Database, args: &[Bytes]) -> Answer {
    let invalid = || Reply::Error("ERR invalid cursor".to_owned());
    let cursor: u64 = std::str::from_utf8(&args[0]).ok().and_then(|text| text.parse().ok()).ok_or_else(invalid)?;
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

/// Returns a key near a random position in the order of keys.
async fn random_key(table: &Database) -> Answer {
    let number = u128::from(std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0_u8));
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

async fn info(context: Context<'_>) -> Answer {
    let keys = context.database().await?.count().await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (channels, patterns) = context.service.broker.names().await;
    let cut = context.service.broker.counters().cut.load(Ordering::Relaxed);
    Ok(Reply::Text(format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nserver_name:dapple\r\nprocess_id:{}\r\n\
         tcp_port:{}\r\nserver_time_usec:{}\r\n\r\n# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\naof_enabled:1\r\n\r\n\
         # Stats\r\npubsub_channels:{channels}\r\npubsub_patterns:{patterns}\r\n\
         client_output_buffer_limit_disconnections:{cut}\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n\
         # Keyspace\r\ndb{}:keys={keys}\r\n",
        std::process::id(),
        context.service.port,
        now * 1_000_000,
        context.service.clients(),
        context.service.admission.max(),
        context.index,
    )))
}
