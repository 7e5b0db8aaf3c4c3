//! A balance over real hosts that are killed at random 200 times, in a closed loop of requests. At
//! the end each request has ended once and as its error says, none has run twice, all hosts are
//! members again, and no load is left on any.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::time::{sleep, timeout};
use dapple_remote::{ByFate, Discovery, Fate, Host, Peer, RemoteStage};
use dapple_sched::spawn;
use dapple_stage::{BoxError, Reason, Refused};
use dapple_tower::balance::{Balance, Balancer, Config};
use dapple_tower::middleware::retry::{Attempts, Retry};
use serde::{Deserialize, Serialize};
use tower_service::Service;

use crate::children::{LONG, Process, Random, end_with_parent};
use crate::{listen, runtime, until};

const HOSTS: usize = 4;
const CLIENTS: u64 = 16;
const KILLS: usize = 200;
/// Fewer permits than there are kills, so if a killed host kept its permit, the test would soon
/// find it.
const IN_FLIGHT_MAX: usize = 8;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Work {
    id: u64,
    takes_us: u64,
    ends: Ends,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Ends {
    Well,
    Badly,
    InAPanic,
}

#[derive(Debug, Serialize, Deserialize)]
struct Done {
    id: u64,
    host: usize,
}

/// The final outcome of a request for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Answered(usize),
    Failed,
    NotRun,
    Unknown,
    GivenUp,
}

#[derive(Default)]
struct Ledger {
    ends: Mutex<BTreeMap<u64, End>>,
    answers: AtomicU64,
    is_over: AtomicBool,
}

impl Ledger {
    fn ended(&self, id: u64, end: End) {
        assert_eq!(self.ends.lock().unwrap().insert(id, end), None, "{id} ends twice");
        if matches!(end, End::Answered(_)) {
            self.answers.fetch_add(1, SeqCst);
        }
    }
}

type Works = Balance<String, RemoteStage<Work, Done>, ByFate>;

#[test]
fn each_request_ends_once_whichever_hosts_are_killed_200_times() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = addresses();
    let mut random = Random::seeded();
    let runtime = runtime();
    let ledger = Arc::new(Ledger::default());
    let hosts = runtime.block_on(async {
        let mut hosts: Vec<_> =
            (0..HOSTS).map(|number| Some(start(folder.path(), number, addresses[number]))).collect();
        let work = balance(&addresses);
        let balancer = work.balancer().clone();
        until("all are found", || balancer.serving_len() == HOSTS).await;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| spawn(client(number, work.clone(), ledger.clone(), Random(random.below(u64::MAX)))))
            .collect();
        let mut kills = 0;
        while kills < KILLS {
            kills += round(&mut hosts, folder.path(), &addresses, &ledger, &mut random).await;
        }
        all_are_back(&balancer).await;
        ledger.is_over.store(true, SeqCst);
        for client in clients {
            client.await.expect("every request has ended");
        }
        let left: usize = balancer.stats().iter().map(|replica| replica.in_flight).sum();
        assert_eq!(left, 0, "{balancer:?}");
        drop((work, balancer));
        until("the balance is gone, and no connection is left", || connections(&addresses) == 0).await;
        hosts
    });
    drop(hosts);
    check(folder.path(), &ledger.ends.lock().unwrap());
}

/// Free addresses, for hosts that come and go.
fn addresses() -> Vec<SocketAddr> {
    let listeners: Vec<_> = (0..HOSTS).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap()).collect()
}

fn balance(addresses: &[SocketAddr]) -> Works {
    let hosts = Discovery::list(addresses.iter().map(SocketAddr::to_string)).unwrap();
    hosts.balance_with("work", Config::default(), |address| {
        Ok(Peer::builder(address).in_flight_max(IN_FLIGHT_MAX).build()?.stage("work"))
    })
}

/// Kills one host, or all at once, and starts them again; returns how many that were.
async fn round(
    hosts: &mut [Option<Process>],
    folder: &Path,
    addresses: &[SocketAddr],
    ledger: &Ledger,
    random: &mut Random,
) -> usize {
    let before = ledger.answers.load(SeqCst);
    until("requests flow", || ledger.answers.load(SeqCst) > before + 5).await;
    sleep(Duration::from_millis(random.below(50))).await;
    let victims = match random.below(20) {
        0 => 0..hosts.len(),
        _ => {
            let victim = random.below(hosts.len() as u64) as usize;
            victim..victim + 1
        }
    };
    victims.clone().for_each(|victim| hosts[victim] = None);
    if random.below(4) == 0 {
        sleep(Duration::from_millis(random.below(300))).await;
    }
    victims.clone().for_each(|victim| hosts[victim] = Some(start(folder, victim, addresses[victim])));
    victims.len()
}

async fn all_are_back<S: Clone>(balancer: &Balancer<String, S>) {
    let successes = || balancer.stats().into_iter().map(|replica| replica.successes).collect::<Vec<_>>();
    let before = successes();
    until("all get requests again", || successes().iter().zip(&before).all(|(now, before)| now >= &(before + 20)))
        .await;
}

/// Sends one request after the other, and drops some on the way.
async fn client(number: u64, work: Works, ledger: Arc<Ledger>, mut random: Random) {
    let mut work = Retry::new(Attempts::new(5).judge(ByFate), work);
    let mut id = number << 32;
    while !ledger.is_over.load(SeqCst) {
        id += 1;
        let ends = match random.below(50) {
            0 => Ends::InAPanic,
            1..4 => Ends::Badly,
            _ => Ends::Well,
        };
        let patience = match random.below(20) {
            0 => Duration::from_micros(random.below(5_000)),
            _ => LONG,
        };
        let request = Work { id, takes_us: random.below(4_000), ends };
        let asking = async {
            std::future::poll_fn(|cx| work.poll_ready(cx)).await?;
            work.call(request).await
        };
        let end = match timeout(patience, asking).await {
            Ok(Ok(done)) => {
                assert_eq!(done.id, id, "the answer is another's");
                End::Answered(done.host)
            }
            Ok(Err(error)) => end_of(&error),
            Err(_) if patience < LONG => End::GivenUp,
            Err(_) => panic!("a request hangs"),
        };
        ledger.ended(id, end);
    }
}

fn end_of(error: &BoxError) -> End {
    match Fate::of(error) {
        Fate::Ran => End::Failed,
        Fate::Unknown => End::Unknown,
        Fate::NotRun => {
            let reason = Refused::find(&**error).map(|refused| &refused.reason);
            assert!(matches!(reason, None | Some(Reason::Unavailable)), "nobody else refuses: {error}");
            End::NotRun
        }
    }
}

/// The hosts have run exactly the requests that the callers were told of.
fn check(folder: &Path, ends: &BTreeMap<u64, End>) {
    let mut ran: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for host in 0..HOSTS {
        for line in fs::read_to_string(folder.join(format!("ran-{host}"))).unwrap().lines() {
            ran.entry(line.parse().unwrap()).or_default().push(host);
        }
    }
    for (id, hosts) in &ran {
        assert_eq!(hosts.len(), 1, "{id} ran {hosts:?}");
        assert!(ends.contains_key(id), "nobody has sent {id}");
    }
    let mut counts = BTreeMap::new();
    for (id, end) in ends {
        let ran = ran.get(id).map(|hosts| hosts[0]);
        match end {
            End::Answered(host) => assert_eq!(ran, Some(*host), "{id}"),
            End::Failed => assert!(ran.is_some(), "{id} has failed, and did not run"),
            End::NotRun => assert_eq!(ran, None, "{id} ran, and its caller was told that it did not"),
            End::Unknown | End::GivenUp => {}
        }
        let name = if let End::Answered(_) = end { "Answered".to_owned() } else { format!("{end:?}") };
        *counts.entry(name).or_insert(0) += 1;
    }
    println!("{counts:?}");
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    assert!(
        count("Answered") > 1_000 && count("Failed") > 10 && count("GivenUp") > 10,
        "too little happened: {counts:?}"
    );
    // Otherwise no busy host was killed.
    assert!((10..=KILLS * 2 * CLIENTS as usize).contains(&count("Unknown")), "{counts:?}");
}

fn start(folder: &Path, number: usize, address: SocketAddr) -> Process {
    let (number, address) = (number.to_string(), address.to_string());
    let environment = [
        ("DAPPLE_KILLS_HOST", number.as_ref()),
        ("DAPPLE_KILLS_ADDRESS", address.as_ref()),
        ("DAPPLE_KILLS_FOLDER", folder.as_os_str()),
    ];
    Process::start("balance_kills::host", environment)
}

/// The processes run this; as a test it does nothing.
#[test]
fn host() {
    let Ok(number) = std::env::var("DAPPLE_KILLS_HOST") else { return };
    let (number, of) = (number.parse().unwrap(), |name| std::env::var(name).unwrap());
    let address: SocketAddr = of("DAPPLE_KILLS_ADDRESS").parse().unwrap();
    let path = Path::new(&of("DAPPLE_KILLS_FOLDER")).join(format!("ran-{number}"));
    end_with_parent();
    let ran = Arc::new(OpenOptions::new().append(true).create(true).open(path).unwrap());
    let handler = move |work: Work| {
        let ran = ran.clone();
        async move {
            // In one write, so the line is complete or absent.
            (&*ran).write_all(format!("{}\n", work.id).as_bytes())?;
            sleep(Duration::from_micros(work.takes_us)).await;
            match work.ends {
                Ends::Well => Ok(Done { id: work.id, host: number }),
                Ends::Badly => Err(BoxError::from("it was to fail")),
                // The program prints nothing of this panic.
                Ends::InAPanic => std::panic::resume_unwind(Box::new("it was to panic")),
            }
        }
    };
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let host = Host::builder().register_fn("work", handler).build();
        host.serve(listen(address).await).await.unwrap();
    });
}

/// How many connections there are to these addresses.
fn connections(addresses: &[SocketAddr]) -> usize {
    let established = |line: &&str| line.split_whitespace().nth(3) == Some("01");
    let port = |line: &str| u16::from_str_radix(line.split_whitespace().nth(2)?.rsplit_once(':')?.1, 16).ok();
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let ports = table.lines().skip(1).filter(established).filter_map(port);
    ports.filter(|port| addresses.iter().any(|address| address.port() == *port)).count()
}
