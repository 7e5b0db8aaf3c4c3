//! Child processes: starting them without blocking a worker, and waiting for their end.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::driver::{Direction, Source, Step};
use crate::signal::{SIGCHLD, Signal, signal};
use crate::{blocking, environment, pipe};

/// Starts a child. The call waits until the child has begun to execute, so it runs in the blocking
/// pool.
///
/// ```
/// use std::process::{Command, Stdio};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let mut command = Command::new("echo");
///     command.arg("hello").stdout(Stdio::piped());
///     let mut child = dapple_io::process::spawn(command).await?;
///     let stdout = child.take_stdout().expect("is piped")?;
///     let mut buf = [0; 6];
///     stdout.read_exact(&mut buf).await?;
///     assert_eq!(&buf, b"hello\n");
///     assert!(child.wait().await?.success());
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Cancel safety
///
/// A child that is being started runs even if the future is dropped, and then no task waits for it.
///
/// # Errors
///
/// Those of [`Command::spawn`]; there is no runtime here.
pub async fn spawn(mut command: Command) -> io::Result<Child> {
    environment::refuse("a child process");
    let child = blocking::run(move || command.spawn()).await?;
    Child::from_std(child)
}

/// Returns unused memory of the allocator to the kernel, if the allocator is glibc's; returns
/// whether there was any.
///
/// glibc keeps free memory between pieces that are still in use, so a program that has freed much
/// does not shrink by itself. For programs with a memory limit. This walks through the whole heap,
/// and meanwhile other threads that allocate may wait for some milliseconds: call it in the
/// [blocking pool](crate::blocking).
pub fn give_back_memory() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it has no conditions, any thread may call it at any time, and it takes the
    // allocator's own locks.
    return unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// A child process. If dropped, it neither ends nor waits for the child; a child that has ended and
/// was not waited for stays in the kernel's table until this process ends.
pub struct Child {
    child: std::process::Child,
    exit: Exit,
}

/// The way to learn of its end.
enum Exit {
    /// A descriptor that becomes readable (Linux 5.3).
    Pidfd(Source<OwnedFd>),
    /// If the kernel or a container refuses such descriptors: a signal at the end of any child,
    /// after which this one is checked.
    Signal(Signal),
}

impl Child {
    /// Takes over a child that other code started and has not waited for.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or no descriptor is left.
    pub fn from_std(child: std::process::Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let exit = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            // Kernels before 5.10 do not know the flag; nothing reads the descriptor, so that makes
            // no difference.
            Err(Errno::INVAL) => pidfd_open(pid, PidfdFlags::empty()),
            result => result,
        };
        let exit = match exit {
            Ok(pidfd) => Exit::Pidfd(Source::new(pidfd)?),
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Exit::Signal(signal(SIGCHLD)?),
            Err(error) => return Err(error.into()),
        };
        if let Exit::Pidfd(pidfd) = &exit {
            pidfd.comes_from_outside();
        }
        Ok(Child { child, exit })
    }

    /// The process id. It may name another process once [`wait`](Self::wait) has resolved.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the child has ended, and returns its status; may be called again. First closes
    /// the child's standard input, unless it was taken. Cancel safe.
    ///
    /// # Errors
    ///
    /// Other code has waited for the child, or the runtime has shut down.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        let Child { child, exit } = self;
        match exit {
            Exit::Pidfd(pidfd) => {
                let look = |_: &OwnedFd| match child.try_wait()? {
                    Some(status) => Ok(Step::More(status)),
                    None => Err(io::ErrorKind::WouldBlock.into()),
                };
                pidfd.io(Direction::Read, look).await
            }
            Exit::Signal(signal) => loop {
                if let Some(status) = child.try_wait()? {
                    return Ok(status);
                }
                signal.recv().await;
            },
        }
    }

    /// The status, if the child has ended.
    ///
    /// # Errors
    ///
    /// Other code has waited for the child.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends the child by `SIGKILL`. Wait for it afterwards.
    ///
    /// # Errors
    ///
    /// Those of the kernel. For a child that has ended already there is none.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// The child's standard input, once, if it is piped. An error says why it cannot be watched.
    pub fn take_stdin(&mut self) -> Option<io::Result<pipe::Sender>> {
        self.child.stdin.take().map(pipe::Sender::from_fd)
    }

    /// The child's standard output, once, if it is piped. An error says why it cannot be watched.
    pub fn take_stdout(&mut self) -> Option<io::Result<pipe::Receiver>> {
        self.child.stdout.take().map(pipe::Receiver::of_child)
    }

    /// The child's standard error, once, if it is piped. An error says why it cannot be watched.
    pub fn take_stderr(&mut self) -> Option<io::Result<pipe::Receiver>> {
        self.child.stderr.take().map(pipe::Receiver::of_child)
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.child.fmt(f)
    }
}
