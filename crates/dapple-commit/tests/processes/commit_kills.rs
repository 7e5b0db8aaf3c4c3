//! Two-phase commit among real processes, two coordinators and three participants, which are killed
//! at random 200 times during transactions. In the end all agree on each of them, and none is
//! half-applied.
//!
//! The processes are this test binary again, with a role in their environment; they communicate
//! through TCP, and lose some of their messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::future::{Ready, ready};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use dapple_commit::{
    CommitError, Coordinator, Courier, Inlet, NodeId, Packet, Participant, Resource, Settings, TransactionId,
};
use dapple_sched::block_on;
use tower_service::Service;

use crate::children::{LONG, Process, Random, end_with_parent, wait_until};

const COORDINATORS: [u64; 2] = [1, 2];
const PARTICIPANTS: [u64; 3] = [11, 12, 13];
const KILLS: usize = 200;

#[test]
fn nothing_is_half_applied_by_processes_that_are_killed_200_times() {
    let folder = tempfile::tempdir().unwrap();
    let all = || COORDINATORS.iter().chain(&PARTICIPANTS).copied();
    let mut running: BTreeMap<u64, Process> = all().map(|id| (id, start(folder.path(), id))).collect();
    let mut random = Random::seeded();
    for _ in 0..KILLS {
        thread::sleep(Duration::from_millis(20 + random.below(100)));
        let ids: Vec<_> = all().collect();
        let id = ids[random.below(ids.len() as u64) as usize];
        running.remove(&id);
        if random.below(4) == 0 {
            thread::sleep(Duration::from_millis(random.below(300)));
        }
        running.insert(id, start(folder.path(), id));
    }
    File::create(folder.path().join("stop")).unwrap();
    // First the coordinators, until they have nothing more to send; then no participant can become
    // in doubt again.
    for id in all() {
        wait_until(|| folder.path().join(format!("settled-{id}")).exists(), || format!("node {id} is not settled"));
    }
    drop(running);
    check(folder.path());
}

fn check(folder: &Path) {
    let applied: BTreeMap<u64, BTreeMap<String, String>> = PARTICIPANTS
        .iter()
        .map(|id| {
            let text = fs::read_to_string(folder.join(format!("applied-{id}"))).unwrap();
            let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
            let map: BTreeMap<_, _> = lines.iter().map(|(id, takers)| (id.to_string(), takers.to_string())).collect();
            assert_eq!(map.len(), lines.len(), "node {id} has applied something twice");
            (*id, map)
        })
        .collect();
    let mut committed = BTreeSet::new();
    for (node, map) in &applied {
        for (id, takers) in map {
            committed.insert(id.clone());
            let takers: Vec<u64> = takers.split(',').map(|id| id.parse().unwrap()).collect();
            assert!(takers.contains(node));
            for taker in takers {
                assert!(applied[&taker].contains_key(id), "{id} is applied at {node} and not at {taker}");
            }
        }
    }
    let (mut yes, mut no) = (0, 0);
    for id in COORDINATORS {
        for line in fs::read_to_string(folder.join(format!("told-{id}"))).unwrap().lines() {
            let (id, told) = line.split_once(' ').unwrap();
            match told {
                "committed" => yes += 1,
                _ => no += 1,
            }
            assert_eq!(committed.contains(id), told == "committed", "the caller of {id} was told that it is {told}");
        }
    }
    println!("{} committed, of which {yes} were told, {no} aborted and told", committed.len());
    assert!(yes > 50 && no > 10, "too little happened: {yes} committed, {no} aborted");
}

/// A node as a process.
fn start(folder: &Path, id: u64) -> Process {
    let id = id.to_string();
    let environment = [("DAPPLE_COMMIT_NODE", id.as_ref()), ("DAPPLE_COMMIT_FOLDER", folder.as_os_str())];
    Process::start("commit_kills::node", environment)
}

/// Does nothing as a test; the processes run it.
#[test]
fn node() {
    let Ok(id) = std::env::var("DAPPLE_COMMIT_NODE") else { return };
    let id: u64 = id.parse().unwrap();
    let folder = PathBuf::from(std::env::var("DAPPLE_COMMIT_FOLDER").unwrap());
    end_with_parent();
    if COORDINATORS.contains(&id) { coordinate(id, &folder) } else { participate(id, &folder) }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_millis(400);
    settings.resend_first = Duration::from_millis(20);
    settings.resend_max = Duration::from_millis(200);
    settings.doubt_after = Duration::from_millis(60);
    settings
}

fn run(courier: Courier) {
    thread::spawn(move || block_on(courier));
}

fn coordinate(id: u64, folder: &Path) {
    let (coordinator, courier) = Coordinator::open(NodeId(id), folder.join(format!("log-{id}")), settings()).unwrap();
    PARTICIPANTS.iter().for_each(|other| coordinator.connect(NodeId(*other), Peer::new(folder, *other)));
    run(courier);
    listen(folder, id, coordinator.inlet());
    let callers = [1, 2, 3].map(|caller| {
        let (coordinator, folder) = (coordinator.clone(), folder.to_owned());
        thread::spawn(move || {
            let mut random = Random(u64::from(std::process::id()) * 10 + caller);
            let mut told =
                OpenOptions::new().append(true).create(true).open(folder.join(format!("told-{id}"))).unwrap();
            while !folder.join("stop").exists() {
                let mut takers: Vec<u64> = PARTICIPANTS.into_iter().filter(|_| random.below(4) > 0).collect();
                if takers.is_empty() {
                    takers = PARTICIPANTS.to_vec();
                }
                let text = takers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
                let line = match block_on(coordinator.commit(takers.into_iter().map(NodeId), text.into_bytes())) {
                    Ok(id) => format!("{id} committed\n"),
                    Err(CommitError::Aborted { id, .. }) => format!("{id} aborted\n"),
                    Err(error) => panic!("{error}"),
                };
                told.write_all(line.as_bytes()).unwrap();
            }
        })
    });
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    wait_until(|| block_on(coordinator.unfinished()).unwrap().0 == 0, || "a coordinator waits for ever".into());
    File::create(folder.join(format!("settled-{id}"))).unwrap();
    thread::sleep(LONG);
}

fn participate(id: u64, folder: &Path) {
    let resource = Lines::open(&folder.join(format!("applied-{id}")));
    let path = folder.join(format!("log-{id}"));
    let (participant, courier) = Participant::open(NodeId(id), path, settings(), resource).unwrap();
    for other in COORDINATORS.into_iter().chain(PARTICIPANTS).filter(|other| *other != id) {
        participant.connect(NodeId(other), Peer::new(folder, other));
    }
    run(courier);
    listen(folder, id, participant.inlet());
    let coordinators_settled = || COORDINATORS.iter().all(|id| folder.join(format!("settled-{id}")).exists());
    wait_until_forever(|| coordinators_settled() && block_on(participant.in_doubt()).unwrap().is_empty());
    File::create(folder.join(format!("settled-{id}"))).unwrap();
    thread::sleep(LONG);
}

fn wait_until_forever(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// A file with one line for each applied transaction.
struct Lines {
    file: File,
    applied: BTreeSet<String>,
    held: BTreeSet<TransactionId>,
    random: Random,
}

impl Lines {
    fn open(path: &Path) -> Lines {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).unwrap();
        let applied = text[..whole].lines().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
        Lines { file, applied, held: BTreeSet::new(), random: Random(std::process::id().into()) }
    }
}

impl Resource for Lines {
    fn prepare(&mut self, id: TransactionId, _message: &Arc<[u8]>) -> Result<(), String> {
        if self.random.below(20) == 0 {
            return Err("not today".into());
        }
        assert!(self.held.insert(id), "{id} is prepared twice");
        Ok(())
    }

    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        self.held.remove(&id);
        if self.applied.insert(id.to_string()) {
            let line = format!("{id} {}\n", std::str::from_utf8(message).unwrap());
            self.file.write_all(line.as_bytes()).unwrap();
        }
        Ok(())
    }

    fn abort(&mut self, id: TransactionId, _message: &Arc<[u8]>) {
        assert!(self.held.remove(&id), "{id} was not prepared");
        assert!(!self.applied.contains(&id.to_string()), "{id} is applied, and aborted now");
    }

    fn recovered(&mut self, in_doubt: &[(TransactionId, Arc<[u8]>)]) {
        self.held = in_doubt.iter().map(|(id, _)| *id).collect();
    }
}

/// Sends packets to a node through a thread, to the node's current address.
#[derive(Clone)]
struct Peer(SyncSender<Packet>);

impl Peer {
    fn new(folder: &Path, id: u64) -> Peer {
        let (tx, rx) = sync_channel(1000);
        let place = folder.join(format!("port-{id}"));
        thread::spawn(move || Peer::run(&place, &rx));
        Peer(tx)
    }

    fn run(place: &Path, packets: &Receiver<Packet>) {
        let mut stream: Option<TcpStream> = None;
        let mut random = Random(std::process::id().into());
        while let Ok(packet) = packets.recv() {
            if random.below(50) == 0 {
                continue;
            }
            let bytes = packet.to_bytes();
            let mut frame = u32::try_from(bytes.len()).unwrap().to_le_bytes().to_vec();
            frame.extend(bytes);
            // Packets for a dead node are lost, perhaps including the first one after its return.
            let open = stream.take().or_else(|| {
                let port: u16 = fs::read_to_string(place).ok()?.parse().ok()?;
                let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
                stream.set_nodelay(true).ok()?;
                Some(stream)
            });
            stream = open.and_then(|mut open| open.write_all(&frame).is_ok().then_some(open));
        }
    }
}

impl Service<Packet> for Peer {
    type Response = ();
    type Error = io::Error;
    type Future = Ready<io::Result<()>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, packet: Packet) -> Self::Future {
        ready(self.0.try_send(packet).map_err(io::Error::other))
    }
}

/// Takes packets for a node, and publishes the address.
fn listen(folder: &Path, id: u64, node: Inlet) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let new = folder.join(format!("port-{id}.new"));
    fs::write(&new, port.to_string()).unwrap();
    fs::rename(&new, folder.join(format!("port-{id}"))).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut node = node.clone();
            thread::spawn(move || {
                let mut len = [0; 4];
                while stream.read_exact(&mut len).is_ok() {
                    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
                    if stream.read_exact(&mut bytes).is_err() {
                        break;
                    }
                    if let Some(packet) = Packet::from_bytes(&bytes) {
                        let _taken = node.call(packet);
                    }
                }
            });
        }
    });
}
