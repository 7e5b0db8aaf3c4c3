//! A replicated stage with replicas in this process, in processes that it starts, and at hosts that
//! others run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dapple_io::time::{sleep, timeout};
use dapple_remote::{
    Discovery, Fate, Host, HostCommand, HostError, HostOptions, RemoteReplica, RemoteReplicas, host_run,
};
use dapple_sched::spawn;
use dapple_stage::{BoxError, Replica, Replicated, Replication, Stage};
use rustix::process::{Pid, Signal, kill_process};

use crate::children::{LONG, Process, command, end_with_parent};
use crate::{runtime, until};

/// A request: its number, and how long it takes.
type Work = (u64, u64);
type Works = Replicated<Work, u32, BoxError>;

#[test]
fn processes_start_when_the_load_rises_and_end_when_it_falls_without_losing_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let runtime = runtime();
    let answered = runtime.block_on(async {
        let rules = Replication {
            up_after: Duration::from_millis(50),
            down_after: Duration::from_millis(500),
            ..Replication::between(1..=3)
        };
        let inside = path.clone();
        // The first is in this process, the others are processes.
        let stage = Stage::builder("work").width(4).replicate_with(rules, move |number| {
            let path = inside.clone();
            async move {
                if number == 0 {
                    let log = Log::open(&path);
                    return Ok(Replica::new(tower::service_fn(move |work| log.clone().serve(work))));
                }
                Replica::process(host_command(&path), "work").await
            }
        });
        let load = Load::default();
        let many = load.start(40, &stage, Duration::ZERO);
        until("there are three, and all of them serve", || stage.replicas().len() == 3 && load.servers() == 3).await;
        load.end(many).await;
        let few = load.start(2, &stage, Duration::from_millis(5));
        until("there is one", || stage.replicas().len() == 1).await;
        until("the processes have ended", || events(&path).1 == 0).await;
        load.end(few).await;
        stage.stop().await;
        load.answered.lock().unwrap().clone()
    });
    let (most, alive) = events(folder.path());
    assert_eq!(alive, 0);
    assert!(most <= 2, "{most} processes at a time");
    let ran = ran(folder.path());
    assert_eq!(ran, answered, "each ran where its answer came from, once");
}

#[test]
fn a_process_that_dies_is_replaced_with_rests_that_grow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let runtime = runtime();
    runtime.block_on(async {
        let rest = Duration::from_millis(200);
        let rules = Replication { rejoin_after: rest, ..Replication::between(2..=2) };
        let (fails, attempts) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (failing, tried, inside) = (fails.clone(), attempts.clone(), path.clone());
        let stage: Works = Stage::builder("work").width(4).replicate_with(rules, move |number| {
            tried.lock().unwrap().push((number, Instant::now()));
            let fails = failing.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            let starting = Replica::process(host_command(&inside), "work");
            async move { if fails { Err("there is no room".into()) } else { starting.await } }
        });
        let load = Load::default();
        load.may_fail.store(true, SeqCst);
        let some = load.start(8, &stage, Duration::ZERO);
        until("both serve", || load.servers() == 2).await;
        let victim = *load.last_by.lock().unwrap().keys().next().unwrap();
        fails.store(2, SeqCst);
        let killed = Instant::now();
        kill_process(Pid::from_raw(victim as i32).unwrap(), Signal::KILL).unwrap();
        until("another one serves", || load.servers() == 3).await;
        load.end(some).await;
        let tries: Vec<Instant> = attempts.lock().unwrap()[2..].iter().map(|(_, at)| *at).collect();
        assert_eq!(tries.len(), 3, "two that fail, and one that does not");
        assert!(tries[0] - killed >= rest && tries[1] - tries[0] >= 2 * rest && tries[2] - tries[1] >= 4 * rest);
        drop(stage);
        until("without a handle they end", || events(&path).1 <= 1).await;
        assert_eq!(load.not_run.load(SeqCst) + load.unknown.load(SeqCst), load.failed.load(SeqCst));
        // The requests in transit to the killed process.
        assert!(load.unknown.load(SeqCst) <= 8);
    });
    let (ran, count) = (ran(folder.path()), events(folder.path()));
    assert!(ran.len() > 10 && count.1 == 1, "one did not say that it has ended: {count:?}");
}

#[test]
fn hosts_that_are_found_serve_beside_copies_in_this_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let runtime = runtime();
    runtime.block_on(async {
        let log = Log::open(&path);
        let stage: Works = Stage::builder("work").width(4).replicate_with(1..=2, move |_number| {
            let log = log.clone();
            async move { Ok(Replica::new(tower::service_fn(move |work| log.clone().serve(work)))) }
        });
        stage.find(&Discovery::list([address.clone()]).unwrap(), "work");
        let load = Load::default();
        load.may_fail.store(true, SeqCst);
        let some = load.start(6, &stage, Duration::ZERO);
        until("the copy here serves", || load.servers() == 1).await;
        for round in 2..5 {
            let host = start_host(&path, &address);
            until("the host serves", || load.servers() == round).await;
            drop(host);
            let before = load.answers();
            until("the copy here goes on", || load.answers() > before + 50).await;
        }
        assert!(stage.replicas().iter().any(|replica| replica.name == format!("work at {address}")));
        assert!(stage.leave(&address) && !stage.leave(&address));
        load.end(some).await;
        stage.stop().await;
        assert!(stage.replicas().is_empty());
    });
}

#[test]
fn while_the_first_are_being_started_requests_wait_and_a_program_that_is_none_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let runtime = runtime();
    runtime.block_on(async {
        let stage: Works =
            Stage::builder("work").replicate_with(1..=1, move |_number| Replica::process(host_command(&path), "work"));
        assert_ne!(stage.ask((1, 0)).await.unwrap(), std::process::id());
        stage.stop().await;
        let error = Replica::<Work, u32>::process(Command::new("true"), "work").await.unwrap_err();
        assert!(error.to_string().contains("ended before it said"), "{error}");
    });
}

#[test]
fn a_process_that_does_not_listen_is_ended_with_its_stage_and_nothing_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let runtime = runtime();
    runtime.block_on(async {
        let inside = path.clone();
        let stage: Works = Stage::builder("work").replicate_with(1..=1, move |_number| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ >\"$0\"; exec sleep 1000"]).arg(&inside);
            Replica::process(command, "work")
        });
        let pid = || fs::read_to_string(&path).ok()?.strip_suffix('\n')?.parse::<u32>().ok();
        until("it is started", || pid().is_some()).await;
        let pid = pid().unwrap();
        // Earlier than it could fail to listen.
        timeout(Duration::from_secs(25), stage.stop()).await.unwrap();
        // Neither a running process nor an unreaped one.
        until("it is gone", || !Path::new(&format!("/proc/{pid}")).exists()).await;
    });
}

/// A caller that asks repeatedly, and its outcomes.
#[derive(Clone, Default)]
struct Load {
    next: Arc<AtomicU64>,
    answered: Arc<Mutex<BTreeMap<u64, u32>>>,
    last_by: Arc<Mutex<BTreeMap<u32, u64>>>,
    may_fail: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    not_run: Arc<AtomicU64>,
    unknown: Arc<AtomicU64>,
}

struct Askers(Arc<AtomicBool>, Vec<dapple_sched::JoinHandle<()>>);

impl Load {
    fn start(&self, askers: usize, stage: &Works, pause: Duration) -> Askers {
        let is_over = Arc::new(AtomicBool::new(false));
        let ask = |_| {
            let (load, stage, is_over) = (self.clone(), stage.clone(), is_over.clone());
            spawn(async move {
                while !is_over.load(SeqCst) {
                    load.ask(&stage).await;
                    sleep(pause).await;
                }
            })
        };
        let tasks = (0..askers).map(ask).collect();
        Askers(is_over, tasks)
    }

    async fn ask(&self, stage: &Works) {
        let id = self.next.fetch_add(1, SeqCst);
        let error = match timeout(LONG, stage.ask((id, 10))).await.expect("no request hangs") {
            Ok(pid) => {
                assert_eq!(self.answered.lock().unwrap().insert(id, pid), None);
                self.last_by.lock().unwrap().insert(pid, id);
                return;
            }
            Err(error) => BoxError::from(error),
        };
        assert!(self.may_fail.load(SeqCst), "a request is lost: {error}");
        self.failed.fetch_add(1, SeqCst);
        match Fate::of(&error) {
            Fate::NotRun => self.not_run.fetch_add(1, SeqCst),
            Fate::Unknown => self.unknown.fetch_add(1, SeqCst),
            Fate::Ran => panic!("no handler fails: {error}"),
        };
    }

    async fn end(&self, askers: Askers) {
        askers.0.store(true, SeqCst);
        for task in askers.1 {
            task.await.unwrap();
        }
    }

    fn answers(&self) -> usize {
        self.answered.lock().unwrap().len()
    }

    /// How many processes have answered so far.
    fn servers(&self) -> usize {
        self.last_by.lock().unwrap().len()
    }
}

/// The records of processes, in pieces that are complete or absent.
#[derive(Clone)]
struct Log(Arc<File>);

impl Log {
    fn open(folder: &Path) -> Log {
        Log(Arc::new(OpenOptions::new().append(true).create(true).open(folder.join("log")).unwrap()))
    }

    fn write(&self, what: &str, number: u64) {
        (&*self.0).write_all(format!("{what} {number} {}\n", std::process::id()).as_bytes()).unwrap();
    }

    async fn serve(self, (id, takes_ms): Work) -> Result<u32, BoxError> {
        self.write("ran", id);
        sleep(Duration::from_millis(takes_ms)).await;
        Ok(std::process::id())
    }
}

fn lines(folder: &Path) -> Vec<(String, u64, u32)> {
    let text = fs::read_to_string(folder.join("log")).unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0].to_owned(), words[1].parse().unwrap(), words[2].parse().unwrap())
    };
    text.lines().map(line).collect()
}

/// Which requests ran where; each once.
fn ran(folder: &Path) -> BTreeMap<u64, u32> {
    let mut ran = BTreeMap::new();
    for (_, id, pid) in lines(folder).iter().filter(|(what, ..)| what == "ran") {
        assert_eq!(ran.insert(*id, *pid), None, "{id} ran twice");
    }
    ran
}

/// The most processes at a time, and how many have not recorded their end.
fn events(folder: &Path) -> (usize, usize) {
    let (mut most, mut alive) = (0, BTreeSet::new());
    for (what, _, pid) in lines(folder) {
        match &*what {
            "begins" => drop(alive.insert(pid)),
            "ends" => drop(alive.remove(&pid)),
            _ => {}
        }
        most = most.max(alive.len());
    }
    (most, alive.len())
}

fn host_command(folder: &Path) -> Command {
    let mut command = command("replicas::process");
    command.env("DAPPLE_REPLICA_FOLDER", folder);
    command
}

fn start_host(folder: &Path, address: &str) -> Process {
    let environment = [("DAPPLE_REPLICA_FOLDER", folder.as_os_str()), ("DAPPLE_REPLICA_ADDRESS", address.as_ref())];
    Process::start("replicas::process", environment)
}

/// The processes run this; as a test it does nothing.
#[test]
fn process() {
    let Ok(folder) = std::env::var("DAPPLE_REPLICA_FOLDER") else { return };
    end_with_parent();
    let log = Log::open(&PathBuf::from(folder));
    log.write("begins", 0);
    let address = std::env::var("DAPPLE_REPLICA_ADDRESS").unwrap_or("127.0.0.1:0".to_owned());
    let arguments = ["--listen", &address, "--workers", "1"].map(str::to_owned);
    let Ok(HostCommand::Run(options)) = HostOptions::parse(arguments) else { panic!("they are right") };
    loop {
        let inside = log.clone();
        let stages = Host::builder().register_fn("work", move |work: Work| inside.clone().serve(work));
        match host_run(stages, &options) {
            // A client's failed attempt to connect may hold the port for a moment.
            Err(HostError::Listen { .. }) => std::thread::sleep(Duration::from_millis(20)),
            ended => break ended.unwrap(),
        }
    }
    log.write("ends", 0);
}
