//! Invariants: no reader ever sees a wrong sum.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dapple_stm::{TVar, atomically, atomically_blocking};

use crate::support::{Random, runtime};

/// Threads and tasks transfer between few accounts while others add them up inside a transaction:
/// the check is inside, so it also covers attempts that fail later.
#[test]
fn no_attempt_sees_a_torn_sum() {
    let accounts: Vec<TVar<i64>> = (0..8).map(|_| TVar::new(100)).collect();
    let stop = AtomicBool::new(false);
    let runtime = runtime(2);
    thread::scope(|threads| {
        let (accounts, stop) = (&accounts, &stop);
        let writers: Vec<_> = (1..3)
            .map(|seed| {
                threads.spawn(move || {
                    let mut random = Random(seed);
                    (0..crate::support::rounds(20_000)).for_each(|_| transfer(accounts, &mut random));
                })
            })
            .collect();
        for _ in 0..2 {
            threads.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    atomically_blocking(|tx| {
                        let mut sum = 0;
                        for account in accounts {
                            sum += tx.read(account)?;
                        }
                        assert_eq!(sum, 800, "a torn state");
                        Ok(())
                    });
                }
            });
        }
        let tasks: Vec<_> = (3..5)
            .map(|seed| {
                let accounts = accounts.clone();
                runtime.spawn(async move {
                    let mut random = Random(seed);
                    for _ in 0..crate::support::rounds(5_000) {
                        let (from, to) = random.pair(accounts.len());
                        atomically(|tx| {
                            tx.modify(&accounts[from], |balance| balance - 1)?;
                            tx.modify(&accounts[to], |balance| balance + 1)
                        })
                        .await;
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(accounts.iter().map(TVar::load).sum::<i64>(), 800);
}

fn transfer(accounts: &[TVar<i64>], random: &mut Random) {
    let (from, to) = random.pair(accounts.len());
    atomically_blocking(|tx| {
        tx.modify(&accounts[from], |balance| balance - 1)?;
        tx.modify(&accounts[to], |balance| balance + 1)
    });
}

/// The same with values in an `Arc`, and more accounts than a linear search covers.
#[test]
fn no_attempt_sees_a_torn_sum_of_many_large_values() {
    let accounts: Vec<TVar<Vec<u64>>> = (0..60).map(|_| TVar::new(vec![10; 3])).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let (accounts, stop) = (&accounts, &stop);
        threads.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                atomically_blocking(|tx| {
                    let mut sum = 0;
                    for account in accounts {
                        sum += tx.read(account)?.iter().sum::<u64>();
                    }
                    assert_eq!(sum, 1_800, "a torn state");
                    Ok(())
                });
            }
        });
        let mut random = Random(9);
        for _ in 0..crate::support::rounds(20_000) {
            let (from, to) = random.pair(accounts.len());
            atomically_blocking(|tx| {
                let (mut source, mut target) = (tx.read(&accounts[from])?, tx.read(&accounts[to])?);
                let unit = u64::from(source[1] > 0);
                source[1] -= unit;
                target[1] += unit;
                tx.write(&accounts[from], source)?;
                tx.write(&accounts[to], target)
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A transaction over a hundred variables that others write all the time ends, if necessary on the
/// serial path.
#[test]
fn a_long_transaction_is_not_starved() {
    let vars: Vec<TVar<u64>> = (0..100).map(|_| TVar::new(0)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let (vars, stop) = (&vars, &stop);
        for seed in 1..3 {
            threads.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    let (one, _) = random.pair(vars.len());
                    atomically_blocking(|tx| tx.modify(&vars[one], |count| count + 1));
                }
            });
        }
        for _ in 0..50 {
            atomically_blocking(|tx| {
                for var in vars {
                    tx.modify(var, |count| count + 1)?;
                }
                Ok(())
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(vars.iter().all(|var| var.load() >= 50));
}

/// Two transactions each read one variable to write the other: one must see the other's write.
#[test]
fn there_is_no_write_skew() {
    for _ in 0..crate::support::rounds(2_000) {
        let (a, b) = (TVar::new(0), TVar::new(0));
        thread::scope(|threads| {
            threads.spawn(|| {
                atomically_blocking(|tx| {
                    let seen = tx.read(&a)?;
                    tx.write(&b, seen + 1)
                });
            });
            atomically_blocking(|tx| {
                let seen = tx.read(&b)?;
                tx.write(&a, seen + 1)
            });
        });
        assert!(matches!((a.load(), b.load()), (2, 1) | (1, 2)));
    }
}
