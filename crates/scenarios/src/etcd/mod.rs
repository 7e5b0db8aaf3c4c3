//! Clients of etcd, and stages that are found through it: by a fake etcd that keeps its promises, and crashes.

mod fake;

use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple::etcd::{Etcd, Event, Get, Guard, Guarded, Put, Watching};
use dapple::stage::balance::Config;
use dapple::stage::remote::{Discovery, Host, Registration};
use dapple::time::{Instant, sleep, timeout};
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};
use tower::ServiceExt;

use crate::Scenario;
use crate::disk::Log;
use crate::remote::{peer, serve};

pub(crate) const ETCD: Scenario = Scenario {
    name: "etcd",
    holds: "guarded writes count once, a watch has no gap, an old lock is of no use, and hosts that register are found until they die",
    setup: |sim| etcd(sim, None),
    bugs: &[
        ("etcd answers before its log is synced", |sim| etcd(sim, Some(Bug::NoSync))),
        ("etcd's leases outlive their holders", |sim| etcd(sim, Some(Bug::EndlessLeases))),
        ("etcd begins a watch at the present", |sim| etcd(sim, Some(Bug::WatchFromNow))),
        ("etcd does not compare", |sim| etcd(sim, Some(Bug::NoCompare))),
        ("a client writes what it has read without a guard", |sim| etcd(sim, Some(Bug::NoGuard))),
        ("a resource does not look at the token of a lock", |sim| etcd(sim, Some(Bug::NoFence))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    NoSync,
    EndlessLeases,
    WatchFromNow,
    NoCompare,
    NoGuard,
    NoFence,
}

/// The knowledge of all clients, outside of their hosts.
#[derive(Clone, Default)]
struct Shared {
    /// Writes that were applied, and those of unknown end.
    applied: Arc<AtomicU64>,
    unknown: Arc<AtomicU64>,
    /// Writes that were begun.
    attempts: Arc<AtomicU64>,
    /// Counts that the watch has seen.
    seen: Arc<Mutex<Vec<u64>>>,
    /// The highest token of a lock with which the resource was used.
    token: Arc<AtomicI64>,
    /// Hosts that have not crashed.
    up: Arc<AtomicU64>,
}

fn etcd(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(300));
    let log = Log::new();
    sim.host("etcd", move || fake::serve(log.clone(), bug));
    let shared = Shared::default();
    for name in HOSTS {
        let up = shared.up.clone();
        sim.host(name, move || run_host(name, up.clone()));
    }
    for name in ["writer0", "writer1"] {
        let shared = shared.clone();
        sim.client(name, move || write(shared.clone(), bug));
    }
    let of_watch = shared.clone();
    sim.client("watcher", move || watch(of_watch.clone()));
    let up = shared.up.clone();
    sim.client("caller", move || call(up.clone()));
    let mut faults = Faults::new(FAULTS_WITHIN).at_most(8).crash("etcd").freeze("etcd").reset("etcd");
    for name in HOSTS.into_iter().chain(["writer0", "writer1", "watcher"]) {
        faults = faults.cut(name, "etcd").freeze(name).reset(name);
    }
    // This one crashes for good.
    let mut plan = dapple_sim::Plan::default();
    plan.add(FAULTS_WITHIN, Duration::from_secs(1_000), dapple_sim::Fault::Crash(HOSTS[0].to_owned()));
    sim.faults(&faults.crash(HOSTS[1]));
    sim.plan(plan);
}

/// Registers itself, and serves until it crashes.
async fn run_host(name: &str, up: Arc<AtomicU64>) {
    struct Up(Arc<AtomicU64>);
    impl Drop for Up {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Relaxed);
        }
    }
    up.fetch_add(1, Relaxed);
    let _up = Up(up);
    let _registered = Registration::start(&discovery(), ["square"], &format!("{name}:70"), TTL).unwrap();
    let square = |value: u64| async move { Ok::<_, Infallible>(value * value) };
    serve(Host::builder().register_fn("square", square).build()).await;
}

fn discovery() -> Discovery {
    Discovery::etcd(["etcd:2379"], "apps").unwrap()
}

fn client() -> Etcd {
    Etcd::new(["etcd:2379"]).unwrap().timeout(Duration::from_secs(3))
}

/// Counts, some of the time with a lock.
async fn write(shared: Shared, bug: Option<Bug>) {
    let etcd = client();
    for _ in 0..WRITES {
        if environment::random().is_multiple_of(3) {
            hold(&etcd, &shared, bug).await;
        }
        count(&etcd, &shared, bug).await;
        sleep(Duration::from_millis(environment::random() % 500)).await;
    }
    sleep(FAULTS_WITHIN * 2).await;
    // The other one may still write, also while this one reads.
    let (value, before) = loop {
        let before = shared.applied.load(Relaxed);
        if let Ok(found) = etcd.get("/count").await {
            break (found.map_or(0, |record| number(&record.value)), before);
        }
        sleep(Duration::from_millis(200)).await;
    };
    let (applied, unknown) = (shared.applied.load(Relaxed), shared.unknown.load(Relaxed));
    assert!(value <= applied + unknown + 1, "{applied} writes were applied and {unknown} may be; the count is {value}");
    assert!(value >= before, "{before} writes were applied; the count is {value}");
}

/// Adds one to the count.
async fn count(etcd: &Etcd, shared: &Shared, bug: Option<Bug>) {
    loop {
        let Ok(found) = etcd.get("/count").await else { continue };
        let (before, guard) =
            found.map_or((0, Guard::Absent), |record| (number(&record.value), Guard::Revision(record.mod_revision)));
        // Unique, as `put_guarded` asks: after a lost reply, the same value of the other writer would count as this one's.
        let attempt = shared.attempts.fetch_add(1, Relaxed);
        let put = Put::new("/count", format!("{} {attempt}", before + 1));
        let written = match bug {
            Some(Bug::NoGuard) => etcd.put(put).await.map(|written| Guarded::Applied { revision: written.revision }),
            _ => etcd.put_guarded(put, guard).await,
        };
        match written {
            Ok(Guarded::Applied { .. }) => {
                shared.applied.fetch_add(1, Relaxed);
                return;
            }
            Ok(Guarded::Refused { .. }) => {}
            Err(dapple::etcd::Error::Unknown { .. }) => {
                shared.unknown.fetch_add(1, Relaxed);
                return;
            }
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn hold(etcd: &Etcd, shared: &Shared, bug: Option<Bug>) {
    let Ok(lease) = etcd.lease(TTL).await else { return };
    let Ok(held) = etcd.lock("/lock", &lease).await else { return };
    // A host that stood still may not know yet that another one has the lock. The resource knows.
    for _ in 0..10 {
        if lease.is_lost() {
            break;
        }
        // The way to the resource, on which the lock can be lost.
        sleep(Duration::from_millis(environment::random() % 300)).await;
        let before = shared.token.fetch_max(held.token(), Relaxed);
        if before > held.token() {
            assert!(bug != Some(Bug::NoFence), "lock {} was used after lock {before}", held.token());
            break;
        }
    }
    let _ = held.unlock().await;
}

/// Sees each count once, in order.
async fn watch(shared: Shared) {
    let etcd = client();
    let (began, mut next, mut watch) = (Instant::now(), 1, None);
    while began.elapsed() < FAULTS_WITHIN * 3 {
        let open = match &mut watch {
            Some(open) => open,
            None => match etcd.watch(Watching::new("/count").since(next)).await {
                Ok(opened) => watch.insert(opened),
                Err(_) => continue,
            },
        };
        // A server that crashed does not say so, and the simulated network has no probes.
        let Ok(events) = timeout(Duration::from_secs(2), open.next()).await else {
            watch = None;
            continue;
        };
        for event in events.unwrap() {
            next = event.revision() + 1;
            let Event::Put { record, .. } = event else { panic!("the count is never removed") };
            let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(number(&record.value));
            assert_eq!(number(&record.value), seen.len() as u64, "a watch has a gap");
        }
    }
    let last = loop {
        if let Ok(found) = etcd.find(Get::new("/count")).await {
            break found.records.first().map_or(0, |record| number(&record.value));
        }
    };
    assert_eq!(last, shared.seen.lock().unwrap_or_else(PoisonError::into_inner).len() as u64, "a watch saw not all");
}

/// Calls the hosts that are found.
async fn call(up: Arc<AtomicU64>) {
    let limit = Some(Duration::from_millis(500));
    let square = discovery().balance_with::<u64, u64>("square", Config::default(), move |address| {
        Ok(peer(address.trim_end_matches(":70"), limit).stage("square"))
    });
    let began = Instant::now();
    while began.elapsed() < FAULTS_WITHIN * 2 + TTL * 3 + READ_AGAIN {
        let value = environment::random() % 1_000;
        if let Ok(Ok(answer)) = timeout(Duration::from_secs(2), square.clone().oneshot(value)).await {
            assert_eq!(answer, value * value);
        }
        sleep(Duration::from_millis(environment::random() % 2_000)).await;
    }
    // All other faults are over, and the lease of the host that is away for good has ended.
    let found: Vec<String> = square.balancer().stats().into_iter().map(|stats| stats.key).collect();
    assert_eq!(found.len() as u64, up.load(Relaxed), "the hosts that are found: {found:?}");
    for value in 0..20 {
        assert_eq!(square.clone().oneshot(value).await.unwrap(), value * value);
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).unwrap().split(' ').next().unwrap().parse().unwrap()
}

const HOSTS: [&str; 3] = ["host0", "host1", "host2"];
const WRITES: u64 = 10;
const TTL: Duration = Duration::from_secs(3);
const FAULTS_WITHIN: Duration = Duration::from_secs(8);

/// How often a client of discovery reads all hosts again.
const READ_AGAIN: Duration = Duration::from_secs(30);
