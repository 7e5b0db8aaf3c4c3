//! A new process takes the listening socket over from the one that has it.
//!
//! ```text
//!   old process                                       new process (--take-over)
//!   serving, and reachable by a name of the kernel
//!   (an abstract Unix socket, named after the address)
//!              ◄──────────────────────────── connects
//!   is it the same user? ── the socket ────────────►  is it the same user? accepts on it
//!              ◄──────────────────────────── "ready"
//!   gives up the name ── "gone" ───────────────────►  takes the name
//!   leaving: tells clients, finishes, ends             serving
//! ```
//!
//! Both accept for a moment, on the same kernel queue, so that no connection is refused or reset.
//! If the new process ends before "ready", the old one goes on unchanged.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sockopt,
};

/// The old process's side: a name by which a new one finds it.
pub(super) struct Offer {
    pub(super) listener: UnixListener,
}

/// The new process's side, between having the socket and serving.
pub(super) struct Takeover {
    talk: UnixStream,
}

impl Offer {
    /// # Errors
    ///
    /// Another process has the name, and listens there, too.
    pub(super) fn open(address: SocketAddr) -> io::Result<Offer> {
        let listener = UnixListener::bind_addr(&name_of(address)?)?;
        listener.set_nonblocking(true)?;
        Ok(Offer { listener })
    }
}

/// Passes the socket to a process that asks for it, and waits until that serves. Blocks, up to
/// [`TALK_MAX`].
///
/// # Errors
///
/// The process belongs to another user, or failed on the way: nothing has changed then.
pub(super) fn hand_over(mut talk: UnixStream, socket: &TcpListener) -> io::Result<UnixStream> {
    limit(&talk)?;
    check_user(&talk)?;
    let fds = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    passed.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(&talk, &[IoSlice::new(&[SOCKET])], &mut passed, SendFlags::NOSIGNAL)?;
    expect(&mut talk, READY)?;
    Ok(talk)
}

/// Says that the name is free, and that this process leaves.
pub(super) fn tell_gone(mut talk: UnixStream) {
    // If the other process has ended meanwhile, no process serves, as requested.
    let _ = talk.write_all(&[GONE]);
}

/// Takes over the socket on this address, if a stage host has it. Blocks, up to [`TALK_MAX`].
///
/// # Errors
///
/// A host has it, and did not pass the socket, or belongs to another user.
pub(super) fn take_over(address: SocketAddr) -> io::Result<Option<(TcpListener, Takeover)>> {
    let talk = match UnixStream::connect_addr(&name_of(address)?) {
        Ok(talk) => talk,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        Err(error) => return Err(error),
    };
    limit(&talk)?;
    check_user(&talk)?;
    let mut word = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    rustix::net::recvmsg(&talk, &mut [IoSliceMut::new(&mut word)], &mut passed, RecvFlags::CMSG_CLOEXEC)?;
    let fd = passed.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let fd = fd.ok_or_else(|| io::Error::other("the process that listens there gave no socket"))?;
    if !sockopt::socket_acceptconn(&fd)? {
        return Err(io::Error::other("the process that listens there gave a socket that does not listen"));
    }
    Ok(Some((TcpListener::from(fd), Takeover { talk })))
}

impl Takeover {
    /// Says that this process serves, and waits until the old one has released its name. Blocks, up
    /// to [`TALK_MAX`].
    pub(super) fn tell_ready(mut self) -> io::Result<()> {
        self.talk.write_all(&[READY])?;
        expect(&mut self.talk, GONE)
    }
}

fn expect(talk: &mut UnixStream, wanted: u8) -> io::Result<()> {
    let mut word = [0];
    talk.read_exact(&mut word)?;
    if word == [wanted] { Ok(()) } else { Err(io::Error::other("the other process says something unknown")) }
}

fn limit(talk: &UnixStream) -> io::Result<()> {
    talk.set_nonblocking(false)?;
    talk.set_read_timeout(Some(TALK_MAX))?;
    talk.set_write_timeout(Some(TALK_MAX))
}

/// Any process may take a name of the kernel, and connect to it.
fn check_user(talk: &UnixStream) -> io::Result<()> {
    let (theirs, ours) = (sockopt::socket_peercred(talk)?.uid, rustix::process::geteuid());
    if theirs == ours || theirs.is_root() {
        return Ok(());
    }
    let text = format!("the other process is of user {}, and this one of {}", theirs.as_raw(), ours.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

fn name_of(address: SocketAddr) -> io::Result<UnixAddr> {
    UnixAddr::from_abstract_name(format!("dapple-stage-host/{address}"))
}

const SOCKET: u8 = b'S';
const READY: u8 = b'R';
const GONE: u8 = b'G';

/// How long the other process may take for its part.
pub(super) const TALK_MAX: Duration = Duration::from_secs(10);
