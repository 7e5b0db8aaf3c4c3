//! A log that is compacted while the process runs out of descriptors.

use std::fs::File;
use std::iter;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use dapple_commit::{Coordinator, NodeId, Participant, Settings, TransactionId, deliver};
use dapple_sched::block_on;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::children::{LONG, command};

/// In a process of its own: it lowers the limit on descriptors.
#[test]
fn a_log_never_goes_on_in_a_file_that_was_replaced() {
    if std::env::var_os("DAPPLE_COMMIT_SHORTAGE").is_some() {
        return in_child();
    }
    let test = "compaction::a_log_never_goes_on_in_a_file_that_was_replaced";
    let child = command(test).env("DAPPLE_COMMIT_SHORTAGE", "1").output().unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

fn in_child() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_secs(1);
    settings.log_short_len = 1000;
    let mut long = settings.clone();
    long.log_short_len = 1 << 20;
    let (coordinator, courier) = Coordinator::open(NodeId(1), folder.path().join("1"), long).unwrap();
    thread::spawn(move || block_on(courier));
    let open = || {
        let (tx, applied) = channel::<TransactionId>();
        let resource = deliver(move |id, _: &[u8]| tx.send(id).map_err(|error| error.to_string()));
        let (participant, courier) =
            Participant::open(NodeId(2), folder.path().join("2"), settings.clone(), resource).unwrap();
        thread::spawn(move || block_on(courier));
        participant.connect(NodeId(1), coordinator.inlet());
        coordinator.connect(NodeId(2), participant.inlet());
        (participant, applied)
    };
    let mut others: Vec<_> = iter::repeat_with(|| File::open("/dev/null").unwrap()).take(4).collect();
    let (participant, before) = open();
    let commit = |len| block_on(coordinator.commit([NodeId(2)], vec![7; len]));
    // The machine may be too loaded for a vote in time.
    let first = iter::repeat_with(|| commit(10)).find_map(Result::ok).unwrap();

    // One number is left for descriptors, and the new log takes it: the folder cannot be opened, and not synced. The
    // old log had a number that is too high.
    let full = getrlimit(Resource::Nofile);
    let free = others.remove(0).as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free + 1), ..full }).unwrap();
    let mut told = vec![first];
    while participant.error().is_none() {
        told.extend(commit(200));
        assert!(told.len() < 20, "it goes on, in a file without a name");
    }
    setrlimit(Resource::Nofile, full).unwrap();
    let error = participant.error().unwrap().to_string();
    assert!(error.contains("/2: "), "{error}");

    // It has forgotten nothing.
    drop(participant);
    let (_participant, after) = open();
    told.push(iter::repeat_with(|| commit(10)).find_map(Result::ok).unwrap());
    let mut applied: Vec<_> = before.try_iter().collect();
    while !told.iter().all(|id| applied.contains(id)) {
        applied.push(after.recv_timeout(LONG).unwrap());
    }
}
