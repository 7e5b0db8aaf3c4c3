//! `examples/spin_server.rs`, which also tests `dapple::serve` in a separate process: its
//! descriptors, memory and signals.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::examples::{Example, PATIENCE, executable};

fn start(arguments: &[&str]) -> Example {
    let mut command = Command::new(executable("spin_server"));
    command.args(["--port", "0"]).args(arguments);
    Example::run("spin_server", command)
}

/// Status and body of a reply on a connection that stays open.
fn ask(stream: &mut TcpStream, target: &str) -> Option<(u16, String)> {
    stream.write_all(format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).ok()?;
    reply(stream)
}

fn reply(stream: &mut TcpStream) -> Option<(u16, String)> {
    let mut lines = BufReader::with_capacity(1, stream);
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    let mut len = 0;
    while line != "\r\n" {
        line.clear();
        lines.read_line(&mut line).ok()?;
        len = line.strip_prefix("content-length: ").map_or(len, |text| text.trim().parse().unwrap_or(0));
    }
    let mut body = vec![0; len];
    lines.read_exact(&mut body).ok()?;
    Some((status, String::from_utf8(body).ok()?))
}

#[test]
fn it_uses_the_requested_cpu_time() {
    let server = start(&["--workers", "1"]);
    let mut client = server.connect();
    let begin = Instant::now();
    let (status, body) = ask(&mut client, "/?us=20000").expect("it answers");
    assert_eq!(status, 200);
    let burnt: u64 = body.strip_suffix(" us burnt\n").expect("it says how much").parse().unwrap();
    assert!(burnt >= 20_000 && begin.elapsed().as_micros() >= u128::from(burnt), "{burnt}");
    for wrong in ["x", "-1", "", "99999999999", "1.5"] {
        let (status, body) = ask(&mut client, &format!("/?us={wrong}")).expect("it answers");
        assert_eq!(status, 400, "{wrong}: {body}");
        assert!(body.contains("microseconds"), "{body}");
    }
    assert_eq!(ask(&mut client, "/?a=b&us=0").expect("it answers").0, 200);
    assert_eq!(ask(&mut client, "/").expect("it answers").0, 200);
}

/// Even while its only worker is in a handler that never awaits.
#[test]
fn a_signal_makes_it_dump_its_state() {
    let mut command = Command::new(executable("spin_server"));
    command.args(["--port", "0", "--workers", "1", "--no-admission"]).env("DAPPLE_DUMP", "SIGQUIT");
    command.stderr(std::process::Stdio::piped());
    let mut server = Example::run("spin_server", command);
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "/").expect("it answers").0, 200);
    client.write_all(b"GET /?us=3000000 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    for _ in 0..2 {
        kill_process(Pid::from_child(&server.child), Signal::QUIT).unwrap();
        let mut lines = Vec::new();
        while lines.len() < 3 {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it has ended after {lines:?}");
            // Earlier lines are the rest of another dump.
            if !lines.is_empty() || line == "dapple: dump of all runtimes (1), by SIGQUIT\n" {
                lines.push(line);
            }
        }
        assert!(lines[1].starts_with("runtime 1: 1 workers, ") && lines[2].starts_with("worker 0: "), "{lines:?}");
    }
    assert_eq!(reply(&mut client).expect("it goes on").0, 200);
}

#[test]
fn a_dump_by_no_signal_is_refused_in_a_sentence() {
    let mut command = Command::new(executable("spin_server"));
    let output = command.args(["--port", "0"]).env("DAPPLE_DUMP", "SIGNOPE").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("DAPPLE_DUMP is \"SIGNOPE\": set it to a signal such as SIGQUIT"),
        "{said}"
    );
}

#[test]
fn requests_say_their_class() {
    let server = start(&["--workers", "1"]);
    let mut client = server.connect();
    for (target, class, expected) in
        [("/?us=7", "high", 200), ("/?us=7", "low", 200), ("/healthz?us=7", "normal", 200), ("/?us=7", "gold", 400)]
    {
        let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\nx-class: {class}\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let (status, body) = reply(&mut client).expect("it answers");
        assert_eq!(status, expected, "{class}: {body}");
        assert_eq!(body.contains("is not one of high, normal and low"), expected == 400, "{body}");
    }
}

#[test]
fn wrong_flags_are_said() {
    for (arguments, says) in [
        (&["--port", "x"][..], "--port takes a number from 0 to 65535"),
        (&["--port"], "--port needs a value"),
        (&["--workers=0"], "--workers takes a number from 1"),
        (&["--target-delay-ms", "0"], "--target-delay-ms takes a number from 1"),
        (&["--no-admission=yes"], "\"--no-admission\" is not an option"),
        (&["7007"], "\"7007\" is not an option"),
    ] {
        let output = Command::new(executable("spin_server")).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(says), "{arguments:?}: {text}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(executable("spin_server")).args(["--port", &port]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("cannot listen on 127.0.0.1:{port}")));
    let output = Command::new(executable("spin_server")).arg("--help").output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("X-Class: high"));
}

#[test]
fn it_ends_at_sigterm_with_what_it_has_begun() {
    let mut server = start(&[]);
    let mut client = server.connect();
    client.write_all(b"GET /?us=300000 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut idle = server.connect();
    assert_eq!(ask(&mut idle, "/").expect("it answers").0, 200);
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert_eq!(reply(&mut client).expect("it is answered").0, 200);
    assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0, "it is closed");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_second_sigterm_ends_it_at_once() {
    let mut server = start(&["--workers", "2"]);
    let mut client = server.connect();
    client.write_all(b"GET /?us=60000000 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    // A signal before the previous one was handled counts as the same.
    let begin = Instant::now();
    while server.child.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < PATIENCE, "it goes on");
        kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert!(reply(&mut client).is_none(), "it was cut");
}

/// With 64 descriptors there is room for some thirty connections: idle ones make room for those
/// with a request.
#[test]
fn few_descriptors_serve_many_clients() {
    let mut command = Command::new("sh");
    let program = executable("spin_server");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" --port 0"]).arg(program);
    let server = Example::run("spin_server", command);
    let mut clients = Vec::new();
    for number in 0..300 {
        let mut client = server.connect();
        let (status, _) = ask(&mut client, "/").unwrap_or_else(|| panic!("client {number} is answered"));
        assert!(status == 200 || status == 503, "client {number}: {status}");
        clients.push(client);
    }
    let open = clients.iter_mut().filter_map(|client| ask(client, "/")).count();
    assert!((1..64).contains(&open), "{open} are open");
    drop(clients);
    assert_eq!(ask(&mut server.connect(), "/").expect("it answers").0, 200);
}

/// Idle connections cost only some memory.
#[test]
fn ten_thousand_connections_may_rest() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let descriptors = usize::try_from(limit.maximum.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let count = 10_000.min(descriptors / 2);
    // All of them come from one address at once; their cost is not the subject here.
    let server = start(&["--no-admission"]);
    let before = resident(&server);
    let mut clients: Vec<TcpStream> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = TcpStream::connect(server.addr).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(ask(&mut client, "/").expect("it answers").0, 200);
        clients.push(client);
    }
    let each = resident(&server).saturating_sub(before) / count as u64;
    println!("{each} bytes for each of {count} connections that rest");
    assert!(each < 16 << 10, "{each} bytes for each");
    for client in clients.iter_mut().step_by(97) {
        assert_eq!(ask(client, "/").expect("it is still there").0, 200);
    }
}

/// The bound in docs/serving.md, with a head on each connection, all at the longest length, and
/// none that ends.
#[test]
fn the_longest_heads_take_no_more_than_is_stated() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let server = start(&["--workers", "1"]);
    let before = memory(&server, "VmHWM:");
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}", "x".repeat(HEAD_LEN - 100));
    let mut clients: Vec<TcpStream> = (0..SLOW_HEADS).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.write_all(head.as_bytes()).unwrap();
    }
    // Connections that took the machine too long have ended with 408 meanwhile; their memory
    // counts.
    let mut told = 0;
    for client in &mut clients {
        let _ = client.write_all(b"\r\n\r\n");
        told += u64::from(reply(client).is_some_and(|(status, _)| status == 200 || status == 408 || status == 503));
    }
    let each = memory(&server, "VmHWM:").saturating_sub(before) / SLOW_HEADS;
    println!("{each} bytes for each of {SLOW_HEADS} connections, {told} of which had a reply");
    assert!(told > SLOW_HEADS / 2, "{told}");
    assert!(each <= EACH_MAX, "{each} bytes for each");
}

const SLOW_HEADS: u64 = 2_000;
const HEAD_LEN: usize = 64 << 10;
/// The limit of a head, and 16 KB.
const EACH_MAX: u64 = (64 + 16) << 10;

/// The server's resident memory in bytes.
fn resident(server: &Example) -> u64 {
    memory(server, "VmRSS:")
}

/// A value of the kernel's report on the server's memory.
fn memory(server: &Example, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
