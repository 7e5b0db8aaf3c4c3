//! Dumps by signal: the state of all runtimes of the process, on standard error, while the process
//! continues.
//!
//! A separate thread waits for the signal and writes, so that a dump comes even while all workers
//! block or spin. The signal handler only writes to an eventfd.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;

use dapple_sched::Handle;
use rustix::event::{EventfdFlags, eventfd};

/// From now on, writes a dump of each runtime of the process ([`Handle::dump`]) to standard error
/// whenever this signal comes. Another call for the same signal changes nothing.
///
/// The environment variable `DAPPLE_DUMP` does the same for a program without this call:
/// `DAPPLE_DUMP=SIGQUIT` (or `QUIT`, or the number). The first runtime built reads it.
///
/// A dump of 10,000 tasks takes some 10 ms, and reads colors one after the other.
///
/// ```
/// dapple_io::dump::on_signal(dapple_io::signal::SIGQUIT)?;
/// // From now on Ctrl-\ in the terminal, or `kill -QUIT`, shows what the program does.
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// `InvalidInput`: the number is not a signal, or is one that cannot or must not be caught. Others:
/// no descriptors or threads are left.
pub fn on_signal(number: i32) -> io::Result<()> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.contains(&number) {
        return Ok(());
    }
    let name = name_of(number).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{number} is not a signal that can ask for a dump"))
    })?;
    let came = eventfd(0, EventfdFlags::CLOEXEC)?;
    let raised = came.try_clone()?;
    // The thread first: a caught signal without a thread that waits for it would be lost.
    thread::Builder::new().name("dapple-dump".to_owned()).spawn(move || write_dumps(&came, name))?;
    let action = move || {
        // A full counter is readable already.
        let _ = rustix::io::write(&raised, &1_u64.to_ne_bytes());
    };
    // SAFETY: the action is safe in a signal handler: it makes one `write`, by a direct system call
    // that leaves `errno` alone. It neither locks, allocates nor panics.
    unsafe { signal_hook_registry::register(number, action) }?;
    known.push(number);
    Ok(())
}

/// Applies the variable `DAPPLE_DUMP`.
///
/// # Errors
///
/// As [`on_signal`]; the variable does not name a signal.
pub(crate) fn from_environment() -> io::Result<()> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let number = value.to_str().and_then(|text| number_of(text.trim()));
    let number = number.ok_or_else(|| {
        let message = format!("{VARIABLE} is {value:?}: set it to a signal such as SIGQUIT or SIGUSR1, or unset it");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    on_signal(number)
}

fn write_dumps(came: &OwnedFd, name: &str) {
    while rustix::io::read(came, &mut [0; 8]).is_ok() {
        let runtimes = Handle::all();
        let mut text = format!("dapple: dump of all runtimes ({}), by {name}\n", runtimes.len());
        for (index, runtime) in runtimes.iter().enumerate() {
            text += &format!("runtime {}: {}", index + 1, runtime.dump());
        }
        // In one piece; if standard error is closed, there is no other place.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

fn number_of(text: &str) -> Option<i32> {
    let short = text.strip_prefix("SIG").unwrap_or(text);
    let named = SIGNALS.iter().find(|(_, name)| name.strip_prefix("SIG") == Some(short));
    named.map(|(number, _)| *number).or_else(|| text.parse().ok().filter(|number| name_of(*number).is_some()))
}

fn name_of(number: i32) -> Option<&'static str> {
    SIGNALS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Signals that have a thread.
static KNOWN: Mutex<Vec<i32>> = Mutex::new(Vec::new());

const VARIABLE: &str = "DAPPLE_DUMP";

/// Signals that people and tools send, and that may be caught.
const SIGNALS: [(i32, &str); 12] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGCONT, "SIGCONT"),
    (libc::SIGWINCH, "SIGWINCH"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGPWR, "SIGPWR"),
];

#[cfg(test)]
mod tests {
    use super::{name_of, number_of, on_signal};

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["SIGQUIT", "QUIT", "3"] {
            assert_eq!(number_of(text), Some(libc::SIGQUIT), "{text}");
        }
        for text in ["", "SIG", "sigquit", "SIGKILL", "9", "11", "0", "-3", "1000"] {
            assert_eq!(number_of(text), None, "{text}");
        }
        assert_eq!(name_of(libc::SIGUSR1), Some("SIGUSR1"));
        assert_eq!(on_signal(libc::SIGSEGV).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}
