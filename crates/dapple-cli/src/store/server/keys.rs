//! Commands on keys of any type: removal, names, expiry.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::plan::{Join, Next, Plan, Step, Value};
use super::reply::{OK, Reply};
use super::time::{after, at};

/// The plan of a command on keys; `None` for commands on values.
pub(super) fn plan(name: &str, args: &[Bytes]) -> Option<Result<Plan, Reply>> {
    let key = &args[0];
    Some(match name {
        "DEL" | "UNLINK" => Plan::many(args.iter().map(remove), Join::Sum),
        "EXISTS" | "TOUCH" => {
            Plan::many(args.iter().map(|key| Step::read(key, |kept| Ok(Reply::yes(kept.is_some())))), Join::Sum)
        }
        "TYPE" => Plan::one(Step::read(key, |kept| {
            Ok(Reply::Simple(match kept.map(|entry| &entry.value) {
                None => "none",
                Some(Value::Text(_)) => "string",
                Some(Value::Hash(_)) => "hash",
            }))
        })),
        "RENAME" => rename(key, &args[1], false),
        "RENAMENX" => rename(key, &args[1], true),
        "TTL" => time_left(key, 1000),
        "PTTL" => time_left(key, 1),
        "EXPIRETIME" => expiry_time(key, 1000),
        "PEXPIRETIME" => expiry_time(key, 1),
        "PERSIST" => persist(key),
        "EXPIRE" => expire(args, after(&args[1], 1000, "expire")),
        "PEXPIRE" => expire(args, after(&args[1], 1, "pexpire")),
        "EXPIREAT" => expire(args, at(&args[1], 1000, "expireat")),
        "PEXPIREAT" => expire(args, at(&args[1], 1, "pexpireat")),
        _ => return None,
    })
}

fn remove(key: &Bytes) -> Step {
    Step::write(key, |kept| match kept {
        Some(_) => Ok((Next::Remove, Reply::Number(1))),
        None => Ok((Next::Keep, Reply::Number(0))),
    })
}

/// Three steps of one transaction: look, put, remove.
fn rename(from: &Bytes, to: &Bytes, only_if_free: bool) -> Result<Plan, Reply> {
    let no_such_key = || Reply::Error("ERR no such key".to_owned());
    let is_same = from == to;
    let moved = Arc::new(Mutex::new(None));
    let (put, taken) = (moved.clone(), moved.clone());
    let look = Step::write(from, move |kept| {
        let entry = kept.ok_or_else(no_such_key)?;
        *moved.lock().unwrap_or_else(PoisonError::into_inner) = Some((entry.value.clone(), entry.expires));
        Ok((Next::Keep, OK))
    });
    let put = Step::write(to, move |kept| {
        let mut entry = put.lock().unwrap_or_else(PoisonError::into_inner);
        if only_if_free && kept.is_some() {
            // Then there is nothing to remove.
            *entry = None;
        }
        let next = match &*entry {
            Some((value, expires)) if !is_same => Next::Put(value.clone(), *expires),
            _ => Next::Keep,
        };
        Ok((next, Reply::yes(entry.is_some())))
    });
    let remove = Step::write(from, move |_| {
        let is_moved = taken.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        Ok((if is_moved && !is_same { Next::Remove } else { Next::Keep }, OK))
    });
    Plan::many([look, put, remove], if only_if_free { Join::FirstErrorOr(1) } else { Join::First })
}

fn time_left(key: &Bytes, unit_ms: i64) -> Result<Plan, Reply> {
    Plan::one(Step::read(key, move |kept| {
        let Some(entry) = kept else { return Ok(Reply::Number(-2)) };
        let Some(expires) = entry.expires else { return Ok(Reply::Number(-1)) };
        let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
        Ok(Reply::Number((left.as_millis() as i64 + unit_ms / 2) / unit_ms))
    }))
}

fn expiry_time(key: &Bytes, unit_ms: i64) -> Result<Plan, Reply> {
    Plan::one(Step::read(key, move |kept| {
        let Some(entry) = kept else { return Ok(Reply::Number(-2)) };
        let Some(expires) = entry.expires else { return Ok(Reply::Number(-1)) };
        let since = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Reply::Number((since.as_millis() as i64 + unit_ms / 2) / unit_ms))
    }))
}

fn persist(key: &Bytes) -> Result<Plan, Reply> {
    Plan::one(Step::write(key, |kept| match kept {
        Some(entry) if entry.expires.is_some() => Ok((Next::Put(entry.value.clone(), None), Reply::Number(1))),
        _ => Ok((Next::Keep, Reply::Number(0))),
    }))
}

/// The condition under which a key gets a new time of expiry.
#[derive(Clone, Copy, Default)]
struct Condition {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_earlier: bool,
}

impl Condition {
    fn read(words: &[Bytes]) -> Result<Condition, Reply> {
        let mut condition = Condition::default();
        for word in words {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => condition.if_none = true,
                b"XX" => condition.if_any = true,
                b"GT" => condition.if_later = true,
                b"LT" => condition.if_earlier = true,
                _ => return Err(Reply::Error(format!("ERR Unsupported option {}", String::from_utf8_lossy(word)))),
            }
        }
        let refused = |text: &str| Err(Reply::Error(format!("ERR {text} options at the same time are not compatible")));
        let Condition { if_none, if_any, if_later, if_earlier } = condition;
        if if_none && (if_any || if_later || if_earlier) {
            return refused("NX and XX, GT or LT");
        }
        if if_later && if_earlier { refused("GT and LT") } else { Ok(condition) }
    }

    /// A key without expiry expires later than any other.
    fn allows(self, old: Option<SystemTime>, new: SystemTime) -> bool {
        !(self.if_none && old.is_some()
            || self.if_any && old.is_none()
            || self.if_later && old.is_none_or(|old| new <= old)
            || self.if_earlier && old.is_some_and(|old| new >= old))
    }
}

fn expire(args: &[Bytes], expires: Result<SystemTime, Reply>) -> Result<Plan, Reply> {
    let condition = Condition::read(&args[2..])?;
    let expires = expires?;
    Plan::one(Step::write(&args[0], move |kept| match kept {
        Some(entry) if condition.allows(entry.expires, expires) => {
            Ok((Next::Put(entry.value.clone(), Some(expires)), Reply::Number(1)))
        }
        _ => Ok((Next::Keep, Reply::Number(0))),
    }))
}
