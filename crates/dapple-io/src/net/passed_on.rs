//! Sockets that a service manager opened before the process started.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// A descriptor that came with the process, and the name that the service manager gave it.
#[derive(Debug)]
pub struct PassedOn {
    /// `FileDescriptorName=` of the socket unit; empty if it has none.
    pub name: String,
    /// The descriptor, which children no longer inherit.
    pub fd: OwnedFd,
}

/// Takes the descriptors that systemd, or another program with its protocol (sd_listen_fds(3)),
/// passed on to this process. `LISTEN_FDS` is their number; `LISTEN_PID` must be this process, not
/// a parent of it.
///
/// Only the first call returns them; later ones, and processes that got none, get an empty list.
/// The caller must determine the kind of each descriptor.
///
/// ```
/// for passed in dapple_io::net::passed_on()? {
///     let listener = std::net::TcpListener::from(passed.fd);
///     println!("{} is {}", passed.name, listener.local_addr()?);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidInput` if the environment promises descriptors that the process does not have, or more
/// than 1,024.
pub fn passed_on() -> io::Result<Vec<PassedOn>> {
    let variable = |name: &str| std::env::var(name).ok();
    let for_us = variable("LISTEN_PID").is_some_and(|id| id.parse() == Ok(std::process::id()));
    if !for_us || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = count(&variable("LISTEN_FDS").unwrap_or_default())?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut take = |fd| Ok(PassedOn { name: names.next().unwrap_or_default().to_owned(), fd: take(fd)? });
    (FIRST..FIRST + count).map(&mut take).collect()
}

fn count(text: &str) -> io::Result<RawFd> {
    match text.parse() {
        Ok(count) if (0..=COUNT_MAX).contains(&count) => Ok(count),
        _ => Err(invalid(format!("LISTEN_FDS is {text:?}, which is no count of descriptors from 0 to {COUNT_MAX}"))),
    }
}

fn take(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: only borrowed for a call that fails if the descriptor is not open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)
        .map_err(|error| invalid(format!("LISTEN_FDS promises descriptor {fd}, which is of no use: {error}")))?;
    // SAFETY: the descriptor is open, as the call above has shown. By the protocol this process
    // owns the descriptor from the start. It was open already, so no other code in the process can
    // have opened it, and `TAKEN` lets no call take it twice.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Whether a call has taken them.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;

/// More than any service manager passes on; the count comes from outside.
const COUNT_MAX: RawFd = 1024;

#[cfg(test)]
mod tests {
    use super::{count, passed_on};

    #[test]
    fn counts_from_outside_are_bounded() {
        assert_eq!(count("0").unwrap(), 0);
        assert_eq!(count("2").unwrap(), 2);
        for bad in ["", "-1", "1025", "99999999999", "two"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_process_that_got_none_has_none() {
        assert!(passed_on().unwrap().is_empty());
    }
}
