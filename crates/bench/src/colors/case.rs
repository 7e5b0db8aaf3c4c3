//! The cases: workloads, peers, and sizes.

use super::outside::Program;
use crate::words::name;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The workloads of the color experiments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Many colors, each callback posts one child of its own color
    W1,
    /// One color posts round-robin to many, tiny work
    W2,
    /// Many colors post to one that holds a counter, queued
    W3,
    /// The same counter, run in line where it is free and queued where it is not
    W3InLine,
    /// Two colors post to each other
    W4,
    /// Accounts, each a color, held two at a time
    W5,
}

/// A system that runs a workload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// The scheduler of Dapple, directly
    Dapple,
    /// tokio, a task with an unbounded channel per color
    TokioMpsc,
    /// tokio, a spawned task per callback and a mutex per color
    TokioSpawnMutex,
    /// Actors: `kameo` on tokio, an actor per color
    Kameo,
    /// Actors: `actix`, an actor per color, which stays on its thread
    Actix,
    /// tokio, a task per token and one of tokio's mutexes per account (W5 only)
    TokioMutex,
    /// Plain threads and `parking_lot` mutexes (W3 in line, W5)
    #[serde(rename = "parking_lot")]
    #[value(name = "parking_lot", alias = "parking-lot")]
    ParkingLot,
    /// Go, a goroutine with a buffered channel per color, GOMAXPROCS as many as workers; needs `go`
    GoChannel,
    /// Go, a slice behind a mutex per color, and a goroutine while something waits in it; needs
    /// `go`
    GoMailbox,
    /// Go, a goroutine per poster or token and a mutex per account (W3 in line, W5); needs `go`
    GoMutex,
    /// Boost.Asio, a strand per color, `asio::post`, a recycling allocator, `-O3`; needs `g++` and
    /// Debian's `libboost-dev`
    AsioStrand,
}

impl Peer {
    /// All peers, in the order of the table.
    pub(crate) const ALL: [Peer; 11] = [
        Peer::Dapple,
        Peer::TokioMpsc,
        Peer::TokioSpawnMutex,
        Peer::Kameo,
        Peer::Actix,
        Peer::TokioMutex,
        Peer::ParkingLot,
        Peer::GoChannel,
        Peer::GoMailbox,
        Peer::GoMutex,
        Peer::AsioStrand,
    ];

    /// Whether the peer has a form of the workload. Threads that share mutexes have no queue, so
    /// they run only inline work. Peers with callbacks as messages have only queues, and hold one
    /// color at a time.
    pub(crate) fn runs(self, workload: Workload) -> bool {
        match self {
            Peer::Dapple => true,
            Peer::TokioMpsc | Peer::Kameo | Peer::Actix | Peer::GoChannel | Peer::GoMailbox | Peer::AsioStrand => {
                !matches!(workload, Workload::W3InLine | Workload::W5)
            }
            Peer::TokioSpawnMutex => workload != Workload::W3InLine,
            Peer::TokioMutex => workload == Workload::W5,
            Peer::ParkingLot | Peer::GoMutex => matches!(workload, Workload::W3InLine | Workload::W5),
        }
    }

    /// The separate program of the peer; `None` for peers in this one.
    pub(crate) fn program(self) -> Option<Program> {
        match self {
            Peer::GoChannel => Some(Program::Go("channel")),
            Peer::GoMailbox => Some(Program::Go("mailbox")),
            Peer::GoMutex => Some(Program::Go("mutex")),
            Peer::AsioStrand => Some(Program::Asio),
            _ => None,
        }
    }

    /// Whether the peer lets its caller choose where a color starts.
    pub(crate) fn places(self) -> bool {
        matches!(self, Peer::Dapple | Peer::Actix)
    }

    /// Whether messages from one poster to one color must arrive in order. A mutex per color does
    /// not keep it.
    pub(crate) fn keeps_order(self) -> bool {
        self != Peer::TokioSpawnMutex
    }
}

/// The homes of the colors at the start of the run. A hint: colors move. A row without one has only
/// one place, or the peer decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Placement {
    /// All on worker 0, as in a program that makes them where it starts
    Gathered,
    /// By turns on all workers; the poster of W2 and the counter of W3 on worker 0
    Split,
}

impl Placement {
    /// The worker that is the home of the `index`-th color.
    pub(crate) fn home(self, index: usize, workers: usize) -> usize {
        match self {
            Placement::Gathered => 0,
            Placement::Split => index % workers,
        }
    }
}

/// The sizes of one measured case.
#[derive(Clone, Copy, PartialEq, Debug, clap::Args, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Which workload
    #[arg(long)]
    pub(crate) workload: Workload,
    /// W1: colors; W2: colors posted to; W3: colors that post, or threads; W4: always 2; W5:
    /// accounts
    #[arg(long)]
    pub(crate) colors: usize,
    /// W1: callbacks in flight per color; W4, W5: in all; W2: by the one poster; W3: per poster
    #[arg(long)]
    pub(crate) in_flight: u64,
    /// Nanoseconds of work in each callback
    #[arg(long)]
    pub(crate) work_ns: u64,
}

/// W2 and W3: how many callbacks a poster posts in a row; the last of them lets the poster go on.
pub(crate) const BURST: u64 = 64;
/// W2: bursts in flight.
pub(crate) const W2_BURSTS: u64 = 16;
/// W3: bursts in flight per poster.
pub(crate) const W3_BURSTS: u64 = 2;

/// The numbers in flight if neither the workload nor the user sets one.
pub(crate) const USUAL_IN_FLIGHT: [u64; 2] = [1, 64];

impl Case {
    /// The case with the sizes that its workload requires; `None` is the workload's usual number.
    pub(crate) fn new(workload: Workload, colors: Option<usize>, in_flight: Option<u64>, work_ns: u64) -> Case {
        let usual = if matches!(workload, Workload::W2 | Workload::W5) { 1_000 } else { 16 };
        let colors = colors.unwrap_or(usual);
        let usual = USUAL_IN_FLIGHT[1];
        let (colors, in_flight) = match workload {
            Workload::W1 | Workload::W5 => (colors, in_flight.unwrap_or(usual)),
            Workload::W2 => (colors, W2_BURSTS * BURST),
            Workload::W3 | Workload::W3InLine => (colors, W3_BURSTS * BURST),
            Workload::W4 => (2, in_flight.unwrap_or(usual)),
        };
        Case { workload, colors, in_flight, work_ns }
    }

    /// The different cases of some runs, in the order of the runs.
    pub(crate) fn of_runs(runs: impl Iterator<Item = Case>) -> Vec<Case> {
        let mut cases = Vec::new();
        for case in runs {
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        cases
    }

    /// One line for readers.
    pub(crate) fn title(&self) -> String {
        let what = match self.workload {
            Workload::W1 => "each callback posts one child of its own color",
            Workload::W2 => "one color posts round-robin to the others",
            Workload::W3 => "everyone posts to one color with a counter",
            Workload::W3InLine => "everyone adds to one color's counter, in line where it is free",
            Workload::W4 => "two colors post to each other",
            Workload::W5 => "each callback holds two accounts and moves a unit",
        };
        let Case { colors, in_flight, work_ns, .. } = self;
        let name = name(self.workload);
        format!("{name}: {what}; {colors} colors, {in_flight} in flight, {work_ns} ns of work")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_on_the_command_line_and_in_json() {
        fn check<T: ValueEnum + Serialize>() {
            for value in T::value_variants() {
                assert_eq!(
                    serde_json::to_value(value).ok(),
                    value.to_possible_value().map(|flag| flag.get_name().into())
                );
            }
        }
        check::<Peer>();
        check::<Workload>();
        check::<Placement>();
    }

    #[test]
    fn split_starts_on_worker_0_and_uses_all() {
        let homes = |placement: Placement| (0..4).map(|index| placement.home(index, 3)).collect::<Vec<_>>();
        assert_eq!(homes(Placement::Split), [0, 1, 2, 0]);
        assert_eq!(homes(Placement::Gathered), [0, 0, 0, 0]);
    }

    #[test]
    fn sizes_that_the_workload_dictates() {
        assert_eq!(Case::new(Workload::W4, Some(99), None, 0).colors, 2);
        assert_eq!(Case::new(Workload::W2, None, Some(1), 0).colors, 1_000);
        assert_eq!(Case::new(Workload::W5, None, None, 0).colors, 1_000);
        assert_eq!(
            Case::new(Workload::W1, None, Some(7), 0),
            Case { workload: Workload::W1, colors: 16, in_flight: 7, work_ns: 0 }
        );
    }
}
