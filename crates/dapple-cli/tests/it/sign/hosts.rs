//! `dapple sign --hosts`: replicas in other processes, some of which die.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dapple::stage::remote::{Peer, RemoteStage};
use tempfile::TempDir;

use super::{Answer, Client, PATIENCE, Server, body, digest, log};
use crate::stage_host::StageHost;

/// A host of the stage `sign` with the log in this folder, and the secrets "one" and "two".
fn host_at(address: &str, folder: &Path, options: &[&str]) -> StageHost {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("first"), "one").unwrap();
    std::fs::write(path("second"), "two").unwrap();
    let (log, first, second) = (path("log"), path("first"), path("second"));
    let own = ["--stage", "sign", "--sign-log", &log, "--sign-first-secret", &first, "--sign-second-secret", &second];
    StageHost::start_at(address, &[&own[..], options].concat())
}

fn front(hosts: &[&str], options: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapple"));
    command.args(["sign", "--variant", "replicated", "--addr", "127.0.0.1:0", "--hosts", &hosts.join(",")]);
    command.args(options);
    Server::spawn(command)
}

/// The outcomes of tasks, by number.
#[derive(Debug, Default)]
struct Ends {
    signed: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    failed: BTreeMap<u64, String>,
}

/// A closed loop that keeps the client's number of tasks in flight.
struct Loop {
    stop: Arc<AtomicBool>,
    signed: Arc<AtomicUsize>,
    ends: JoinHandle<Ends>,
}

impl Loop {
    /// Sends tasks from this number on, each answered once and with the right digests.
    fn start(server: &Server, first: u64, in_flight: u64) -> Loop {
        let mut client = Client::connect(server);
        let (stop, signed) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (is_over, count) = (stop.clone(), signed.clone());
        let ends = std::thread::spawn(move || {
            let (mut ends, mut pending, mut next) = (Ends::default(), BTreeSet::new(), first);
            while !pending.is_empty() || !is_over.load(Ordering::SeqCst) {
                while (pending.len() as u64) < in_flight && !is_over.load(Ordering::SeqCst) {
                    client.send(next, &body(next));
                    assert!(pending.insert(next));
                    next += 1;
                }
                let answer = client.answer().expect("each task has an answer");
                let id = match answer {
                    Answer::Signed { id, first, second, .. } => {
                        assert_eq!((first, second), (digest("one", &body(id)), digest("two", &body(id))));
                        ends.signed.insert(id);
                        count.fetch_add(1, Ordering::SeqCst);
                        id
                    }
                    Answer::Refused { id, retry_after_ms, .. } => {
                        ends.refused.insert(id);
                        std::thread::sleep(Duration::from_millis(u64::from(retry_after_ms.min(20))));
                        id
                    }
                    Answer::Failed { id, code: 3, text } => {
                        assert!(text.contains("may have run") || text.contains("cannot be read"), "{text}");
                        ends.failed.insert(id, text);
                        id
                    }
                    other => panic!("{other:?}"),
                };
                assert!(pending.remove(&id), "task {id} was answered twice, or not sent");
            }
            ends
        });
        Loop { stop, signed, ends }
    }

    fn signed(&self) -> usize {
        self.signed.load(Ordering::SeqCst)
    }

    fn end(self) -> Ends {
        self.stop.store(true, Ordering::SeqCst);
        self.ends.join().unwrap()
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE * 2, "{what}: that does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn records(folder: &TempDir) -> u64 {
    std::fs::metadata(folder.path().join("log")).map_or(0, |log| log.len() / 128)
}

#[test]
fn a_host_is_killed_and_comes_back_and_the_client_knows_the_outcome_of_each_task() {
    let folders: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let options: [&[&str]; 2] = [&["--sign-sync"], &[]];
    let mut hosts: Vec<StageHost> =
        folders.iter().zip(options).map(|(folder, options)| host_at("127.0.0.1:0", folder.path(), options)).collect();
    let addresses: Vec<String> = hosts.iter().map(|host| host.address.clone()).collect();
    let server = front(&[&addresses[0], &addresses[1]], &[]);
    let (one, other) = (Loop::start(&server, 0, 8), Loop::start(&server, 1 << 32, 8));
    for round in 0..4 {
        let victim = round % 2;
        let before = records(&folders[victim]);
        until("the host signs", || records(&folders[victim]) > before + 20);
        hosts[victim].child.kill().unwrap();
        hosts[victim].child.wait().unwrap();
        let killed = one.signed() + other.signed();
        until("the other host goes on", || one.signed() + other.signed() > killed + 40);
        let left = records(&folders[victim]);
        hosts[victim] = host_at(&addresses[victim], folders[victim].path(), options[victim]);
        until("it is back", || records(&folders[victim]) > left + 20);
    }
    let ends = [one.end(), other.end()];
    let mut logged = BTreeMap::new();
    for (id, first) in folders.iter().flat_map(|folder| log(folder.path())) {
        assert_eq!(first, digest("one", &body(id)));
        assert_eq!(logged.insert(id, first), None, "task {id} was signed twice");
    }
    for ends in &ends {
        assert!(ends.signed.iter().all(|id| logged.contains_key(id)), "answered tasks are in a log");
        assert!(!ends.refused.iter().any(|id| logged.contains_key(id)), "refused tasks are in no log");
        // The tasks of the killed hosts: at most four times eight.
        assert!(ends.failed.len() <= 4 * 8, "{:?}", ends.failed);
    }
    let answered = |id: &u64| ends.iter().any(|ends| ends.signed.contains(id) || ends.failed.contains_key(id));
    assert!(logged.keys().all(answered), "tasks in a log were answered, or reported as uncertain");
}

#[test]
fn a_host_with_a_full_log_leaves_its_tasks_to_others_and_without_others_they_are_refused() {
    let folders: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let full = host_at("127.0.0.1:0", folders[0].path(), &["--sign-log-max-mb", "0"]);
    let other = host_at("127.0.0.1:0", folders[1].path(), &[]);
    let alone = front(&[&full.address], &[]);
    let mut client = Client::connect(&alone);
    client.send(7, b"a task");
    let answer = client.answer();
    assert!(matches!(answer, Some(Answer::Refused { id: 7, reason: 4, .. })), "{answer:?}");

    let server = front(&[&full.address, &other.address], &[]);
    let tasks = Loop::start(&server, 0, 4);
    until("tasks are signed", || tasks.signed() > 100);
    let ends = tasks.end();
    assert!(ends.failed.is_empty(), "{:?}", ends.failed);
    assert_eq!(log(folders[0].path()), []);
    assert_eq!(log(folders[1].path()).len(), ends.signed.len());
}

#[test]
fn without_hosts_tasks_are_refused_and_a_new_host_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_at("127.0.0.1:0", folder.path(), &[]);
    let address = host.address.clone();
    drop(host);
    let server = front(&[&format!("http://{address}")], &[]);
    let mut client = Client::connect(&server);
    client.send(1, b"a task");
    let answer = client.answer();
    assert!(matches!(answer, Some(Answer::Refused { id: 1, reason: 4, .. })), "{answer:?}");
    let _host = host_at(&address, folder.path(), &[]);
    let mut id = 1;
    until("the host is found", || {
        id += 1;
        client.send(id, b"a task");
        matches!(client.answer(), Some(Answer::Signed { .. }))
    });
    assert_eq!(log(folder.path()).len(), 1);
}

#[test]
fn a_new_version_of_a_host_takes_the_log_over_and_no_task_is_refused_or_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = host_at("127.0.0.1:0", folder.path(), &["--take-over", "--replicas", "2"]);
    let address = host.address.clone();
    let server = front(&[&address], &[]);
    let tasks = Loop::start(&server, 0, 8);
    for _ in 0..3 {
        let before = tasks.signed();
        until("tasks are signed", || tasks.signed() > before + 50);
        let next = host_at(&address, folder.path(), &["--take-over", "--replicas", "2"]);
        assert!(host.wait().success());
        host = next;
    }
    let before = tasks.signed();
    until("tasks are signed", || tasks.signed() > before + 50);
    let ends = tasks.end();
    assert!(ends.refused.is_empty() && ends.failed.is_empty(), "{ends:?}");
    assert_eq!(log(folder.path()).into_iter().map(|(id, _)| id).collect::<BTreeSet<_>>(), ends.signed);
}

#[test]
fn at_the_signal_to_stop_a_front_answers_its_accepted_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_at("127.0.0.1:0", folder.path(), &["--sign-sync"]);
    let mut server = front(&[&host.address], &[]);
    let mut client = Client::connect(&server);
    (0..100).for_each(|id| client.send(id, &body(id)));
    assert!(matches!(client.answer(), Some(Answer::Signed { .. })));
    server.terminate();
    let mut signed = 1;
    while let Some(answer) = client.answer() {
        match answer {
            Answer::Signed { id, second, .. } => {
                assert_eq!(second, digest("two", &body(id)));
                signed += 1;
            }
            Answer::Refused { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(server.wait().success());
    assert_eq!(log(folder.path()).len(), signed);
}

/// The type as another program would declare it.
#[derive(serde::Serialize)]
struct Task {
    id: u64,
    body: Vec<u8>,
}

#[derive(serde::Deserialize)]
struct Signed {
    sequence: u64,
    first: [u8; 16],
    second: [u8; 16],
}

#[test]
fn the_stage_can_be_called_without_a_front_too() {
    let folder = tempfile::tempdir().unwrap();
    let host = host_at("127.0.0.1:0", folder.path(), &[]);
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let mut sign: RemoteStage<Task, Signed> = Peer::new(host.address.as_str()).unwrap().stage("sign");
        for id in 1..=3 {
            let signed = sign.send(Task { id, body: body(id) }).await.unwrap();
            assert_eq!(signed.sequence, id);
            assert_eq!((signed.first, signed.second), (digest("one", &body(id)), digest("two", &body(id))));
        }
    });
    assert_eq!(log(folder.path()).len(), 3);
    // A log has one writer.
    let path = folder.path().join("log");
    let output = crate::stage_host::command().arg("--sign-log").arg(path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("another process writes to the log"), "{said}");
}
