//! The messages of the pairs, with counts and checks.

use super::Case;
use crate::experiment::wait_until;
use anyhow::{Context, Result, bail, ensure};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a message.
pub(super) const MESSAGE_LEN: usize = 32 * 1024;

/// Bytes of a pipe's buffer.
const PIPE_LEN: usize = 4 * 1024;

/// One message of this many is compared byte by byte; of the others, the number in each page.
const COMPARE_EVERY: u64 = 16;

/// One end of a conversation, for one peer.
pub(super) trait Ends: Send + 'static {
    /// Writes all of it.
    fn send(&mut self, message: &[u8]) -> impl Future<Output = io::Result<()>> + Send;
    /// Reads some of it; 0 is the end.
    fn read(&mut self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// The common state of the threads of one trial.
pub(super) struct Run {
    pub(super) case: Case,
    stop: AtomicBool,
    /// Messages received, by each thread of the pairs.
    received: Vec<Line>,
    sent: AtomicU64,
    talking: AtomicUsize,
    idle_waiting: AtomicUsize,
    idle_ended: AtomicUsize,
    problem: Mutex<Option<String>>,
    /// The pipe that the idle threads wait on; closed at the end.
    idle_pipe: Mutex<Option<(OwnedFd, OwnedFd)>>,
}

#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The read end and the write end of a pipe.
pub(super) type Pipe = (OwnedFd, OwnedFd);

impl Run {
    /// Makes the run and lets a peer start its threads; waits until all idle ones wait.
    pub(super) fn start(case: Case, start: impl FnOnce(&Arc<Run>) -> Result<()>) -> Result<Arc<Run>> {
        let run = Arc::new(Run {
            case,
            stop: AtomicBool::new(false),
            received: (0..case.pairs * 2).map(|_| Line::default()).collect(),
            sent: AtomicU64::new(0),
            talking: AtomicUsize::new(case.pairs * 2),
            idle_waiting: AtomicUsize::new(0),
            idle_ended: AtomicUsize::new(0),
            problem: Mutex::new(None),
            idle_pipe: Mutex::new(Some(pipe_with(PipeFlags::CLOEXEC)?)),
        });
        start(&run)?;
        wait_until("the idle threads wait", || run.idle_waiting.load(Relaxed) == case.idle)?;
        Ok(run)
    }

    /// A pipe of 4 KB.
    pub(super) fn pipe() -> Result<Pipe> {
        let ends = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        let len = fcntl_setpipe_size(&ends.0, PIPE_LEN).context("cannot shrink a pipe to 4 KB")?;
        ensure!(len == PIPE_LEN, "a pipe of {len} bytes cannot be shrunk to 4 KB: its pages are larger here");
        Ok(ends)
    }

    /// One more descriptor of the idle pipe's read end. All of them are one pipe, because with a
    /// pipe each only half as many would fit under the limit on open files. Nothing is ever written
    /// to it.
    pub(super) fn idle_end(&self) -> Result<OwnedFd> {
        let pipe = self.idle_pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let (reader, _) = pipe.as_ref().context("the run is over")?;
        reader.try_clone().context("no descriptor is left for one more idle thread")
    }

    /// The asking side: sends, and receives the answer.
    pub(super) async fn ask(self: Arc<Run>, pair: usize, mut ends: impl Ends) {
        let outcome = async {
            let mut message = Message::new(pair, Side::Asks);
            let mut answer = Message::new(pair, Side::Answers);
            while !self.stop.load(Relaxed) {
                self.send(&mut ends, &mut message).await?;
                ensure!(self.receive(&mut ends, &mut answer, pair * 2).await?, "the other side ended first");
            }
            Ok(())
        };
        self.ended(outcome.await);
    }

    /// The answering side, until the other side ends.
    pub(super) async fn answer(self: Arc<Run>, pair: usize, mut ends: impl Ends) {
        let outcome = async {
            let mut message = Message::new(pair, Side::Asks);
            let mut answer = Message::new(pair, Side::Answers);
            while self.receive(&mut ends, &mut message, pair * 2 + 1).await? {
                self.send(&mut ends, &mut answer).await?;
            }
            Ok(())
        };
        self.ended(outcome.await);
    }

    async fn send(&self, ends: &mut impl Ends, message: &mut Message) -> Result<()> {
        ends.send(message.next()).await.context("a message was not sent")?;
        self.note_sent();
        Ok(())
    }

    /// False if the other side has ended instead.
    async fn receive(&self, ends: &mut impl Ends, message: &mut Message, own: usize) -> Result<bool> {
        let mut filled = 0;
        while filled < MESSAGE_LEN {
            match ends.read(&mut message.received[filled..]).await? {
                0 if filled == 0 => return Ok(false),
                0 => bail!("a message ended after {filled} bytes"),
                more => filled += more,
            }
        }
        message.check()?;
        self.note_received(own);
        Ok(true)
    }

    /// An idle thread: it gets nothing until the run ends.
    pub(super) async fn wait_idle(self: Arc<Run>, mut ends: impl Ends) {
        self.note_idle_waiting();
        let outcome = match ends.read(&mut [0]).await {
            Ok(0) => Ok(()),
            Ok(_) => Err(anyhow::anyhow!("something came through an idle pipe")),
            Err(error) => Err(error.into()),
        };
        self.note_idle_ended(outcome);
    }

    pub(super) fn note_sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// `own` is the index of the thread: twice the pair, plus one for the answering side.
    pub(super) fn note_received(&self, own: usize) {
        let count = &self.received[own].0;
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn note_idle_waiting(&self) {
        self.idle_waiting.fetch_add(1, Relaxed);
    }

    pub(super) fn note_idle_ended(&self, outcome: Result<()>) {
        self.note_problem(outcome);
        self.idle_ended.fetch_add(1, Relaxed);
    }

    pub(super) fn ended(&self, outcome: Result<()>) {
        self.note_problem(outcome);
        self.talking.fetch_sub(1, Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Relaxed)
    }

    fn note_problem(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.problem.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(format!("{error:#}"));
        }
    }

    /// Messages received so far.
    pub(super) fn messages(&self) -> u64 {
        self.received.iter().map(|count| count.0.load(Relaxed)).sum()
    }

    /// Ends the run and checks it.
    pub(super) fn finish(&self) -> Result<()> {
        self.stop.store(true, Relaxed);
        wait_until("all pairs end", || self.talking.load(Relaxed) == 0 || self.problem().is_some())?;
        let early = self.idle_ended.load(Relaxed);
        ensure!(early == 0, "{early} idle threads ended before their pipe did");
        *self.idle_pipe.lock().unwrap_or_else(PoisonError::into_inner) = None;
        wait_until("all idle threads see the end of their pipe", || {
            self.idle_ended.load(Relaxed) == self.case.idle || self.problem().is_some()
        })?;
        if let Some(problem) = self.problem() {
            bail!(problem);
        }
        let (sent, received) = (self.sent.load(Relaxed), self.messages());
        ensure!(sent == received, "{sent} messages were sent and {received} received");
        Ok(())
    }

    fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The side of a pair.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Asks,
    Answers,
}

/// The messages of one side, to be sent or as expected.
pub(super) struct Message {
    /// The next message.
    due: Vec<u8>,
    /// The buffer for a received message.
    pub(super) received: Vec<u8>,
    number: u64,
}

impl Message {
    pub(super) fn new(pair: usize, side: Side) -> Message {
        let seed = pair * 2 + side as usize + 1;
        let due = (0..MESSAGE_LEN).map(|index| (index.wrapping_mul(seed * 31) >> 3) as u8).collect();
        Message { due, received: vec![0; MESSAGE_LEN], number: 0 }
    }

    /// The next one to send.
    pub(super) fn next(&mut self) -> &[u8] {
        self.stamp();
        &self.due
    }

    /// The current one.
    pub(super) fn current(&self) -> &[u8] {
        &self.due
    }

    /// Whether the received message is the expected one.
    pub(super) fn check(&mut self) -> Result<()> {
        self.stamp();
        let whole = self.number.is_multiple_of(COMPARE_EVERY);
        let len = if whole { PIPE_LEN } else { STAMP_LEN };
        let pages = self.due.chunks(PIPE_LEN).zip(self.received.chunks(PIPE_LEN));
        for (page, (due, received)) in pages.enumerate() {
            ensure!(due[..len] == received[..len], "page {page} of message {} is not what was sent", self.number);
        }
        Ok(())
    }

    fn stamp(&mut self) {
        self.number += 1;
        for (page, bytes) in self.due.chunks_mut(PIPE_LEN).enumerate() {
            bytes[..STAMP_LEN].copy_from_slice(&(self.number << 8 | page as u64).to_le_bytes());
        }
    }
}

/// The bytes at the beginning of a page that number it.
const STAMP_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_out_of_place_is_found() {
        let (mut sent, mut expected) = (Message::new(3, Side::Asks), Message::new(3, Side::Asks));
        expected.received.copy_from_slice(sent.next());
        assert!(expected.check().is_ok());
        // The second is next, so the first again is wrong.
        assert!(expected.check().is_err());
        let mut other = Message::new(4, Side::Asks);
        for _ in 0..COMPARE_EVERY {
            other.received.copy_from_slice(sent.next());
            if other.number + 1 == COMPARE_EVERY {
                assert!(other.check().is_err(), "another pair's message");
                return;
            }
            let _ = other.check();
        }
        panic!("no message was compared byte by byte");
    }
}
