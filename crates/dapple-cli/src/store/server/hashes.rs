//! Commands on hashes. A hash is one value: a change writes all of it.

use std::collections::BTreeMap;

use bytes::Bytes;

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
