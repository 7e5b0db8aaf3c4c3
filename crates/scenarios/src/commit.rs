//! `dapple`'s two-phase commit over `RemoteStage`: transfers between banks, on machines that crash and disks that fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple::stage::operators::commit::{
    CommitError, Coordinator, Inlet, NodeId, Packet, Participant, Resource, Settings, TransactionId,
};
use dapple::stage::remote::Host;
use dapple::time::{Instant, sleep};
use dapple_sched::environment;
use dapple_sim::{Faults, Simulation};

use crate::Scenario;
use crate::disk::Log;
use crate::remote::{peer, serve};

pub(crate) const COMMIT: Scenario = Scenario {
    name: "commit",
    holds: "a transaction over RemoteStage happens at all banks or at none, its caller learns which, and all of them end",
    setup: |sim| commit(sim, None),
    bugs: &[
        ("a bank begins with an empty log after a crash", |sim| commit(sim, Some(Bug::LosesLog))),
        ("the coordinator begins with an empty log after a crash", |sim| commit(sim, Some(Bug::CoordinatorLosesLog))),
        ("a bank applies a commit that is told again", |sim| commit(sim, Some(Bug::AppliesAgain))),
        ("a bank says that it has applied a commit before that is on disk", |sim| {
            commit(sim, Some(Bug::UnsyncedLedger))
        }),
        ("a bank keeps no money for what it promised", |sim| commit(sim, Some(Bug::KeepsNothing))),
        ("a transaction of unknown end counts as aborted", |sim| commit(sim, Some(Bug::UnknownIsNo))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    LosesLog,
    CoordinatorLosesLog,
    AppliesAgain,
    UnsyncedLedger,
    KeepsNothing,
    UnknownIsNo,
}

/// The transactions that a bank has applied, and how much each adds to its balance.
type Ledger = Log<(TransactionId, i64)>;

/// The transfers of the caller so far, outside of its host.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Call>>>);

#[derive(Clone, Debug)]
struct Call {
    id: Option<TransactionId>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Committed,
    Aborted,
    /// The caller crashed, or so did the coordinator that is in its process.
    Unknown,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const COORDINATOR: NodeId = NodeId(1);
const BANKS: [NodeId; 3] = [NodeId(2), NodeId(3), NodeId(4)];

fn name(node: NodeId) -> String {
    format!("node{}", node.0)
}

fn commit(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(300));
    let ledgers = [Ledger::new(), Ledger::new(), Ledger::new()];
    let (calls, of_caller) = (Calls::default(), ledgers.clone());
    sim.client(&name(COORDINATOR), move || coordinate(calls.clone(), of_caller.clone(), bug));
    for (bank, ledger) in BANKS.into_iter().zip(ledgers.clone()) {
        sim.host(&name(bank), move || run_bank(bank, ledger.clone(), bug));
    }
    sim.invariant(move || match ledgers.iter().position(|ledger| balance(ledger) < 0) {
        Some(bank) => Err(format!("{} has less than nothing", BANKS[bank])),
        None => Ok(()),
    });
    let mut faults = Faults::new(FAULTS_WITHIN).at_most(10).crash(&name(COORDINATOR));
    for bank in BANKS.map(name) {
        faults = faults.crash(&bank).freeze(&bank).reset(&bank).cut(&bank, &name(COORDINATOR));
        faults = faults.disk(&bank, Duration::from_millis(300));
    }
    sim.faults(&faults.cut(&name(BANKS[0]), &name(BANKS[1])).disk(&name(COORDINATOR), Duration::from_millis(300)));
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.vote_timeout = Duration::from_secs(2);
    settings.log_short_len = 300;
    settings
}

/// The path of a node's log, which exists once for each start if the node loses it.
fn log_path(loses: bool) -> String {
    if loses { format!("/log{}", environment::random()) } else { "/log".to_owned() }
}

/// Opens a node, again as long as its disk fails.
async fn open<T>(open: impl Fn() -> std::io::Result<T>) -> T {
    loop {
        match open() {
            Ok(node) => return node,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => panic!("{error}"),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Packets come to the node that is open at this time.
fn host(current: &Arc<Mutex<Option<Inlet>>>) {
    let current = current.clone();
    let inlet = tower::service_fn(move |packet: Packet| {
        let inlet = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        async move {
            match inlet {
                Some(mut inlet) => tower::Service::call(&mut inlet, packet).await,
                None => Err("the node is not open".into()),
            }
        }
    });
    let _detached = dapple::spawn(serve(Host::builder().register("packets", inlet).build()));
}

fn to(node: NodeId) -> dapple::stage::remote::RemoteStage<Packet, ()> {
    peer(&name(node), Some(Duration::from_secs(1))).stage("packets")
}

async fn coordinate(calls: Calls, ledgers: [Ledger; 3], bug: Option<Bug>) {
    let current = Arc::default();
    host(&current);
    loop {
        let path = log_path(bug == Some(Bug::CoordinatorLosesLog));
        let (coordinator, courier) = open(|| Coordinator::open(COORDINATOR, &path, settings())).await;
        let _detached = dapple::spawn(courier);
        BANKS.into_iter().for_each(|bank| coordinator.connect(bank, to(bank)));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(coordinator.inlet());
        while coordinator.error().is_none() {
            if calls.lock().len() >= CALLS {
                if all_ended(&coordinator).await {
                    return check(&calls, &ledgers);
                }
                continue;
            }
            let (coordinator, calls) = (coordinator.clone(), calls.clone());
            let call = dapple::spawn(transfer(coordinator, calls, bug));
            // Often several at a time.
            if environment::random().is_multiple_of(3) {
                call.await.unwrap();
            }
            sleep(Duration::from_millis(environment::random() % 400)).await;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Moves some money from one bank to the others.
async fn transfer(coordinator: Coordinator, calls: Calls, bug: Option<Bug>) {
    let number = {
        let mut calls = calls.lock();
        calls.push(Call { id: None, end: End::Unknown });
        calls.len() - 1
    };
    let from = environment::random() as usize % BANKS.len();
    let mut amounts = [(1 + environment::random() % 30) as i8; 3];
    amounts[from] *= -2;
    let message: Vec<u8> = amounts.iter().map(|amount| amount.cast_unsigned()).collect();
    let (id, end) = match coordinator.commit(BANKS, message).await {
        Ok(id) => (Some(id), End::Committed),
        Err(CommitError::Aborted { id, .. }) => (Some(id), End::Aborted),
        Err(CommitError::Unknown(_)) if bug != Some(Bug::UnknownIsNo) => (None, End::Unknown),
        Err(_) => (None, End::Aborted),
    };
    calls.lock()[number] = Call { id, end };
}

/// Waits until the faults are over and all transactions have ended. False if the coordinator stopped meanwhile.
async fn all_ended(coordinator: &Coordinator) -> bool {
    let began = Instant::now();
    loop {
        sleep(Duration::from_millis(500)).await;
        let Ok((open, waits_for)) = coordinator.unfinished().await else {
            assert!(coordinator.error().is_some(), "the coordinator does not answer");
            return false;
        };
        if open == 0 && began.elapsed() >= FAULTS_WITHIN * 2 {
            return true;
        }
        assert!(began.elapsed() < FAULTS_WITHIN * 10, "{open} transactions do not end; they wait for {waits_for:?}");
    }
}

/// All transactions ended the same at all banks and for the caller.
fn check(calls: &Calls, ledgers: &[Ledger; 3]) {
    let counts = |ledger: &Ledger| {
        let mut counts: BTreeMap<TransactionId, u32> = BTreeMap::new();
        ledger.all().iter().for_each(|(id, _)| *counts.entry(*id).or_default() += 1);
        counts
    };
    let applied = counts(&ledgers[0]);
    assert!(applied.values().all(|times| *times == 1), "a transaction was applied twice: {applied:?}");
    for (bank, ledger) in BANKS.iter().zip(ledgers) {
        assert_eq!(counts(ledger), applied, "{bank} has others than {}", BANKS[0]);
    }
    let sum: i64 = ledgers.iter().map(balance).sum();
    assert_eq!(sum, 3 * BALANCE, "money was made or lost");
    let calls = calls.lock().clone();
    for call in &calls {
        let is_applied = call.id.is_some_and(|id| applied.contains_key(&id));
        assert_eq!(is_applied, call.end == End::Committed, "the caller learned another end: {call:?}");
    }
    let known = calls.iter().filter(|call| call.end == End::Committed).count();
    let unknown = calls.iter().filter(|call| call.end == End::Unknown).count();
    assert!((known..=known + unknown).contains(&applied.len()), "{} of {calls:?} were applied", applied.len());
}

fn balance(ledger: &Ledger) -> i64 {
    BALANCE + ledger.all().iter().map(|(_, amount)| amount).sum::<i64>()
}

async fn run_bank(bank: NodeId, ledger: Ledger, bug: Option<Bug>) {
    ledger.open();
    let current = Arc::default();
    host(&current);
    loop {
        let path = log_path(bug == Some(Bug::LosesLog));
        let resource = || Bank {
            number: BANKS.iter().position(|other| *other == bank).unwrap(),
            ledger: ledger.clone(),
            kept: BTreeMap::new(),
            bug,
        };
        let (participant, courier) = open(|| Participant::open(bank, &path, settings(), resource())).await;
        let _detached = dapple::spawn(courier);
        participant.connect(COORDINATOR, to(COORDINATOR));
        let others = BANKS.into_iter().filter(|other| *other != bank);
        others.for_each(|other| participant.connect(other, to(other)));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some(participant.inlet());
        while participant.error().is_none() {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

struct Bank {
    number: usize,
    ledger: Ledger,
    /// Money for promises.
    kept: BTreeMap<TransactionId, i64>,
    bug: Option<Bug>,
}

impl Bank {
    fn amount(&self, message: &[u8]) -> i64 {
        message[self.number].cast_signed().into()
    }
}

impl Resource for Bank {
    fn prepare(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        let amount = self.amount(message);
        let free = balance(&self.ledger) - self.kept.values().sum::<i64>();
        if amount + free < 0 {
            return Err("there is not enough money".to_owned());
        }
        if amount < 0 && self.bug != Some(Bug::KeepsNothing) {
            self.kept.insert(id, -amount);
        }
        Ok(())
    }

    fn commit(&mut self, id: TransactionId, message: &Arc<[u8]>) -> Result<(), String> {
        let amount = self.amount(message);
        let is_known = self.ledger.all().iter().any(|(other, _)| *other == id);
        if !is_known || self.bug == Some(Bug::AppliesAgain) {
            self.ledger.append((id, amount));
        }
        if self.bug != Some(Bug::UnsyncedLedger) {
            self.ledger.sync();
        }
        self.kept.remove(&id);
        Ok(())
    }

    fn abort(&mut self, id: TransactionId, _message: &Arc<[u8]>) {
        self.kept.remove(&id);
    }

    fn recovered(&mut self, in_doubt: &[(TransactionId, Arc<[u8]>)]) {
        let kept = in_doubt.iter().map(|(id, message)| (*id, -self.amount(message)));
        self.kept = kept.filter(|(_, amount)| *amount > 0).collect();
    }
}

const CALLS: usize = 20;
const BALANCE: i64 = 60;
const FAULTS_WITHIN: Duration = Duration::from_secs(6);
