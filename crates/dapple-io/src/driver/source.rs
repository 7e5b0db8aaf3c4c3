//! A descriptor with a place in a reactor as long as it lives, and the operations that wait for it.
//!
//! The kernel watches the descriptor from the start, or ([`Source::unwatched`]) only once a task
//! has to wait. So a connection that is accepted, read, answered and closed without waiting costs
//! no call for that. An unwatched descriptor has no events. Therefore an operation without a result
//! first stores its waker and then starts the watch, and the kernel reports everything that is
//! ready by then.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sched::poll_budget;

use super::entry::{Direction, Entry, Waiter};
use super::reactor::Reactor;
use super::table::Token;
use super::{current, shut_down_error};
use crate::environment::{self, Readiness, Watched};
use crate::sync::atomic::{AtomicBool, Ordering};

/// The object of a source: a descriptor of the kernel, or a socket of another network.
pub(crate) trait Descriptor: AsFd {
    /// The socket, where it is not one of the kernel.
    #[inline]
    fn beyond_kernel(&self) -> Option<&dyn Watched> {
        None
    }
}

impl Descriptor for OwnedFd {}
impl Descriptor for std::os::unix::net::UnixStream {}
impl Descriptor for std::os::unix::net::UnixListener {}

/// A non-blocking descriptor and its place. Dropping it first deregisters and then closes.
pub(crate) struct Source<T: Descriptor> {
    /// `None` only during the drop.
    descriptor: Option<T>,
    entry: Arc<Entry>,
    token: Token,
    reactor: Arc<Reactor>,
    /// Whether the kernel reports events.
    is_watched: AtomicBool,
}

/// The outcome of an operation.
pub(crate) enum Step<R> {
    /// The kernel may have more.
    More(R),
    /// The kernel did less than requested, so it has no more for now; this saves the call that
    /// would report that.
    Drained(R),
}

impl<T: Descriptor> Source<T> {
    /// Registers a descriptor that is assumed to be readable and writable.
    pub(crate) fn new(descriptor: T) -> io::Result<Self> {
        let source = Self::unwatched(descriptor)?;
        source.watch()?;
        Ok(source)
    }

    /// As `new`, for a descriptor that will be tried at once: it is registered when a task waits
    /// for it, which may fail then.
    pub(crate) fn unwatched(descriptor: T) -> io::Result<Self> {
        Self::with_entry(descriptor, Entry::new(true, true))
    }

    /// Registers a socket that is still connecting: no write is tried before the kernel reports
    /// readiness.
    pub(crate) fn connecting(descriptor: T) -> io::Result<Self> {
        let source = Self::with_entry(descriptor, Entry::new(false, false))?;
        source.watch()?;
        Ok(source)
    }

    fn with_entry(descriptor: T, entry: Entry) -> io::Result<Self> {
        if descriptor.beyond_kernel().is_none() {
            environment::refuse("a file descriptor");
        }
        let reactor = current::reactor_for_source()?;
        let entry = Arc::new(entry);
        let token = reactor.place(entry.clone())?;
        reactor.shared().note_io();
        Ok(Source { descriptor: Some(descriptor), entry, token, reactor, is_watched: AtomicBool::new(false) })
    }

    /// Makes the kernel report readiness, now and from now on.
    pub(crate) fn watch(&self) -> io::Result<()> {
        // Relaxed, both: it guards nothing. A thread that sees an old value asks the kernel again,
        // which knows.
        if self.is_watched.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.descriptor().beyond_kernel() {
            None => self.reactor.watch(self.descriptor().as_fd(), self.token)?,
            Some(socket) => {
                // Set before, because the socket may wake a task that comes here again.
                self.is_watched.store(true, Ordering::Relaxed);
                socket.watch(Readiness::of(&self.entry));
            }
        }
        self.is_watched.store(true, Ordering::Relaxed);
        self.reactor.shared().note_io();
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> &T {
        self.descriptor.as_ref().expect("present until the drop")
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Makes the kernel report present readiness again, for users that read the descriptor
    /// themselves.
    pub(crate) fn rearm(&self, direction: Direction) -> io::Result<()> {
        if let Some(Ok(sighting)) = self.entry.look(direction) {
            self.entry.clear(sighting, direction);
        }
        self.watch()?;
        self.reactor.rearm(self.descriptor().as_fd(), self.token)
    }

    /// Runs the operation as soon as it does not block. `op` returns [`io::ErrorKind::WouldBlock`]
    /// if it can do nothing yet.
    pub(crate) fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        waiter: Option<&mut Option<u64>>,
        mut op: impl FnMut(&T) -> io::Result<Step<R>>,
    ) -> Poll<io::Result<R>> {
        let mut place = waiter;
        loop {
            let waiter = match &mut place {
                Some(id) => Waiter::Listed(id),
                None => Waiter::Poller,
            };
            let sighting = match self.entry.poll_ready(cx, direction, waiter) {
                Poll::Ready(Ok(sighting)) => sighting,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(shut_down_error())),
                Poll::Pending => {
                    self.watch()?;
                    return Poll::Pending;
                }
            };
            ready!(poll_budget(cx));
            match self.attempt(&mut op) {
                Ok(Step::More(result)) => return Poll::Ready(Ok(result)),
                Ok(Step::Drained(result)) => {
                    self.entry.clear_partly(sighting, direction);
                    return Poll::Ready(Ok(result));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.entry.clear(sighting, direction);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn attempt<R>(&self, op: &mut impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        let result = op(self.descriptor());
        if result.is_ok() {
            self.reactor.shared().note_io();
        }
        result
    }

    /// Tells a standing clock that input here comes from another process.
    pub(crate) fn comes_from_outside(&self) {
        if let Some(standing) = &self.reactor.shared().standing {
            standing.note_outside(&self.entry);
        }
    }

    /// Runs the operation now, or returns [`io::ErrorKind::WouldBlock`]; then the kernel reports
    /// when to try again.
    pub(crate) fn try_io<R>(
        &self,
        direction: Direction,
        mut op: impl FnMut(&T) -> io::Result<Step<R>>,
    ) -> io::Result<R> {
        let sighting = match self.entry.look(direction) {
            None => {
                self.watch()?;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(Err(_)) => return Err(shut_down_error()),
            Some(Ok(sighting)) => sighting,
        };
        loop {
            match self.attempt(&mut op) {
                Ok(Step::More(result)) => return Ok(result),
                Ok(Step::Drained(result)) => {
                    self.entry.clear_partly(sighting, direction);
                    return Ok(result);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() == io::ErrorKind::WouldBlock {
                        self.entry.clear(sighting, direction);
                        self.watch()?;
                    }
                    return Err(error);
                }
            }
        }
    }

    /// The operation as a future. Any number of them may wait on one source; one that is dropped
    /// before it resolves has done nothing.
    pub(crate) fn io<R, F>(&self, direction: Direction, op: F) -> Io<'_, T, F>
    where
        F: FnMut(&T) -> io::Result<Step<R>> + Unpin,
    {
        Io { source: self, direction, op, place: None }
    }

    /// Waits until an operation of this direction may be tried; it may still find that it would
    /// block.
    pub(crate) fn ready(&self, direction: Direction) -> impl Future<Output = io::Result<()>> + '_ {
        self.io(direction, |_| Ok(Step::More(())))
    }
}

impl<T: Descriptor> AsFd for Source<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor().as_fd()
    }
}

impl<T: Descriptor + fmt::Debug> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.descriptor.fmt(f)
    }
}

impl<T: Descriptor> Drop for Source<T> {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            // Relaxed: no other thread has the source any more.
            match self.is_watched.load(Ordering::Relaxed) && descriptor.beyond_kernel().is_none() {
                true => self.reactor.deregister(descriptor.as_fd(), self.token),
                false => self.reactor.forget(self.token),
            }
            self.entry.close();
            drop(descriptor);
            self.reactor.shared().descriptors.one_closed();
        }
    }
}

/// See [`Source::io`].
pub(crate) struct Io<'a, T: Descriptor, F> {
    source: &'a Source<T>,
    direction: Direction,
    op: F,
    /// The place of this future's waker in the list of the entry.
    place: Option<u64>,
}

impl<T: Descriptor, R, F> Future for Io<'_, T, F>
where
    F: FnMut(&T) -> io::Result<Step<R>> + Unpin,
{
    type Output = io::Result<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.source.poll_io(cx, this.direction, Some(&mut this.place), &mut this.op)
    }
}

impl<T: Descriptor, F> Drop for Io<'_, T, F> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.source.entry.forget(self.direction, place);
        }
    }
}
