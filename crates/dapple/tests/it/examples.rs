//! The examples, run as by a new user, with regular and hostile TCP clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// A running example; killed on drop.
pub(crate) struct Example {
    pub(crate) child: Child,
    pub(crate) addr: SocketAddr,
}

impl Example {
    pub(crate) fn start(name: &str) -> Example {
        Example::start_with(name, &[])
    }

    fn start_with(name: &str, arguments: &[&str]) -> Example {
        let mut command = Command::new(executable(name));
        command.arg("0").args(arguments);
        Example::run(name, command)
    }

    pub(crate) fn run(name: &str, mut command: Command) -> Example {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the example starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // `hello listens on 127.0.0.1:40000; try: …`
        let addr = line.split(" listens on ").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
        let addr = addr.unwrap_or_else(|| panic!("{name} did not say where it listens: {line:?}"));
        assert!(line.contains("; try"), "{name} says what to type next: {line:?}");
        Example { child, addr }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        // A test that hangs fails instead.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends everything, and reads until the other side has ended.
    fn ask(&self, request: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        String::from_utf8(read_to_end(&mut stream)).unwrap()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of an example's program, which is built the first time. Cargo builds examples for
/// `cargo test`, but not when specific tests are selected. CI names its own packages and features:
/// with other ones, cargo would build most libraries again.
pub(crate) fn executable(name: &str) -> PathBuf {
    static BUILT: OnceLock<String> = OnceLock::new();
    let messages = BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        let selection = std::env::var("DAPPLE_TEST_SELECTION");
        let selection = selection.as_deref().unwrap_or("--package dapple --features serve");
        cargo.arg("build").args(selection.split(' ')).args(["--examples", "--message-format", "json"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    });
    let found = messages.split("\"executable\":\"").filter_map(|rest| rest.split('"').next());
    found.map(PathBuf::from).find(|path| path.file_name().is_some_and(|file| file == name)).expect("it is an example")
}

fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Whether the other side has closed, by an end or a reset, after any other data.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
}

/// A client of the line protocols.
struct Lines {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Lines {
    fn new(stream: TcpStream) -> Lines {
        Lines { reader: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line
    }
}

#[test]
fn hello_greets_each_connection_in_its_own_color() {
    let hello = Example::start("hello");
    // The second client is greeted while the first still sends its request; the number of an ended
    // color may be reused.
    let mut first = hello.connect();
    first.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let second = hello.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    first.write_all(b"Host: x\r\n\r\n").unwrap();
    let colors = [String::from_utf8(read_to_end(&mut first)).unwrap(), second].map(|answer| {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let (_, color) = answer.split_once("\r\n\r\nHello from color ").unwrap_or_else(|| panic!("{answer}"));
        color.split(',').next().unwrap().to_owned()
    });
    assert_ne!(colors[0], colors[1]);
    // A client that never ends its request, and one that leaves silently.
    let mut endless = hello.connect();
    let _ = endless.write_all(&[b'a'; 64 * 1024]);
    assert!(is_closed(&mut endless));
    drop(hello.connect());
    assert!(hello.ask(b"GET / HTTP/1.0\r\n\r\n").contains("Hello"));
}

#[test]
fn counter_counts_for_all_clients_together() {
    let counter = Example::start("counter");
    let (mut a, mut b) = (Lines::new(counter.connect()), Lines::new(counter.connect()));
    a.say("fish\n");
    assert_eq!(a.hear(), "1 fish\n");
    b.say("fish\r\nbird\n");
    assert_eq!((b.hear(), b.hear()), ("2 fish\n".to_owned(), "1 bird\n".to_owned()));
    // A word in pieces.
    a.say("fi");
    a.say("sh\n");
    assert_eq!(a.hear(), "3 fish\n");
    // Many at once: no count is lost.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Lines::new(counter.connect());
                for _ in 0..100 {
                    client.say("many\n");
                    client.hear();
                }
            });
        }
    });
    a.say("many\n");
    assert_eq!(a.hear(), "801 many\n");
}

#[test]
fn counter_disconnects_clients_without_line_ends() {
    let counter = Example::start("counter");
    let mut hostile = counter.connect();
    let _ = hostile.write_all(&[b'x'; 100_000]);
    assert!(is_closed(&mut hostile));
    // Bytes that are not text, and a client that ends in the middle of a word.
    let mut strange = counter.connect();
    strange.write_all(b"\xff\xfe\x1b[2J\nhalf").unwrap();
    strange.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut strange), "1 \u{fffd}\u{fffd}[2J\n".as_bytes());
    let mut honest = Lines::new(counter.connect());
    honest.say("still here\n");
    assert_eq!(honest.hear(), "1 still here\n");
}

#[test]
fn chat_sends_to_all_in_the_room_in_one_order() {
    let chat = Example::start("chat");
    let enter = |name: &str, room: &str| {
        let mut visitor = Lines::new(chat.connect());
        assert!(visitor.hear().starts_with("your name, please"));
        visitor.say(&format!("{name}\n{room}\n"));
        assert_eq!(visitor.hear(), format!("{name}: (enters)\n"));
        visitor
    };
    let mut ann = enter("ann", "garden");
    let mut bob = enter("bob", "garden");
    assert_eq!(ann.hear(), "bob: (enters)\n");
    let mut cat = enter("cat", "cellar");
    ann.say("hello\n");
    bob.say("\x1b[31mhi\n");
    let (first, second) = (ann.hear(), ann.hear());
    assert_eq!((bob.hear(), bob.hear()), (first.clone(), second.clone()));
    let mut heard = [first.as_str(), second.as_str()];
    heard.sort_unstable();
    assert_eq!(heard, ["ann: hello\n", "bob: [31mhi\n"]);
    // Gone silently.
    drop(bob);
    assert_eq!(ann.hear(), "bob: (leaves)\n");
    cat.say("alone\n");
    assert_eq!(cat.hear(), "cat: alone\n");
}

/// Answers like a web server: with the request, and a body of the size in the path.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || drop(answer(stream)));
        }
    });
    addr
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    if path == "/until-the-end" {
        reader.read_to_end(&mut body)?;
    }
    let size = path.trim_start_matches('/').parse().unwrap_or(0);
    stream.write_all(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{head}").as_bytes())?;
    stream.write_all(&body)?;
    stream.write_all(&vec![b'z'; size])
}

const PROXIES: [&str; 2] = ["web_proxy", "web_proxy_async"];

#[test]
fn proxies_fetch_a_page() {
    let origin = origin();
    for proxy in PROXIES.map(Example::start) {
        let request = format!("GET http://{origin}/a?b HTTP/1.1\r\nHost: other\r\nProxy-Connection: x\r\nA: b\r\n\r\n");
        let head = format!("GET /a?b HTTP/1.1\r\nHost: {origin}\r\nConnection: close\r\nA: b\r\n\r\n");
        let expected = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{head}");
        assert_eq!(proxy.ask(request.as_bytes()), expected);
        // The same byte by byte, and with a host name.
        let request = request.replace("127.0.0.1", "localhost");
        let mut stream = proxy.connect();
        stream.set_nodelay(true).unwrap();
        request.bytes().for_each(|byte| stream.write_all(&[byte]).unwrap());
        let expected = expected.replace("127.0.0.1", "localhost");
        assert_eq!(String::from_utf8(read_to_end(&mut stream)).unwrap(), expected);
    }
}

#[test]
fn proxies_relay_large_bodies_both_ways_and_many_at_once() {
    let origin = origin();
    for proxy in PROXIES.map(Example::start) {
        let proxy = &proxy;
        thread::scope(|scope| {
            for n in 0..20 {
                scope.spawn(move || {
                    let (up, down) = (n * 100_003, n * 50_021);
                    let mut stream = proxy.connect();
                    let head = format!("POST http://{origin}/{down} HTTP/1.1\r\nContent-Length: {up}\r\n\r\n");
                    let mut sender = stream.try_clone().unwrap();
                    let sending = scope.spawn(move || {
                        sender.write_all(head.as_bytes()).unwrap();
                        sender.write_all(&vec![b'y'; up]).unwrap();
                    });
                    let answer = read_to_end(&mut stream);
                    sending.join().unwrap();
                    let count = |letter: u8| answer.iter().rev().filter(|&&byte| byte == letter).count();
                    assert_eq!((count(b'y'), count(b'z')), (up, down));
                });
            }
        });
    }
}

#[test]
fn proxies_pass_on_half_of_a_close() {
    let origin = origin();
    for proxy in PROXIES.map(Example::start) {
        let mut stream = proxy.connect();
        let request = format!("POST http://{origin}/until-the-end HTTP/1.0\r\n\r\nand a body");
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(&mut stream).ends_with(b"and a body"));
    }
}

#[test]
fn proxies_refuse_what_they_cannot_do() {
    // Bound and dropped: no process listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for proxy in PROXIES.map(Example::start) {
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
            ("CONNECT a:443 HTTP/1.1\r\n\r\n".to_owned(), 400),
            ("GET http://a/\nX: y HTTP/1.1\r\n\r\n".to_owned(), 400),
            ("\r\n\r\n".to_owned(), 400),
            (format!("GET http://{nobody}/ HTTP/1.1\r\n\r\n"), 502),
            ("GET http://no.such.host.invalid/ HTTP/1.1\r\n\r\n".to_owned(), 502),
            // Above the limit of a head, and without an end.
            (format!("GET http://a/ HTTP/1.1\r\nA: {}", "b".repeat(100_000)), 400),
        ] {
            let answer = proxy.ask(request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {answer}");
            assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        }
        // Clients that vanish at any stage do no harm.
        let origin = origin();
        for request in
            ["", "GET", "GET http://a/ HTTP/1.1\r\n", &format!("GET http://{origin}/9000000 HTTP/1.1\r\n\r\n")]
        {
            let mut stream = proxy.connect();
            stream.write_all(request.as_bytes()).unwrap();
        }
        assert!(proxy.ask(format!("GET http://{origin}/1 HTTP/1.1\r\n\r\n").as_bytes()).ends_with('z'));
    }
}

/// Runs the relay until it ends.
fn relay(from: &str, to: &str) -> std::process::Output {
    Command::new(executable("relay")).args([from, to]).output().unwrap()
}

#[test]
fn relay_copies_from_any_device_to_any_other() {
    let dir = std::env::temp_dir().join(format!("dapple-relay-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    let data: Vec<u8> = (0..500_000u32).map(|n| (n >> 5) as u8).collect();
    std::fs::write(path("a"), &data).unwrap();
    let ok = |output: std::process::Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("relayed "));
    };
    ok(relay(&format!("file:{}", path("a")), &format!("file:{}", path("b"))));
    assert!(std::fs::read(path("b")).unwrap() == data);
    ok(relay(&format!("file:{}", path("a")), &format!("append:{}", path("b"))));
    assert!(std::fs::read(path("b")).unwrap() == [&data[..], &data].concat());
    // Over TCP, both ways.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = format!("tcp:{}", listener.local_addr().unwrap());
    thread::scope(|scope| {
        let reads = scope.spawn(|| read_to_end(&mut listener.accept().unwrap().0));
        ok(relay(&format!("file:{}", path("a")), &addr));
        assert!(reads.join().unwrap() == data);
        let writes = scope.spawn(|| listener.accept().unwrap().0.write_all(&data));
        ok(relay(&addr, &format!("file:{}", path("c"))));
        writes.join().unwrap().unwrap();
        assert!(std::fs::read(path("c")).unwrap() == data);
    });
    // Through a FIFO and a Unix socket.
    assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    thread::scope(|scope| {
        let reads = scope.spawn(|| relay(&format!("pipe:{}", path("pipe")), &format!("unix:{}", path("socket"))));
        let mut stream = socket.accept().unwrap().0;
        let writes = scope.spawn(|| relay(&format!("file:{}", path("a")), &format!("pipe:{}", path("pipe"))));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert!(bytes == data);
        ok(reads.join().unwrap());
        ok(writes.join().unwrap());
    });
    for (from, to, says) in [("nonsense", "file:x", "tcp:HOST:PORT"), ("file:/no/such/file", "tcp:127.0.0.1:x", "port")]
    {
        let output = relay(from, &to.replace("file:x", &format!("file:{}", path("x"))));
        assert!(!output.status.success());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(says), "{text}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn relay_echoes_lines_over_tcp_and_unix_sockets() {
    let socket = std::env::temp_dir().join(format!("dapple-echo-{}", std::process::id()));
    let unix = format!("unix:{}", socket.display());
    for at in ["tcp:127.0.0.1:0", unix.as_str()] {
        let mut child = Command::new(executable("relay")).args(["echo", at]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let name = line.split(" listens on ").nth(1).and_then(|rest| rest.split(';').next()).expect("it says where");
        let connect = || -> (Box<dyn Write>, Box<dyn Read>) {
            match name.split_once(':').expect("it has a kind") {
                ("tcp", addr) => {
                    let stream = TcpStream::connect(addr).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    (Box::new(stream.try_clone().unwrap()), Box::new(stream))
                }
                (_, path) => {
                    let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    (Box::new(stream.try_clone().unwrap()), Box::new(stream))
                }
            }
        };
        let (mut writer, reader) = connect();
        let mut lines = BufReader::new(reader).lines();
        writer.write_all(b"hello\nwor").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "HELLO");
        writer.write_all(b"ld\r\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "WORLD");
        // A client that never sends a line end.
        let (mut hostile, reader) = connect();
        let _ = hostile.write_all(&[b'x'; 100_000]);
        let goodbye = BufReader::new(reader).lines().next();
        assert!(goodbye.is_none_or(|line| line.is_err() || line.is_ok_and(|line| line.starts_with("goodbye: "))));
        writer.write_all(b"still here\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "STILL HERE");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    std::fs::remove_file(&socket).unwrap();
}

/// Runs an example to its end, and returns the numbers at the end of its lines, or before `of`.
fn figures(name: &str) -> Vec<f64> {
    let output = Command::new(executable(name)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let figure = |line: &str| line.split(": ").nth(1)?.split_whitespace().next()?.parse().ok();
    text.lines().map(|line| figure(line).unwrap_or_else(|| panic!("{name}: {line:?}"))).collect()
}

/// The test checks that they print their gains; the gains themselves depend on a machine that is
/// not busy.
#[test]
fn own_policies_print_their_gains() {
    let [by_default, by_deadline] = figures("policy_deadline")[..] else { panic!("two lines") };
    assert!((0.0..=200.0).contains(&by_default) && (0.0..=200.0).contains(&by_deadline), "{by_default} {by_deadline}");
    let figures = figures("policy_longest");
    assert!(figures.len() == 3 && figures.iter().all(|&units| units >= 18.0), "{figures:?}");
    let source = include_str!("../../../../examples/policy_longest.rs");
    assert!(source.lines().count() <= 150, "it shows how little that takes");
}

/// Runs an example to its end, and returns its output.
fn lines(name: &str) -> Vec<String> {
    let output = Command::new(executable(name)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_policy_bounds_the_tasks_inside_a_stage() {
    let figure = |line: &str| line.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    let lines = lines("policy_stage");
    let figures: Vec<u32> = lines.iter().map(|line| figure(line).unwrap_or_else(|| panic!("{line:?}"))).collect();
    let [crowd, bounded, _, _] = figures[..] else { panic!("four lines: {lines:?}") };
    assert!((1..=4).contains(&bounded) && crowd >= bounded, "{lines:?}");
    assert!(lines[..2].iter().all(|line| line.ends_with("of 200")), "all have passed: {lines:?}");
    let source = include_str!("../../../../examples/policy_stage.rs");
    assert!(source.lines().count() < 100, "it shows how little that takes");
}

#[test]
fn a_state_machine_of_callbacks_serves_tasks() {
    let lines = lines("hybrid_state_machine");
    for (line, byte) in lines.iter().zip(["a", "b", "c", "x"]) {
        assert_eq!(line, &format!("a task sent {byte} and got {}", byte.to_uppercase()));
    }
    // On a busy machine the connection may be closed once more.
    assert!(lines[4].starts_with("the machine went through: down dialing up down dialing up"), "{lines:?}");
    assert!(lines[5].starts_with("it dialed "), "{lines:?}");
}

#[test]
fn an_event_loop_of_ones_own_answers_tasks() {
    let lines = lines("own_loop");
    let expected =
        ["one was written", "two was written", "two was written", "four cannot be watched: No such file or directory"];
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line:?} {expected:?}");
    }
    assert!(lines[4].starts_with("three: the event loop has "), "{lines:?}");
}

#[test]
fn send_file_handles_what_goes_wrong_at_each_level() {
    let server = Example::start("send_file");
    let mut client = Lines::new(server.connect());
    let sent = std::fs::read("Cargo.toml").unwrap();
    let fetch = |client: &mut Lines| {
        client.say("Cargo.toml\n");
        assert_eq!(client.hear(), format!("ok {}\n", sent.len()));
        let mut body = vec![0; sent.len()];
        client.reader.read_exact(&mut body).unwrap();
        assert!(body == sent);
    };
    fetch(&mut client);
    // The client gets an error where possible, and the next request is served.
    for (name, why) in [
        ("no-such-file", "no such file"),
        ("src", "not a file"),
        ("../Cargo.toml", "a plain name, please"),
        ("/etc/passwd", "a plain name, please"),
        ("..", "a plain name, please"),
        ("", "a plain name, please"),
        ("a/b", "a plain name, please"),
    ] {
        client.say(&format!("{name}\n"));
        assert_eq!(client.hear(), format!("error: {why}\n"));
    }
    fetch(&mut client);
    client.say("?\n");
    assert_eq!(client.hear(), "open 0, sent 2, failed 7\n");
    // Other problems: a client that leaves at once, one that leaves in the middle of a line.
    drop(server.connect());
    let mut half = server.connect();
    half.write_all(b"Cargo.to").unwrap();
    drop(half);
    fetch(&mut client);
}

#[test]
fn send_file_closes_what_it_cannot_send() {
    // A separate folder, with a file that is larger than any socket's buffer.
    let folder = std::env::temp_dir().join(format!("dapple-send-file-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let large = std::fs::File::create(folder.join("large")).unwrap();
    large.set_len(64 << 20).unwrap();
    let server = Example::start_with("send_file", &[folder.to_str().unwrap()]);
    let mut watcher = Lines::new(server.connect());
    let mut state = || {
        watcher.say("?\n");
        watcher.hear()
    };
    // A client that does not read, and leaves.
    let mut deaf = Lines::new(server.connect());
    deaf.say("large\n");
    assert_eq!(deaf.hear(), format!("ok {}\n", 64 << 20));
    assert_eq!(state(), "open 1, sent 0, failed 0\n");
    drop(deaf);
    wait_for(&mut state, "open 0, sent 0, failed 1\n");
    // A file that shrinks while it is sent: too late for an error, so the connection ends.
    let mut cheated = Lines::new(server.connect());
    cheated.say("large\n");
    assert_eq!(cheated.hear(), format!("ok {}\n", 64 << 20));
    large.set_len(0).unwrap();
    assert!(read_to_end(&mut cheated.stream).len() < 64 << 20);
    wait_for(&mut state, "open 0, sent 0, failed 2\n");
    std::fs::remove_dir_all(folder).unwrap();
}

fn wait_for(state: &mut impl FnMut() -> String, expected: &str) {
    let start = std::time::Instant::now();
    let mut seen = state();
    while seen != expected {
        assert!(start.elapsed() < PATIENCE, "{seen:?} never became {expected:?}");
        thread::yield_now();
        seen = state();
    }
}

/// How long a test waits for an example's output.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
