//! All clients for a while, and the events of the servers meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dapple::Handle;
use soak::Dice;

use crate::events::{EVENTS, EVENTS_EVERY};
use crate::web::{Authority, Server, Site, be_good, be_good_by_http2, be_hostile};

/// The parts of a round.
#[derive(Clone, Copy)]
pub(crate) struct Round<'a> {
    pub(crate) servers: &'a [Server],
    pub(crate) authority: &'a Authority,
    pub(crate) site: &'a Site,
    /// The runtime of HTTP/2 clients.
    pub(crate) handle: &'a Handle,
}

/// Counters of the clients' actions.
#[derive(Default)]
struct Tally {
    is_over: AtomicBool,
    http1: AtomicU64,
    http2: AtomicU64,
    hostile: AtomicU64,
}

impl Round<'_> {
    /// Runs them for this long; the first problem ends it.
    pub(crate) fn run(&self, length: Duration, seed: u64) -> Result<(), String> {
        let (began, tally) = (Instant::now(), Tally::default());
        let outcome = std::thread::scope(|scope| {
            let spawn = |number: u64| {
                let (tally, dice) = (&tally, Dice::new(seed ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                scope.spawn(move || self.client(number, dice, tally))
            };
            let clients: Vec<_> = (0..CLIENTS).map(spawn).collect();
            let happened = self.events(length, &tally, &mut Dice::new(seed));
            tally.is_over.store(true, Ordering::Relaxed);
            let joined = clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked".to_owned())?);
            joined.collect::<Result<(), String>>().and(happened)
        });
        let [http1, http2, hostile] = [tally.http1, tally.http2, tally.hostile].map(AtomicU64::into_inner);
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "soak: {http1} good connections of HTTP/1.1, {http2} of HTTP/2, {hostile} hostile ones in {seconds:.0} s"
        );
        outcome
    }

    /// Runs one client after the other, until the end.
    fn client(&self, number: u64, mut dice: Dice, tally: &Tally) -> Result<(), String> {
        let _entered = self.handle.enter();
        let mut outcome = Ok(());
        while outcome.is_ok() && !tally.is_over.load(Ordering::Relaxed) {
            let target = &self.servers[dice.roll(self.servers.len() as u64) as usize].target;
            let count = match number {
                HTTP1.. if number >= HTTP2 => {
                    be_hostile(target, self.site, &mut dice);
                    &tally.hostile
                }
                HTTP1.. => {
                    outcome = be_good_by_http2(target, self.site, &mut dice);
                    &tally.http2
                }
                _ => {
                    outcome = be_good(target, self.site, &mut dice);
                    &tally.http1
                }
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        tally.is_over.fetch_or(outcome.is_err(), Ordering::Relaxed);
        outcome
    }

    fn events(&self, length: Duration, tally: &Tally, dice: &mut Dice) -> Result<(), String> {
        let began = Instant::now();
        let mut events = EVENTS.iter().cycle();
        let mut next = EVENTS_EVERY;
        while began.elapsed() < length && !tally.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
            if began.elapsed() >= next
                && let Some(event) = events.next()
            {
                self.servers.iter().try_for_each(|server| event.happen(server, self, dice))?;
                next = began.elapsed() + EVENTS_EVERY;
            }
        }
        Ok(())
    }
}

/// Clients below this speak HTTP/1.1, below the next HTTP/2; all others are hostile.
const HTTP1: u64 = 8;
const HTTP2: u64 = 16;
const CLIENTS: u64 = 48;
