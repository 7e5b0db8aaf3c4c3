//! The kernel's view of a worker's thread: its processor time, and whether it is ready to run.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// A thread of this process, as other threads can ask about it.
pub(super) struct Thread {
    id: libc::pid_t,
    clock: libc::clockid_t,
}

impl Thread {
    /// The calling thread; `None` if it has no clock.
    pub(super) fn current() -> Option<Thread> {
        let mut clock = 0;
        // SAFETY: the thread is alive, because it is this one, and the clock is written to a local.
        let (id, error) =
            unsafe { (libc::gettid(), libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock)) };
        (error == 0).then_some(Thread { id, clock })
    }

    /// The processor time that it has used, exact even while it runs; `None` once it has ended.
    /// Cost: a system call.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock is a number that names the thread, and the kernel refuses the number of
        // an ended thread; the time is written to a local.
        // REAL: the processor time of a thread.
        let error = unsafe { libc::clock_gettime(self.clock, &raw mut time) };
        (error == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    /// Whether it runs or is ready to, by its state in `/proc`; `None` if that cannot be read.
    /// Cost: some 10 us.
    pub(super) fn is_runnable(&self) -> Option<bool> {
        let mut stat = [0; 64];
        // Opened each time, because it is rarely needed: a descriptor for each worker would be
        // wasted.
        let len =
            File::open(format!("/proc/self/task/{}/stat", self.id)).and_then(|mut file| file.read(&mut stat)).ok()?;
        state_in(&stat[..len]).map(|state| state == b'R')
    }
}

/// The state in a line such as `42 (name) S 1 …`. The name may have parentheses and spaces, in at
/// most 15 bytes.
fn state_in(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::*};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::{Thread, state_in};

    /// Waits for a condition that only a bug prevents.
    fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until, "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_works_is_told_from_one_that_waits() {
        let stop = AtomicBool::new(false);
        let (tx, rx) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tx.send(Thread::current().expect("it has a clock")).unwrap();
                while !stop.load(Acquire) {
                    std::hint::spin_loop();
                }
                // Blocks until the test drops the other end.
                _ = ended.into_iter().next();
            });
            let thread = rx.recv().unwrap();
            wait_for("it uses time", || thread.cpu_time().unwrap() > Duration::from_millis(1));
            assert_eq!(thread.is_runnable(), Some(true), "it spins, whether it has a processor or not");
            stop.store(true, Release);
            wait_for("it blocks", || thread.is_runnable() == Some(false));
            let waits_at = thread.cpu_time();
            assert_eq!(thread.cpu_time(), waits_at);
            drop(end);
        });
    }

    #[test]
    fn a_thread_that_has_ended_is_not_known() {
        let thread = std::thread::spawn(|| Thread::current().expect("it has a clock")).join().unwrap();
        wait_for("the kernel forgets it", || thread.cpu_time().is_none() && thread.is_runnable().is_none());
    }

    #[test]
    fn a_state_is_found_behind_any_name() {
        assert_eq!(state_in(b"42 (a) R (b)) S 1 2"), Some(b'S'));
        assert_eq!(state_in(b"42 (dapple-0) R 1 2"), Some(b'R'));
        assert_eq!((state_in(b"42"), state_in(b"42 (a)")), (None, None));
    }
}
