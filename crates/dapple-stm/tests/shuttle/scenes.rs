//! Tasks and threads that wait for one another.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use dapple_stm::{StmResult, TVar, Tx, atomically, atomically_blocking};
use shuttle::sync::Mutex;
use shuttle::{future, thread};

use crate::check;

fn put(tx: &mut Tx, slot: &TVar<u32>, value: u32) -> StmResult<()> {
    let there = tx.replace(slot, value)?;
    tx.check(there == 0)
}

fn take(tx: &mut Tx, slot: &TVar<u32>) -> StmResult<u32> {
    let there = tx.replace(slot, 0)?;
    tx.check(there > 0)?;
    Ok(there)
}

// A slot between tasks and threads: each value put in comes out once.
//
// Caught: a commit that wakes no waiter (deadlock).
#[test]
fn a_slot_between_tasks_and_threads() {
    check(5_000, || {
        let slot = TVar::new(0);
        let producers: Vec<_> = [[1, 2], [3, 4]]
            .map(|values| {
                let slot = slot.clone();
                future::spawn(async move {
                    for value in values {
                        atomically(|tx| put(tx, &slot, value)).await;
                    }
                })
            })
            .into();
        let consumer = thread::spawn({
            let slot = slot.clone();
            move || (0..2).map(|_| atomically_blocking(|tx| take(tx, &slot))).sum::<u32>()
        });
        let sum: u32 = (0..2).map(|_| atomically_blocking(|tx| take(tx, &slot))).sum();
        assert_eq!(sum + consumer.join().unwrap(), 10);
        producers.into_iter().for_each(|task| drop(future::block_on(task)));
        assert_eq!(slot.waiters(), 0);
    });
}

// A thread takes from either of two slots that others fill; a wait for both is dropped halfway.
//
// Caught: a dropped wait that stays in the lists.
#[test]
fn either_of_two_slots() {
    check(5_000, || {
        let (left, right) = (TVar::new(0), TVar::new(0));
        let either = |left: TVar<u32>, right: TVar<u32>| {
            atomically(move |tx| tx.or_else(|tx| take(tx, &left), |tx| take(tx, &right)))
        };
        let fillers = [left.clone(), right.clone()]
            .map(|slot| thread::spawn(move || atomically_blocking(|tx| put(tx, &slot, 1))));
        let mut taken = 0;
        {
            let mut wait = pin!(either(left.clone(), right.clone()));
            if wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                taken += 1;
            }
        }
        while taken < 2 {
            taken += either(left.clone(), right.clone()).blocking();
        }
        fillers.into_iter().for_each(|filler| filler.join().unwrap());
        assert_eq!((left.waiters(), right.waiters()), (0, 0));
    });
}

// Transactions that conflict until they take the serial path; some are dropped before the end.
//
// Caught: a place at the gate that is dropped with the pass (deadlock).
#[test]
fn the_serial_path_is_passed_on() {
    check(5_000, || {
        let vars: Arc<[TVar<u32>; 3]> = Arc::new([TVar::new(0), TVar::new(0), TVar::new(0)]);
        let add = |vars: Arc<[TVar<u32>; 3]>, first: usize| {
            atomically(move |tx| {
                for step in 0..3 {
                    tx.modify(&vars[(first + step) % 3], |count| count + 1)?;
                    thread::yield_now();
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..3)
            .map(|first| {
                let vars = vars.clone();
                thread::spawn(move || {
                    let mut done = 1;
                    {
                        let mut dropped = pin!(add(vars.clone(), first));
                        for _ in 0..2 {
                            if dropped.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                                done += 1;
                                break;
                            }
                        }
                    }
                    add(vars, first).blocking();
                    done
                })
            })
            .collect();
        let done: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert!(vars.iter().all(|var| var.load() == done));
    });
}

// A variable is dropped between a transaction's write to it and the commit; its memory is reused
// for another.
//
// Caught: reused memory with its old version.
#[test]
fn memory_is_used_again() {
    check(5_000, || {
        // Not a variable: the transaction would depend on it.
        let shelf = Arc::new(Mutex::new(Some(TVar::new(7))));
        let writer = thread::spawn({
            let shelf = shelf.clone();
            move || {
                atomically_blocking(|tx| {
                    let var = shelf.lock().unwrap().clone();
                    let Some(var) = var else { return Ok(()) };
                    tx.write(&var, 8)?;
                    drop(var);
                    thread::yield_now();
                    Ok(())
                });
            }
        });
        let old = shelf.lock().unwrap().take();
        drop(old);
        let (number, text) = (TVar::new(1), TVar::new(String::from("text")));
        assert_eq!((number.load(), text.load().as_str()), (1, "text"));
        writer.join().unwrap();
        assert_eq!((number.load(), text.load().as_str()), (1, "text"));
    });
}
