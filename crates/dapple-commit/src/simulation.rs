//! The two machines under all faults: packets that are lost, duplicated, delayed and reordered,
//! full disks, and crashes between any two actions of a node. Once at random, with many
//! transactions; once exhaustively, with one.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::coordinator::CoordinatorMachine;
use super::machine::{Machine, Output};
use super::participant::ParticipantMachine;
use super::record::Record;
use super::{NodeId, Outcome, Packet, Settings, TransactionId};

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

#[derive(Clone)]
enum Role {
    Coordinator(CoordinatorMachine),
    Participant(ParticipantMachine),
}

impl Role {
    fn machine(&mut self) -> &mut dyn Machine {
        match self {
            Role::Coordinator(machine) => machine,
            Role::Participant(machine) => machine,
        }
    }
}

/// The state that survives a crash.
#[derive(Clone, Default, Debug)]
struct Disk {
    log: Vec<Record>,
    synced_len: usize,
    /// The commits of the resource, for the check that none is repeated.
    applied: BTreeSet<TransactionId>,
}

#[derive(Clone)]
struct Node {
    id: NodeId,
    is_coordinator: bool,
    disk: Disk,
    /// `None` while it is down.
    role: Option<Role>,
    now: Duration,
    /// The state that the resource holds for promises.
    held: BTreeSet<TransactionId>,
    /// The transactions that the resource gave up after it last held them, in all its lives.
    undone: BTreeSet<TransactionId>,
}

impl Node {
    fn new(id: u64, is_coordinator: bool) -> Node {
        let mut node = Node {
            id: NodeId(id),
            is_coordinator,
            disk: Disk::default(),
            role: None,
            now: Duration::ZERO,
            held: BTreeSet::new(),
            undone: BTreeSet::new(),
        };
        node.start();
        node
    }

    fn start(&mut self) {
        let settings = Settings::default();
        self.role = Some(if self.is_coordinator {
            Role::Coordinator(CoordinatorMachine::recover(self.id, settings, &self.disk.log))
        } else {
            let machine = ParticipantMachine::recover(self.id, settings, &self.disk.log);
            self.held = machine.in_doubt().map(|(id, _)| id).collect();
            Role::Participant(machine)
        });
        self.now = Duration::ZERO;
        if self.is_coordinator {
            // `Coordinator::open` does not return before the epoch is on disk.
            let mut sends = Vec::new();
            while let Some(Output::Write { record, .. }) = self.role.as_mut().unwrap().machine().next_output() {
                sends.push(record);
            }
            self.disk.log.extend(sends);
            self.disk.synced_len = self.disk.log.len();
        }
    }

    fn crash(&mut self, kept: usize) {
        let kept = kept.clamp(self.disk.synced_len, self.disk.log.len());
        self.disk.log.truncate(kept);
        self.disk.synced_len = kept;
        self.role = None;
        self.held.clear();
    }

    fn participant(&self) -> Option<&ParticipantMachine> {
        match &self.role {
            Some(Role::Participant(machine)) => Some(machine),
            _ => None,
        }
    }

    fn next_output(&self) -> Option<Output> {
        self.role.clone()?.machine().next_output()
    }

    fn in_doubt(&self, id: TransactionId) -> bool {
        self.participant().is_some_and(|machine| machine.in_doubt().any(|(doubted, _)| doubted == id))
    }

    fn fingerprint(&self) -> String {
        let role = match &self.role {
            None => String::new(),
            Some(Role::Coordinator(machine)) => machine.fingerprint(),
            Some(Role::Participant(machine)) => machine.fingerprint(),
        };
        format!("{role}{:?}{:?}{:?}", self.disk, self.held, self.undone)
    }

    /// Performs the machine's next action; `full` says whether a write finds no room. Returns false
    /// if there is none.
    fn step(&mut self, full: bool, refuse: bool, sent: &mut Vec<Packet>, told: &mut Told) -> bool {
        let Some(role) = &mut self.role else { return false };
        let Some(output) = role.machine().next_output() else { return false };
        match output {
            Output::Send(packet) => sent.push(packet),
            Output::Write { record, sync } => {
                let outcome = if full && !record.has_room_kept() {
                    Err("the disk is full".into())
                } else {
                    self.disk.log.push(record.clone());
                    if sync {
                        self.disk.synced_len = self.disk.log.len();
                    }
                    Ok(())
                };
                role.machine().written(self.now, &record, outcome);
            }
            Output::Decided { id, refusal } => {
                let outcome = if refusal.is_none() { Outcome::Committed } else { Outcome::Aborted };
                assert_eq!(told.insert(id, outcome), None, "the caller gets one result");
            }
            other => self.resource(other, refuse),
        }
        true
    }

    fn resource(&mut self, output: Output, refuse: bool) {
        let Some(Role::Participant(machine)) = &mut self.role else { panic!("only participants have a resource") };
        match output {
            Output::Check { id, .. } => {
                if !refuse {
                    assert!(self.held.insert(id), "{id} is promised twice");
                    // If a transaction was given up before any promise left the node, another node
                    // may ask for it again after a crash.
                    self.undone.remove(&id);
                }
                machine.checked(self.now, id, if refuse { Err("no".into()) } else { Ok(()) });
            }
            Output::Apply { id, .. } => {
                // After a crash it is applied again, which a resource must recognize.
                self.held.remove(&id);
                self.disk.applied.insert(id);
                machine.applied(self.now, id, true);
            }
            Output::Undo { id, .. } => {
                assert!(self.held.remove(&id), "{id} is given up and was not held");
                self.undone.insert(id);
            }
            _ => unreachable!(),
        }
    }
}

type Told = BTreeMap<TransactionId, Outcome>;

/// At any point, nothing is half-applied, and no caller got a different result.
fn check(nodes: &[Node], told: &Told) {
    let applied: BTreeSet<_> = nodes.iter().flat_map(|node| &node.disk.applied).copied().collect();
    for id in &applied {
        assert_ne!(
            told.get(id),
            Some(&Outcome::Aborted),
            "{id} is applied, and its caller was told that it is aborted"
        );
        for node in nodes {
            assert!(!node.undone.contains(id), "{id} is applied, and {} has given it up", node.id);
        }
    }
    for node in nodes {
        assert_eq!(node.participant().map_or(0, ParticipantMachine::violations), 0, "{} was contradicted", node.id);
    }
}

/// A cluster under random faults.
struct World {
    random: Random,
    nodes: Vec<Node>,
    packets: VecDeque<Packet>,
    told: Told,
    /// The participants of each transaction.
    begun: BTreeMap<TransactionId, Vec<NodeId>>,
    /// Percentages: how often a packet is lost or duplicated, a disk is full, a resource refuses.
    faults: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let (coordinators, participants) = (1 + random.below(2), 2 + random.below(3));
        let nodes = (0..coordinators + participants).map(|n| Node::new(n as u64, n < coordinators)).collect();
        let faults = [0, 5, 30][random.below(3)];
        World { random, nodes, packets: VecDeque::new(), told: Told::new(), begun: BTreeMap::new(), faults }
    }

    fn begin(&mut self) {
        let coordinators = self.nodes.iter().filter(|node| node.is_coordinator).count();
        let who = self.random.below(coordinators);
        let others = coordinators..self.nodes.len();
        let mut participants: Vec<_> =
            others.clone().filter(|_| self.random.percent(70)).map(|n| NodeId(n as u64)).collect();
        if participants.is_empty() {
            participants.push(NodeId(others.start as u64));
        }
        let node = &mut self.nodes[who];
        if let Some(Role::Coordinator(machine)) = &mut node.role {
            let id = machine.begin(node.now, participants.clone(), Arc::from(&b"x"[..])).unwrap();
            assert_eq!(self.begun.insert(id, participants), None, "{id} is given twice");
        }
    }

    fn deliver(&mut self) {
        let Some(len) = self.packets.len().checked_sub(1) else { return };
        let at = self.random.below(len + 1);
        if self.random.percent(self.faults) {
            self.packets.remove(at);
            return;
        }
        let packet = if self.random.percent(self.faults / 2) {
            self.packets[at].clone()
        } else {
            self.packets.remove(at).unwrap()
        };
        let node = &mut self.nodes[packet.to.0 as usize];
        if let Some(role) = &mut node.role {
            role.machine().receive(node.now, packet);
        }
    }

    fn step_node(&mut self, at: usize) -> bool {
        let (full, refuse) = (self.random.percent(self.faults / 2), self.random.percent(self.faults / 3));
        let mut sent = Vec::new();
        let did = self.nodes[at].step(full, refuse, &mut sent, &mut self.told);
        self.packets.extend(sent);
        did
    }

    fn tick(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let Some(role) = &mut node.role else { return false };
        let Some(due) = role.machine().due() else { return false };
        node.now = node.now.max(due);
        role.machine().tick(node.now);
        true
    }

    fn crash_or_start(&mut self, at: usize) {
        if self.nodes[at].role.is_none() {
            self.nodes[at].start();
        } else {
            let kept = self.random.below(self.nodes[at].disk.log.len() + 1);
            self.nodes[at].crash(kept);
        }
    }

    /// Compacts the log, as a node does between two rounds.
    fn shorten(&mut self, at: usize) {
        while self.step_node(at) {}
        if let Some(role) = &mut self.nodes[at].role {
            self.nodes[at].disk.log = role.machine().snapshot();
            self.nodes[at].disk.synced_len = self.nodes[at].disk.log.len();
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            let at = self.random.below(self.nodes.len());
            match self.random.below(100) {
                0..4 => self.begin(),
                4..45 => self.deliver(),
                45..88 => drop(self.step_node(at)),
                88..96 => drop(self.tick(at)),
                96 => self.shorten(at),
                97 if self.random.percent(50) => self.crash_or_start(at),
                _ => {}
            }
            check(&self.nodes, &self.told);
        }
    }

    /// Ends the faults; nodes that are down and not selected by `dead` come back. Runs until
    /// nothing happens any more.
    fn settle(&mut self, dead: impl Fn(&Node) -> bool) {
        self.faults = 0;
        for at in 0..self.nodes.len() {
            if self.nodes[at].role.is_none() && !dead(&self.nodes[at]) {
                self.nodes[at].start();
            }
        }
        for _ in 0..40 {
            loop {
                let mut did = false;
                while !self.packets.is_empty() {
                    self.deliver();
                    did = true;
                }
                for at in 0..self.nodes.len() {
                    while self.step_node(at) {
                        did = true;
                    }
                }
                check(&self.nodes, &self.told);
                if !did {
                    break;
                }
            }
            for at in 0..self.nodes.len() {
                self.tick(at);
            }
        }
    }
}

fn seeds() -> u64 {
    let percent = std::env::var("DAPPLE_SIMULATION_PERCENT").map_or(100, |text| text.parse().expect("a number"));
    SEEDS * percent / 100
}

#[test]
fn nothing_is_half_applied_and_all_agree_in_the_end() {
    let (mut committed, mut aborted) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed);
        world.run(1200);
        world.settle(|_| false);
        for (id, participants) in &world.begun {
            let has: Vec<_> =
                participants.iter().map(|node| world.nodes[node.0 as usize].disk.applied.contains(id)).collect();
            assert!(has.iter().all(|one| *one == has[0]), "seed {seed}: {id} is half-applied");
            if let Some(told) = world.told.get(id) {
                assert_eq!(*told == Outcome::Committed, has[0], "seed {seed}: the caller of {id} was told {told:?}");
            }
            *if has[0] { &mut committed } else { &mut aborted } += 1;
        }
        for node in &world.nodes {
            assert_eq!(node.participant().map_or(0, |machine| machine.in_doubt().count()), 0, "seed {seed}: in doubt");
            assert!(node.held.is_empty(), "seed {seed}: {} holds {:?} for nothing", node.id, node.held);
            if let Some(Role::Coordinator(machine)) = &node.role {
                assert_eq!(machine.open_len(), 0, "seed {seed}: {} waits for ever", node.id);
            }
        }
    }
    assert!(
        committed > aborted / 10 && aborted > committed / 10,
        "{committed} committed, {aborted} aborted: not a test"
    );
}

#[test]
fn when_all_coordinators_are_dead_participants_in_doubt_learn_what_a_survivor_knows() {
    let (mut learned, mut blocked) = (0, 0);
    for seed in 0..seeds() {
        let mut world = World::new(seed);
        world.run(600);
        for at in 0..world.nodes.len() {
            if world.nodes[at].is_coordinator && world.nodes[at].role.is_some() {
                world.nodes[at].crash(0);
            }
        }
        let doubted =
            |world: &World| world.begun.keys().filter(|id| world.nodes.iter().any(|node| node.in_doubt(**id))).count();
        world.packets.clear();
        let before = doubted(&world);
        world.settle(|node| node.is_coordinator);
        for (id, participants) in &world.begun {
            let in_doubt: Vec<_> = participants.iter().map(|node| world.nodes[node.0 as usize].in_doubt(*id)).collect();
            // A participant that is not in doubt has voted no, has not voted, or knows the
            // decision; in each of these cases its answer settles the transaction.
            assert!(in_doubt.iter().all(|one| *one == in_doubt[0]), "seed {seed}: {id} is in doubt at some only");
            blocked += usize::from(in_doubt[0]);
        }
        learned += before.saturating_sub(doubted(&world));
    }
    assert!(learned > 0 && blocked > 0, "{learned} learned, {blocked} blocked: not a test");
}

/// One transaction, and every order of everything, with a number of crashes. Sent packets are kept
/// for ever and delivered at any time or never: so they are lost, duplicated and delayed in every
/// way.
struct Explorer {
    seen: HashSet<u64>,
    open: Vec<Scene>,
}

#[derive(Clone)]
struct Scene {
    nodes: Vec<Node>,
    sent: BTreeSet<Vec<u8>>,
    told: Told,
    crashes: usize,
    /// How often a disk may be full, or a resource may refuse.
    refusals: usize,
}

impl Scene {
    fn new(participants: u64, crashes: usize, refusals: usize) -> Scene {
        let mut nodes: Vec<_> = (0..=participants).map(|id| Node::new(id, id == 0)).collect();
        let Some(Role::Coordinator(machine)) = &mut nodes[0].role else { unreachable!() };
        machine.begin(Duration::ZERO, (1..=participants).map(NodeId), Arc::from(&b"x"[..])).unwrap();
        let mut scene = Scene { nodes, sent: BTreeSet::new(), told: Told::new(), crashes, refusals };
        scene.flush();
        scene
    }

    /// Runs each node until its next action is not a send: a packet that is sent and never
    /// delivered is the same as one that was not sent because of a crash.
    fn flush(&mut self) {
        for node in &mut self.nodes {
            while matches!(node.next_output(), Some(Output::Send(_) | Output::Decided { .. })) {
                let mut sent = Vec::new();
                node.step(false, false, &mut sent, &mut self.told);
                self.sent.extend(sent.iter().map(Packet::to_bytes));
            }
        }
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.nodes.iter().for_each(|node| node.fingerprint().hash(&mut hasher));
        (&self.sent, self.crashes, self.refusals, format!("{:?}", self.told)).hash(&mut hasher);
        hasher.finish()
    }
}

impl Explorer {
    fn run(scene: Scene, states_max: usize) -> usize {
        let mut explorer = Explorer { seen: HashSet::new(), open: Vec::new() };
        explorer.visit(scene);
        while let Some(scene) = explorer.open.pop() {
            for at in 0..scene.nodes.len() {
                explorer.steps(&scene, at);
                explorer.faults(&scene, at);
            }
            for bytes in &scene.sent {
                explorer.delivery(&scene, Packet::from_bytes(bytes).unwrap());
            }
            assert!(explorer.seen.len() < states_max, "there are more states than {states_max}");
        }
        explorer.seen.len()
    }

    /// Keeps a new state, to go on from there.
    fn visit(&mut self, mut scene: Scene) {
        scene.flush();
        check(&scene.nodes, &scene.told);
        if self.seen.insert(scene.hash()) {
            self.open.push(scene);
        }
    }

    fn steps(&mut self, scene: &Scene, at: usize) {
        for (full, refuse) in [(false, false), (true, false), (false, true)] {
            let mut next = scene.clone();
            if full || refuse {
                let Some(rest) = next.refusals.checked_sub(1) else { continue };
                next.refusals = rest;
            }
            let mut sent = Vec::new();
            if next.nodes[at].step(full, refuse, &mut sent, &mut next.told) {
                next.sent.extend(sent.iter().map(Packet::to_bytes));
                self.visit(next);
            }
        }
    }

    fn faults(&mut self, scene: &Scene, at: usize) {
        if scene.nodes[at].role.is_none() {
            let mut next = scene.clone();
            next.nodes[at].start();
            return self.visit(next);
        }
        if scene.crashes > 0 {
            for kept in scene.nodes[at].disk.synced_len..=scene.nodes[at].disk.log.len() {
                let mut next = scene.clone();
                next.nodes[at].crash(kept);
                next.crashes -= 1;
                self.visit(next);
            }
        }
        let mut next = scene.clone();
        let node = &mut next.nodes[at];
        let is_idle = node.next_output().is_none();
        let machine = node.role.as_mut().expect("the node is up").machine();
        if is_idle && machine.due().is_some() {
            node.now += Duration::from_secs(3600);
            machine.tick(node.now);
            self.visit(next);
        }
    }

    fn delivery(&mut self, scene: &Scene, packet: Packet) {
        let mut next = scene.clone();
        let node = &mut next.nodes[packet.to.0 as usize];
        // As a node does, which finishes its actions before it takes the next packet.
        let is_idle = node.next_output().is_none();
        if let Some(role) = node.role.as_mut().filter(|_| is_idle) {
            role.machine().receive(node.now, packet);
            self.visit(next);
        }
    }
}

#[test]
fn every_order_of_everything_with_one_transaction() {
    for (participants, crashes, refusals) in
        [(1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 0, 0), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    {
        let start = std::time::Instant::now();
        let seen = Explorer::run(Scene::new(participants, crashes, refusals), 300_000);
        println!(
            "{participants} participants, {crashes} crashes, {refusals} refusals: {seen} states {:?}",
            start.elapsed()
        );
        assert!(seen > 10);
    }
}

const SEEDS: u64 = 2_000;
