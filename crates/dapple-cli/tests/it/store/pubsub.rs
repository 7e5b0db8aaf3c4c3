//! Channels of `dapple store serve`: `PUBLISH`, `SUBSCRIBE` and their relatives.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::server::Server;

/// A connection that stays open. Requests are words, replies have spaces for line ends.
struct Client(TcpStream);

impl Client {
    fn new(server: &Server) -> Client {
        Client(TcpStream::connect(server.addr()).unwrap())
    }

    fn send(&mut self, request: &str) {
        self.0.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    }

    /// Reads exactly these bytes.
    fn expect(&mut self, expected: &str) {
        let mut found = vec![0; expected.len() + expected.matches(' ').count()];
        self.0.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found).replace("\r\n", " "), expected);
    }

    fn ask(&mut self, request: &str, expected: &str) {
        self.send(request);
        self.expect(expected);
    }
}

#[test]
fn messages_go_to_the_subscribers_of_channels_and_patterns() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let [mut first, mut second, mut publisher] = [(); 3].map(|()| Client::new(&server));
    first.ask(
        "SUBSCRIBE news talk news",
        "*3 $9 subscribe $4 news :1 *3 $9 subscribe $4 talk :2 *3 $9 subscribe $4 news :2 ",
    );
    second.ask("PSUBSCRIBE n*", "*3 $10 psubscribe $2 n* :1 ");
    second.ask("SUBSCRIBE news", "*3 $9 subscribe $4 news :2 ");
    publisher.ask("PUBLISH news hello", ":3 ");
    publisher.ask("PUBLISH talk x", ":1 ");
    publisher.ask("PUBLISH other x", ":0 ");
    publisher.ask("PUBLISH next y", ":1 ");
    first.expect("*3 $7 message $4 news $5 hello *3 $7 message $4 talk $1 x ");
    second.expect(
        "*3 $7 message $4 news $5 hello *4 $8 pmessage $2 n* $4 news $5 hello *4 $8 pmessage $2 n* $4 next $1 y ",
    );
    publisher.ask("PUBSUB NUMSUB news talk none", "*6 $4 news :2 $4 talk :1 $4 none :0 ");
    publisher.ask("PUBSUB CHANNELS t*", "*1 $4 talk ");
    publisher.ask("PUBSUB NUMPAT", ":1 ");
    second.ask("PUNSUBSCRIBE n* none", "*3 $12 punsubscribe $2 n* :1 *3 $12 punsubscribe $4 none :1 ");
    second.ask("UNSUBSCRIBE", "*3 $11 unsubscribe $4 news :0 ");
    second.ask("UNSUBSCRIBE", "*3 $11 unsubscribe $-1 :0 ");
    // A client without subscriptions may use all commands again.
    second.ask("PING", "+PONG ");
    publisher.ask("PUBSUB NUMPAT", ":0 ");
    drop(first);
    while Client::new(&server).numsub("news") > 0 {}
    publisher.ask("PUBLISH news x", ":0 ");
    server.stop();
}

impl Client {
    fn numsub(&mut self, channel: &str) -> u8 {
        self.send(&format!("PUBSUB NUMSUB {channel}"));
        let mut reply = vec![0; format!("*2\r\n$4\r\n{channel}\r\n:0\r\n").len()];
        self.0.read_exact(&mut reply).unwrap();
        reply[reply.len() - 3] - b'0'
    }
}

#[test]
fn a_subscriber_of_version_2_is_limited_and_one_of_version_3_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let mut old = Client::new(&server);
    old.ask("SUBSCRIBE a", "*3 $9 subscribe $1 a :1 ");
    for (command, name) in
        [("GET k", "get"), ("SET k v", "set"), ("CONFIG GET save", "config|get"), ("HELLO 3", "hello")]
    {
        let text = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
        old.send(command);
        let line = format!("-ERR Can't execute '{name}': {text}\r\n");
        let mut found = vec![0; line.len()];
        old.0.read_exact(&mut found).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), line);
    }
    old.ask("PING", "*2 $4 pong $0  ");
    old.ask("PING x", "*2 $4 pong $1 x ");
    old.ask("RESET", "+RESET ");
    old.ask("GET k", "$-1 ");
    let mut new = Client::new(&server);
    new.send("HELLO 3");
    let mut greeting = [0; 4096];
    while !greeting.ends_with(b"*0\r\n") {
        let len = new.0.read(&mut greeting).unwrap();
        if greeting[..len].ends_with(b"*0\r\n") {
            break;
        }
    }
    new.ask("SUBSCRIBE a b", ">3 $9 subscribe $1 a :1 >3 $9 subscribe $1 b :2 ");
    new.ask("SET k v", "+OK ");
    new.ask("PING", "+PONG ");
    let mut publisher = Client::new(&server);
    publisher.ask("MULTI", "+OK ");
    publisher.ask("PUBLISH a x", "+QUEUED ");
    publisher.ask("SET k w", "+QUEUED ");
    publisher.ask("EXEC", "*2 :1 +OK ");
    new.expect(">3 $7 message $1 a $1 x ");
    new.ask("GET k", "$1 w ");
    new.ask("UNSUBSCRIBE a", ">3 $11 unsubscribe $1 a :1 ");
    server.stop();
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected_and_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--subscriber-waiting-max-kb", "64"]);
    let [mut silent, mut reader, mut publisher] = [(); 3].map(|()| Client::new(&server));
    silent.ask("SUBSCRIBE a", "*3 $9 subscribe $1 a :1 ");
    reader.ask("SUBSCRIBE a", "*3 $9 subscribe $1 a :1 ");
    let payload = "x".repeat(20_000);
    let message = format!("*3 $7 message $1 a $20000 {payload} ");
    let mut sent = 0;
    // The kernel keeps some megabytes for the silent one before the server has to.
    loop {
        publisher.send(&format!("PUBLISH a {payload}"));
        let mut receivers = [0; 4];
        publisher.0.read_exact(&mut receivers).unwrap();
        reader.expect(&message);
        sent += 1;
        assert!(sent < 100_000, "the subscriber is still there");
        if receivers == *b":1\r\n" {
            break;
        }
    }
    let mut rest = Vec::new();
    // It gets what the kernel has, and then the end.
    let _ = silent.0.read_to_end(&mut rest);
    assert!(rest.len() < sent * message.len());
    publisher.send(&format!("PUBLISH a {}", "y".repeat(33_000)));
    let refused = "-ERR a channel's name has at most 4096 bytes, a message 32768\r\n";
    let mut found = vec![0; refused.len()];
    publisher.0.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), refused);
    server.stop();
}
