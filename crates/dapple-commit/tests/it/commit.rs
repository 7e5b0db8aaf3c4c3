//! Two-phase commit in one process: the results for callers when a part is full, silent or stopped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use dapple_commit::{
    CommitError, Coordinator, Courier, NodeId, Packet, Participant, Resource, Settings, TransactionId, deliver,
};
use dapple_sched::block_on;
use dapple_tower::BoxError;
use tower::service_fn;

use crate::bombs::panic_twice;

/// Longer than anything should take on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

fn run(courier: Courier) {
    thread::spawn(move || block_on(courier));
}

type Applied = Receiver<(TransactionId, Vec<u8>)>;

fn participant(
    folder: &std::path::Path,
    id: u64,
    settings: Settings,
    coordinator: &Coordinator,
) -> (Participant, Applied) {
    let (tx, rx) = channel();
    let resource =
        deliver(move |id, message: &[u8]| tx.send((id, message.to_vec())).map_err(|error| error.to_string()));
    let (participant, courier) =
        Participant::open(NodeId(id), folder.join(id.to_string()), settings, resource).unwrap();
    run(courier);
    participant.connect(coordinator.id(), coordinator.inlet());
    coordinator.connect(NodeId(id), participant.inlet());
    (participant, rx)
}

#[test]
fn a_full_log_aborts_with_its_reason_and_keeps_what_was_promised() {
    let folder = tempfile::tempdir().unwrap();
    let (coordinator, courier) = Coordinator::open(NodeId(1), folder.path().join("1"), Settings::default()).unwrap();
    run(courier);
    let mut small = Settings::default();
    small.log_len_max = 4096;
    let (_full, full) = participant(folder.path(), 2, small, &coordinator);
    let (_other, other) = participant(folder.path(), 3, Settings::default(), &coordinator);
    let mut committed = Vec::new();
    let reason = loop {
        match block_on(coordinator.commit([NodeId(2), NodeId(3)], [7; 500])) {
            Ok(id) => committed.push(id),
            Err(CommitError::Aborted { reason, .. }) => break reason,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(reason.contains("node 2 refused") && reason.contains("4096 bytes"), "{reason}");
    assert!(!committed.is_empty());
    for applied in [full, other] {
        let ids: Vec<_> = committed.iter().map(|_| applied.recv_timeout(LONG).unwrap().0).collect();
        assert_eq!(ids, committed);
        assert!(applied.try_recv().is_err(), "an aborted transaction is applied nowhere");
    }
}

#[test]
fn a_silent_participant_aborts_for_all_and_gets_later_messages() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_millis(300);
    let (coordinator, courier) = Coordinator::open(NodeId(1), folder.path().join("1"), settings).unwrap();
    run(courier);
    let (_here, here) = participant(folder.path(), 2, Settings::default(), &coordinator);
    let error = block_on(coordinator.commit([NodeId(2), NodeId(3)], *b"first")).unwrap_err();
    assert!(error.to_string().contains("no vote in time from node 3"), "{error}");
    let (_late, late) = participant(folder.path(), 3, Settings::default(), &coordinator);
    let id = loop {
        // The machine may be too loaded for a vote in time.
        if let Ok(id) = block_on(coordinator.commit([NodeId(2), NodeId(3)], *b"second")) {
            break id;
        }
    };
    for applied in [here, late] {
        assert_eq!(applied.recv_timeout(LONG).unwrap(), (id, b"second".to_vec()));
    }
    let alone = block_on(coordinator.commit([], *b"nobody")).unwrap_err();
    assert!(matches!(alone, CommitError::NotBegun(_)), "{alone}");
}

#[test]
fn a_node_that_is_dropped_can_be_opened_again_and_not_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1");
    let (coordinator, courier) = Coordinator::open(NodeId(1), &path, Settings::default()).unwrap();
    run(courier);
    let error = Coordinator::open(NodeId(1), &path, Settings::default()).unwrap_err();
    assert!(error.to_string().contains("has this log open"), "{error}");
    let (participant_handle, applied) = participant(folder.path(), 2, Settings::default(), &coordinator);
    let first = block_on(coordinator.commit([NodeId(2)], *b"first")).unwrap();
    drop((coordinator, participant_handle));
    let (coordinator, courier) = Coordinator::open(NodeId(1), &path, Settings::default()).unwrap();
    run(courier);
    let (_again, again) = participant(folder.path(), 2, Settings::default(), &coordinator);
    let second = block_on(coordinator.commit([NodeId(2)], *b"second")).unwrap();
    assert!(second > first, "no name is given twice");
    let all: Vec<_> = applied.try_iter().collect();
    let then = again.recv_timeout(LONG).unwrap();
    assert!(all.contains(&(first, b"first".to_vec())) || then == (first, b"first".to_vec()));
}

/// Panics when it is asked.
struct Panics;

impl Resource for Panics {
    fn prepare(&mut self, _id: TransactionId, _message: &Arc<[u8]>) -> Result<(), String> {
        panic!("on purpose");
    }

    fn commit(&mut self, _id: TransactionId, _message: &Arc<[u8]>) -> Result<(), String> {
        unreachable!("it has never said yes");
    }

    fn abort(&mut self, _id: TransactionId, _message: &Arc<[u8]>) {}
}

#[test]
fn a_resource_that_panics_stops_its_node_which_reports_it_and_leaves_no_caller_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_millis(300);
    let (coordinator, courier) = Coordinator::open(NodeId(1), folder.path().join("1"), settings).unwrap();
    run(courier);
    let path = folder.path().join("2");
    let (panics, courier) = Participant::open(NodeId(2), &path, Settings::default(), Panics).unwrap();
    let courier = thread::spawn(move || block_on(courier));
    coordinator.connect(NodeId(2), panics.inlet());
    let error = block_on(coordinator.commit([NodeId(2)], *b"message")).unwrap_err();
    assert!(matches!(error, CommitError::Aborted { .. }), "{error}");
    // The machine may have been too loaded for the message to arrive in time.
    while panics.error().is_none() {
        let _aborted = block_on(coordinator.commit([NodeId(2)], *b"message"));
    }
    let error = block_on(panics.in_doubt()).unwrap_err();
    assert!(panics.error().unwrap().to_string().contains("resource panicked"), "{error}");
    courier.join().unwrap();
    drop(panics);
    let (again, _courier) = Participant::open(NodeId(2), &path, Settings::default(), deliver(|_, _| Ok(()))).unwrap();
    assert_eq!(block_on(again.in_doubt()).unwrap(), []);
}

#[test]
fn a_node_with_a_service_that_panics_does_not_affect_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_millis(300);
    let (coordinator, courier) = Coordinator::open(NodeId(1), folder.path().join("1"), settings).unwrap();
    run(courier);
    let (_good, good) = participant(folder.path(), 2, Settings::default(), &coordinator);
    let panics = |_: Packet| -> std::future::Ready<Result<(), BoxError>> { panic_twice() };
    coordinator.connect(NodeId(3), service_fn(panics));
    assert!(block_on(coordinator.commit([NodeId(2), NodeId(3)], *b"both")).is_err());
    // The machine may be too loaded for a vote in time.
    let mut tries = (0..50).map(|_| block_on(coordinator.commit([NodeId(2)], *b"one")));
    let id = tries.find_map(Result::ok).expect("nothing is sent any more");
    assert_eq!(good.recv_timeout(LONG).unwrap(), (id, b"one".to_vec()));
}
