//! Commands on strings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};

use super::float::{self, Sum};
use super::plan::{Join, Kept, Next, Plan, Step, Value, text};
use super::reply::{OK, Reply, integer};
use super::session::wrong_number;
use super::time::{after, expiry, invalid_expiry};

const VALUE_LEN_MAX: i64 = 16 << 20;

/// The plan of a command on strings; `None` for other commands.
pub(super) fn plan(name: &str, args: &[Bytes]) -> Option<Result<Plan, Reply>> {
    let key = &args[0];
    Some(match name {
        "GET" => read(key, |old| Reply::bulk(old.cloned())),
        "STRLEN" => read(key, |old| Reply::Number(old.map_or(0, Bytes::len) as i64)),
        "GETRANGE" | "SUBSTR" => get_range(args),
        // A key of another type has no string.
        "MGET" => {
            let get = |key| Step::read(key, |kept| Ok(Reply::bulk(text(kept).ok().flatten().cloned())));
            Plan::many(args.iter().map(get), Join::List)
        }
        "MSET" | "MSETNX" if args.len() % 2 == 1 => Err(wrong_number(name)),
        "MSETNX" => set_all_new(args),
        "MSET" => Plan::many(args.chunks_exact(2).map(|pair| put(&pair[0], &pair[1], None)), Join::Ok),
        "SET" => set(args),
        "SETNX" => set_new(key, &args[1]),
        "SETEX" => set_for("setex", args, 1000),
        "PSETEX" => set_for("psetex", args, 1),
        "GETSET" => {
            let value = args[1].clone();
            Plan::one(Step::write(key, |kept| {
                Ok((Next::Put(Value::Text(value), None), Reply::bulk(text(kept)?.cloned())))
            }))
        }
        "GETDEL" => Plan::one(Step::write(key, |kept| match text(kept)? {
            Some(old) => Ok((Next::Remove, Reply::Bulk(old.clone()))),
            None => Ok((Next::Keep, Reply::Null)),
        })),
        "GETEX" => get_and_expire(args),
        "APPEND" => append(key, &args[1]),
        "SETRANGE" => set_range(args),
        "INCR" => add(key, Ok(1)),
        "DECR" => add(key, Ok(-1)),
        "INCRBY" => add(key, integer(&args[1])),
        "INCRBYFLOAT" => add_float(key, &args[1]),
        "DECRBY" => {
            let negated =
                |by: i64| by.checked_neg().ok_or_else(|| Reply::Error("ERR decrement would overflow".to_owned()));
            add(key, integer(&args[1]).and_then(negated))
        }
        _ => return None,
    })
}

fn read(key: &Bytes, reply: impl FnOnce(Option<&Bytes>) -> Reply + Send + 'static) -> Result<Plan, Reply> {
    Plan::one(Step::read(key, |kept| Ok(reply(text(kept)?))))
}

fn put(key: &Bytes, value: &Bytes, expires: Option<SystemTime>) -> Step {
    let value = value.clone();
    Step::write(key, move |_| Ok((Next::Put(Value::Text(value), expires), OK)))
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

fn set(args: &[Bytes]) -> Result<Plan, Reply> {
    let (key, value) = (&args[0], args[1].clone());
    let options = SetOptions::read(&args[2..])?;
    Plan::one(Step::write(key, move |kept| {
        let old = if options.returns_old { Reply::bulk(text(kept)?.cloned()) } else { OK };
        let is_wanted = if kept.is_some() { !options.if_absent } else { !options.if_present };
        if !is_wanted {
            return Ok((Next::Keep, if options.returns_old { old } else { Reply::Null }));
        }
        let expires = kept.and_then(|entry| entry.expires).filter(|_| options.keeps_expiry);
        Ok((Next::Put(Value::Text(value), options.expires.or(expires)), old))
    }))
}

fn set_new(key: &Bytes, value: &Bytes) -> Result<Plan, Reply> {
    let value = value.clone();
    Plan::one(Step::write(key, move |kept| match kept {
        Some(_) => Ok((Next::Keep, Reply::Number(0))),
        None => Ok((Next::Put(Value::Text(value), None), Reply::Number(1))),
    }))
}

/// Puts all pairs if none of the keys is there: a look at each key, then a put of each.
fn set_all_new(args: &[Bytes]) -> Result<Plan, Reply> {
    let is_any = Arc::new(AtomicBool::new(false));
    // One transaction runs the steps one after the other.
    let look = |pair: &[Bytes]| {
        let is_any = is_any.clone();
        Step::write(&pair[0], move |kept| {
            is_any.fetch_or(kept.is_some(), Ordering::Relaxed);
            Ok((Next::Keep, OK))
        })
    };
    let put = |pair: &[Bytes]| {
        let (is_any, value) = (is_any.clone(), pair[1].clone());
        Step::write(&pair[0], move |_| {
            let is_new = !is_any.load(Ordering::Relaxed);
            let next = if is_new { Next::Put(Value::Text(value), None) } else { Next::Keep };
            Ok((next, Reply::yes(is_new)))
        })
    };
    let pairs = args.chunks_exact(2);
    Plan::many(pairs.clone().map(look).chain(pairs.map(put)), Join::FirstErrorOr(args.len() / 2))
}

fn add_float(key: &Bytes, by: &Bytes) -> Result<Plan, Reply> {
    let by = by.clone();
    let not_a_number = || Reply::Error("ERR value is not a valid float".to_owned());
    if float::plain(&by).is_none() {
        // Redis looks at the key's type first.
        return read(key, move |_| not_a_number());
    }
    Plan::one(Step::write(key, move |kept| match float::add(text(kept)?.map_or(&b"0"[..], |old| old), &by) {
        Sum::Text(sum) => {
            let sum = Bytes::from(sum);
            Ok((Next::text(sum.clone(), kept), Reply::Bulk(sum)))
        }
        Sum::NoNumber => Err(not_a_number()),
        Sum::Infinite => Err(Reply::Error("ERR increment would produce NaN or Infinity".to_owned())),
    }))
}

fn set_for(command: &str, args: &[Bytes], unit_ms: i64) -> Result<Plan, Reply> {
    if integer(&args[1])? <= 0 {
        return Err(invalid_expiry(command));
    }
    Plan::one(put(&args[0], &args[2], Some(after(&args[1], unit_ms, command)?)))
}

/// The options that set a time of expiry.
const EXPIRIES: [&str; 4] = ["EX", "PX", "EXAT", "PXAT"];

fn get_and_expire(args: &[Bytes]) -> Result<Plan, Reply> {
    let change = match &args[1..] {
        [] => None,
        [word] if word.eq_ignore_ascii_case(b"PERSIST") => Some(None),
        [word, _] if !EXPIRIES.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes())) => {
            return Err(Reply::syntax());
        }
        [word, time] => Some(Some(expiry(&word.to_ascii_uppercase(), time, "getex")?)),
        _ => return Err(Reply::syntax()),
    };
    Plan::one(Step::write(&args[0], move |kept| {
        let Some(old) = text(kept)? else { return Ok((Next::Keep, Reply::Null)) };
        let next = change.map_or(Next::Keep, |expires| Next::Put(Value::Text(old.clone()), expires));
        Ok((next, Reply::Bulk(old.clone())))
    }))
}

fn append(key: &Bytes, more: &Bytes) -> Result<Plan, Reply> {
    let more = more.clone();
    Plan::one(Step::write(key, move |kept| {
        let mut value = BytesMut::from(old_bytes(kept)?);
        value.extend_from_slice(&more);
        let len = value.len() as i64;
        Ok((Next::text(value, kept), Reply::Number(len)))
    }))
}

fn old_bytes(kept: Kept<'_>) -> Result<&[u8], Reply> {
    Ok(text(kept)?.map_or(&[][..], |old| old))
}

fn get_range(args: &[Bytes]) -> Result<Plan, Reply> {
    let (start, end) = (integer(&args[1])?, integer(&args[2])?);
    read(&args[0], move |old| {
        let value = old.cloned().unwrap_or_default();
        let len = value.len() as i64;
        let place = |at: i64| if at < 0 { (len + at).max(0) } else { at };
        let (start, end) = (place(start), place(end).min(len - 1));
        let is_empty = len == 0 || start > end;
        Reply::Bulk(if is_empty { Bytes::new() } else { value.slice(start as usize..=end as usize) })
    })
}

fn set_range(args: &[Bytes]) -> Result<Plan, Reply> {
    let (offset, part) = (integer(&args[1])?, args[2].clone());
    if offset < 0 {
        return Err(Reply::Error("ERR offset is out of range".to_owned()));
    }
    if offset.saturating_add(part.len() as i64) > VALUE_LEN_MAX {
        return Err(Reply::Error("ERR string exceeds maximum allowed size (proto-max-bulk-len)".to_owned()));
    }
    let offset = offset as usize;
    Plan::one(Step::write(&args[0], move |kept| {
        let old = old_bytes(kept)?;
        if part.is_empty() {
            return Ok((Next::Keep, Reply::Number(old.len() as i64)));
        }
        let mut value = BytesMut::from(old);
        value.resize(old.len().max(offset + part.len()), 0);
        value[offset..offset + part.len()].copy_from_slice(&part);
        let len = value.len() as i64;
        Ok((Next::text(value, kept), Reply::Number(len)))
    }))
}

fn add(key: &Bytes, by: Result<i64, Reply>) -> Result<Plan, Reply> {
    let by = by?;
    Plan::one(Step::write(key, move |kept| {
        let old = text(kept)?.map_or(Ok(0), |old| integer(old))?;
        let sum = old.checked_add(by);
        let sum = sum.ok_or_else(|| Reply::Error("ERR increment or decrement would overflow".to_owned()))?;
        Ok((Next::text(sum.to_string(), kept), Reply::Number(sum)))
    }))
}
