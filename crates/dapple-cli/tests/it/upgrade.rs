//! A new process takes over while clients come and go: no client is refused, nothing is lost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::support::{Server, Site, dapple, eventually, noise};

/// A service manager, which receives messages in order.
pub(crate) struct News {
    socket: UnixDatagram,
    pub(crate) path: PathBuf,
    /// Processes that reported that they serve now.
    ready: Vec<i32>,
}

impl News {
    pub(crate) fn listen(dir: &Path) -> News {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        News { socket, path, ready: Vec::new() }
    }

    /// Receives the next message.
    pub(crate) fn next(&mut self) -> String {
        let mut buf = [0; 512];
        let count = self.socket.recv(&mut buf).expect("news in time");
        let text = String::from_utf8(buf[..count].to_vec()).unwrap();
        if let Some(id) = text.strip_prefix("READY=1\nMAINPID=") {
            self.ready.push(id.parse().unwrap());
        }
        text
    }

    /// Reads until one more process is ready, and returns its id.
    pub(crate) fn next_ready(&mut self) -> i32 {
        let before = self.ready.len();
        while self.ready.len() == before {
            self.next();
        }
        self.ready[before]
    }
}

impl Drop for News {
    fn drop(&mut self) {
        // Successors are no children of this process; killing an id that no longer exists does no
        // harm.
        for id in self.ready.drain(..).skip(1) {
            let _ = rustix::process::kill_process(Pid::from_raw(id).unwrap(), Signal::KILL);
        }
    }
}

pub(crate) fn start(program: &Path, site: &Site, news: &News, options: &[&str]) -> Server {
    let mut command = Command::new(program);
    command.env("NOTIFY_SOCKET", &news.path);
    command.arg("serve").arg(&site.path).args(["--port", "0", "--workers", "2"]).args(options);
    Server::spawn(command)
}

/// Sends requests for `target` on new connections, and on kept ones, until `stop`; checks every
/// body.
pub(crate) fn load(port: u16, target: &str, body: &[u8], stop: &AtomicBool, done: &AtomicU64) {
    std::thread::scope(|scope| {
        for number in 0..6 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let count = match number % 2 {
                        0 => one_a_connection(port, target, body),
                        _ => many(port, target, body, stop),
                    };
                    done.fetch_add(count, Ordering::Relaxed);
                }
            });
        }
    });
}

fn one_a_connection(port: u16, target: &str, body: &[u8]) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("never refused");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("never reset");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("never reset");
    assert!(response.starts_with(b"HTTP/1.1 200 ") && response.ends_with(body), "{} bytes", response.len());
    1
}

/// Sends requests until the server says that a reply is the last one. An idle connection may end at
/// any time (RFC 9112, 9.3.1), so one that ends before the first byte of a reply lost nothing,
/// unless it is the first reply.
fn many(port: u16, target: &str, body: &[u8], stop: &AtomicBool) -> u64 {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("never refused");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let sent = stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let mut response = Vec::new();
        let mut buf = [0; 32 << 10];
        while sent.is_ok() && !(response.ends_with(body) && response.len() > body.len()) {
            match stream.read(&mut buf) {
                Ok(0) | Err(_) if response.is_empty() && count > 0 => return count,
                Ok(0) => panic!("cut after {} bytes", response.len()),
                read => response.extend_from_slice(&buf[..read.expect("never reset")]),
            }
        }
        if response.is_empty() {
            return count;
        }
        assert!(response.starts_with(b"HTTP/1.1 200 "));
        count += 1;
        let head = response[..response.len() - body.len()].to_ascii_lowercase();
        if head.windows(17).any(|window| window == b"connection: close") {
            return count;
        }
    }
    count
}

#[test]
fn nothing_is_lost_when_a_new_process_takes_over_under_load() {
    let site = Site::new();
    let body = noise(20_000, 7);
    site.write("page.bin", &body);
    let elsewhere = Site::new();
    let mut news = News::listen(&elsewhere.path);
    let mut server = start(dapple().get_program().as_ref(), &site, &news, &[]);
    let first = news.next_ready();
    assert_eq!(first as u32, server.child.id());
    let (stop, done, port) = (AtomicBool::new(false), AtomicU64::new(0), server.port);
    std::thread::scope(|scope| {
        scope.spawn(|| load(port, "/page.bin", &body, &stop, &done));
        let mut last = first;
        for round in 0..3 {
            let seen = done.load(Ordering::Relaxed);
            assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > seen + 300), "the load runs");
            rustix::process::kill_process(Pid::from_raw(last).unwrap(), Signal::USR2).unwrap();
            let next = news.next_ready();
            assert_ne!(next, last);
            if round == 0 {
                assert_eq!(server.wait(LIMIT).expect("the old process ends").code(), Some(0));
            } else {
                assert!(eventually(LIMIT, || !is_running(last)), "the old process ends");
            }
            last = next;
        }
        let seen = done.load(Ordering::Relaxed);
        assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > seen + 300), "the load runs");
        stop.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 1_200);
}

pub(crate) fn is_running(id: i32) -> bool {
    // A process that has ended and not been reaped is a zombie.
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Puts a program where there was none.
fn put(program: &Path, to: &Path) {
    if std::fs::hard_link(program, to).is_err() {
        // Not written by this process: a program cannot run while another test's new child has it
        // open for writing.
        assert!(Command::new("cp").args([program, to]).status().unwrap().success());
    }
}

#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    let (site, elsewhere) = (Site::with_index(), Site::new());
    let program = elsewhere.path.join("dapple");
    let original = dapple().get_program().to_owned();
    put(original.as_ref(), &program);
    let mut news = News::listen(&elsewhere.path);
    let mut server = start(&program, &site, &news, &[]);
    let mut idle = server.connect();
    assert_eq!(idle.get("/").status, 200);
    news.next_ready();
    // A program file that ends at once, like one for another machine or with a bad configuration.
    std::fs::remove_file(&program).unwrap();
    elsewhere.write("dapple", "#!/bin/sh\nexit 3\n");
    rustix::fs::chmod(&program, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    server.signal(Signal::USR2);
    for _ in 0..20 {
        assert_eq!(server.get("/").status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(idle.get("/").status, 200, "connections go on");
    assert!(server.wait(Duration::ZERO).is_none());
    // The next attempt, with a good file, works.
    std::fs::remove_file(&program).unwrap();
    put(original.as_ref(), &program);
    let mut tries = 0;
    assert!(eventually(LIMIT, || {
        tries += 1;
        if tries % 50 == 1 {
            server.signal(Signal::USR2);
        }
        server.child.try_wait().unwrap().is_some()
    }));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert_eq!(server.get("/").status, 200, "by the new process");
    news.next_ready();
}

/// Does what systemd does before it starts a service: descriptors from 3 on, and three variables.
/// Keep the returned descriptors until the process has started. `arguments` begin with the
/// subcommand.
pub(crate) fn with_sockets(sockets: &[&TcpListener], names: &str, arguments: &str) -> (Command, Vec<OwnedFd>) {
    let program = dapple().get_program().to_owned();
    let (mut script, mut passed) = (String::new(), Vec::new());
    for (index, socket) in sockets.iter().enumerate() {
        // High numbers first, so that none is overwritten before it is in place.
        let fd = rustix::io::fcntl_dupfd_cloexec(socket.as_fd(), 100).unwrap();
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty()).unwrap();
        let number = fd.as_raw_fd();
        passed.push(fd);
        script += &format!("exec {}<&{number} {number}<&-\n", index + 3);
    }
    script += &format!(
        "export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={names}\nexec {program:?} {arguments}",
        sockets.len()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]);
    (command, passed)
}

#[test]
fn sockets_of_a_service_manager_are_taken_over_and_passed_on() {
    let (site, elsewhere) = (Site::with_index(), Site::new());
    let mut news = News::listen(&elsewhere.path);
    let sockets = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
    let ports = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
    let (mut command, passed) =
        with_sockets(&[&sockets[0], &sockets[1]], "web:more", &format!("serve {:?} --workers 2", site.path));
    command.env("NOTIFY_SOCKET", &news.path);
    let mut server = Server::spawn(command);
    drop(passed);
    drop(sockets);
    news.next_ready();
    assert!(ports.iter().all(|port| server.line.contains(&format!(":{port} "))), "{}", server.line);
    for port in ports {
        assert_eq!(one_get(port), "200");
    }
    server.signal(Signal::USR2);
    let next = news.next_ready();
    assert_eq!(server.wait(LIMIT).expect("the old process ends").code(), Some(0));
    for port in ports {
        assert_eq!(one_get(port), "200", "by the new process");
    }
    rustix::process::kill_process(Pid::from_raw(next).unwrap(), Signal::TERM).unwrap();
    while news.next() != "STOPPING=1" {}
    assert!(eventually(LIMIT, || TcpStream::connect((Ipv4Addr::LOCALHOST, ports[0])).is_err()), "nobody listens");
}

#[test]
fn a_socket_that_does_not_listen_is_refused() {
    let site = Site::with_index();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    let other = TcpListener::from(OwnedFd::from(stream));
    let (mut command, _passed) = with_sockets(&[&other], "web", &format!("serve {:?}", site.path));
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("ListenStream="), "{message}");
}

fn one_get(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap().to_owned()
}

/// A limit that only a bug reaches, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
