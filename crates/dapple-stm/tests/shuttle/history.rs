//! Random programs, checked for a sequential explanation of their reads. There must be an order of
//! the committed transactions, which keeps each thread's own order, in which each reads what those
//! before it wrote. Every attempt, even a failed one, must have seen the state between two of them.

use std::sync::Arc;

use dapple_stm::{Abort, StmResult, TVar, Tx, atomically_blocking};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::check;

const VARS: usize = 4;
const THREADS: usize = 3;
const TRANSACTIONS: usize = 2;

type State = [u32; VARS];

/// A step of a transaction.
#[derive(Clone, Debug)]
enum Op {
    Read(usize),
    Write(usize),
    /// Writes that are undone: by an inner transaction that gives up, or by an alternative that
    /// retries.
    Undone {
        var: usize,
        nested: bool,
    },
}

/// The values that an attempt read from variables it had not written, in order, and its pending
/// writes.
#[derive(Clone, Default, Debug)]
struct Seen {
    reads: Vec<(usize, u32)>,
    writes: Vec<(usize, u32)>,
}

#[derive(Default)]
struct History {
    /// By thread, in its order.
    committed: [Vec<Seen>; THREADS],
    /// Of all threads, committed or not.
    attempts: Vec<Seen>,
}

/// Runs a step; every written value is unique.
fn step(tx: &mut Tx, vars: &[TVar<u32>], op: &Op, value: u32, seen: &mut Seen) -> StmResult<()> {
    let read = |tx: &mut Tx, var: usize, seen: &mut Seen| -> StmResult<()> {
        let found = tx.read(&vars[var])?;
        match seen.writes.iter().rev().find(|(written, _)| *written == var) {
            Some((_, value)) => assert_eq!(found, *value, "a transaction must see its own writes"),
            None => seen.reads.push((var, found)),
        }
        Ok(())
    };
    match *op {
        Op::Read(var) => read(tx, var, seen),
        Op::Write(var) => {
            tx.write(&vars[var], value)?;
            seen.writes.push((var, value));
            Ok(())
        }
        Op::Undone { var, nested: true } => {
            let outcome = tx.nested(|tx| {
                tx.write(&vars[var], value)?;
                Err::<(), _>(Abort::Error(()))
            })?;
            assert_eq!(outcome, Err(()));
            read(tx, var, seen)
        }
        Op::Undone { var, nested: false } => tx.or_else(
            |tx| {
                tx.write(&vars[var], value)?;
                tx.retry()
            },
            |tx| read(tx, var, seen),
        ),
    }
}

fn random_op() -> Op {
    let mut random = thread_rng();
    let var = random.gen_range(0..VARS);
    match random.gen_range(0..8) {
        0..4 => Op::Read(var),
        4..7 => Op::Write(var),
        _ => Op::Undone { var, nested: random.gen_bool(0.5) },
    }
}

// Caught: a read that does not check earlier reads; a commit that does not check its reads; a
// rollback that leaves writes; versions that repeat; an attempt on the serial path that reads
// without locking.
#[test]
fn random_programs_have_an_order() {
    check(20_000, || {
        let vars: Arc<Vec<TVar<u32>>> = Arc::new((0..VARS).map(|_| TVar::new(0)).collect());
        let history = Arc::new(Mutex::new(History::default()));
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let (vars, history) = (vars.clone(), history.clone());
                let programs: Vec<Vec<Op>> = (0..TRANSACTIONS)
                    .map(|_| (0..thread_rng().gen_range(1..6)).map(|_| random_op()).collect())
                    .collect();
                thread::spawn(move || {
                    for (number, program) in programs.iter().enumerate() {
                        let mut seen = Seen::default();
                        atomically_blocking(|tx| {
                            seen = Seen::default();
                            for (place, op) in program.iter().enumerate() {
                                let value = 1 + (index * 100 + number * 10 + place) as u32;
                                let done = step(tx, &vars, op, value, &mut seen);
                                if done.is_err() {
                                    history.lock().unwrap().attempts.push(seen.clone());
                                }
                                done?;
                            }
                            history.lock().unwrap().attempts.push(seen.clone());
                            Ok(())
                        });
                        history.lock().unwrap().committed[index].push(seen);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let end: Vec<u32> = vars.iter().map(TVar::load).collect();
        let history = history.lock().unwrap();
        assert!(
            explain(&history, &mut vec![[0; VARS]], &mut [0; THREADS], &end),
            "no order explains {:?}, attempts {:?}, in the end {end:?}",
            history.committed,
            history.attempts
        );
    });
}

/// Whether the remaining transactions can follow on the states so far.
fn explain(history: &History, states: &mut Vec<State>, next: &mut [usize; THREADS], end: &[u32]) -> bool {
    let now = *states.last().expect("the first state");
    if (0..THREADS).all(|thread| next[thread] == history.committed[thread].len()) {
        let fits = |attempt: &Seen| states.iter().any(|state| reads_fit(attempt, state));
        return now == end && history.attempts.iter().all(fits);
    }
    for thread in 0..THREADS {
        let Some(seen) = history.committed[thread].get(next[thread]) else { continue };
        if !reads_fit(seen, &now) {
            continue;
        }
        let mut after = now;
        seen.writes.iter().for_each(|&(var, value)| after[var] = value);
        states.push(after);
        next[thread] += 1;
        if explain(history, states, next, end) {
            return true;
        }
        next[thread] -= 1;
        states.pop();
    }
    false
}

fn reads_fit(seen: &Seen, state: &State) -> bool {
    seen.reads.iter().all(|&(var, value)| state[var] == value)
}
