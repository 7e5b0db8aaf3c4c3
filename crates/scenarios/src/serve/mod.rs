//! `dapple::serve` in front of hostile peers, with stops in the middle.

mod good;
mod hostile;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple::serve::ServeHandle;
use dapple_sim::{Faults, Simulation};

use crate::Scenario;

pub(crate) const SERVE: Scenario = Scenario {
    name: "serve",
    holds: "a web server answers good clients right, once and in time, whatever hostile peers do, and drains within its limit",
    setup: |sim| serve(sim, None),
    bugs: &[
        ("a handler keeps its request in state that requests share", |sim| serve(sim, Some(Bug::SharedRequest))),
        ("a body that was cut off counts", |sim| serve(sim, Some(Bug::CutBodyCounts))),
        ("a request of unknown fate is sent again as it is", |sim| serve(sim, Some(Bug::SendsAgain))),
        ("a head may take as long as it likes", |sim| serve(sim, Some(Bug::NoHeadLimit))),
        ("a reply may take as long as it likes", |sim| serve(sim, Some(Bug::NoPauseLimit))),
        ("there is no limit on connections", |sim| serve(sim, Some(Bug::NoConnectionLimit))),
        ("the end waits for slow readers", |sim| serve(sim, Some(Bug::NoDrainLimit))),
        ("the end cuts requests that have begun", |sim| serve(sim, Some(Bug::NoDrain))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    SharedRequest,
    CutBodyCounts,
    SendsAgain,
    NoHeadLimit,
    NoPauseLimit,
    NoConnectionLimit,
    NoDrainLimit,
    NoDrain,
}

/// State of server, clients and invariants, outside of the hosts.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// The numbers that were counted.
    counted: BTreeSet<u64>,
    /// How often the server ran each request, by its name.
    runs: BTreeMap<u64, u32>,
    handle: Option<ServeHandle>,
    /// Good clients that are not done.
    clients: usize,
    answers: u64,
    /// The first fault that a panic would not show.
    fault: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, what: String) {
        self.lock().fault.get_or_insert(what);
    }
}

fn serve(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(300));
    let shared = Shared::default();
    let of_server = shared.clone();
    sim.client("server", move || server::run(of_server.clone(), bug));
    shared.lock().clients = CLIENTS.len();
    for (number, name) in CLIENTS.into_iter().enumerate() {
        let shared = shared.clone();
        sim.client(name, move || good::run(shared.clone(), number as u64, bug));
    }
    // The first two have a good network, so they can tell how long the server lets them.
    let hostile = ["hostile0", "hostile1", "hostile2", "hostile3"];
    for name in hostile {
        let (shared, has_faults) = (shared.clone(), hostile[2..].contains(&name));
        sim.host(name, move || hostile::run(shared.clone(), has_faults));
    }
    sim.invariant(move || {
        let seen = shared.lock();
        let connections = seen.handle.as_ref().map_or(0, ServeHandle::connections);
        if connections > CONNECTIONS_MAX {
            return Err(format!("{connections} connections of {CONNECTIONS_MAX}"));
        }
        if let Some(number) = seen.counted.range(CUT_NUMBERS..).next() {
            return Err(format!("{number} was counted, and its request was cut off"));
        }
        seen.fault.clone().map_or(Ok(()), Err)
    });
    let mut faults = Faults::new(Duration::from_secs(8)).at_most(8);
    for name in [UNLUCKY, "hostile2", "hostile3"] {
        faults = faults.cut(name, "server").reset(name).freeze(name);
    }
    sim.faults(&faults.crash("hostile2").crash("hostile3"));
}

/// The good clients: with a pool, with a pipeline, and with a bad network.
const CLIENTS: [&str; 3] = ["pooled", "pipelined", UNLUCKY];
const UNLUCKY: &str = "unlucky";

/// Each client has numbers of its own, from its own number times this.
const NUMBERS: u64 = 1_000_000;

/// From here on, the numbers of requests that are cut off in the middle of their bodies.
const CUT_NUMBERS: u64 = 1 << 50;

const CONNECTIONS_MAX: usize = 24;
/// Of heads, of bodies that stand still, and of replies that are not read.
const PATIENCE: Duration = Duration::from_secs(2);
const DRAIN: Duration = Duration::from_secs(3);
