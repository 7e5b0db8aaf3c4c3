//! A new process takes over while clients come and go, also with sockets of a service manager.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use super::origin::Origin;
use super::tunnels::stream;
use super::{get, reply};
use crate::support::{Server, Site, dapple, eventually, noise};
use crate::upgrade::{LIMIT, News, is_running, load, with_sockets};

/// A proxy that reports to `news`.
fn start(news: &News, options: &[&str]) -> Server {
    let mut command = dapple();
    command.env("NOTIFY_SOCKET", &news.path);
    command.args(["proxy", "--port", "0", "--workers", "2", "--allow-private"]).args(options);
    Server::spawn(command)
}

/// Echoes all input, for all clients.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut from, mut to) = (stream.try_clone().unwrap(), stream);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

/// Sends bytes there and back, if the tunnel still works.
fn round_trip(tunnel: &mut TcpStream) -> std::io::Result<()> {
    let mut back = [0; 4];
    tunnel.write_all(b"ping")?;
    tunnel.read_exact(&mut back)?;
    assert_eq!(&back, b"ping");
    Ok(())
}

#[test]
fn nothing_is_lost_when_a_new_process_takes_over_under_load() {
    let body = noise(20_000, 9);
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncache-control: no-store\r\n\r\n", body.len());
    let answer = [text.as_bytes(), &body].concat();
    let origin = Origin::of(move |_| answer.clone());
    let elsewhere = Site::new();
    let mut news = News::listen(&elsewhere.path);
    let echo = echo();
    let mut proxy = start(&news, &["--connect-port", &echo.to_string(), "--drain-s", "3"]);
    let first = news.next_ready();
    assert_eq!(first as u32, proxy.child.id());
    let (stop, done, port, target) = (AtomicBool::new(false), AtomicU64::new(0), proxy.port, origin.url("/page"));
    thread::scope(|scope| {
        scope.spawn(|| load(port, &target, &body, &stop, &done));
        let mut last = first;
        for round in 0..3 {
            let seen = done.load(Ordering::Relaxed);
            assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > seen + 200), "the load runs");
            // One tunnel in constant use, and one idle.
            let (mut busy, mut quiet) = (stream(&proxy, echo), stream(&proxy, echo));
            let tunnel = scope.spawn(move || while round_trip(&mut busy).is_ok() {});
            kill_process(Pid::from_raw(last).unwrap(), Signal::USR2).unwrap();
            let next = news.next_ready();
            assert_ne!(next, last);
            if round == 0 {
                assert_eq!(proxy.wait(LIMIT).expect("the old process ends").code(), Some(0));
            } else {
                assert!(eventually(LIMIT, || !is_running(last)), "the old process ends");
            }
            tunnel.join().unwrap();
            assert!(round_trip(&mut quiet).is_err(), "it ended with its process");
            last = next;
        }
        let seen = done.load(Ordering::Relaxed);
        assert!(eventually(LIMIT, || done.load(Ordering::Relaxed) > seen + 200), "the load runs");
        stop.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 800);
}

#[test]
fn a_tunnel_in_use_goes_on_until_it_ends() {
    let elsewhere = Site::new();
    let mut news = News::listen(&elsewhere.path);
    let echo = echo();
    let mut proxy = start(&news, &["--connect-port", &echo.to_string(), "--drain-s", "600"]);
    news.next_ready();
    let (mut tunnel, mut idle) = (stream(&proxy, echo), stream(&proxy, echo));
    let is_closing = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(idle.read(&mut [0]).unwrap_or(0), 0, "the tunnel is idle");
            is_closing.store(true, Ordering::Relaxed);
        });
        proxy.signal(Signal::USR2);
        while !is_closing.load(Ordering::Relaxed) {
            round_trip(&mut tunnel).expect("it goes on");
        }
        for _ in 0..200 {
            round_trip(&mut tunnel).expect("it goes on");
        }
    });
    tunnel.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(tunnel.read(&mut [0]).unwrap(), 0);
    assert_eq!(proxy.wait(LIMIT).expect("the old process ends").code(), Some(0));
    news.next_ready();
}

#[test]
fn sockets_of_a_service_manager_are_taken_over_and_passed_on() {
    let origin = Origin::of(|_| reply("200 OK", "", "reached"));
    let elsewhere = Site::new();
    let mut news = News::listen(&elsewhere.path);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let (mut command, passed) = with_sockets(&[&socket], "proxy", "proxy --workers 2 --allow-private");
    command.env("NOTIFY_SOCKET", &news.path);
    let mut proxy = Server::spawn(command);
    drop((passed, socket));
    news.next_ready();
    assert_eq!(proxy.port, port);
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "reached");
    proxy.signal(Signal::USR2);
    let next = news.next_ready();
    assert_eq!(proxy.wait(LIMIT).expect("the old process ends").code(), Some(0));
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "reached", "by the new process");
    kill_process(Pid::from_raw(next).unwrap(), Signal::TERM).unwrap();
    while news.next() != "STOPPING=1" {}
    assert!(eventually(LIMIT, || TcpStream::connect(("127.0.0.1", port)).is_err()), "nobody listens");
}

#[test]
fn a_successor_that_cannot_start_changes_nothing() {
    let origin = Origin::of(|_| reply("200 OK", "cache-control: max-age=600\r\n", "reached"));
    let folder = Site::new();
    folder.write("proxy.toml", "port = 0\nworkers = 2\nallow_private = true\n");
    let mut news = News::listen(&folder.path);
    let mut command = dapple();
    command.env("NOTIFY_SOCKET", &news.path).arg("proxy").arg("--config").arg(folder.path.join("proxy.toml"));
    let mut proxy = Server::spawn(command);
    news.next_ready();
    folder.write("proxy.toml", "port = 0\nworkers = many\n");
    proxy.signal(Signal::USR2);
    for _ in 0..20 {
        assert_eq!(get(&proxy, &origin.url("/"), "").text(), "reached");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(proxy.child.try_wait().unwrap().is_none());
    // The next successor finds a good file.
    folder.write("proxy.toml", "port = 0\nworkers = 1\nallow_private = true\n");
    let mut tries = 0;
    assert!(eventually(LIMIT, || {
        tries += 1;
        if tries % 50 == 1 {
            proxy.signal(Signal::USR2);
        }
        proxy.child.try_wait().unwrap().is_some()
    }));
    assert_eq!(get(&proxy, &origin.url("/"), "").text(), "reached", "by the new process");
    news.next_ready();
}
