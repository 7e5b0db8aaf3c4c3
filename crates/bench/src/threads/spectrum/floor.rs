//! The floor: a bare event loop on epoll. All tasks wait equally long, so a queue can hold all
//! timers.

use super::WAIT;
use super::outbox::Inbox;
use super::record::{Record, mark};
use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::any::Any;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

struct Loop {
    socket: TcpStream,
    epoll: OwnedFd,
    inbox: Inbox,
    buf: Vec<u8>,
    /// Tasks in the order of their due times.
    waiting: VecDeque<(Instant, Record)>,
    out: Vec<u8>,
    written: usize,
}

pub(super) fn start(socket: TcpStream) -> Result<Box<dyn Any>> {
    socket.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
    epoll::add(&epoll, &socket, epoll::EventData::new_u64(0), interest)?;
    let (inbox, buf, waiting) = (Inbox::default(), vec![0; 256 * 1024], VecDeque::new());
    let mut own = Loop { socket, epoll, inbox, buf, waiting, out: Vec::new(), written: 0 };
    // It ends with the connection.
    std::thread::Builder::new().spawn(move || while own.turn().is_ok() {})?;
    Ok(Box::new(()))
}

impl Loop {
    fn turn(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        let rest = self.waiting.front().map(|(due, _)| due.saturating_duration_since(now));
        let limit = rest.map(|rest| timespec(rest.max(STEP)));
        let mut events = Vec::with_capacity(4);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.read()?;
        self.reply();
        self.write()
    }

    fn read(&mut self) -> std::io::Result<()> {
        loop {
            let count = match self.socket.read(&mut self.buf) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let due = Instant::now() + WAIT;
            let waiting = &mut self.waiting;
            self.inbox.for_each(&self.buf[..count], |record| waiting.push_back((due, record)));
        }
    }

    fn reply(&mut self) {
        let now = Instant::now();
        while self.waiting.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, mut record)) = self.waiting.pop_front() else { return };
            mark(&mut record);
            self.out.extend_from_slice(&record);
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        while self.written < self.out.len() {
            match self.socket.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }
}

/// The interval of writes: replies are not written one by one.
const STEP: Duration = Duration::from_micros(200);

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
