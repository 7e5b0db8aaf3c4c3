//! The floor: an epoll loop per worker, a state per thread, and nothing else. The distance to it is
//! the cost of a runtime.

use super::talk::{MESSAGE_LEN, Message, Run, Side};
use anyhow::{Context, Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One side of a pair.
struct Talker {
    from: OwnedFd,
    to: OwnedFd,
    /// Its index in the run: twice the pair, plus one for the answering side.
    own: usize,
    sends: Message,
    expects: Message,
    state: State,
}

/// The bytes moved so far of the current message.
enum State {
    /// The next message does not exist yet.
    Between,
    Sending(usize),
    Receiving(usize),
    Ended,
}

struct Loop {
    run: Arc<Run>,
    epoll: OwnedFd,
    talkers: Vec<Talker>,
    idle: Vec<Option<OwnedFd>>,
}

/// Marks an event of an idle descriptor; the rest is its index.
const IDLE: u64 = 1 << 62;

/// Starts a loop per worker, and distributes the pairs and the idle ones among them.
pub(super) fn start(run: &Arc<Run>) -> Result<()> {
    let mut loops = Vec::new();
    for _ in 0..run.case.workers {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        loops.push(Loop { run: run.clone(), epoll, talkers: Vec::new(), idle: Vec::new() });
    }
    for index in 0..run.case.idle {
        let own = &mut loops[index % run.case.workers];
        let (end, data) = (nonblocking(run.idle_end()?)?, IDLE | own.idle.len() as u64);
        epoll::add(&own.epoll, &end, epoll::EventData::new_u64(data), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        own.idle.push(Some(end));
        run.note_idle_waiting();
    }
    for pair in 0..run.case.pairs {
        let (there, back) = (Run::pipe()?, Run::pipe()?);
        let own = &mut loops[pair % run.case.workers];
        let (asks, answers) = (Message::new(pair, Side::Asks), Message::new(pair, Side::Answers));
        own.add(pair * 2, back.0, there.1, asks, answers, State::Between)?;
        let (asks, answers) = (Message::new(pair, Side::Asks), Message::new(pair, Side::Answers));
        own.add(pair * 2 + 1, there.0, back.1, answers, asks, State::Receiving(0))?;
    }
    for own in loops {
        std::thread::Builder::new().spawn(move || own.turn())?;
    }
    Ok(())
}

fn nonblocking(fd: OwnedFd) -> Result<OwnedFd> {
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Ok(fd)
}

impl Loop {
    fn add(
        &mut self,
        own: usize,
        from: OwnedFd,
        to: OwnedFd,
        sends: Message,
        expects: Message,
        state: State,
    ) -> Result<()> {
        let talker = Talker { from: nonblocking(from)?, to: nonblocking(to)?, own, sends, expects, state };
        let data = epoll::EventData::new_u64(self.talkers.len() as u64);
        epoll::add(&self.epoll, &talker.from, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        epoll::add(&self.epoll, &talker.to, data, epoll::EventFlags::OUT | epoll::EventFlags::ET)?;
        self.talkers.push(talker);
        Ok(())
    }

    /// Runs until all of its talkers and idle ones have ended.
    fn turn(mut self) {
        let mut left = self.talkers.len() + self.idle.len();
        let mut events = Vec::with_capacity(1_024);
        while left > 0 {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.run.ended(Err(error.into())),
            }
            for event in events.drain(..) {
                let data = event.data.u64();
                left -= if data & IDLE != 0 {
                    self.idle_event((data & !IDLE) as usize)
                } else {
                    self.talk(data as usize, event.flags)
                };
            }
        }
    }

    /// Returns how many it has ended.
    fn idle_event(&mut self, index: usize) -> usize {
        let Some(end) = self.idle[index].take() else { return 0 };
        let outcome = match read(&end, &mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(anyhow::anyhow!("something came through an idle pipe")),
            Err(error) => Err(error.into()),
        };
        self.run.note_idle_ended(outcome);
        1
    }

    /// Returns how many it has ended.
    fn talk(&mut self, index: usize, ready: epoll::EventFlags) -> usize {
        let talker = &mut self.talkers[index];
        let (reads, writes) =
            (epoll::EventFlags::IN | epoll::EventFlags::HUP, epoll::EventFlags::OUT | epoll::EventFlags::ERR);
        let matters = match talker.state {
            State::Between | State::Sending(_) => ready.intersects(writes),
            State::Receiving(_) => ready.intersects(reads),
            State::Ended => false,
        };
        if !matters {
            return 0;
        }
        match talker.advance(&self.run) {
            Ok(false) => 0,
            ended => {
                talker.state = State::Ended;
                // The other side has to see the end of the pipe.
                if let Ok(nothing) = rustix::pipe::pipe() {
                    (talker.from, talker.to) = nothing;
                }
                self.run.ended(ended.map(|_| ()));
                1
            }
        }
    }
}

impl Talker {
    /// Continues until it would have to wait. True if it has ended.
    fn advance(&mut self, run: &Run) -> Result<bool> {
        loop {
            match self.state {
                State::Between if self.asks() && run.is_stopping() => return Ok(true),
                State::Between => {
                    self.sends.next();
                    self.state = State::Sending(0);
                }
                State::Sending(done) => match write(&self.to, &self.sends.current()[done..]) {
                    Ok(more) if done + more == MESSAGE_LEN => {
                        run.note_sent();
                        self.state = State::Receiving(0);
                    }
                    Ok(more) => self.state = State::Sending(done + more),
                    Err(Errno::AGAIN) => return Ok(false),
                    Err(error) => return Err(error).context("a message was not sent"),
                },
                State::Receiving(done) => match read(&self.from, &mut self.expects.received[done..]) {
                    Ok(0) if done == 0 && !self.asks() => return Ok(true),
                    Ok(0) => bail!("a message ended after {done} bytes"),
                    Ok(more) if done + more == MESSAGE_LEN => {
                        self.expects.check()?;
                        run.note_received(self.own);
                        self.state = State::Between;
                    }
                    Ok(more) => self.state = State::Receiving(done + more),
                    Err(Errno::AGAIN) => return Ok(false),
                    Err(error) => return Err(error).context("a message was not received"),
                },
                State::Ended => return Ok(true),
            }
        }
    }

    fn asks(&self) -> bool {
        self.own.is_multiple_of(2)
    }
}
