//! The duration of a run, which follows from its arguments.

use super::experiment::Case;
use super::{capacity, server, trial};
use crate::experiment::Session;
use std::collections::BTreeSet;
use std::fmt;

/// The number of trials, and their duration.
#[derive(PartialEq, Debug)]
pub(super) struct Estimate {
    trials: usize,
    secs: f64,
}

impl Estimate {
    /// Of all these cases, each with every requested peer that can be started.
    pub(super) fn of(session: &Session, cases: &[&[Case]]) -> Estimate {
        let runs = session.runs as usize;
        let wanted = server::PEERS.iter().filter(|peer| session.peers.is_empty() || session.peers.contains(peer));
        let peers = wanted.filter(|peer| !peer.is_go() || session.go_program.is_some()).count();
        let once = cases.iter().map(|cases| Estimate::of_one(cases, session.secs));
        once.fold(Estimate { trials: 0, secs: 0.0 }, |sum, one| Estimate {
            trials: sum.trials + one.trials * peers * runs,
            secs: sum.secs + one.secs * (peers * runs) as f64,
        })
    }

    /// One repetition of one peer.
    fn of_one(cases: &[Case], secs: f64) -> Estimate {
        let mut all = Estimate { trials: 0, secs: 0.0 };
        let mut known = BTreeSet::new();
        for case in cases {
            all.trials += 1;
            all.secs += trial::length_secs(case, secs);
            if known.insert((case.scenario.costs(), case.workers)) {
                all.secs += capacity::length_secs(case, secs);
            }
        }
        all
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} trials, which take about {:.0} min", self.trials, (self.secs / 60.0).max(1.0))
    }
}
