//! Composition operators between real processes, over remote stages, while hosts are killed and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::time::{sleep, timeout};
use dapple_remote::{ByFate, Fate, Host, Peer, RemoteStage};
use dapple_sched::{JoinHandle, spawn};
use dapple_stage::operators::aggregate::{Aggregate, Discipline};
use dapple_stage::operators::broadcast::{Numbered, Sequencer, Settings};
use dapple_stage::operators::direct::{AtMostOnce, Delivery, DeliveryError, Receipt, Receiver, Retransmit};
use dapple_stage::operators::queue::{Consumer, Producer};
use dapple_stage::{Backoff, BoxError};
use dapple_tower::balance::Config;
use dapple_tower::middleware::retry::{Attempts, Retry};
use tower::ServiceExt;

use crate::children::{LONG, Process, Random, end_with_parent};
use crate::{listen, runtime, until};

/// A request: its number, and how long it takes.
type Work = (u64, u64);
/// The process that did it.
type Done = u32;

#[test]
fn at_most_once_holds_while_the_receiver_is_killed_and_its_answers_are_slow() {
    let place = HostFiles::new();
    let runtime = runtime();
    let ends = runtime.block_on(async {
        let mut host = place.start();
        let remote: RemoteStage<Delivery<Work>, Receipt<Done>> = place.stage("once");
        let mut settings = Retransmit::default();
        (settings.backoff, settings.attempts) = (patience(), 6);
        let sender = AtMostOnce::new(remote, settings);
        let tally = Tally::default();
        let callers: Vec<_> = (0..8)
            .map(|number| {
                let sender = sender.clone();
                // Some take longer than the first waits, so they are sent again while they run.
                tally.call(number, 60, move |work| sender.clone().oneshot(work))
            })
            .collect();
        for _ in 0..6 {
            tally.more(40).await;
            drop(host);
            sleep(Duration::from_millis(100)).await;
            host = place.start();
        }
        tally.more(100).await;
        tally.end(callers).await
    });
    let ran = place.ran("work");
    for (id, end) in &ends {
        let times = ran.iter().filter(|(ran, _)| ran == id).count();
        match end {
            Ok(_) => assert_eq!(times, 1, "{id} has an answer"),
            Err(DeliveryError::NotDone(_)) => assert_eq!(times, 0, "{id} was said never to run"),
            Err(DeliveryError::Unknown(_)) => assert!(times <= 1, "{id} ran {times} times"),
            Err(other) => panic!("no handler fails: {other}"),
        }
    }
    let unknown = ends.values().filter(|end| matches!(end, Err(DeliveryError::Unknown(_)))).count();
    assert!(unknown <= 6 * 8, "only what was under way when the receiver died: {unknown}");
}

#[test]
fn unsent_requests_did_not_run_and_no_caller_waits_for_the_failures_of_others() {
    let place = HostFiles::new();
    let runtime = runtime();
    runtime.block_on(async {
        let remote: RemoteStage<Delivery<Work>, Receipt<Done>> = place.stage("once");
        let mut settings = Retransmit::default();
        (settings.backoff, settings.attempts) = (patience(), 2);
        let sender = AtMostOnce::new(remote.clone(), settings);
        // Many at once, while there is no host.
        let callers: Vec<_> = (0..64).map(|id| spawn(sender.clone().oneshot((id, 0)))).collect();
        for caller in callers {
            assert!(matches!(caller.await.unwrap(), Err(DeliveryError::NotDone(_))));
        }
        let host = place.start();
        until_ok(|| sender.clone().oneshot((100, 0))).await;
        drop(host);
        until("the end of the host is noticed", || !remote.peer().is_connected()).await;
        let error = sender.oneshot((101, 0)).await.unwrap_err();
        assert!(matches!(error, DeliveryError::NotDone(_)), "there is no connection: {error}");
    });
    assert!(place.ran("work").iter().all(|(id, _)| *id == 100));
}

#[test]
fn members_of_a_sequencer_have_one_order_while_one_is_killed_and_joins_again() {
    let places: Vec<HostFiles> = (0..3).map(|_| HostFiles::new()).collect();
    let runtime = runtime();
    let (numbers, since) = runtime.block_on(async {
        let mut hosts: Vec<_> = places.iter().map(HostFiles::start).collect();
        let mut settings = Settings::default();
        (settings.backoff, settings.attempts) = (patience(), 4);
        let sequencer = Sequencer::<usize, Work, Done>::new("first", settings);
        for (name, place) in places.iter().enumerate() {
            let member = place.stage::<Delivery<Numbered<Work>>, Receipt<Done>>("member");
            // A member that is still starting when the first message comes would leave the view at
            // once.
            until_ok(|| async { member.peer().connect().await }).await;
            sequencer.join(name, member);
        }
        let tally = Tally::default();
        let numbers = Arc::new(Mutex::new(BTreeMap::new()));
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (sequencer, numbers) = (sequencer.clone(), numbers.clone());
                tally.call(caller, 3, move |work| {
                    let (sent, numbers) = (sequencer.clone().oneshot(work), numbers.clone());
                    async move {
                        let Ok(result) = sent.await;
                        assert!(
                            result.delivered.failed.iter().all(|(name, _)| *name == 2),
                            "the others live: {result:?}"
                        );
                        assert_eq!(numbers.lock().unwrap().insert(result.number, work.0), None);
                        Ok::<_, BoxError>(0)
                    }
                })
            })
            .collect();
        tally.more(30).await;
        drop(hosts.pop());
        until("the dead one is out of the view", || sequencer.members().len() == 2).await;
        tally.more(30).await;
        hosts.push(places[2].start());
        let member = places[2].stage::<Delivery<Numbered<Work>>, Receipt<Done>>("member");
        until_ok(|| async { member.peer().connect().await }).await;
        sequencer.join(2, member);
        let since = hosts[2].0.id();
        tally.more(60).await;
        assert_eq!(sequencer.members().len(), 3, "it is in again");
        tally.end(callers).await;
        (Arc::into_inner(numbers).map_or_else(BTreeMap::new, |numbers| numbers.into_inner().unwrap()), since)
    });
    let whole: Vec<(u64, u64)> = numbers.into_iter().collect();
    assert!(whole.len() > 120 && whole.iter().map(|(number, _)| *number).eq(0..whole.len() as u64));
    for place in &places[..2] {
        let seen: Vec<(u64, u64)> = place.ran("member").into_iter().map(|(number, line)| (number, line.1)).collect();
        assert_eq!(seen, whole, "all, once, in their order");
    }
    let (after, before): (Vec<_>, Vec<_>) = places[2].ran("member").into_iter().partition(|(_, line)| line.0 == since);
    let ids: BTreeMap<u64, u64> = whole.iter().copied().collect();
    assert!(before.iter().map(|(number, _)| *number).eq(0..before.len() as u64), "from the first, without a gap");
    let joined = after[0].0;
    assert!(
        joined > 60 && after.iter().map(|(number, _)| *number).eq(joined..whole.len() as u64),
        "likewise since then"
    );
    assert!(before.iter().chain(&after).all(|(number, line)| ids[number] == line.1));
}

#[test]
fn sources_of_an_aggregate_keep_their_order_over_a_host_that_is_killed() {
    let place = HostFiles::new();
    let runtime = runtime();
    let ends = runtime.block_on(async {
        let mut host = place.start();
        // One at a time, so the order is the pump's.
        let peer = Peer::builder(place.address.to_string()).in_flight_max(1).build().unwrap();
        let remote: RemoteStage<Work, Done> = peer.stage("work");
        until_ok(|| async { peer.connect().await }).await;
        let (aggregate, pump) = Aggregate::new(remote, Discipline::RoundRobin);
        let pump = spawn(pump);
        let tally = Tally::default();
        let callers: Vec<_> = (0..3)
            .map(|caller| {
                let source = aggregate.source(4);
                tally.call(caller, 2, move |work| source.clone().oneshot(work))
            })
            .collect();
        for _ in 0..3 {
            tally.more(40).await;
            drop(host);
            sleep(Duration::from_millis(50)).await;
            host = place.start();
        }
        tally.more(60).await;
        let ends = tally.end(callers).await;
        drop(aggregate);
        timeout(LONG, pump).await.expect("the pump ends").unwrap();
        ends
    });
    let ran: Vec<u64> = place.ran("work").into_iter().map(|(id, _)| id).collect();
    for caller in 0..3_u64 {
        let of_caller: Vec<u64> = ran.iter().copied().filter(|id| id >> 32 == caller).collect();
        assert!(of_caller.len() > 20 && of_caller.is_sorted_by(|one, other| one < other), "source {caller}");
    }
    as_told(&ran, &ends, 3);
}

#[test]
fn a_distributed_queue_goes_on_while_a_consumer_is_killed_and_comes_back() {
    let places: Vec<HostFiles> = (0..2).map(|_| HostFiles::new()).collect();
    let runtime = runtime();
    let ends = runtime.block_on(async {
        let mut hosts: Vec<_> = places.iter().map(HostFiles::start).collect();
        let tally = Tally::default();
        let mut callers = Vec::new();
        for number in 0..2 {
            let producer = Producer::new(Config::default());
            for (name, place) in places.iter().enumerate() {
                producer.connect(name, place.stage::<Work, Done>(&format!("queue {number}")));
            }
            let judged = Retry::new(Attempts::new(10).judge(ByFate), producer.service().classify(ByFate));
            callers.extend((0..4).map(|caller| {
                let judged = judged.clone();
                tally.call(4 * number + caller, 5, move |work| judged.clone().oneshot(work))
            }));
        }
        tally.more(100).await;
        for _ in 0..4 {
            drop(hosts.pop());
            // The other one continues.
            tally.more(60).await;
            hosts.push(places[1].start());
            let pid = hosts[1].0.id();
            until("it gets messages again", || {
                tally.ends.lock().unwrap().values().any(|end| end.as_ref().ok() == Some(&pid))
            })
            .await;
        }
        tally.end(callers).await
    });
    let ran: Vec<u64> = places.iter().flat_map(|place| place.ran("work")).map(|(id, _)| id).collect();
    as_told(&ran, &ends, 4 * 8);
}

/// Nothing ran twice, and exactly the requests ran that callers were told of.
fn as_told(ran: &[u64], ends: &BTreeMap<u64, Result<Done, BoxError>>, unknown_max: usize) {
    let once: BTreeSet<u64> = ran.iter().copied().collect();
    assert_eq!(once.len(), ran.len(), "something ran twice");
    let mut unknown = 0;
    for (id, end) in ends {
        match end {
            Ok(_) => assert!(once.contains(id), "{id} has an answer"),
            Err(error) if Fate::of(error) == Fate::NotRun => assert!(!once.contains(id), "{id}: {error}"),
            Err(error) => {
                assert_eq!(Fate::of(error), Fate::Unknown, "{id}: {error}");
                unknown += 1;
            }
        }
    }
    assert!(unknown <= unknown_max, "only what was under way when a host died: {unknown}");
}

fn patience() -> Backoff {
    Backoff::new(Duration::from_millis(40), Duration::from_millis(400))
}

/// The outcomes of requests.
struct Tally<E> {
    ends: Arc<Mutex<BTreeMap<u64, Result<Done, E>>>>,
    answers: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl<E> Default for Tally<E> {
    fn default() -> Self {
        Tally { ends: Arc::default(), answers: Arc::default(), is_over: Arc::default() }
    }
}

impl<E: Send + 'static> Tally<E> {
    /// Sends one after the other, each of up to so many milliseconds, and records its outcome.
    fn call<F>(
        &self,
        caller: u64,
        takes_ms_max: u64,
        mut send: impl FnMut(Work) -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        F: Future<Output = Result<Done, E>> + Send,
    {
        let (ends, answers, is_over) = (self.ends.clone(), self.answers.clone(), self.is_over.clone());
        let mut random = Random(caller);
        spawn(async move {
            let mut id = caller << 32;
            while !is_over.load(SeqCst) {
                id += 1;
                let sending = send((id, random.below(takes_ms_max)));
                let end = timeout(LONG, sending).await.unwrap_or_else(|_| panic!("{id} hangs"));
                answers.fetch_add(u64::from(end.is_ok()), SeqCst);
                let is_ok = end.is_ok();
                ends.lock().unwrap().insert(id, end);
                if !is_ok {
                    sleep(Duration::from_millis(5)).await;
                }
            }
        })
    }

    /// Waits for so many more answers.
    async fn more(&self, count: u64) {
        let before = self.answers.load(SeqCst);
        until("answers come", || self.answers.load(SeqCst) >= before + count).await;
    }

    async fn end(self, callers: Vec<JoinHandle<()>>) -> BTreeMap<u64, Result<Done, E>> {
        self.is_over.store(true, SeqCst);
        for caller in callers {
            caller.await.unwrap();
        }
        Arc::into_inner(self.ends).expect("they have ended").into_inner().unwrap()
    }
}

/// A host's address and its log, which outlive its process.
struct HostFiles {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl HostFiles {
    fn new() -> HostFiles {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        HostFiles { folder: tempfile::tempdir().unwrap(), address: listener.local_addr().unwrap() }
    }

    fn start(&self) -> Process {
        let address = self.address.to_string();
        let environment = [
            ("DAPPLE_OPERATORS_FOLDER", self.folder.path().as_os_str()),
            ("DAPPLE_OPERATORS_ADDRESS", address.as_ref()),
        ];
        Process::start("operators::host", environment)
    }

    fn stage<Req, Resp>(&self, name: &str) -> RemoteStage<Req, Resp> {
        Peer::new(self.address.to_string()).unwrap().stage(name)
    }

    /// The lines of a kind: a number, and the process and another number.
    fn ran(&self, kind: &str) -> Vec<(u64, (u32, u64))> {
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|words| words[0] == kind);
        lines.map(|words| (words[1].parse().unwrap(), (words[2].parse().unwrap(), words[3].parse().unwrap()))).collect()
    }
}

/// The processes run this; as a test it does nothing.
#[test]
fn host() {
    let Ok(folder) = std::env::var("DAPPLE_OPERATORS_FOLDER") else { return };
    let address: SocketAddr = std::env::var("DAPPLE_OPERATORS_ADDRESS").unwrap().parse().unwrap();
    end_with_parent();
    let log = Log::open(&PathBuf::from(folder));
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let of_work = log.clone();
        let work = tower::service_fn(move |(id, takes_ms): Work| of_work.clone().serve("work", id, 0, takes_ms));
        let of_member = log.clone();
        let member = tower::service_fn(move |numbered: Numbered<Work>| {
            let (id, takes_ms) = numbered.message;
            of_member.clone().serve("member", numbered.number, id, takes_ms)
        });
        let (consumer, pump) = Consumer::new(work.clone(), Discipline::RoundRobin);
        let _pump = spawn(pump);
        let host = Host::builder()
            .register("work", work.clone())
            .register("once", Receiver::new(work))
            .register("member", Receiver::new(member))
            .register("queue 0", consumer.queue(2))
            .register("queue 1", consumer.queue(2))
            .build();
        host.serve(listen(address).await).await.unwrap();
    });
}

#[derive(Clone)]
struct Log(Arc<File>);

impl Log {
    fn open(folder: &Path) -> Log {
        Log(Arc::new(OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap()))
    }

    async fn serve(self, kind: &'static str, number: u64, other: u64, takes_ms: u64) -> Result<Done, BoxError> {
        let pid = std::process::id();
        // In one write, so the line is complete or absent.
        (&*self.0).write_all(format!("{kind} {number} {pid} {other}\n").as_bytes())?;
        sleep(Duration::from_millis(takes_ms)).await;
        Ok(pid)
    }
}

async fn until_ok<T, E, F: Future<Output = Result<T, E>>>(mut ask: impl FnMut() -> F) {
    let asking = async {
        while ask().await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, asking).await.expect("it goes well at last");
}
