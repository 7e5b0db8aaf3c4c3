//! The clock of the standard library, and what a simulation refuses to it, on a simulating thread.
//!
//! Foreign crates call `std::time::Instant::now` (h2, to forget the streams that it has reset), and no crate can give
//! them another clock. The standard library asks the C library, so this module defines some functions of the C library
//! for the whole program: the linker takes these, and they pass calls on unless a simulation runs on the thread.
//!
//! Not `CLOCK_REALTIME`: hyper keeps the `Date` of its responses in a thread-local that never goes back, so the second
//! simulation of a thread would have the date of the first.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::THREAD;

/// The same moment as an [`Instant`] and as the C library tells it.
struct Anchor {
    instant: Instant,
    since_boot: Duration,
}

thread_local! {
    /// A time that the monotonic clock shows for the moment, to learn the [`Instant`] of that reading.
    static STANDS_AT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// # Safety
/// As of the function of the C library: `time` may be written to.
#[unsafe(no_mangle)]
// REAL: it is the function that others call.
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    let simulated = match clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => {
            STANDS_AT.get().or_else(|| THREAD.with(|thread| thread.now.get()).map(since_boot))
        }
        _ => None,
    };
    match simulated {
        Some(since_boot) => {
            // SAFETY: promised by the caller.
            unsafe { time.write(timespec(since_boot)) };
            0
        }
        // SAFETY: the caller's promise is passed on.
        None => unsafe { real_gettime(clock, time) },
    }
}

/// Defines a function of the C library for the whole program. A call on a simulating thread fails, and the simulation
/// says why; any other call is passed on.
macro_rules! refuse {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $kind:ty),*), $fails:ident, $why:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the function of the C library.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            static REAL: Function = Function::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero inside"),
            });
            if super::is_simulated() {
                super::REFUSED.set(Some($why));
                return $fails(libc::EPERM);
            }
            match REAL.find() {
                None => $fails(libc::ENOSYS),
                Some(real) => {
                    // SAFETY: the C library's function of this name has this type.
                    let real: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { mem::transmute(real) };
                    // SAFETY: the caller's promise is passed on.
                    unsafe { real($($argument),*) }
                }
            }
        }
    };
}

refuse! {
    /// The beginning of each thread that the standard library starts; it panics at this error.
    pthread_attr_init(attributes: *mut libc::pthread_attr_t), by_value,
    "a thread of the program's own cannot be simulated; in place of it use a task (`spawn`), or `spawn_blocking` for a function \
     that takes long"
}

refuse! {
    /// Each socket of the standard library begins here; those of Dapple call the kernel themselves.
    socket(domain: c_int, kind: c_int, protocol: c_int), by_errno,
    "a socket of the standard library is the kernel's, and cannot be simulated; in place of it use `dapple::net`"
}

refuse! {
    /// `UnixStream::pair` and `UnixDatagram::pair`.
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int), by_errno,
    "a pair of sockets of the standard library is the kernel's, and cannot be simulated; in place of it use a channel of \
     `dapple::sync`, or `dapple::net` over 127.0.0.1"
}

refuse! {
    /// `std::io::pipe`, and the pipes that lead to a child process.
    pipe2(pair: *mut c_int, flags: c_int), by_errno,
    "a pipe of the standard library is the kernel's, and cannot be simulated; in place of it use a channel of `dapple::sync`"
}

refuse! {
    /// Each look-up of a name by the standard library; an address in digits needs none.
    getaddrinfo(
        name: *const c_char,
        service: *const c_char,
        hints: *const libc::addrinfo,
        found: *mut *mut libc::addrinfo
    ), by_resolver,
    "a look-up of a name by the standard library asks the machine, and cannot be simulated; in place of it use `dapple::net`, \
     where each address may be a name, as in `TcpStream::connect(\"name:80\")`"
}

refuse! {
    /// `std::thread::sleep`; the standard library panics at this error.
    clock_nanosleep(
        clock: libc::clockid_t,
        flags: c_int,
        time: *const libc::timespec,
        left: *mut libc::timespec
    ), by_value,
    "`std::thread::sleep` stops the simulation, while its time stands; in place of it use `dapple::time::sleep`"
}

refuse! {
    /// `std::thread::sleep` of older toolchains, and of crates that call the C library.
    nanosleep(time: *const libc::timespec, left: *mut libc::timespec), by_errno,
    "`nanosleep` stops the simulation, while its time stands; in place of it use `dapple::time::sleep`"
}

/// Fails as functions do that return the error.
fn by_value(error: c_int) -> c_int {
    error
}

/// Fails as most system calls do.
fn by_errno(error: c_int) -> c_int {
    // SAFETY: the place is this thread's.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Fails as the resolver does at an error of the system.
fn by_resolver(error: c_int) -> c_int {
    by_errno(error);
    libc::EAI_SYSTEM
}

/// The reading of the monotonic clock at this instant.
fn since_boot(instant: Instant) -> Duration {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    let anchor = ANCHOR.get_or_init(|| {
        let mut time = timespec(Duration::ZERO);
        // SAFETY: the place is a local one.
        unsafe { real_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        let since_boot = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        STANDS_AT.set(Some(since_boot));
        // REAL: it shows the reading above.
        let instant = Instant::now();
        STANDS_AT.set(None);
        Anchor { instant, since_boot }
    });
    match instant.checked_duration_since(anchor.instant) {
        Some(later) => anchor.since_boot + later,
        None => anchor.since_boot.saturating_sub(anchor.instant - instant),
    }
}

fn timespec(since_boot: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: since_boot.as_secs() as libc::time_t,
        tv_nsec: c_long::from(since_boot.subsec_nanos() as i32),
    }
}

/// # Safety
/// `time` may be written to.
unsafe fn real_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    static REAL: Function = Function::new(c"clock_gettime");
    match REAL.find() {
        // SAFETY: promised by the caller; the system call has the same arguments.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int },
        Some(real) => {
            // SAFETY: the C library's function of this name has this type.
            let real: unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int =
                unsafe { mem::transmute(real) };
            // SAFETY: promised by the caller.
            unsafe { real(clock, time) }
        }
    }
}

/// A function of the C library, found at its first call.
struct Function {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Function {
    const fn new(name: &'static CStr) -> Function {
        Function { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn find(&self) -> Option<*mut c_void> {
        // Relaxed, here and below: all threads find the same function, and it is code.
        let found = self.found.load(Relaxed);
        if !found.is_null() {
            return Some(found);
        }
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
        (!found.is_null()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::ToSocketAddrs;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::thread;

    use super::super::*;

    #[test]
    fn the_clock_of_the_standard_library_is_that_of_the_simulation() {
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        world.advance(Duration::from_secs(5));
        for _ in 0..3 {
            assert_eq!(world.around(Instant::now), world.now());
            world.advance(Duration::new(3_600, 123_456_789));
        }
        assert!(Instant::now() < world.now(), "outside it is the kernel's");
    }

    #[test]
    fn the_kernel_is_refused_inside_only() {
        type Use = (&'static str, fn() -> io::Result<()>);
        let uses: [Use; 5] = [
            ("a socket of", || std::net::UdpSocket::bind("127.0.0.1:0").map(drop)),
            ("a pair of sockets", || UnixStream::pair().map(drop)),
            ("a pair of sockets", || UnixDatagram::pair().map(drop)),
            ("a pipe", || io::pipe().map(drop)),
            ("a look-up of a name", || ("localhost", 80).to_socket_addrs().map(drop)),
        ];
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        for (what, run) in uses {
            let refused = world.around(run).map_err(|error| error.kind());
            assert_eq!(refused, Err(io::ErrorKind::PermissionDenied), "{what}");
            assert!(take_refusal().is_some_and(|refusal| refusal.contains(what)), "{what}");
            run().unwrap();
            assert_eq!(take_refusal(), None, "{what}");
        }
        assert!(world.around(|| "127.0.0.1:80".to_socket_addrs()).is_ok(), "digits need no look-up");
        assert_eq!(take_refusal(), None);
    }

    #[test]
    fn a_thread_and_its_sleep_are_refused_inside_only() {
        let uses: [(&str, fn()); 2] = [
            ("a thread", || thread::spawn(|| {}).join().unwrap()),
            ("`std::thread::sleep`", || thread::sleep(Duration::from_nanos(1))),
        ];
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        for (what, run) in uses {
            assert!(world.around(|| std::panic::catch_unwind(run)).is_err(), "{what}");
            assert!(take_refusal().is_some_and(|refusal| refusal.contains(what)), "{what}");
            run();
            assert_eq!(take_refusal(), None, "{what}");
        }
    }

    #[test]
    fn other_threads_may_sleep_meanwhile() {
        let (begin, begun) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            begun.recv().unwrap();
            thread::sleep(Duration::from_nanos(1));
            take_refusal()
        });
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        let of_other = world.around(|| {
            begin.send(()).unwrap();
            other.join().unwrap()
        });
        assert_eq!((of_other, take_refusal()), (None, None));
    }
}
