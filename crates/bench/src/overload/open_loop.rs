//! The load itself: requests arrive at their own times.

use super::generator::Course;
use super::record::{Book, Record};
use super::schedule::{Arrival, Phase, Schedule};
use anyhow::{Context, Result};
use std::iter::Peekable;
use std::time::{Duration, Instant};

/// The course of a schedule, recorded in a book.
pub(super) struct OpenLoop<F> {
    arrivals: Peekable<Schedule>,
    pub(super) book: Book,
    /// Reads the processor time of the server and of this process.
    look: F,
    first: Option<Look>,
    last: Option<Look>,
}

/// Processor time of the server and of this process at one time.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) server: Duration,
    pub(super) own: Duration,
}

impl<F: FnMut() -> Result<Look>> OpenLoop<F> {
    pub(super) fn new(phases: Vec<Phase>, seed: u64, look: F) -> OpenLoop<F> {
        let arrivals = Schedule::new(phases.clone(), seed).peekable();
        OpenLoop { arrivals, book: Book::new(phases), look, first: None, last: None }
    }

    /// The first and the last reading of the processor time: around the measured time.
    pub(super) fn looks(&mut self) -> Result<(Look, Look)> {
        let last = self.last.map_or_else(&mut self.look, Ok)?;
        Ok((self.first.context("nothing came while it was measured: pass more --secs")?, last))
    }
}

impl<F: FnMut() -> Result<Look>> Course for OpenLoop<F> {
    fn next_due(&mut self) -> Option<Duration> {
        self.arrivals.peek().map(|arrival| arrival.due)
    }

    fn take(&mut self) -> Result<Arrival> {
        let arrival = self.arrivals.next().context("no request is due")?;
        let is_measured = self.book.phases[arrival.phase].measured;
        if is_measured && self.first.is_none() {
            self.first = Some((self.look)()?);
        }
        if !is_measured && self.first.is_some() && self.last.is_none() {
            self.last = Some((self.look)()?);
        }
        self.book.came(&arrival);
        Ok(arrival)
    }

    fn ended(&mut self, record: Record) {
        self.book.ended(record);
    }
}
