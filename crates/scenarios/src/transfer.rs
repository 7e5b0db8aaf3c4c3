//! Two-phase commit between two banks: a transfer happens at both or at none.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use dapple_sched::Colored;
use dapple_sim::net::{TcpListener, TcpStream};
use dapple_sim::time::{sleep, timeout};
use dapple_sim::{Faults, Simulation};

use crate::Scenario;
use crate::disk::Log;

pub(crate) const TRANSFER: Scenario = Scenario {
    name: "transfer",
    holds: "a transfer happens at both banks or at none, each once, also where banks and coordinator crash",
    setup: |sim| transfer(sim, None),
    bugs: &[
        ("a bank votes before its log is synced", |sim| transfer(sim, Some(Bug::UnsyncedVote))),
        ("the coordinator tells its decision before that is synced", |sim| transfer(sim, Some(Bug::UnsyncedDecision))),
        ("one vote is enough", |sim| transfer(sim, Some(Bug::OneVote))),
        ("a bank that waits for long aborts by itself", |sim| transfer(sim, Some(Bug::AbortsAlone))),
        ("a decision that is told again is applied again", |sim| transfer(sim, Some(Bug::AppliesAgain))),
        ("the coordinator forgets decisions when it crashes", |sim| transfer(sim, Some(Bug::ForgetsDecisions))),
        ("a vote that does not come counts as yes", |sim| transfer(sim, Some(Bug::SilenceIsYes))),
    ],
};

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    UnsyncedVote,
    UnsyncedDecision,
    OneVote,
    AbortsAlone,
    AppliesAgain,
    ForgetsDecisions,
    SilenceIsYes,
}

/// A line of a bank's log.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Entry {
    Prepared(u8),
    Committed(u8),
    Aborted(u8),
}

const PREPARE: u8 = 1;
const COMMIT: u8 = 2;
const ABORT: u8 = 3;
const YES: u8 = 10;
const NO: u8 = 11;

const TRANSFERS: u8 = 12;
const BANKS: [&str; 2] = ["bank0", "bank1"];

fn transfer(sim: &mut Simulation, bug: Option<Bug>) {
    sim.settings(|settings| settings.time_max = Duration::from_secs(900));
    let logs = [Log::new(), Log::new()];
    for (name, log) in BANKS.into_iter().zip(&logs) {
        let log = log.clone();
        sim.host(name, move || bank(log.clone(), bug));
    }
    let decisions: Log<(u8, bool)> = Log::new();
    sim.client("coordinator", move || {
        let (decisions, logs) = (decisions.clone(), logs.clone());
        async move {
            coordinate(&decisions, bug).await;
            sleep(Duration::from_secs(30)).await;
            check(&logs);
        }
    });
    let mut faults = Faults::new(Duration::from_secs(6)).crash("coordinator").at_most(8);
    for bank in BANKS {
        faults = faults.crash(bank).cut(bank, "coordinator").freeze(bank).reset(bank);
    }
    sim.faults(&faults);
}

fn check(logs: &[Log<Entry>; 2]) {
    for number in 0..TRANSFERS {
        let outcome = |log: &Log<Entry>| {
            let of_it = |entry: &&Entry| matches!(entry, Entry::Committed(n) | Entry::Aborted(n) if *n == number);
            log.all().iter().filter(of_it).copied().collect::<Vec<_>>()
        };
        let (one, other) = (outcome(&logs[0]), outcome(&logs[1]));
        assert!(one.len() <= 1 && other.len() <= 1, "transfer {number} was applied twice: {one:?} and {other:?}");
        let committed = |of: &[Entry]| of == [Entry::Committed(number)];
        assert_eq!(committed(&one), committed(&other), "transfer {number} is half done: {one:?} and {other:?}");
        let prepared = logs.iter().any(|log| log.all().contains(&Entry::Prepared(number)));
        assert!(!prepared || !one.is_empty() || !other.is_empty(), "transfer {number} was never decided");
    }
}

/// One transfer after the other; after a crash, what is left of them.
async fn coordinate(decisions: &Log<(u8, bool)>, bug: Option<Bug>) {
    let mut decided: BTreeMap<u8, bool> = decisions.open().into_iter().collect();
    if bug == Some(Bug::ForgetsDecisions) {
        decided.values_mut().for_each(|commits| *commits = false);
    }
    for number in 0..TRANSFERS {
        let commits = match decided.get(&number) {
            Some(commits) => *commits,
            None => {
                let commits = votes(number, bug).await;
                decisions.append((number, commits));
                if bug != Some(Bug::UnsyncedDecision) {
                    decisions.sync();
                }
                commits
            }
        };
        for bank in BANKS {
            while !matches!(say(bank, if commits { COMMIT } else { ABORT }, number).await, Ok(YES)) {
                sleep(Duration::from_millis(200)).await;
            }
        }
        decisions.sync();
    }
}

async fn votes(number: u8, bug: Option<Bug>) -> bool {
    let mut yes = 0;
    for bank in BANKS {
        match say(bank, PREPARE, number).await {
            Ok(YES) => yes += 1,
            Err(_) if bug == Some(Bug::SilenceIsYes) => yes += 1,
            _ => {}
        }
    }
    yes >= if bug == Some(Bug::OneVote) { 1 } else { BANKS.len() }
}

async fn say(bank: &str, what: u8, number: u8) -> io::Result<u8> {
    let asked = async {
        let stream = TcpStream::connect((bank, 80)).await?;
        stream.write_all(&[what, number]).await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        Ok(answer[0])
    };
    timeout(Duration::from_secs(1), asked).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

async fn bank(log: Log<Entry>, bug: Option<Bug>) {
    let entries = Colored::new(log.open());
    let listener = TcpListener::bind("0.0.0.0:80").unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (entries, log) = (entries.clone(), log.clone());
        let _detached = dapple_sched::spawn(async move {
            let mut question = [0; 2];
            if stream.read_exact(&mut question).await.is_err() {
                return;
            }
            let [what, number] = question;
            let of_task = log.clone();
            let answer = entries.with(move |entries| answer(entries, &of_task, what, number, bug)).await;
            if what == PREPARE && bug == Some(Bug::UnsyncedVote) {
                let _ = stream.write_all(&[answer]).await;
                sleep(Duration::from_millis(50)).await;
                log.sync();
            } else {
                log.sync();
                let _ = stream.write_all(&[answer]).await;
            }
            if what == PREPARE && bug == Some(Bug::AbortsAlone) {
                sleep(Duration::from_millis(500)).await;
                entries.with(move |entries| _ = apply(entries, &log, Entry::Aborted(number), bug)).await;
            }
            let _ = timeout(Duration::from_secs(1), stream.read(&mut [0])).await;
        });
    }
}

fn answer(entries: &mut Vec<Entry>, log: &Log<Entry>, what: u8, number: u8, bug: Option<Bug>) -> u8 {
    match what {
        // Every fifth transfer has no funds at the first bank's account.
        PREPARE if number % 5 == 4 || is_decided(entries, number) => NO,
        PREPARE => {
            if !entries.contains(&Entry::Prepared(number)) {
                entries.push(Entry::Prepared(number));
                log.append(Entry::Prepared(number));
            }
            YES
        }
        COMMIT => apply(entries, log, Entry::Committed(number), bug),
        _ => apply(entries, log, Entry::Aborted(number), bug),
    }
}

/// A decision is applied once; a commit only where it was prepared.
fn apply(entries: &mut Vec<Entry>, log: &Log<Entry>, decision: Entry, bug: Option<Bug>) -> u8 {
    let (Entry::Prepared(number) | Entry::Committed(number) | Entry::Aborted(number)) = decision;
    let is_known = is_decided(entries, number) && bug != Some(Bug::AppliesAgain);
    let may = matches!(decision, Entry::Aborted(_)) || entries.contains(&Entry::Prepared(number));
    if !is_known && may {
        entries.push(decision);
        log.append(decision);
    }
    YES
}

fn is_decided(entries: &[Entry], number: u8) -> bool {
    entries.contains(&Entry::Committed(number)) || entries.contains(&Entry::Aborted(number))
}
