//! The signals that control a server.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use dapple_io::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, Signal, signal};
use dapple_sync::task::race;

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// SIGTERM, SIGINT: finish open requests and end.
    Stop,
    /// SIGHUP: read the configuration and the certificates again, and reopen the logs.
    Reload,
    /// SIGUSR1: reopen the logs.
    Reopen,
    /// SIGUSR2: let a new process take over.
    Upgrade,
}

/// The signals of a server, caught from the moment this is made.
#[derive(Debug)]
pub struct Signals([(Signal, Command); 5]);

impl Signals {
    /// # Errors
    ///
    /// No runtime runs here, or the kernel allows no handler.
    pub fn watch() -> io::Result<Signals> {
        Ok(Signals([
            (signal(SIGTERM)?, Command::Stop),
            (signal(SIGINT)?, Command::Stop),
            (signal(SIGHUP)?, Command::Reload),
            (signal(SIGUSR1)?, Command::Reopen),
            (signal(SIGUSR2)?, Command::Upgrade),
        ]))
    }

    /// Returns the next command. Cancel safe.
    pub async fn next(&mut self) -> Command {
        let [a, b, c, d, e] = &mut self.0;
        let (mut a, mut b, mut c, mut d, mut e) = (pin!(on(a)), pin!(on(b)), pin!(on(c)), pin!(on(d)), pin!(on(e)));
        let any = poll_fn(|cx| {
            let all: [Pin<&mut dyn Future<Output = Command>>; 5] =
                [a.as_mut(), b.as_mut(), c.as_mut(), d.as_mut(), e.as_mut()];
            let ready = all.into_iter().find_map(|signal| match signal.poll(cx) {
                Poll::Ready(command) => Some(command),
                Poll::Pending => None,
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        });
        any.await
    }
}

/// SIGTERM and SIGINT, caught from the moment this is made.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// # Errors
    ///
    /// No runtime runs here, or the kernel allows no handler.
    pub fn watch() -> io::Result<StopSignals> {
        Ok(StopSignals { terminate: signal(SIGTERM)?, interrupt: signal(SIGINT)? })
    }

    /// Waits for the next signal. Cancel safe.
    pub async fn next(&mut self) {
        let _ = race(self.terminate.recv(), self.interrupt.recv()).await;
    }
}

async fn on((signal, command): &mut (Signal, Command)) -> Command {
    signal.recv().await;
    *command
}
