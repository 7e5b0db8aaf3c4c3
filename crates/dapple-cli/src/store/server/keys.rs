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
        "EXISTS" => {
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
        "PERSIST" => change_expiry(key, Ok(None)),
        "EXPIRE" => change_expiry(key, after(&args[1], 1000, "expire").map(Some)),
        "PEXPIRE" => change_expiry(key, after(&args[1], 1, "pexpire").map(Some)),
        "EXPIREAT" => change_expiry(key, at(&args[1], 1000, "expireat").map(Some)),
        "PEXPIREAT" => change_expiry(key, at(&args[1], 1, "pexpireat").map(Some)),
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

fn change_expiry(key: &Bytes, expires: Result<Option<SystemTime>, Reply>) -> Result<Plan, Reply> {
    let expires = expires?;
    Plan::one(Step::write(key, move |kept| match kept {
        Some(entry) if expires.is_some() || entry.expires.is_some() => {
            Ok((Next::Put(entry.value.clone(), expires), Reply::Number(1)))
        }
        _ => Ok((Next::Keep, Reply::Number(0))),
    }))
}
