//! The clock, the threads and the sockets of the standard library, on a simulating thread.
//!
//! Foreign crates call `std::time::Instant::now` (h2, to forget the streams that it has reset), and no crate can give
//! them another clock. The standard library asks the C library, so this module defines some functions of the C library
//! for the whole program: the linker takes these, and they pass calls on unless a simulation runs on the thread.
//!
//! Not `CLOCK_REALTIME`: hyper keeps the `Date` of its responses in a thread-local that never goes back, so the second
//! simulation of a thread would have the date of the first.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_long, c_void};
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

/// The beginning of each thread that the standard library starts. A simulation has no threads but its own: the standard
/// library panics at this error, and the simulation says why.
///
/// # Safety
/// As of the function of the C library: `attributes` may be written to.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_attr_init(attributes: *mut libc::pthread_attr_t) -> c_int {
    if super::is_simulated() {
        super::REFUSED.set(Some(
            "a thread of the program's own cannot be simulated; in place of it use a task (`spawn`), or `spawn_blocking` for a \
             function that takes long",
        ));
        return libc::EPERM;
    }
    static REAL: Function = Function::new(c"pthread_attr_init");
    match REAL.find() {
        None => libc::ENOSYS,
        Some(real) => {
            // SAFETY: the C library's function of this name has this type.
            let real: unsafe extern "C" fn(*mut libc::pthread_attr_t) -> c_int = unsafe { mem::transmute(real) };
            // SAFETY: the caller's promise is passed on.
            unsafe { real(attributes) }
        }
    }
}

/// Each socket of the standard library begins here; those of Dapple call the kernel themselves.
#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if super::is_simulated() {
        super::REFUSED.set(Some(
            "a socket of the standard library is the kernel's, and cannot be simulated; in place of it use `dapple::net`",
        ));
        // SAFETY: the place is this thread's.
        unsafe { *libc::__errno_location() = libc::EPERM };
        return -1;
    }
    static REAL: Function = Function::new(c"socket");
    match REAL.find() {
        // SAFETY: the system call has the same arguments, and takes no pointers.
        None => unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int },
        Some(real) => {
            // SAFETY: the C library's function of this name has this type, and no condition.
            let real: extern "C" fn(c_int, c_int, c_int) -> c_int = unsafe { mem::transmute(real) };
            real(domain, kind, protocol)
        }
    }
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
    fn a_socket_is_refused_inside_only() {
        let connection = || std::net::UdpSocket::bind("127.0.0.1:0");
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        assert_eq!(world.around(connection).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert!(take_refusal().is_some_and(|refusal| refusal.contains("socket")));
        connection().unwrap();
    }

    #[test]
    fn a_thread_is_refused_inside_only() {
        let mut world = Simulated::new(SystemTime::UNIX_EPOCH, 1);
        let inside = world.around(|| std::panic::catch_unwind(|| thread::spawn(|| {})));
        assert!(inside.is_err());
        assert!(take_refusal().is_some_and(|refusal| refusal.contains("thread")));
        assert_eq!(take_refusal(), None);
        thread::spawn(|| {}).join().unwrap();
    }
}
