//! Two-phase commit: nodes with their threads and couriers, and logs in memory. Time does not pass,
//! so nothing is sent twice; the simulation covers bad networks and crashes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use dapple_commit::{
    CommitError, Coordinator, NodeId, Participant, Record, Resource, Settings, Storage, TransactionId, WriteError,
};
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::check;

/// The power supply of all machines.
#[derive(Clone, Default)]
struct Power {
    has_failed: Arc<AtomicBool>,
}

impl Power {
    fn check(&self) -> io::Result<()> {
        if self.has_failed.load(Ordering::SeqCst) { Err(io::Error::other("no power")) } else { Ok(()) }
    }
}

/// A log that loses its unsynced part in a crash.
#[derive(Clone, Default)]
struct Memory {
    log: Arc<Mutex<(Vec<Record>, usize)>>,
    power: Power,
    /// Whether the log is compacted all the time; then every remembered record is synced.
    is_long: bool,
}

impl Memory {
    fn after_a_crash(&self) -> Vec<Record> {
        let (records, synced) = &mut *self.log.lock().unwrap();
        records.truncate(*synced);
        records.clone()
    }
}

impl Storage for Memory {
    fn append(&mut self, record: &Record) -> Result<(), WriteError> {
        self.power.check().map_err(WriteError::Broken)?;
        self.log.lock().unwrap().0.push(record.clone());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.power.check()?;
        let (records, synced) = &mut *self.log.lock().unwrap();
        *synced = records.len();
        Ok(())
    }

    fn is_long(&self) -> bool {
        self.is_long
    }

    fn replace(&mut self, records: &[Record]) -> Result<(), WriteError> {
        self.power.check().map_err(WriteError::Broken)?;
        *self.log.lock().unwrap() = (records.to_vec(), records.len());
        Ok(())
    }
}

/// The logs of the coordinator and of both participants.
fn logs(power: &Power, is_long: bool) -> [Memory; 3] {
    [(); 3].map(|()| Memory { power: power.clone(), is_long, ..Memory::default() })
}

/// Applied messages; it refuses those that begin with `!`.
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

// Meant to catch: an input that does not wake the node's thread, and a packet that does not wake
// the courier (deadlock).
#[test]
fn callers_on_threads_learn_how_it_ended() {
    check(4_000, || {
        let applied = <[Applied; 2]>::default();
        let cluster = cluster(&logs(&Power::default(), true), &applied);
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

/// The end of a commit: `None` if it is unknown after the caller has checked this often.
async fn told(commit: impl Future<Output = Result<TransactionId, CommitError>>, mut looks: usize) -> Option<bool> {
    let mut commit = pin!(commit);
    let ended = poll_fn(|cx| match commit.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if looks == 0 => Poll::Ready(None),
        Poll::Pending => {
            looks -= 1;
            cx.waker().wake_by_ref();
            thread::yield_now();
            Poll::Pending
        }
    });
    match ended.await? {
        Ok(_) => Some(true),
        Err(CommitError::Aborted { .. }) => Some(false),
        Err(_) => None,
    }
}

// The power fails at some point of a transaction, and unsynced records are lost; or all nodes are
// stopped.
//
// Meant to catch: a promise or decision that is sent before it is synced (one node or the caller
// knows it, and another does not).
#[test]
fn after_all_have_stopped_and_started_all_agree() {
    check(4_000, || {
        let (power, applied) = (Power::default(), <[Applied; 2]>::default());
        let logs = logs(&power, false);
        let first = cluster(&logs, &applied);
        let caller = {
            let coordinator = first.coordinator.clone();
            thread::spawn(move || block_on(told(coordinator.commit([NodeId(1), NodeId(2)], &b"yes"[..]), LOOKS)))
        };
        let fails = {
            let power = power.clone();
            thread::spawn(move || {
                for _ in 0..thread_rng().gen_range(0..2 * LOOKS) {
                    thread::yield_now();
                }
                power.has_failed.store(true, Ordering::SeqCst);
            })
        };
        let told = caller.join().unwrap();
        drop((first.coordinator, first.participants));
        fails.join().unwrap();
        first.couriers.into_iter().for_each(|courier| courier.join().unwrap());
        power.has_failed.store(false, Ordering::SeqCst);
        // Nodes that only ask and get answers need no time: they do it at the start.
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
        assert!(
            told.is_none_or(|committed| one.len() == usize::from(committed)),
            "told {told:?}, and {one:?} is applied"
        );
        drop((second.coordinator, second.participants));
        second.couriers.into_iter().for_each(|courier| courier.join().unwrap());
    });
}

/// How often a caller checks before it gives up: about as often as necessary.
const LOOKS: usize = 40;
