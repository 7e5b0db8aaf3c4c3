//! Real servers and clients, if `dapple` was built next to the bench. The tests check accounts, and
//! not speed.

use super::failover;
use super::program::Launch;
use super::sweep::{self, Case};
use crate::experiment::{Peer, Trial};
use anyhow::Result;

/// Runs a trial, and again for longer if it was too short for a busy machine.
fn measure<F>(peer: Peer, in_flight: usize, measure: impl Fn(&Trial<Case>, &Launch) -> Result<F>) -> Option<F> {
    let Some(launch) = Launch::of_test() else {
        eprintln!("left out: dapple was not built: cargo build -p dapple-cli");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut secs = 0.3;
    loop {
        let trial = Trial {
            experiment: String::new(),
            peer,
            run: 0,
            secs,
            file: folder.path().to_owned(),
            go_program: None,
            case: Case { in_flight, connections: in_flight.min(4), workers: 1, sync: in_flight > 1, verified: true },
        };
        match measure(&trial, &launch) {
            Ok(figures) => return Some(figures),
            Err(error) if secs < 5.0 && format!("{error:#}").contains("pass more --secs") => secs *= 5.0,
            Err(error) => panic!("{}, {in_flight} in flight: {error:#}", crate::words::name(peer)),
        }
    }
}

#[test]
fn each_variant_logs_what_it_signs() {
    for (peer, in_flight) in [(Peer::Threaded, 1), (Peer::Threaded, 8), (Peer::Replicated, 1), (Peer::Replicated, 8)] {
        let Some(figures) = measure(peer, in_flight, sweep::measure) else { return };
        assert!(figures.signed > 0 && figures.signed == figures.records, "{figures:?}");
        assert!(figures.throughput_per_s >= 0.0 && figures.mean_ms > 0.0, "{figures:?}");
    }
}

#[test]
fn a_server_that_is_killed_and_comes_back_loses_nothing_unknown() {
    let Some(figures) = measure(Peer::Pipelined, 8, failover::measure) else { return };
    let known = figures.signed + figures.lost + figures.failed;
    assert!((figures.signed..=known).contains(&figures.records), "{figures:?}");
    assert!(figures.records_when_killed < figures.records_of_killed, "{figures:?}");
    assert!(figures.records_of_killed < figures.records && figures.connection_errors > 0, "{figures:?}");
    assert!(figures.killed_after_s < figures.back_after_s, "{figures:?}");
}
