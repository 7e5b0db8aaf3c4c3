//! Two-phase commit: nodes with their threads and couriers, and logs in memory. Time does not pass, so nothing is sent twice;
//! what a bad network and crashes do is the simulation's affair.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_stage::operators::commit::{
    CommitError, Coordinator, NodeId, Participant, Record, Resource, Settings, Storage, TransactionId, WriteError,
};
use shuttle::future::block_on;
use shuttle::thread;

use super::check;

/// A log of which only what was synced is left after a crash.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<(Vec<Record>, usize)>>);

impl Memory {
    fn after_a_crash(&self) -> Vec<Record> {
        let log = self.0.lock().unwrap();
        log.0[..log.1].to_vec()
    }
}

impl Storage for Memory {
    fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        self.0.lock().unwrap().0.push(record.clone());
        thread::yield_now();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut log = self.0.lock().unwrap();
        log.1 = log.0.len();
        Ok(())
    }

    fn is_long(&self) -> bool {
        true
    }

    fn replace(&mut self, records: &[Record]) -> io::Result<()> {
        *self.0.lock().unwrap() = (records.to_vec(), records.len());
        Ok(())
    }
}

/// What is applied; it refuses what begins with `!`.
#[derive(Clone, Default)]
struct Applied(Arc<Mutex<Vec<(TransactionId, Vec<u8>)>>>);

impl Resource for Applied {
    fn prepare(&mut self, _id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        if message.starts_with(b"!") { Err("no".into()) } else { Ok(()) }
    }

    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        let mut applied = self.0.lock().unwrap();
        if !applied.iter().any(|(other, _)| *other == id) {
            applied.push((id, message.to_vec()));
        }
        Ok(())
    }

    fn abort(&mut self, _id: TransactionId, _message: &Arc<[u8]>) {}
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    let never = Duration::from_secs(1 << 30);
    (settings.vote_timeout, settings.resend_first) = (never, never);
    (settings.resend_max, settings.doubt_after) = (never, never);
    settings
}

struct Cluster {
    coordinator: Coordinator,
    participants: Vec<(Participant, Applied)>,
    couriers: Vec<thread::JoinHandle<()>>,
}

fn cluster(logs: &[Memory; 3], applied: &[Applied; 2]) -> Cluster {
    let mut couriers = Vec::new();
    let log = logs[0].clone();
    let (coordinator, courier) = Coordinator::start(NodeId(0), settings(), log, &logs[0].after_a_crash()).unwrap();
    couriers.push(courier);
    let participants: Vec<_> = [0, 1]
        .into_iter()
        .map(|at| {
            let (id, log, applied) = (NodeId(at as u64 + 1), &logs[at + 1], applied[at].clone());
            let records = log.after_a_crash();
            let (participant, courier) =
                Participant::start(id, settings(), log.clone(), &records, applied.clone()).unwrap();
            couriers.push(courier);
            participant.connect(NodeId(0), coordinator.inlet());
            coordinator.connect(id, participant.inlet());
            (participant, applied)
        })
        .collect();
    participants[0].0.connect(NodeId(2), participants[1].0.inlet());
    participants[1].0.connect(NodeId(1), participants[0].0.inlet());
    let couriers = couriers.into_iter().map(|courier| thread::spawn(move || block_on(courier))).collect();
    Cluster { coordinator, participants, couriers }
}

// Meant to catch: an input that does not wake the node's thread, and a packet that does not wake the courier (deadlock); a decision
// that is sent before it is synced is caught by the second model.
#[test]
fn callers_on_threads_learn_how_it_ended() {
    check(4_000, || {
        let (logs, applied) = (<[Memory; 3]>::default(), <[Applied; 2]>::default());
        let cluster = cluster(&logs, &applied);
        let callers = [&b"yes"[..], b"!no"].map(|message| {
            let coordinator = cluster.coordinator.clone();
            thread::spawn(move || block_on(coordinator.commit([NodeId(1), NodeId(2)], message)))
        });
        let [yes, no] = callers.map(|caller| caller.join().unwrap());
        assert!(matches!(no, Err(CommitError::Aborted { .. })), "{no:?}");
        let id = yes.unwrap();
        while block_on(cluster.coordinator.unfinished()).unwrap().0 > 0 {
            thread::yield_now();
        }
        for (_, applied) in &cluster.participants {
            assert_eq!(*applied.0.lock().unwrap(), [(id, b"yes".to_vec())]);
        }
        drop((cluster.coordinator, cluster.participants));
        cluster.couriers.into_iter().for_each(|courier| courier.join().unwrap());
    });
}

// All stop at some point of a transaction and start again with what was synced.
//
// Meant to catch: a decision that is told before it is synced (one has it, and the caller was told so, and the other has not).
#[test]
fn after_all_have_stopped_and_started_all_agree() {
    check(4_000, || {
        let (logs, applied) = (<[Memory; 3]>::default(), <[Applied; 2]>::default());
        let first = cluster(&logs, &applied);
        let caller = {
            let coordinator = first.coordinator.clone();
            thread::spawn(move || {
                let mut commit = Box::pin(coordinator.commit([NodeId(1), NodeId(2)], &b"yes"[..]));
                for _ in 0..4 {
                    if let std::task::Poll::Ready(result) = super::poll_once(commit.as_mut()) {
                        return result.is_ok();
                    }
                    thread::yield_now();
                }
                false
            })
        };
        drop(first.participants);
        let was_told = caller.join().unwrap();
        drop(first.coordinator);
        first.couriers.into_iter().for_each(|courier| courier.join().unwrap());
        // What only asks and is told again needs no time: it is done at the start.
        let second = cluster(&logs, &applied);
        let is_settled = || {
            let nobody_doubts =
                second.participants.iter().all(|(participant, _)| block_on(participant.in_doubt()).unwrap().is_empty());
            nobody_doubts && block_on(second.coordinator.unfinished()).unwrap().0 == 0
        };
        while !is_settled() {
            thread::yield_now();
        }
        let [one, other] = applied.each_ref().map(|applied| applied.0.lock().unwrap().clone());
        assert_eq!(one, other);
        assert!(!was_told || one.len() == 1);
        drop((second.coordinator, second.participants));
        second.couriers.into_iter().for_each(|courier| courier.join().unwrap());
    });
}
