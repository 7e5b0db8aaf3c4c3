//! Events in the life of a server.

use std::time::{Duration, Instant};

use soak::Dice;

use crate::round::Round;
use crate::web::{Kept, Server};

/// One event.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// It reloads everything, with new certificates; connections continue.
    Reload,
    /// It is stopped for a while.
    Stop,
    /// A new process takes over.
    Upgrade,
}

impl Event {
    pub(crate) fn happen(self, server: &Server, round: &Round<'_>, dice: &mut Dice) -> Result<(), String> {
        match self {
            Event::Reload => reload(server, round, dice),
            Event::Stop => {
                server.signal("STOP")?;
                std::thread::sleep(Duration::from_secs(3));
                server.signal("CONT")
            }
            Event::Upgrade => server.upgrade(),
        }
    }
}

/// An earlier connection continues unchanged; new ones soon get the new certificate.
fn reload(server: &Server, round: &Round<'_>, dice: &mut Dice) -> Result<(), String> {
    let mut kept = Kept::begin(&server.target)?;
    kept.ask(round.site, dice)?;
    let new = round.authority.renew()?;
    server.signal("HUP")?;
    let began = Instant::now();
    while server.certificate()?.is_some_and(|shown| shown != new) {
        if began.elapsed() > RELOAD_MAX {
            return Err(format!("{RELOAD_MAX:?} after SIGHUP, an old certificate is shown"));
        }
        std::thread::sleep(Duration::from_millis(20));
        kept.ask(round.site, dice)?;
    }
    kept.ask(round.site, dice)
}

pub(crate) const EVENTS: [Event; 4] = [Event::Reload, Event::Stop, Event::Reload, Event::Upgrade];

/// Longer than the warm-up, which has no events.
pub(crate) const EVENTS_EVERY: Duration = Duration::from_secs(11);

const RELOAD_MAX: Duration = Duration::from_secs(10);
