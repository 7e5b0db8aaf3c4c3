//! Upgrades without a gap: a new process takes over the listening sockets of the running one.
//!
//! ```text
//!   old process                                          new process
//!   serving ── SIGUSR2 ──► starting a successor          (same program file, same arguments)
//!              sockets ──────────────────────────────►   taking: sockets come over its standard input
//!              │                                         starting: reads its configuration, opens the site
//!              ◄────────────────────────────── "ready"   serving: accepts on the same sockets
//!              finishing: accepts no more, drains        │
//!              gone, exit code 0                         │
//!
//!              ◄── closed, or nothing for STARTING_MAX   failed: said why on stderr, exit code 1
//!   serving    (the successor is gone; as if nothing had been)
//! ```
//!
//! Both accept for a moment, on the same kernel queue, so no connection is refused or lost.
//! Descriptors travel by `SCM_RIGHTS`: the environment has no descriptor numbers, and none leaks
//! into another program.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
// REAL: a process is waited for.
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::listening::Listening;

/// The process that this one succeeds.
#[derive(Debug)]
pub struct Predecessor {
    talk: UnixStream,
}

/// The process that takes over from this one.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    talk: UnixStream,
}

impl Predecessor {
    /// Finds the process that started this one as its successor, if there is one.
    ///
    /// # Errors
    ///
    /// The environment says so, but standard input is not its socket.
    pub fn find() -> io::Result<Option<Predecessor>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let talk = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Later reads of standard input find it empty.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        talk.set_read_timeout(Some(TALK_MAX))?;
        talk.set_write_timeout(Some(TALK_MAX))?;
        Ok(Some(Predecessor { talk }))
    }

    /// Receives the listening sockets.
    pub fn take_sockets(&mut self) -> io::Result<Vec<Listening>> {
        let mut listening = Vec::new();
        loop {
            let mut label = [0; LABEL_LEN_MAX];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut passed = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
            let received = rustix::net::recvmsg(&self.talk, &mut [IoSliceMut::new(&mut label)], &mut passed, flags)?;
            if received.bytes != LABEL_LEN_MAX {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let fd = passed.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            // A message without a socket ends the list.
            let Some(fd) = fd else { return Ok(listening) };
            let label = String::from_utf8_lossy(&label).trim_end_matches('\0').to_owned();
            listening.push(Listening::kernel(label, fd.into()));
        }
    }

    /// Says that this process accepts now. It is no error if the other process has gone.
    pub fn tell_ready(mut self) {
        let _ = self.talk.write_all(&[READY]);
    }
}

impl Successor {
    /// Starts `program` with the arguments of this process, and passes it the sockets.
    ///
    /// # Errors
    ///
    /// The program did not start, or ended before it took the sockets.
    pub(super) fn start(program: &PathBuf, sockets: &[(String, OwnedFd)]) -> io::Result<Successor> {
        let (talk, theirs) = UnixStream::pair()?;
        talk.set_write_timeout(Some(TALK_MAX))?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(VARIABLE, "1").stdin(Stdio::from(OwnedFd::from(theirs)));
        // These variables were meant for this process.
        command.env_remove("LISTEN_FDS").env_remove("LISTEN_PID").env_remove("LISTEN_FDNAMES");
        let child = command.spawn()?;
        drop(command);
        let mut successor = Successor { child, talk };
        match successor.send(sockets) {
            Ok(()) => Ok(successor),
            Err(error) => {
                successor.end();
                Err(error)
            }
        }
    }

    fn send(&self, sockets: &[(String, OwnedFd)]) -> io::Result<()> {
        for (label, socket) in sockets {
            send_one(&self.talk, label, Some(socket.as_fd()))?;
        }
        send_one(&self.talk, "", None)
    }

    /// The process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the successor is ready. Blocks, so call it on a thread of its own. Setting
    /// `is_cancelled` ends the wait.
    ///
    /// # Errors
    ///
    /// Says what happened instead; the successor has ended.
    pub(super) fn wait_ready(mut self, is_cancelled: &AtomicBool) -> Result<u32, String> {
        let begin = Instant::now();
        let mut answer = [0];
        self.talk.set_read_timeout(Some(LOOK_EVERY)).map_err(|error| error.to_string())?;
        loop {
            match self.talk.read(&mut answer) {
                Ok(1) if answer == [READY] => return Ok(self.id()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
            if is_cancelled.load(Ordering::Relaxed) || begin.elapsed() > STARTING_MAX {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(format!("it was not ready after {} s", begin.elapsed().as_secs()));
            }
        }
        match self.end() {
            Some(status) => Err(format!("it ended with {status}; its own message says why")),
            None => Err("it ended".to_owned()),
        }
    }

    /// Ends the successor, if it still runs.
    fn end(&mut self) -> Option<std::process::ExitStatus> {
        // A process that has closed its side is ending by itself, and its exit code says more than
        // a kill would.
        for _ in 0..50 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

fn send_one(talk: &UnixStream, label: &str, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut bytes = [0; LABEL_LEN_MAX];
    let label = label.as_bytes();
    bytes.get_mut(..label.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(label);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passing = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
    if !sockets.is_empty() {
        passing.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    // The kernel sends so few bytes whole or not at all.
    match rustix::net::sendmsg(talk, &[IoSlice::new(&bytes)], &mut passing, SendFlags::NOSIGNAL)? {
        LABEL_LEN_MAX => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// The environment variable that is set for a successor.
const VARIABLE: &str = "DAPPLE_TAKES_OVER";

/// The byte that the successor sends when it accepts.
const READY: u8 = b'r';

/// The length of every label in transit, padded with zeros: a host name has at most 255 bytes.
const LABEL_LEN_MAX: usize = 512;

/// How long the successor may take to start: the site may be large or the disk slow.
const STARTING_MAX: Duration = Duration::from_secs(60);

/// How often the wait checks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long each message between the two processes may take.
const TALK_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::{Predecessor, send_one};
    use std::os::fd::AsFd;

    #[test]
    fn sockets_come_over_with_their_labels() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let sockets = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        send_one(&ours, "127.0.0.1:0", Some(sockets[0].as_fd())).unwrap();
        send_one(&ours, ":web", Some(sockets[1].as_fd())).unwrap();
        send_one(&ours, "", None).unwrap();
        let taken = Predecessor { talk: theirs }.take_sockets().unwrap();
        let labels: Vec<&str> = taken.iter().map(|taken| taken.label.as_str()).collect();
        assert_eq!(labels, ["127.0.0.1:0", ":web"]);
        for (taken, socket) in taken.iter().zip(&sockets) {
            assert_eq!(taken.addr(), socket.local_addr().ok());
        }
    }

    #[test]
    fn a_predecessor_that_goes_away_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send_one(&ours, ":web", Some(TcpListener::bind("127.0.0.1:0").unwrap().as_fd())).unwrap();
        drop(ours);
        assert!(Predecessor { talk: theirs }.take_sockets().is_err());
    }
}
