//! Commands on hashes. A hash is one value: a change writes all of it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::float::{self, Sum};
use super::glob;
use super::plan::{Kept, Next, Plan, Step, Value, hash};
use super::reply::{OK, Reply, integer};
use super::session::wrong_number;

type Fields = BTreeMap<Bytes, Bytes>;

pub(super) fn plan(name: &str, args: &[Bytes]) -> Result<Plan, Reply> {
    let (key, rest) = (&args[0], args[1..].to_vec());
    let field = rest.first().cloned().unwrap_or_default();
    match name {
        "HSET" => set(key, rest, "hset", Reply::Number),
        "HMSET" => set(key, rest, "hmset", |_| OK),
        "HSETNX" => write(key, move |fields| {
            let is_new = !fields.contains_key(&field);
            if is_new {
                fields.insert(field, rest[1].clone());
            }
            Ok(Reply::Number(i64::from(is_new)))
        }),
        "HDEL" => write(key, move |fields| {
            let removed = rest.iter().filter(|field| fields.remove(*field).is_some()).count();
            Ok(Reply::Number(removed as i64))
        }),
        "HINCRBY" => {
            let by = integer(&rest[1])?;
            write(key, move |fields| {
                let not_a_number = |_| Reply::Error("ERR hash value is not an integer".to_owned());
                let old = fields.get(&field).map_or(Ok(0), |value| integer(value).map_err(not_a_number))?;
                let overflow = || Reply::Error("ERR increment or decrement would overflow".to_owned());
                let sum = old.checked_add(by).ok_or_else(overflow)?;
                fields.insert(field, sum.to_string().into());
                Ok(Reply::Number(sum))
            })
        }
        "HINCRBYFLOAT" => add_float(key, field, rest[1].clone()),
        "HSCAN" => scan(key, &rest),
        "HRANDFIELD" => random(key, &rest),
        "HGET" => read(key, move |fields| Reply::bulk(fields.get(&field).cloned())),
        "HMGET" => read(key, move |fields| {
            Reply::List(rest.iter().map(|field| Reply::bulk(fields.get(field).cloned())).collect())
        }),
        "HGETALL" => read(key, |fields| {
            let bulk = |bytes: &Bytes| Reply::Bulk(bytes.clone());
            Reply::Map(fields.iter().map(|(field, value)| (bulk(field), bulk(value))).collect())
        }),
        "HKEYS" => read(key, |fields| Reply::List(fields.keys().cloned().map(Reply::Bulk).collect())),
        "HVALS" => read(key, |fields| Reply::List(fields.values().cloned().map(Reply::Bulk).collect())),
        "HLEN" => read(key, |fields| Reply::Number(fields.len() as i64)),
        "HEXISTS" => read(key, move |fields| Reply::Number(i64::from(fields.contains_key(&field)))),
        _ => read(key, move |fields| Reply::Number(fields.get(&field).map_or(0, Bytes::len) as i64)),
    }
}

fn set(key: &Bytes, words: Vec<Bytes>, name: &str, reply: fn(i64) -> Reply) -> Result<Plan, Reply> {
    if words.len() % 2 == 1 {
        return Err(wrong_number(name));
    }
    write(key, move |fields| {
        let pairs = words.chunks_exact(2);
        let added = pairs.filter(|pair| fields.insert(pair[0].clone(), pair[1].clone()).is_none()).count();
        Ok(reply(added as i64))
    })
}

fn add_float(key: &Bytes, field: Bytes, by: Bytes) -> Result<Plan, Reply> {
    match float::plain(&by) {
        Some(by) if by.is_finite() => {}
        Some(_) => return Err(Reply::Error("ERR value is NaN or Infinity".to_owned())),
        None => return Err(Reply::Error("ERR value is not a valid float".to_owned())),
    }
    write(key, move |fields| match float::add(fields.get(&field).map_or(&b"0"[..], |old| old), &by) {
        Sum::Text(sum) => {
            let sum = Bytes::from(sum);
            fields.insert(field, sum.clone());
            Ok(Reply::Bulk(sum))
        }
        Sum::NoNumber => Err(Reply::Error("ERR hash value is not a float".to_owned())),
        Sum::Infinite => Err(Reply::Error("ERR increment would produce NaN or Infinity".to_owned())),
    })
}

/// All fields at once, as Redis does for small hashes.
fn scan(key: &Bytes, rest: &[Bytes]) -> Result<Plan, Reply> {
    let _cursor: u64 = super::commands::cursor(&rest[0])?;
    let mut pattern = None;
    for option in rest[1..].chunks(2) {
        match option {
            [name, value] if name.eq_ignore_ascii_case(b"MATCH") => pattern = Some(value.clone()),
            [name, value] if name.eq_ignore_ascii_case(b"COUNT") => {
                if integer(value)? < 1 {
                    return Err(Reply::syntax());
                }
            }
            _ => return Err(Reply::syntax()),
        }
    }
    pattern.as_deref().map_or(Ok(()), glob::check)?;
    read(key, move |fields| {
        let is_wanted = |field: &Bytes| pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, field));
        let found = fields.iter().filter(|(field, _)| is_wanted(field));
        let pairs = found.flat_map(|(field, value)| [Reply::Bulk(field.clone()), Reply::Bulk(value.clone())]);
        Reply::List(vec![Reply::text("0"), Reply::List(pairs.collect())])
    })
}

/// The most fields of one reply of `HRANDFIELD` with a negative count.
const RANDOM_MAX: u64 = 1_000_000;

fn random(key: &Bytes, rest: &[Bytes]) -> Result<Plan, Reply> {
    let Some(count) = rest.first() else {
        return read(key, |fields| Reply::bulk(pick(fields, 1).next().map(|(field, _)| field.clone())));
    };
    let with_values = match &rest[1..] {
        [] => false,
        [word] if word.eq_ignore_ascii_case(b"WITHVALUES") => true,
        _ => return Err(Reply::syntax()),
    };
    let count = integer(count)?;
    if count == i64::MIN || count < -(RANDOM_MAX as i64) {
        return Err(Reply::Error("ERR value is out of range".to_owned()));
    }
    read(key, move |fields| {
        let found: Vec<_> = if count >= 0 {
            pick(fields, count.unsigned_abs()).collect()
        } else {
            (0..count.unsigned_abs()).filter_map(|_| pick(fields, 1).next()).collect()
        };
        let bulk = |bytes: &Bytes| Reply::Bulk(bytes.clone());
        if with_values {
            Reply::Pairs(found.into_iter().map(|(field, value)| (bulk(field), bulk(value))).collect())
        } else {
            Reply::List(found.into_iter().map(|(field, _)| bulk(field)).collect())
        }
    })
}

/// Different fields, from a random one on.
fn pick(fields: &Fields, count: u64) -> impl Iterator<Item = (&Bytes, &Bytes)> {
    let start = if fields.is_empty() { 0 } else { super::commands::random_number() as usize % fields.len() };
    fields.iter().cycle().skip(start).take(fields.len().min(usize::try_from(count).unwrap_or(usize::MAX)))
}

fn read(key: &Bytes, reply: impl FnOnce(&Fields) -> Reply + Send + 'static) -> Result<Plan, Reply> {
    Plan::one(Step::read(key, |kept| Ok(reply(hash(kept)?.unwrap_or(&Fields::new())))))
}

/// Changes the fields; a hash without fields is removed.
fn write(
    key: &Bytes,
    change: impl FnOnce(&mut Fields) -> Result<Reply, Reply> + Send + 'static,
) -> Result<Plan, Reply> {
    Plan::one(Step::write(key, |kept: Kept<'_>| {
        let old = hash(kept)?;
        let mut fields = old.cloned().unwrap_or_default();
        let reply = change(&mut fields)?;
        let next = if old.unwrap_or(&Fields::new()) == &fields {
            Next::Keep
        } else if fields.is_empty() {
            Next::Remove
        } else {
            Next::Put(Value::Hash(fields), kept.and_then(|entry| entry.expires))
        };
        Ok((next, reply))
    }))
}
