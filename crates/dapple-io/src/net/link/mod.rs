//! The ways of packets between the kernel and a network in user space.

mod packet;
mod tun;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::task::{Context, Poll};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub use self::packet::PacketQueue;
pub use self::tun::TunQueue;
use crate::driver::{Direction, Source, Step};

/// A descriptor of which each read takes one packet and each write gives one.
#[derive(Debug)]
struct Queue {
    fd: OwnedFd,
    /// The same descriptor, registered with a runtime.
    source: OnceLock<Source<OwnedFd>>,
}

impl Queue {
    fn new(fd: OwnedFd) -> Queue {
        Queue { fd, source: OnceLock::new() }
    }

    fn attach(&self) -> io::Result<()> {
        if self.source.get().is_none() {
            let source = Source::new(self.fd.try_clone()?)?;
            source.comes_from_outside();
            // Another thread may have been faster.
            let _ = self.source.set(source);
        }
        Ok(())
    }

    /// Receives a packet. `is_passing` says which errors concern one packet, after which others may come.
    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        is_passing: impl Fn(rustix::io::Errno) -> bool,
    ) -> Poll<io::Result<usize>> {
        let Some(source) = self.source.get() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        // A packet that is shorter than the buffer says nothing about the next one.
        source.poll_io(cx, Direction::Read, None, |fd| match rustix::io::readv(fd, bufs) {
            Ok(len) => Ok(Step::More(len)),
            // Is tried again at once.
            Err(error) if is_passing(error) => Err(io::ErrorKind::Interrupted.into()),
            Err(error) => Err(error.into()),
        })
    }

    fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.fd, bufs)?;
        Ok(())
    }
}

/// A request to the kernel about an interface.
fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of an interface has 1 to 15 bytes"));
    }
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(request)
}

/// Asks the kernel about an interface, with one of the calls `SIOCGIF…`.
fn ask(name: &str, call: libc::c_ulong) -> io::Result<libc::ifreq> {
    // Any socket of this network namespace will do.
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = request(name)?;
    // SAFETY: each of these calls reads and writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), call as libc::Ioctl, &raw mut request) })?;
    Ok(request)
}

fn mtu(name: &str) -> io::Result<usize> {
    let answer = ask(name, libc::SIOCGIFMTU)?;
    // SAFETY: the call has set this field; any bytes are a valid integer.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
