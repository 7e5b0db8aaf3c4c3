//! `COMMAND DOCS`: a line about each command, which `redis-cli` and others show.

use bytes::Bytes;

use super::reply::Reply;

/// The name of a command, its group, the version of Redis that had it first, and what it does.
type Row = (&'static str, &'static str, &'static str, &'static str);

/// In the order of their names.
pub(super) const DOCS: &[Row] = &[
    ("APPEND", "string", "2.0.0", "Appends to a string, which is made if it is not there"),
    ("AUTH", "connection", "1.0.0", "Gives the password"),
    ("CLIENT", "connection", "2.4.0", "Shows and changes connections"),
    ("COMMAND", "server", "2.8.13", "Tells of commands"),
    ("CONFIG", "server", "2.0.0", "Shows settings"),
    ("DAPPLE.HOTKEYS", "server", "0.1.0", "Returns the keys with the most operations, each with its share in percent"),
    ("DAPPLE.PARTITIONS", "server", "0.1.0", "Shows or changes the number of partitions"),
    ("DBSIZE", "server", "1.0.0", "Counts the keys"),
    ("DECR", "string", "1.0.0", "Subtracts one from a number"),
    ("DECRBY", "string", "1.0.0", "Subtracts from a number"),
    ("DEL", "generic", "1.0.0", "Removes keys"),
    ("DISCARD", "transactions", "2.0.0", "Forgets the commands since MULTI"),
    ("ECHO", "connection", "1.0.0", "Returns its word"),
    ("EXEC", "transactions", "1.2.0", "Runs the commands since MULTI"),
    ("EXISTS", "generic", "1.0.0", "Counts which of the keys are there"),
    ("EXPIRE", "generic", "1.0.0", "Sets after how many seconds a key expires"),
    ("EXPIREAT", "generic", "1.2.0", "Sets at which second a key expires"),
    ("EXPIRETIME", "generic", "7.0.0", "Returns at which second a key expires"),
    ("FLUSHALL", "server", "1.0.0", "Removes all keys of all databases"),
    ("FLUSHDB", "server", "1.0.0", "Removes all keys of the database"),
    ("GET", "string", "1.0.0", "Returns a string"),
    ("GETDEL", "string", "6.2.0", "Returns a string and removes it"),
    ("GETEX", "string", "6.2.0", "Returns a string and changes its expiry"),
    ("GETRANGE", "string", "2.4.0", "Returns a part of a string"),
    ("GETSET", "string", "1.0.0", "Sets a string and returns the old one"),
    ("HDEL", "hash", "2.0.0", "Removes fields of a hash"),
    ("HELLO", "connection", "6.0.0", "Chooses the version of the protocol"),
    ("HEXISTS", "hash", "2.0.0", "Tells whether a hash has a field"),
    ("HGET", "hash", "2.0.0", "Returns a field of a hash"),
    ("HGETALL", "hash", "2.0.0", "Returns the fields and values of a hash"),
    ("HINCRBY", "hash", "2.0.0", "Adds to a number in a field of a hash"),
    ("HINCRBYFLOAT", "hash", "2.6.0", "Adds to a fraction in a field of a hash"),
    ("HKEYS", "hash", "2.0.0", "Returns the fields of a hash"),
    ("HLEN", "hash", "2.0.0", "Counts the fields of a hash"),
    ("HMGET", "hash", "2.0.0", "Returns several fields of a hash"),
    ("HMSET", "hash", "2.0.0", "Sets several fields of a hash"),
    ("HRANDFIELD", "hash", "6.2.0", "Returns random fields of a hash"),
    ("HSCAN", "hash", "2.8.0", "Goes through the fields of a hash"),
    ("HSET", "hash", "2.0.0", "Sets fields of a hash"),
    ("HSETNX", "hash", "2.0.0", "Sets a field of a hash if it is not there"),
    ("HSTRLEN", "hash", "3.2.0", "Returns the length of a field of a hash"),
    ("HVALS", "hash", "2.0.0", "Returns the values of a hash"),
    ("INCR", "string", "1.0.0", "Adds one to a number"),
    ("INCRBY", "string", "1.0.0", "Adds to a number"),
    ("INCRBYFLOAT", "string", "2.6.0", "Adds to a fraction"),
    ("INFO", "server", "1.0.0", "Tells of the server"),
    ("KEYS", "generic", "1.0.0", "Returns the keys that match a pattern"),
    ("MGET", "string", "1.0.0", "Returns several strings"),
    ("MSET", "string", "1.0.1", "Sets several strings at one moment"),
    ("MSETNX", "string", "1.0.1", "Sets several strings if none of them is there"),
    ("MULTI", "transactions", "1.2.0", "Begins a transaction"),
    ("PERSIST", "generic", "2.2.0", "Removes the expiry of a key"),
    ("PEXPIRE", "generic", "2.6.0", "Sets after how many milliseconds a key expires"),
    ("PEXPIREAT", "generic", "2.6.0", "Sets at which millisecond a key expires"),
    ("PEXPIRETIME", "generic", "7.0.0", "Returns at which millisecond a key expires"),
    ("PING", "connection", "1.0.0", "Asks whether the server answers"),
    ("PSETEX", "string", "2.6.0", "Sets a string that expires after some milliseconds"),
    ("PSUBSCRIBE", "pubsub", "2.0.0", "Subscribes to the channels that match patterns"),
    ("PTTL", "generic", "2.6.0", "Returns the milliseconds until a key expires"),
    ("PUBLISH", "pubsub", "2.0.0", "Sends a message to a channel"),
    ("PUBSUB", "pubsub", "2.8.0", "Tells of channels and their subscribers"),
    ("PUNSUBSCRIBE", "pubsub", "2.0.0", "Ends subscriptions to patterns"),
    ("QUIT", "connection", "1.0.0", "Closes the connection"),
    ("RANDOMKEY", "generic", "1.0.0", "Returns a random key"),
    ("RENAME", "generic", "1.0.0", "Renames a key, and replaces another one"),
    ("RENAMENX", "generic", "1.0.0", "Renames a key if no other one has the name"),
    ("RESET", "connection", "6.2.0", "Makes the connection as it was at first"),
    ("SCAN", "generic", "2.8.0", "Goes through the keys"),
    ("SELECT", "connection", "1.0.0", "Chooses the database"),
    ("SET", "string", "1.0.0", "Sets a string, under conditions and with an expiry"),
    ("SETEX", "string", "2.0.0", "Sets a string that expires after some seconds"),
    ("SETNX", "string", "1.0.0", "Sets a string if the key is not there"),
    ("SETRANGE", "string", "2.2.0", "Writes into a string from a position on"),
    ("STRLEN", "string", "2.2.0", "Returns the length of a string"),
    ("SUBSCRIBE", "pubsub", "2.0.0", "Subscribes to channels"),
    ("SUBSTR", "string", "1.0.0", "Returns a part of a string"),
    ("TIME", "server", "2.6.0", "Returns the time of the server"),
    ("TOUCH", "generic", "3.2.1", "Counts which of the keys are there"),
    ("TTL", "generic", "1.0.0", "Returns the seconds until a key expires"),
    ("TYPE", "generic", "1.0.0", "Returns the type of a key"),
    ("UNLINK", "generic", "4.0.0", "Removes keys"),
    ("UNSUBSCRIBE", "pubsub", "2.0.0", "Ends subscriptions to channels"),
    ("UNWATCH", "transactions", "2.2.0", "Forgets the watched keys"),
    ("WATCH", "transactions", "2.2.0", "Lets EXEC run only if these keys do not change"),
];

/// Returns the lines of the commands with these names, or of all.
pub(super) fn about(names: &[Bytes]) -> Reply {
    let all = || DOCS.iter().collect();
    let find = |name: &Bytes| DOCS.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known.as_bytes()));
    let found: Vec<&Row> = if names.is_empty() { all() } else { names.iter().filter_map(find).collect() };
    Reply::Map(found.into_iter().map(entry).collect())
}

fn entry((name, group, since, summary): &Row) -> (Reply, Reply) {
    let about =
        [("summary", summary), ("since", since), ("group", group)].map(|(name, text)| (name, Reply::text(text)));
    (Reply::text(&name.to_ascii_lowercase()), Reply::named(about))
}
