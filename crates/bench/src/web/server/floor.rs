//! The peer `epoll`, the floor: a bare event loop per worker that sends canned answers. It does not
//! parse: the number of the file is at the same position in each request.

use super::super::site::{NUMBER_AT, NUMBER_DIGITS};
use super::Setting;
use crate::machine::end_with_parent;
use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Arguments of the hidden `web-floor` command.
#[derive(clap::Args)]
pub(crate) struct FloorArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    workers: usize,
    dir: PathBuf,
}

pub(super) fn command(setting: &Setting, port: u16) -> Result<Command> {
    let mut command = setting.command(&std::env::current_exe()?)?;
    command.arg("web-floor").arg("--port").arg(port.to_string()).arg("--workers").arg(setting.workers.to_string());
    command.arg(setting.site.root());
    Ok(command)
}

/// Serves until the process is ended.
pub(crate) fn run_floor(args: &FloorArgs) -> Result<()> {
    end_with_parent()?;
    crate::machine::open_files_max();
    let answers = Arc::new(answers(&args.dir)?);
    let mut threads = Vec::new();
    for _ in 0..args.workers {
        let own = Loop::new(args.port, answers.clone())?;
        threads.push(std::thread::Builder::new().spawn(move || own.run())?);
    }
    for thread in threads {
        match thread.join() {
            Ok(ended) => ended?,
            Err(_) => anyhow::bail!("a worker panicked"),
        }
    }
    Ok(())
}

/// Head and body of each file, by its number.
fn answers(dir: &Path) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    names.sort();
    let answer = |path: &PathBuf| -> Result<Vec<u8>> {
        let body = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", body.len());
        Ok([head.as_bytes(), &body].concat())
    };
    names.iter().map(answer).collect()
}

struct Loop {
    epoll: OwnedFd,
    listener: Socket,
    answers: Arc<Vec<Vec<u8>>>,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    buf: Vec<u8>,
}

struct Connection {
    fd: OwnedFd,
    /// The answer in transit, and the number of its bytes sent.
    sending: Option<(usize, usize)>,
}

impl Loop {
    /// Each worker has its own listener on the port; the kernel spreads the connections over them.
    fn new(port: u16, answers: Arc<Vec<Vec<u8>>>) -> Result<Loop> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        listener.set_reuse_port(true)?;
        // Accepted sockets inherit it.
        listener.set_tcp_nodelay(true)?;
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
        listener.listen(4_096)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Loop { epoll, listener, answers, connections: Vec::new(), buf: vec![0; 4_096] })
    }

    /// Runs until waiting for events fails.
    fn run(mut self) -> Result<()> {
        loop {
            self.turn()?;
        }
    }

    fn turn(&mut self) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept()?,
                index => self.serve(index as usize),
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let fd = match rustix::net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => fd,
                // Whatever ended this one, the next may succeed.
                Err(_) => return Ok(()),
            };
            let index = std::os::fd::AsRawFd::as_raw_fd(&fd) as usize;
            let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&self.epoll, &fd, epoll::EventData::new_u64(index as u64), interest)?;
            if self.connections.len() <= index {
                self.connections.resize_with(index + 1, || None);
            }
            self.connections[index] = Some(Connection { fd, sending: None });
        }
    }

    fn serve(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        if !connection.go_on(&self.answers, &mut self.buf) {
            self.connections[index] = None;
        }
    }
}

impl Connection {
    /// Sends and reads as far as possible; false at the end.
    fn go_on(&mut self, answers: &[Vec<u8>], buf: &mut [u8]) -> bool {
        loop {
            while let Some((number, sent)) = self.sending {
                let answer = &answers[number];
                match rustix::net::send(&self.fd, &answer[sent..], SendFlags::NOSIGNAL) {
                    Ok(count) if sent + count == answer.len() => self.sending = None,
                    Ok(count) => self.sending = Some((number, sent + count)),
                    Err(Errno::AGAIN) => return true,
                    Err(_) => return false,
                }
            }
            match rustix::io::read(&self.fd, &mut *buf) {
                Ok(0) => return false,
                Ok(count) => match number_in(&buf[..count]).filter(|number| *number < answers.len()) {
                    Some(number) => {
                        self.sending = Some((number, 0));
                        // There is one request at a time, so no more bytes can have arrived; the
                        // next request is a new event.
                        if self.send_first(&answers[number]) {
                            return true;
                        }
                    }
                    None => return false,
                },
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }

    /// True if the whole answer was sent at once.
    fn send_first(&mut self, answer: &[u8]) -> bool {
        match rustix::net::send(&self.fd, answer, SendFlags::NOSIGNAL) {
            Ok(count) if count == answer.len() => {
                self.sending = None;
                true
            }
            Ok(count) => {
                self.sending = self.sending.map(|(number, _)| (number, count));
                false
            }
            Err(_) => false,
        }
    }
}

fn number_in(request: &[u8]) -> Option<usize> {
    let digits = request.get(NUMBER_AT..NUMBER_AT + NUMBER_DIGITS)?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0')))
}

const LISTENER: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_without_parsing() {
        assert_eq!(number_in(b"GET /000123.html HTTP/1.1\r\n"), Some(123));
        assert_eq!(number_in(b"GET /x00123.html HTTP/1.1\r\n"), None);
        assert_eq!(number_in(b"GET /"), None);
    }
}
