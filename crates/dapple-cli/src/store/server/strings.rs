//! Commands on strings and their expiry.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use dapple::store::{Change, Entry, Error, Expect, Refusal};

use super::commands::Answer;
use super::reply::{OK, Reply, integer};
use super::session::wrong_number;
use crate::store::TextTable;

const VALUE_LEN_MAX: i64 = 16 << 20;

pub(super) async fn run(table: &TextTable, name: &str, args: &[Bytes]) -> Answer {
    let key = &args[0];
    match name {
        "GET" => Ok(Reply::bulk(table.get(key).await?)),
        "MGET" => {
            let mut values = Vec::with_capacity(args.len());
            for key in args {
                values.push(Reply::bulk(table.get(key).await?));
            }
            Ok(Reply::List(values))
        }
        "MSET" => {
            if args.len() % 2 == 1 {
                return Err(wrong_number("mset"));
            }
            for pair in args.chunks(2) {
                table.put(&pair[0], &pair[1]).await?;
            }
            Ok(OK)
        }
        "SET" => set(table, args).await,
        "SETNX" => set_new(table, key, &args[1]).await,
        "SETEX" => set_for(table, "setex", args, 1000).await,
        "PSETEX" => set_for(table, "psetex", args, 1).await,
        "GETSET" => Ok(Reply::bulk(table.put(key, &args[1]).await?.previous.map(|old| old.value))),
        "GETDEL" => Ok(Reply::bulk(table.remove(key).await?.map(|old| old.value))),
        "GETEX" => get_and_expire(table, args).await,
        "STRLEN" => Ok(Reply::Number(table.get(key).await?.map_or(0, |value| value.len() as i64))),
        "APPEND" => append(table, key, &args[1]).await,
        "GETRANGE" => get_range(table, args).await,
        "SETRANGE" => set_range(table, args).await,
        "INCR" => add(table, key, 1).await,
        "DECR" => add(table, key, -1).await,
        "INCRBY" => add(table, key, integer(&args[1])?).await,
        "DECRBY" => {
            let by = integer(&args[1])?.checked_neg();
            add(table, key, by.ok_or_else(|| Reply::Error("ERR decrement would overflow".to_owned()))?).await
        }
        "TTL" | "PTTL" => time_left(table, key, if name == "TTL" { 1000 } else { 1 }).await,
        "PERSIST" => change_expiry(table, key, None).await,
        "EXPIRE" => change_expiry(table, key, Some(after(&args[1], 1000, "expire")?)).await,
        "PEXPIRE" => change_expiry(table, key, Some(after(&args[1], 1, "pexpire")?)).await,
        "EXPIREAT" => change_expiry(table, key, Some(at(&args[1], 1000, "expireat")?)).await,
        "PEXPIREAT" => change_expiry(table, key, Some(at(&args[1], 1, "pexpireat")?)).await,
        _ => Err(Reply::Error(format!("ERR unknown command '{name}'"))),
    }
}

/// A value and its expiry, to be written.
type Next = (Bytes, Option<SystemTime>);

/// Changes a key between all other writes of it. `change` returns what to write, if anything, and the reply.
async fn modify(
    table: &TextTable,
    key: &Bytes,
    change: impl FnOnce(Option<&Entry<Bytes>>) -> Result<(Option<Next>, Reply), Reply> + Send + 'static,
) -> Answer {
    table
        .modify(key, |entry| match change(entry.as_ref()) {
            Ok((Some((value, expires)), reply)) => (Change::Put { value, expires }, Ok(reply)),
            Ok((None, reply)) => (Change::Keep, Ok(reply)),
            Err(reply) => (Change::Keep, Err(reply)),
        })
        .await?
}

#[derive(Default)]
struct SetOptions {
    expires: Option<SystemTime>,
    keeps_expiry: bool,
    if_absent: bool,
    if_present: bool,
    returns_old: bool,
}

impl SetOptions {
    fn read(words: &[Bytes]) -> Result<SetOptions, Reply> {
        let mut options = SetOptions::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let word = word.to_ascii_uppercase();
            match word.as_slice() {
                b"NX" => options.if_absent = true,
                b"XX" => options.if_present = true,
                b"GET" => options.returns_old = true,
                b"KEEPTTL" => options.keeps_expiry = true,
                b"EX" | b"PX" | b"EXAT" | b"PXAT" if options.expires.is_none() => {
                    let time = words.next().ok_or_else(Reply::syntax)?;
                    options.expires = Some(expiry(&word, time, "set")?);
                }
                _ => return Err(Reply::syntax()),
            }
        }
        let contradicts =
            (options.if_absent && options.if_present) || (options.keeps_expiry && options.expires.is_some());
        if contradicts { Err(Reply::syntax()) } else { Ok(options) }
    }
}

async fn set(table: &TextTable, args: &[Bytes]) -> Answer {
    let (key, value) = (&args[0], &args[1]);
    let options = SetOptions::read(&args[2..])?;
    // The common forms need no look at the old value.
    if !(options.if_absent || options.if_present || options.returns_old || options.keeps_expiry) {
        match options.expires {
            Some(expires) => table.put_until(key, value, expires).await?,
            None => table.put(key, value).await?,
        };
        return Ok(OK);
    }
    let value = value.clone();
    modify(table, key, move |entry| {
        let is_wanted = if entry.is_some() { !options.if_absent } else { !options.if_present };
        let old = || Reply::bulk(entry.map(|entry| entry.value.clone()));
        if !is_wanted {
            return Ok((None, if options.returns_old { old() } else { Reply::Null }));
        }
        let kept = entry.and_then(|entry| entry.expires).filter(|_| options.keeps_expiry);
        let reply = if options.returns_old { old() } else { OK };
        Ok((Some((value, options.expires.or(kept))), reply))
    })
    .await
}

async fn set_new(table: &TextTable, key: &Bytes, value: &Bytes) -> Answer {
    match table.cas(key, Expect::Absent, value).await {
        Ok(_) => Ok(Reply::Number(1)),
        Err(Error::NotApplied(Refusal::Conflict { .. })) => Ok(Reply::Number(0)),
        Err(error) => Err(error.into()),
    }
}

async fn set_for(table: &TextTable, command: &str, args: &[Bytes], unit_ms: i64) -> Answer {
    if integer(&args[1])? <= 0 {
        return Err(invalid_expiry(command));
    }
    table.put_until(&args[0], &args[2], after(&args[1], unit_ms, command)?).await?;
    Ok(OK)
}

async fn get_and_expire(table: &TextTable, args: &[Bytes]) -> Answer {
    let change = match &args[1..] {
        [] => None,
        [word] if word.eq_ignore_ascii_case(b"PERSIST") => Some(None),
        [word, time] => Some(Some(expiry(&word.to_ascii_uppercase(), time, "getex")?)),
        _ => return Err(Reply::syntax()),
    };
    modify(table, &args[0], move |entry| {
        let Some(entry) = entry else { return Ok((None, Reply::Null)) };
        Ok((change.map(|expires| (entry.value.clone(), expires)), Reply::Bulk(entry.value.clone())))
    })
    .await
}

async fn append(table: &TextTable, key: &Bytes, more: &Bytes) -> Answer {
    let more = more.clone();
    modify(table, key, move |entry| {
        let mut value = BytesMut::from(entry.map_or(&[][..], |entry| &entry.value));
        value.extend_from_slice(&more);
        let len = value.len() as i64;
        Ok((Some((value.freeze(), entry.and_then(|entry| entry.expires))), Reply::Number(len)))
    })
    .await
}

async fn get_range(table: &TextTable, args: &[Bytes]) -> Answer {
    let (start, end) = (integer(&args[1])?, integer(&args[2])?);
    let value = table.get(&args[0]).await?.unwrap_or_default();
    let len = value.len() as i64;
    let place = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    let is_empty = len == 0 || start > end;
    Ok(Reply::Bulk(if is_empty { Bytes::new() } else { value.slice(start as usize..=end as usize) }))
}

async fn set_range(table: &TextTable, args: &[Bytes]) -> Answer {
    let (offset, part) = (integer(&args[1])?, args[2].clone());
    if offset < 0 {
        return Err(Reply::Error("ERR offset is out of range".to_owned()));
    }
    if offset.saturating_add(part.len() as i64) > VALUE_LEN_MAX {
        return Err(Reply::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned()));
    }
    let offset = offset as usize;
    modify(table, &args[0], move |entry| {
        let old = entry.map_or(&[][..], |entry| &entry.value);
        if part.is_empty() {
            return Ok((None, Reply::Number(old.len() as i64)));
        }
        let mut value = BytesMut::from(old);
        value.resize(old.len().max(offset + part.len()), 0);
        value[offset..offset + part.len()].copy_from_slice(&part);
        let len = value.len() as i64;
        Ok((Some((value.freeze(), entry.and_then(|entry| entry.expires))), Reply::Number(len)))
    })
    .await
}

async fn add(table: &TextTable, key: &Bytes, by: i64) -> Answer {
    modify(table, key, move |entry| {
        let old = entry.map_or(Ok(0), |entry| integer(&entry.value))?;
        let sum = old.checked_add(by);
        let sum = sum.ok_or_else(|| Reply::Error("ERR increment or decrement would overflow".to_owned()))?;
        Ok((Some((sum.to_string().into(), entry.and_then(|entry| entry.expires))), Reply::Number(sum)))
    })
    .await
}

async fn time_left(table: &TextTable, key: &Bytes, unit_ms: i64) -> Answer {
    let Some(entry) = table.entry(key).await? else { return Ok(Reply::Number(-2)) };
    let Some(expires) = entry.expires else { return Ok(Reply::Number(-1)) };
    let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
    Ok(Reply::Number((left.as_millis() as i64 + unit_ms / 2) / unit_ms))
}

async fn change_expiry(table: &TextTable, key: &Bytes, expires: Option<SystemTime>) -> Answer {
    modify(table, key, move |entry| {
        let Some(entry) = entry else { return Ok((None, Reply::Number(0))) };
        if expires.is_none() && entry.expires.is_none() {
            return Ok((None, Reply::Number(0)));
        }
        Ok((Some((entry.value.clone(), expires)), Reply::Number(1)))
    })
    .await
}

fn expiry(word: &[u8], time: &[u8], command: &str) -> Result<SystemTime, Reply> {
    if integer(time)? <= 0 {
        return Err(invalid_expiry(command));
    }
    match word {
        b"EX" => after(time, 1000, command),
        b"PX" => after(time, 1, command),
        b"EXAT" => at(time, 1000, command),
        b"PXAT" => at(time, 1, command),
        _ => Err(Reply::syntax()),
    }
}

/// The time that is so many units from now, or before now.
fn after(word: &[u8], unit_ms: i64, command: &str) -> Result<SystemTime, Reply> {
    let ms = integer(word)?.checked_mul(unit_ms).ok_or_else(|| invalid_expiry(command))?;
    let length = Duration::from_millis(ms.unsigned_abs());
    let now = SystemTime::now();
    let time = if ms >= 0 { now.checked_add(length) } else { now.checked_sub(length) };
    time.ok_or_else(|| invalid_expiry(command))
}

/// The time that is so many units after 1970.
fn at(word: &[u8], unit_ms: i64, command: &str) -> Result<SystemTime, Reply> {
    let ms = integer(word)?.checked_mul(unit_ms).and_then(|ms| u64::try_from(ms).ok());
    let time = ms.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    time.ok_or_else(|| invalid_expiry(command))
}

fn invalid_expiry(command: &str) -> Reply {
    Reply::Error(format!("ERR invalid expire time in '{command}' command"))
}
