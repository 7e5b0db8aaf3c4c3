//! `dapple store serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Server {
    child: Child,
    addr: String,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dapple"))
            .args(["store", "serve", &format!("redb:{}", folder.join("store").display()), "--port", "0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let addr = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next()).unwrap().to_owned();
        Server { child, addr, stdout }
    }

    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// The next line that the server prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// The memory of the server.
    fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends requests as words, one a line, and returns everything that arrives until the server
    /// closes.
    pub(crate) fn ask(&self, requests: &str) -> String {
        self.ask_bytes(format!("{requests}\nQUIT\n").as_bytes())
    }

    fn ask_bytes(&self, requests: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.addr).unwrap();
        stream.write_all(requests).unwrap();
        let mut replies = String::new();
        stream.read_to_string(&mut replies).unwrap();
        let _ = stream.shutdown(Shutdown::Both);
        // The last one answers `QUIT`.
        replies.strip_suffix("+OK\r\n").unwrap_or(&replies).replace("\r\n", " ")
    }

    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn replies_are_those_of_redis() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    for (requests, replies) in [
        ("PING\nECHO x", "+PONG $1 x "),
        ("SET a 1\nGET a\nGET none", "+OK $1 1 $-1 "),
        ("INCR a\nDECRBY a 12\nSTRLEN a", ":2 :-10 :3 "),
        ("SET a 9223372036854775807\nINCR a", "+OK -ERR increment or decrement would overflow "),
        ("SET t x\nINCR t\nSET t y NX\nSET t z XX GET", "+OK -ERR value is not an integer or out of range $-1 $1 x "),
        ("APPEND t more\nGETRANGE t -4 -1\nSETRANGE t 7 !\nGETDEL t", ":5 $4 more :8 $8 zmore\0\0! "),
        ("SET e 1 EX 100\nTTL e\nPERSIST e\nTTL e\nTTL none", "+OK :100 :1 :-1 :-2 "),
        ("SET e 1 PX 0\nEXPIRE e -1\nEXISTS e", "-ERR invalid expire time in 'set' command :1 :0 "),
        ("MSET k1 v1 k2 v2\nMGET k1 k2 k3\nDEL k1 k3", "+OK *3 $2 v1 $2 v2 $-1 :1 "),
        ("KEYS k*\nTYPE k2\nTYPE k1\nDBSIZE", "*1 $2 k2 +string +none :2 "),
        (
            "RENAME k2 k4\nGET k4\nRENAME k2 k4\nRENAMENX k4 k4\nRENAMENX k4 k5\nEXISTS k4 k5 k5",
            "+OK $2 v2 -ERR no such key :0 :1 :2 ",
        ),
        (
            "RENAME k5 k2\nHSET h a 1 b 2\nHSET h a 3 c 4\nHGET h a\nHGETALL h",
            "+OK :2 :1 $1 3 *6 $1 a $1 3 $1 b $1 2 $1 c $1 4 ",
        ),
        (
            "HDEL h a b nosuch\nHINCRBY h c 6\nHMGET h c x\nHLEN h\nHEXISTS h x\nTYPE h",
            ":2 :10 *2 $2 10 $-1 :1 :0 +hash ",
        ),
        (
            "GET h\nHGET k2 a\nINCR h\nMGET h k2",
            "-WRONGTYPE Operation against a key holding the wrong kind of value -WRONGTYPE Operation against a key holding the wrong kind of value -WRONGTYPE Operation against a key holding the wrong kind of value *2 $-1 $2 v2 ",
        ),
        (
            "SCAN 0 TYPE hash\nHSET h c x\nHINCRBY h c 1\nHDEL h c\nEXISTS h\nHGETALL h",
            "*2 $1 0 *1 $1 h :0 -ERR hash value is not an integer :1 :0 *0 ",
        ),
        ("SELECT 1\nDBSIZE\nSELECT 99", "+OK :0 -ERR DB index is out of range "),
        (
            "GET\nNOSUCH a",
            "-ERR wrong number of arguments for 'get' command -ERR unknown command 'NOSUCH', with args beginning with: 'a'  ",
        ),
    ] {
        assert_eq!(server.ask(requests), replies, "{requests}");
    }
    assert_eq!(server.ask_bytes(b"*1\r\n$99999999999\r\n"), "-ERR Protocol error: invalid bulk length ");
    server.stop();
}

#[test]
fn a_pipeline_is_answered_in_order_and_reads_see_the_writes_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (mut requests, mut replies) = (String::new(), String::new());
    for number in 0..300 {
        requests += &format!("SET k{} {number}\nINCR all\nAPPEND k{} x\nGET k{}\n", number % 7, number % 7, number % 7);
        replies += &format!(
            "+OK :{} :{} ${} {number}x ",
            number + 1,
            number.to_string().len() + 1,
            number.to_string().len() + 1
        );
    }
    assert_eq!(server.ask(requests.trim_end()), replies);
    server.stop();
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[]);
    let sets: Vec<String> = (0..200).map(|number| format!("SET key{number} {number}")).collect();
    assert_eq!(
        server.ask_bytes(format!("{}\nPING\nQUIT\n", sets.join("\n")).as_bytes()),
        "+OK ".repeat(200) + "+PONG "
    );
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.ask("DBSIZE\nGET key199"), ":200 $3 199 ");
    server.stop();
}

#[test]
fn a_scan_returns_every_key_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let sets: Vec<String> = (0..100).map(|number| format!("SET key{number:03} x")).collect();
    server.ask(&sets.join("\n"));
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let reply = server.ask(&format!("SCAN {cursor} COUNT 7"));
        let words: Vec<&str> = reply.split_whitespace().collect();
        found.extend(words.iter().filter(|word| word.starts_with("key")).map(|word| (*word).to_owned()));
        words[2].clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    let expected: Vec<String> = (0..100).map(|number| format!("key{number:03}")).collect();
    assert_eq!(found, expected);
    assert_eq!(server.ask("SCAN 999999"), "-ERR invalid cursor ");
    server.stop();
}

#[test]
fn a_password_is_required_beyond_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let server = Server::start(folder.path(), &["--password-file", file.to_str().unwrap()]);
    assert_eq!(server.ask("GET a"), "-NOAUTH Authentication required. ");
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled. ";
    assert_eq!(server.ask("AUTH wrong\nAUTH other secret"), wrong.repeat(2));
    assert_eq!(server.ask("AUTH secret\nGET a"), "+OK $-1 ");
    assert!(server.ask("HELLO 3 AUTH default secret\nGET a").ends_with("*0 _ "));
    server.stop();
    let open = Command::new(env!("CARGO_BIN_EXE_dapple"))
        .args(["store", "serve", &format!("redb:{}", folder.path().join("store").display()), "--port", "0"])
        .args(["--host", "0.0.0.0"])
        .output()
        .unwrap();
    assert_eq!(open.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&open.stderr).contains("password"));
}

#[test]
fn an_excess_client_gets_an_error_and_a_free_place_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--connections", "1"]);
    let mut first = TcpStream::connect(&server.addr).unwrap();
    first.write_all(b"PING\r\n").unwrap();
    let mut pong = [0; 7];
    first.read_exact(&mut pong).unwrap();
    assert_eq!(server.ask_bytes(b""), "-ERR max number of clients reached ");
    // The first client is idle, and keeps its place.
    first.write_all(b"PING\r\nQUIT\r\n").unwrap();
    let mut rest = String::new();
    first.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "+PONG\r\n+OK\r\n");
    let mut answer = String::new();
    while !answer.starts_with("+PONG") {
        answer = server.ask("PING");
    }
    server.stop();
}

#[test]
fn commands_between_multi_and_exec_run_at_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    for (requests, replies) in [
        (
            "MULTI\nSET a 1\nINCR a\nGET a\nPING\nMGET a b\nEXEC",
            "+OK +QUEUED +QUEUED +QUEUED +QUEUED +QUEUED *5 +OK :2 $1 2 +PONG *2 $1 2 $-1 ",
        ),
        (
            "MULTI\nSET a x\nDISCARD\nGET a\nEXEC\nDISCARD",
            "+OK +QUEUED +OK $1 2 -ERR EXEC without MULTI -ERR DISCARD without MULTI ",
        ),
        // An error while commands are queued ends the transaction; one at run time does not.
        (
            "MULTI\nSET a x\nNOSUCH\nEXEC\nGET a",
            "+OK +QUEUED -ERR unknown command 'NOSUCH', with args beginning with:  -EXECABORT Transaction discarded because of previous errors. $1 2 ",
        ),
        (
            "MULTI\nSET a x\nINCR a\nSET b y\nEXEC\nGET b",
            "+OK +QUEUED +QUEUED +QUEUED *3 +OK -ERR value is not an integer or out of range +OK $1 y ",
        ),
        (
            "MULTI\nMULTI\nWATCH a\nEXEC",
            "+OK -ERR MULTI calls can not be nested -ERR WATCH inside MULTI is not allowed *0 ",
        ),
        ("WATCH a b\nMULTI\nSET a 9\nEXEC\nGET a", "+OK +OK +QUEUED *1 +OK $1 9 "),
        ("WATCH a\nSET a 10\nMULTI\nSET a 11\nEXEC\nGET a", "+OK +OK +OK +QUEUED *-1 $2 10 "),
        ("WATCH a\nSET a 12\nUNWATCH\nMULTI\nSET a 13\nEXEC", "+OK +OK +OK +OK +QUEUED *1 +OK "),
    ] {
        assert_eq!(server.ask(requests), replies, "{requests}");
    }
    server.stop();
}

#[test]
fn a_transaction_that_fails_behind_its_first_part_answers_each_command() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    // Longer than a key may be.
    let long = "k".repeat(5000);
    let queued = |count| format!("+OK {}", "+QUEUED ".repeat(count));
    let refused = "-ERR not applied: the key has 5002 bytes, and 4096 are the most ";
    let none = server.ask(&format!("MULTI\nSET a 0\nSET {long} 2\nDBSIZE\nEXEC\nGET a"));
    assert_eq!(none, format!("{}{refused}$-1 ", queued(3)));
    let half =
        server.ask(&format!("MULTI\nSET a 1\nDBSIZE\nSET b 2\nSET {long} 2\nPING\nDBSIZE\nGET a\nEXEC\nMGET a b"));
    assert_eq!(half, format!("{}*7 +OK :1 {}*2 $1 1 $-1 ", queued(7), refused.repeat(5)));
    server.stop();
}

#[test]
fn no_client_sees_half_of_an_mset() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let writes: String = (0..200).map(|number| format!("MSET a {number} b {number} c {number}\n")).collect();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| server.ask(writes.trim_end()));
        while !writer.is_finished() {
            let replies = server.ask("MULTI\nGET a\nGET b\nGET c\nEXEC");
            let values: Vec<&str> = replies.split_whitespace().skip(5).filter(|word| !word.starts_with('$')).collect();
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{replies}");
        }
        assert_eq!(writer.join().unwrap(), "+OK ".repeat(200));
    });
    assert_eq!(server.ask("GET a\nGET b\nGET c"), "$3 199 $3 199 $3 199 ");
    server.stop();
}

#[test]
fn unfinished_requests_of_all_clients_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let part = vec![b'x'; 31 << 20];
    let mut clients = Vec::new();
    // More than 256 MiB in total; each alone is allowed.
    for _ in 0..9 {
        let mut stream = TcpStream::connect(&server.addr).unwrap();
        stream.write_all(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 32 << 20).as_bytes()).unwrap();
        let sent = stream.write_all(&part);
        clients.push((stream, sent));
    }
    let is_refused = |stream: &mut TcpStream, sent: &std::io::Result<()>| {
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut reply = [0; 4];
        // A client that still writes may find the connection reset before it reads the error.
        sent.is_err() || stream.read(&mut reply).is_ok_and(|len| reply[..len] == *b"-OOM")
    };
    let begin = Instant::now();
    while !clients.iter_mut().any(|(stream, sent)| is_refused(stream, sent)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody was refused");
    }
    drop(clients);
    assert_eq!(server.ask("SET a 1\nGET a"), "+OK $1 1 ");
    server.stop();
}

#[test]
fn transactions_and_watched_keys_count_as_unfinished_requests() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--requests-memory-mb", "16"]);
    let value = "v".repeat(1 << 20);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len());
    assert_eq!(refused_after(&server, "MULTI\r\n", &set, 20).as_deref(), Some(OUT_OF_MEMORY));
    let key = "k".repeat(4000);
    let watch = format!("*501\r\n$5\r\nWATCH\r\n{}", format!("$4000\r\n{key}\r\n").repeat(500));
    assert_eq!(refused_after(&server, "PING\r\n", &watch, 10).as_deref(), Some(OUT_OF_MEMORY));
    // A transaction that has failed keeps nothing.
    let replies = server.ask(&format!("MULTI\nNOSUCH\n{}EXEC", set.repeat(40)));
    assert_eq!(replies.matches("+QUEUED").count(), 40, "{replies}");
    assert!(replies.ends_with("-EXECABORT Transaction discarded because of previous errors. "), "{replies}");
    assert_eq!(server.ask("DBSIZE"), ":0 ");
    server.stop();
}

#[test]
fn a_reply_that_does_not_fit_into_memory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--requests-memory-mb", "64"]);
    let value = "v".repeat(8 << 20);
    assert_eq!(server.ask(&format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len())), "+OK ");
    let refused = OUT_OF_MEMORY.replace("\r\n", " ");
    assert_eq!(server.ask(&format!("MGET{}", " k".repeat(20_000))), refused);
    let all = format!("MULTI\n{}EXEC", "GET k\n".repeat(1_000));
    assert!(server.ask(&all).ends_with(&refused));
    // They share the memory of what is read: a thousand times eight megabytes would not be there within the deadline.
    assert_eq!(server.ask(&format!("MULTI\n{}EXEC", "STRLEN k\n".repeat(200))).matches(":8388608").count(), 200);
    assert_eq!(
        server.ask("STRLEN k\nMGET k no k").len(),
        ":8388608 *3 $8388608  $-1 $8388608  ".len() + 2 * value.len()
    );
    assert!(server.resident_kb() < 600 << 10, "{} kB", server.resident_kb());
    server.stop();
}

const OUT_OF_MEMORY: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

/// Sends a request again and again, and returns the first error.
fn refused_after(server: &Server, begin: &str, request: &str, count: usize) -> Option<String> {
    let mut client = TcpStream::connect(server.addr()).unwrap();
    let mut replies = BufReader::new(client.try_clone().unwrap());
    client.write_all(begin.as_bytes()).unwrap();
    (0..count).find_map(|_| {
        // It may be disconnected by now, with the error waiting.
        let _ = client.write_all(request.as_bytes());
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        line.starts_with('-').then_some(line)
    })
}

#[test]
fn patterns_have_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (fits, long) = ("*".repeat(4096), "*".repeat(4097));
    let ask = |with: &str| {
        server.ask(&format!(
            "KEYS {with}\nSCAN 0 MATCH {with}\nHSCAN h 0 MATCH {with}\nPUBSUB CHANNELS {with}\nCONFIG GET x{with}"
        ))
    };
    assert_eq!(ask(&long), "-ERR a pattern has at most 4096 bytes ".repeat(5));
    assert_eq!(ask(&fits[1..]), "*0 *2 $1 0 *0 *2 $1 0 *0 *0 *0 ");
    server.stop();
}

#[test]
fn words_without_bytes_count_in_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let many = format!("*100001\r\n$3\r\nDEL\r\n{}", "$0\r\n\r\n".repeat(100_000));
    let replies = server.ask(&format!("MULTI\n{}", many.repeat(3)));
    let refused = "-ERR a transaction has at most 65536 commands and 33554432 bytes ";
    assert_eq!(replies, format!("+OK +QUEUED +QUEUED {refused}"));
    server.stop();
}

#[test]
fn clients_are_listed_and_killed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut other = TcpStream::connect(server.addr()).unwrap();
    let mut replies = BufReader::new(other.try_clone().unwrap());
    let mut line = String::new();
    other.write_all(b"CLIENT SETNAME other\r\nCLIENT SETINFO lib-name test\r\nSELECT 3\r\nCLIENT ID\r\n").unwrap();
    for _ in 0..4 {
        line.clear();
        replies.read_line(&mut line).unwrap();
    }
    let id = line.trim().trim_start_matches(':').to_owned();
    let listed = server.ask(&format!("CLIENT LIST ID {id}"));
    let addr = other.local_addr().unwrap();
    for part in [
        format!("id={id} addr={addr} laddr={} name=other ", server.addr()),
        " db=3 sub=0 psub=0 ssub=0 multi=-1 cmd=client user=default resp=2 lib-name=test lib-ver=".to_owned(),
    ] {
        assert!(listed.contains(&part), "{part} is not in {listed}");
    }
    // In the order asked; each one once.
    let mut third = TcpStream::connect(server.addr()).unwrap();
    third.write_all(format!("CLIENT ID\r\nCLIENT LIST ID 99999 {id} 1 {id}\r\n").as_bytes()).unwrap();
    let mut third = BufReader::new(third);
    let own = {
        let mut own = String::new();
        third.read_line(&mut own).unwrap();
        own.trim().trim_start_matches(':').to_owned()
    };
    third.get_mut().write_all(format!("CLIENT LIST ID {own} {id} {own}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut lists = String::new();
    third.read_to_string(&mut lists).unwrap();
    let ids: Vec<&str> = lists.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()).collect();
    assert_eq!(ids, [&id, &own, &id]);
    let all = server.ask("CLIENT LIST");
    assert_eq!(all.matches("id=").count(), 2, "{all}");
    assert_eq!(server.ask(&format!("CLIENT KILL ID {id}")), ":1 ");
    line.clear();
    assert_eq!(replies.read_line(&mut line).unwrap(), 0, "{line}");
    assert_eq!(server.ask("CLIENT KILL TYPE normal"), ":0 ");
    assert_eq!(
        server.ask("CLIENT SETINFO Lib-Foo x\nCLIENT SETINFO LIB-VER \"a b\""),
        "-ERR Unrecognized option 'Lib-Foo' -ERR LIB-VER cannot contain spaces, newlines or special characters. "
    );
    // A client that kills itself gets the reply first.
    assert_eq!(server.ask("CLIENT KILL TYPE normal SKIPME no\nPING"), ":1 ");
    server.stop();
}

#[test]
fn names_of_clients_are_bounded_and_keep_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let (fits, long) = ("n".repeat(4096), "n".repeat(4097));
    let refused = |what: &str| format!("-ERR {what} has at most 4096 bytes ");
    assert_eq!(
        server.ask(&format!("CLIENT SETNAME {long}\nCLIENT SETINFO lib-ver {long}\nCLIENT SETNAME {fits}\nCLIENT SETINFO lib-name {fits}")),
        format!("{}{}+OK +OK ", refused("the name of a client"), refused("lib-ver"))
    );
    assert_eq!(server.ask(&format!("HELLO 2 SETNAME {long}")), refused("the name of a client"));
    // Requests of a megabyte, of which 4 KiB are kept.
    let count = 250;
    let mut hello = format!("*{}\r\n$5\r\nHELLO\r\n$1\r\n2\r\n", 2 + 2 * count);
    (0..count).for_each(|_| hello += &format!("$7\r\nSETNAME\r\n$4096\r\n{fits}\r\n"));
    assert_small_after(&server, &hello);
    server.stop();
}

#[test]
fn a_client_that_waits_keeps_no_memory_of_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let long = "v".repeat(1 << 20);
    assert_small_after(&server, &format!("*2\r\n$3\r\nGET\r\n${}\r\n{long}\r\n", long.len()));
    server.stop();
}

/// Asserts that a hundred clients that wait after this request, and begin another one, take little memory.
fn assert_small_after(server: &Server, request: &str) {
    let before = server.resident_kb();
    let clients: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut client = TcpStream::connect(server.addr()).unwrap();
            client.write_all(format!("{request}NOSUCH\r\n*2\r\n$3\r\nGET\r\n").as_bytes()).unwrap();
            // Until the error that answers the last line.
            let mut replies = BufReader::new(client.try_clone().unwrap());
            let mut line = String::new();
            while !line.starts_with("-ERR unknown command") {
                line.clear();
                assert!(replies.read_line(&mut line).unwrap() > 0);
            }
            client
        })
        .collect();
    let grown = server.resident_kb().saturating_sub(before);
    assert!(grown < 50_000, "{} clients that wait take {grown} KiB", clients.len());
}

#[test]
fn settings_that_are_the_same_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    assert_eq!(
        server.ask("CONFIG SET appendonly yes\nCONFIG SET appendonly no\nCONFIG GET append*"),
        "+OK -ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config \
         *4 $11 appendfsync $6 always $10 appendonly $3 yes "
    );
    let docs = server.ask("COMMAND DOCS GET nosuch");
    assert_eq!(docs, "*2 $3 get *6 $7 summary $16 Returns a string $5 since $5 1.0.0 $5 group $6 string ");
    server.stop();
}
