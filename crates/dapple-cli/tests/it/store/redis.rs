//! The same requests to `dapple store serve` and to a real Redis, if one is installed: the replies are the same bytes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::server::Server;

/// A Redis with a socket in a directory, and no port.
struct Redis {
    child: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts `redis-server`; `None` if it is not installed.
    fn start(directory: &Path) -> Option<Redis> {
        let socket = directory.join("redis.sock");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(directory)
            .stdout(Stdio::null())
            .spawn();
        let redis = Redis { child: started.ok()?, socket };
        while UnixStream::connect(&redis.socket).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Some(redis)
    }

    fn ask(&self, requests: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(format!("{requests}\nQUIT\n").as_bytes()).unwrap();
        let mut replies = Vec::new();
        stream.read_to_end(&mut replies).unwrap();
        let replies = String::from_utf8_lossy(&replies).into_owned();
        replies.strip_suffix("+OK\r\n").unwrap_or(&replies).replace("\r\n", " ")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests, a script a block; each script begins with empty databases. Hashes get their fields in order, because Redis
/// keeps the order in which they came.
const SCRIPTS: &str = r#"
SET a 1
GET a
SET a 2 NX
SET b 2 XX
SET a 3 XX GET
SET a 4 EX 100 KEEPTTL
SET a 4 NX XX
SET a 4 EX
SET a 4 EX 10 PX 10
SET a 4 EX abc
SET a 4 EX 0
SET a 4 EX -1
SET a 4 EX 9223372036854775807
SET a 4 PX 9223372036854775807
SET a 4 EX 100
SET a 5 KEEPTTL
TTL a
SET a 6
TTL a
SET n v NX GET
SET n w NX GET
GET n
SETEX a 0 b
SETEX a abc b
SETEX a 100 b
PSETEX a -1 b
PSETEX a 100000 b
TTL a
SETNX a x
SETNX q x
GETSET q y
GETDEL q
GETDEL q
GETEX a PERSIST
TTL a
GETEX a EX 100
TTL a
GETEX a foo
GETEX a foo 1
GETEX a EX
GETEX a EX 0
GETEX a EX 10 PX 10
GETEX a PERSIST EX 10
GETEX none

INCR a
INCRBY a 5
DECR a
DECRBY a 10
INCRBY a abc
INCR a b
SET a 9223372036854775807
INCR a
SET a -9223372036854775808
DECR a
DECRBY a -9223372036854775808
SET a " 1"
INCR a
SET a 01
INCR a
SET f 10.5
INCRBYFLOAT f 0.1
INCRBYFLOAT f -5
SET f 5.0e3
INCRBYFLOAT f 2.0e2
INCRBYFLOAT f 0.1
INCRBYFLOAT f abc
INCRBYFLOAT f nan
INCRBYFLOAT none inf
INCRBYFLOAT none 3.0
SET f abc
INCRBYFLOAT f 1
HSET h a 1
INCRBYFLOAT h 1
INCRBYFLOAT h abc

APPEND a hello
APPEND a world
STRLEN a
STRLEN none
GETRANGE a 0 4
GETRANGE a -5 -1
GETRANGE a 3 1
GETRANGE a 0 -100
GETRANGE a -1 -3
GETRANGE a 20 30
GETRANGE none 0 1
SUBSTR a 1 2
GETRANGE a x 1
SETRANGE a 2 XX
GET a
SETRANGE a 12 !
GET a
SETRANGE none 0 ""
EXISTS none
SETRANGE none 3 x
GET none
SETRANGE a -1 b
SETRANGE a 536870912 b
SETRANGE a x b

MSET a 1 b 2
MGET a b c
MSET a 1 b
MSETNX a 1 c 2
MSETNX c 1 d
MSETNX c 1 d 2 c 3
MGET a c d
DEL a b none a
EXISTS c d c none
TOUCH c none
UNLINK c
TYPE c
TYPE d
HSET h f v
TYPE h
RENAME d e
RENAME none x
RENAME e e
RENAMENX e h
RENAMENX e e
RENAMENX e g
RENAMENX none x
GET g
DBSIZE
FLUSHDB foo
FLUSHDB async x
FLUSHDB SYNC
DBSIZE
RANDOMKEY
KEYS *
SCAN 0
SET only 1
KEYS o*y
KEYS [a-o]n?y
KEYS x*
SCAN 0 MATCH on*
SCAN 0 MATCH x* COUNT 10
SCAN 0 TYPE string
SCAN 0 TYPE hash
SCAN 0 COUNT 0
SCAN 0 COUNT x
SCAN 0 COUNT
SCAN 0 foo bar
SCAN x
RANDOMKEY

SET a 1
EXPIRE a 100
TTL a
EXPIRE a 50 NX
EXPIRE a 50 GT
EXPIRE a 500 GT
TTL a
EXPIRE a 1000 LT
EXPIRE a 10 LT
EXPIRE a 10 XX
PERSIST a
PERSIST a
EXPIRE a 10 XX
EXPIRE a 10 GT
EXPIRE a 10 LT
EXPIRE a 10 NX XX
EXPIRE a 10 GT LT
EXPIRE a 10 foo
EXPIRE a abc
EXPIRE a 9223372036854775807
PEXPIRE a 9223372036854775807
EXPIRE none 10
PERSIST none
TTL none
PTTL none
EXPIREAT a 4102444800
EXPIRETIME a
PEXPIRETIME a
PEXPIREAT a 4102444800123
PEXPIRETIME a
EXPIRETIME none
EXPIREAT a -1
EXISTS a
SET a 1
EXPIRETIME a
EXPIRE a 0
GET a
SET a 1
PEXPIRE a -5
GET a

HSET h a 1 b 2
HSET h a 3 c 4
HSET h a
HMSET h d 5
HMSET h d
HGET h a
HGET h none
HGET none a
HMGET h a none b
HGETALL h
HKEYS h
HVALS h
HLEN h
HSTRLEN h a
HSTRLEN h none
HEXISTS h a
HEXISTS h none
HSETNX h a 9
HSETNX h e 9
HDEL h a none b
HINCRBY h c 10
HINCRBY h c x
HSET h f x
HINCRBY h f 1
HINCRBY h z 9223372036854775807
HINCRBY h z 1
HINCRBYFLOAT h f 1
HINCRBYFLOAT h zz 2.50
HINCRBYFLOAT h zz x
HINCRBYFLOAT h zz inf
HSCAN h 0
HSCAN h 0 MATCH c* COUNT 1
HSCAN none 0
HSCAN h x
HSCAN h 0 foo
HSCAN h 0 COUNT 0
HRANDFIELD none
HRANDFIELD none 2
HRANDFIELD h 2 foo
HRANDFIELD h x
HRANDFIELD h 0
HDEL h c d e f z zz
EXISTS h
HSET o k v
HRANDFIELD o
HRANDFIELD o 5
HRANDFIELD o -2
HRANDFIELD o 1 WITHVALUES
SET s x
HGET s a
HSET s a 1
HLEN s
GET o
INCR o
APPEND o x
GETRANGE o 0 1
GETDEL o
GETEX o
SET s y GET
SET o y GET
MGET s o none

MULTI
SET a 1
INCR a
GET a
HSET a f v
EXEC
GET a
MULTI
SET a x
DISCARD
GET a
EXEC
DISCARD
MULTI
NOSUCH
EXEC
MULTI
GET
SET a y
EXEC
GET a
MULTI
MULTI
WATCH a
EXEC
WATCH a
SET a 10
MULTI
SET a 11
EXEC
GET a
WATCH a
UNWATCH
SET a 12
MULTI
SET a 13
UNWATCH
EXEC
WATCH
UNWATCH x
MULTI
WATCH
EXEC
EXEC x
MULTI
EXEC x
EXEC
MULTI
DISCARD x
EXEC
MULTI
EXEC

SET old x
MULTI
SET a 1
DBSIZE
SET b 2
KEYS b
PING
SCAN 0 MATCH b
FLUSHDB
SET c 3
DBSIZE
GET old
EXEC
KEYS *
WATCH c
SET c 4
MULTI
FLUSHDB
SET d 5
EXEC
KEYS *

MULTI
SELECT 1
SET k v
SELECT 99
SELECT x
CLIENT GETNAME
AUTH x
GET k
EXEC
GET k
SELECT 0
GET k
SELECT 16
SELECT -1
SELECT x
SELECT 1.5

SUBSCRIBE a b a
GET x
CONFIG GET save
CONFIG
NOSUCH
GET
PING
PING x
PING x y
MULTI
HELLO 3
UNSUBSCRIBE a
PSUBSCRIBE x*
UNSUBSCRIBE none
PUNSUBSCRIBE
UNSUBSCRIBE
UNSUBSCRIBE
PUNSUBSCRIBE a b
PING
PUBLISH a x
PUBSUB NUMSUB
PUBSUB NUMSUB a
PUBSUB CHANNELS
PUBSUB CHANNELS a b
PUBSUB NUMPAT
PUBSUB NUMPAT x
PUBSUB foo
PUBSUB
PUBLISH a
SUBSCRIBE
MULTI
SUBSCRIBE q r
PING
GET x
EXEC
PING
RESET
PING

AUTH
AUTH a b c
AUTH x
AUTH default x
AUTH u x
HELLO 4
HELLO x
HELLO 3 foo
HELLO 3 SETNAME "a b"
CLIENT
CLIENT foo
CLIENT SETNAME
CLIENT SETNAME a
CLIENT SETNAME "a b"
CLIENT GETNAME
CLIENT GETNAME x
CLIENT NO-EVICT on
CLIENT NO-EVICT
CLIENT NO-EVICT foo
CLIENT ID x
CLIENT REPLY ON
CLIENT KILL
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID x
CLIENT KILL ID 0
CLIENT KILL ID 99999
CLIENT KILL ADDR 1.2.3.4:5
CLIENT KILL TYPE foo
CLIENT KILL TYPE Foo
CLIENT KILL TYPE PubSub
CLIENT KILL TYPE normal TYPE pubsub
CLIENT KILL ID 99999 ID 0
CLIENT KILL ID 99999 ID 99998
CLIENT KILL USER default TYPE pubsub
CLIENT KILL TYPE pubsub
CLIENT KILL USER foo
CLIENT KILL SKIPME foo
CLIENT KILL ID 4 foo
CLIENT LIST TYPE foo
CLIENT LIST TYPE Foo
CLIENT LIST ID 99999 x
CLIENT LIST ID 99999 99998
CLIENT LIST TYPE pubsub
CLIENT LIST ID x
CLIENT LIST ID
CLIENT LIST ID 99999
CLIENT LIST foo
CLIENT LIST TYPE
CONFIG foo
CONFIG GET
CONFIG SET
CONFIG SET foo bar
CONFIG SET databases 17
CONFIG SET Databases 17 foo 1
CONFIG SET MaxMemory 0 Maxmemory 0
CONFIG SET maxmemory 0 Maxmemory 0 maxmemory 1
CONFIG SET foo 1 databases 17
CONFIG SET foo 1 bar 2
CONFIG SET foo 1 bar
CONFIG SET databases 17 maxmemory
CONFIG SET maxmemory
CONFIG SET maxmemory 0 foo
CONFIG SET maxmemory 0 maxmemory 0
CONFIG SET maxmemory 0 foo 1
CONFIG SET maxmemory 0
CONFIG GET maxmemory
CONFIG RESETSTAT x
CONFIG REWRITE
CONFIG REWRITE x
COMMAND DOCS nosuch
COMMAND LIST x
COMMAND COUNT x
COMMAND foo
COMMAND GETKEYS MSET a 1 b 2
COMMAND GETKEYS GET
COMMAND GETKEYS GET a b
COMMAND GETKEYS PING x
COMMAND GETKEYS NOSUCH x
ECHO
ECHO "a b"
TIME x
RANDOMKEY x
RESET x
PING
PING a b
NOSUCH a b c

CLIENT KILL TYPE pubsub TYPE normal ADDR 1.2.3.4:5 ADDR 1.2.3.4:6 LADDR x
CLIENT KILL TYPE pubsub ID 99999 TYPE normal SKIPME yes SKIPME no
CLIENT KILL TYPE pubsub TYPE normal SKIPME yes SKIPME no
PING

GET "a
"#;

#[test]
fn replies_are_the_same_bytes_as_those_of_redis() {
    let [ours, theirs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(redis) = Redis::start(theirs.path()) else {
        eprintln!("redis-server is not installed: nothing compared");
        return;
    };
    let server = Server::start(ours.path(), &[]);
    for script in SCRIPTS.trim().split("\n\n") {
        redis.ask("FLUSHALL");
        server.ask("FLUSHALL");
        let (found, expected) = (server.ask(script), redis.ask(script));
        if found != expected {
            let at = found.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
            let from = at.saturating_sub(120);
            let show =
                |text: &str| String::from_utf8_lossy(&text.as_bytes()[from..(at + 120).min(text.len())]).into_owned();
            panic!("of\n{script}\n\nours:   {}\nRedis's: {}", show(&found), show(&expected));
        }
    }
    server.stop();
}
