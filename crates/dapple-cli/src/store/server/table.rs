//! The commands that there are.

use bytes::Bytes;

use super::commands::Answer;
use super::plan::Plan;
use super::reply::Reply;
use super::session::wrong_number;
use Kind::{Other, Read, Write};

/// The effect of a command on keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Other,
}

/// The places of keys among the words of a command: the first one, the last one (from the end if negative), the distance.
type Keys = (i64, i64, i64);

/// The name of a command, the fewest and the most words including the name, its kind, and its keys.
type Row = (&'static str, usize, usize, Kind, Keys);

const NO_KEYS: Keys = (0, 0, 0);
const ONE: Keys = (1, 1, 1);
const TWO: Keys = (1, 2, 1);
const ALL: Keys = (1, -1, 1);
const PAIRS: Keys = (1, -1, 2);
const MANY: usize = usize::MAX;

/// In the order of their names.
const COMMANDS: &[Row] = &[
    ("APPEND", 3, 3, Write, ONE),
    ("AUTH", 2, MANY, Other, NO_KEYS),
    ("CLIENT", 2, MANY, Other, NO_KEYS),
    ("COMMAND", 1, MANY, Other, NO_KEYS),
    ("CONFIG", 2, MANY, Other, NO_KEYS),
    ("DAPPLE.HOTKEYS", 1, 1, Read, NO_KEYS),
    ("DAPPLE.PARTITIONS", 1, 2, Other, NO_KEYS),
    ("DBSIZE", 1, 1, Read, NO_KEYS),
    ("DECR", 2, 2, Write, ONE),
    ("DECRBY", 3, 3, Write, ONE),
    ("DEL", 2, MANY, Write, ALL),
    ("DISCARD", 1, 1, Other, NO_KEYS),
    ("ECHO", 2, 2, Other, NO_KEYS),
    ("EXEC", 1, 1, Other, NO_KEYS),
    ("EXISTS", 2, MANY, Read, ALL),
    ("EXPIRE", 3, MANY, Write, ONE),
    ("EXPIREAT", 3, MANY, Write, ONE),
    ("EXPIRETIME", 2, 2, Read, ONE),
    ("FLUSHALL", 1, MANY, Write, NO_KEYS),
    ("FLUSHDB", 1, MANY, Write, NO_KEYS),
    ("GET", 2, 2, Read, ONE),
    ("GETDEL", 2, 2, Write, ONE),
    ("GETEX", 2, MANY, Write, ONE),
    ("GETRANGE", 4, 4, Read, ONE),
    ("GETSET", 3, 3, Write, ONE),
    ("HDEL", 3, MANY, Write, ONE),
    ("HELLO", 1, MANY, Other, NO_KEYS),
    ("HEXISTS", 3, 3, Read, ONE),
    ("HGET", 3, 3, Read, ONE),
    ("HGETALL", 2, 2, Read, ONE),
    ("HINCRBY", 4, 4, Write, ONE),
    ("HINCRBYFLOAT", 4, 4, Write, ONE),
    ("HKEYS", 2, 2, Read, ONE),
    ("HLEN", 2, 2, Read, ONE),
    ("HMGET", 3, MANY, Read, ONE),
    ("HMSET", 4, MANY, Write, ONE),
    ("HRANDFIELD", 2, MANY, Read, ONE),
    ("HSCAN", 3, MANY, Read, ONE),
    ("HSET", 4, MANY, Write, ONE),
    ("HSETNX", 4, 4, Write, ONE),
    ("HSTRLEN", 3, 3, Read, ONE),
    ("HVALS", 2, 2, Read, ONE),
    ("INCR", 2, 2, Write, ONE),
    ("INCRBY", 3, 3, Write, ONE),
    ("INCRBYFLOAT", 3, 3, Write, ONE),
    ("INFO", 1, MANY, Other, NO_KEYS),
    ("KEYS", 2, 2, Read, NO_KEYS),
    ("MGET", 2, MANY, Read, ALL),
    ("MSET", 3, MANY, Write, PAIRS),
    ("MSETNX", 3, MANY, Write, PAIRS),
    ("MULTI", 1, 1, Other, NO_KEYS),
    ("PERSIST", 2, 2, Write, ONE),
    ("PEXPIRE", 3, MANY, Write, ONE),
    ("PEXPIREAT", 3, MANY, Write, ONE),
    ("PEXPIRETIME", 2, 2, Read, ONE),
    ("PING", 1, 2, Other, NO_KEYS),
    ("PSETEX", 4, 4, Write, ONE),
    ("PSUBSCRIBE", 2, MANY, Other, NO_KEYS),
    ("PTTL", 2, 2, Read, ONE),
    ("PUBLISH", 3, 3, Other, NO_KEYS),
    ("PUBSUB", 2, MANY, Other, NO_KEYS),
    ("PUNSUBSCRIBE", 1, MANY, Other, NO_KEYS),
    ("QUIT", 1, MANY, Other, NO_KEYS),
    ("RANDOMKEY", 1, 1, Read, NO_KEYS),
    ("RENAME", 3, 3, Write, TWO),
    ("RENAMENX", 3, 3, Write, TWO),
    ("RESET", 1, 1, Other, NO_KEYS),
    ("SCAN", 2, MANY, Read, NO_KEYS),
    ("SELECT", 2, 2, Other, NO_KEYS),
    ("SET", 3, MANY, Write, ONE),
    ("SETEX", 4, 4, Write, ONE),
    ("SETNX", 3, 3, Write, ONE),
    ("SETRANGE", 4, 4, Write, ONE),
    ("STRLEN", 2, 2, Read, ONE),
    ("SUBSCRIBE", 2, MANY, Other, NO_KEYS),
    ("SUBSTR", 4, 4, Read, ONE),
    ("TIME", 1, 1, Other, NO_KEYS),
    ("TOUCH", 2, MANY, Read, ALL),
    ("TTL", 2, 2, Read, ONE),
    ("TYPE", 2, 2, Read, ONE),
    ("UNLINK", 2, MANY, Write, ALL),
    ("UNSUBSCRIBE", 1, MANY, Other, NO_KEYS),
    ("UNWATCH", 1, 1, Other, NO_KEYS),
    ("WATCH", 2, MANY, Other, ALL),
];

fn find(name: &str) -> Option<&'static Row> {
    COMMANDS.binary_search_by_key(&name, |(known, ..)| known).ok().map(|at| &COMMANDS[at])
}

/// Checks that the command exists, and that it may have this many words. Returns its name.
pub(super) fn check(name: &str, words: &[Bytes]) -> Result<&'static str, Reply> {
    let Some((known, least, most, ..)) = find(name) else { return Err(unknown(words)) };
    if (least..=most).contains(&&words.len()) { Ok(known) } else { Err(wrong_number(name)) }
}

pub(super) fn unknown(words: &[Bytes]) -> Reply {
    const SHOWN_MAX: usize = 128;
    let text = |word: &Bytes| String::from_utf8_lossy(&word[..word.len().min(SHOWN_MAX)]).into_owned();
    let args: String = words[1..].iter().take(8).map(|word| format!("'{}' ", text(word))).collect();
    Reply::Error(format!("ERR unknown command '{}', with args beginning with: {args}", text(&words[0])))
}

/// Runs `COMMAND`.
pub(super) fn about(args: &[Bytes]) -> Answer {
    let Some((word, rest)) = args.split_first() else {
        return Ok(Reply::List(COMMANDS.iter().map(info).collect()));
    };
    match (word.to_ascii_uppercase().as_slice(), rest) {
        (b"COUNT", []) => Ok(Reply::Number(COMMANDS.len() as i64)),
        (b"COUNT", _) => Err(wrong_number("command|count")),
        (b"DOCS", names) => Ok(super::docs::about(names)),
        (b"LIST", []) => {
            Ok(Reply::List(COMMANDS.iter().map(|(name, ..)| Reply::text(&name.to_ascii_lowercase())).collect()))
        }
        (b"LIST", _) => Err(Reply::syntax()),
        (b"INFO", []) => Ok(Reply::List(COMMANDS.iter().map(info).collect())),
        (b"INFO", names) => {
            let known = |name: &Bytes| find(&String::from_utf8_lossy(name).to_ascii_uppercase());
            Ok(Reply::List(names.iter().map(|name| known(name).map_or(Reply::NullList, info)).collect()))
        }
        (b"GETKEYS", [] | [_]) => Err(wrong_number("command|getkeys")),
        (b"GETKEYS", words) => keys(words),
        _ => Err(Reply::unknown_subcommand("COMMAND", word)),
    }
}

fn keys(words: &[Bytes]) -> Answer {
    let refused = |text: &str| Err(Reply::Error(format!("ERR {text}")));
    let Some((_, least, most, _, (first, last, step))) = find(&String::from_utf8_lossy(&words[0]).to_ascii_uppercase())
    else {
        return refused("Invalid command specified");
    };
    if *step == 0 {
        return refused("The command has no key arguments");
    }
    if !(least..=most).contains(&&words.len()) {
        return refused("Invalid number of arguments specified for command");
    }
    let last = if *last < 0 { words.len() as i64 + last } else { *last };
    let places = (*first..=last).step_by(*step as usize);
    Ok(Reply::List(places.map(|at| Reply::Bulk(words[at as usize].clone())).collect()))
}

/// A description as Redis 6 gives it, which clients of all versions read: name, number of words, flags, keys.
fn info((name, least, most, kind, (first, last, step)): &Row) -> Reply {
    let words = if least == most { *least as i64 } else { -(*least as i64) };
    let flags = match kind {
        Read => vec![Reply::Simple("readonly")],
        Write => vec![Reply::Simple("write")],
        Other => Vec::new(),
    };
    let mut all = vec![Reply::text(&name.to_ascii_lowercase()), Reply::Number(words), Reply::List(flags)];
    all.extend([first, last, step].map(|number| Reply::Number(*number)));
    // Categories, hints, details of keys, subcommands.
    all.extend(std::iter::repeat_n(Reply::List(Vec::new()), 4));
    Reply::List(all)
}

/// The plan of a checked command on keys; `None` for other commands.
pub(super) fn plan(name: &str, args: &[Bytes]) -> Option<Result<Plan, Reply>> {
    if args.is_empty() {
        return None;
    }
    let hash = || (name.starts_with('H') && name != "HELLO").then(|| super::hashes::plan(name, args));
    super::strings::plan(name, args).or_else(|| super::keys::plan(name, args)).or_else(hash)
}

#[cfg(test)]
mod tests {
    use super::super::docs::DOCS;
    use super::COMMANDS;

    #[test]
    fn the_commands_are_in_the_order_of_their_names() {
        assert!(COMMANDS.is_sorted_by_key(|(name, ..)| name));
    }

    #[test]
    fn each_command_has_a_line_about_it() {
        assert!(COMMANDS.iter().map(|(name, ..)| name).eq(DOCS.iter().map(|(name, ..)| name)));
    }
}
