//! Alternatives, inner transactions, and giving up.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use dapple_stm::{Abort, StmResult, TVar, Tx, atomically, atomically_blocking, atomically_or_abort};

use crate::support::counting;

fn take(tx: &mut Tx, from: &TVar<i32>) -> StmResult<i32> {
    let there = tx.replace(from, 0)?;
    tx.check(there > 0)?;
    Ok(there)
}

#[test]
fn the_first_alternative_is_taken_where_it_can_be() {
    let (a, b) = (TVar::new(1), TVar::new(2));
    assert_eq!(atomically_blocking(|tx| tx.or_else(|tx| take(tx, &a), |tx| take(tx, &b))), 1);
    assert_eq!((a.load(), b.load()), (0, 2));
}

#[test]
fn what_the_first_alternative_wrote_is_undone() {
    let (a, b, log) = (TVar::new(0), TVar::new(2), TVar::new(String::from("begin")));
    let taken = atomically_blocking(|tx| {
        tx.modify(&log, |log| log + ", outer")?;
        let taken = tx.or_else(
            |tx| {
                tx.modify(&log, |log| log + ", first")?;
                tx.write(&b, 77)?;
                take(tx, &a)
            },
            |tx| {
                tx.modify(&log, |log| log + ", second")?;
                take(tx, &b)
            },
        )?;
        assert_eq!(tx.read(&a)?, 0);
        Ok(taken)
    });
    assert_eq!(taken, 2);
    assert_eq!(log.load(), "begin, outer, second");
    assert_eq!((a.load(), b.load()), (0, 0));
}

#[test]
fn where_both_retry_either_side_wakes() {
    for side in 0..2 {
        let vars = [TVar::new(0), TVar::new(0)];
        let (count, waker) = counting();
        let mut cx = Context::from_waker(&waker);
        let mut wait = pin!(atomically(|tx| tx.or_else(|tx| take(tx, &vars[0]), |tx| take(tx, &vars[1]))));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!((vars[0].waiters(), vars[1].waiters()), (1, 1));
        atomically_blocking(|tx| tx.write(&vars[side], 5));
        assert_eq!(count.woken(), 1);
        assert_eq!(wait.as_mut().poll(&mut cx), Poll::Ready(5));
        assert_eq!((vars[0].waiters(), vars[1].waiters()), (0, 0));
    }
}

#[test]
fn alternatives_within_alternatives() {
    let vars = [TVar::new(0), TVar::new(0), TVar::new(3)];
    let trace = TVar::new(0);
    let taken = atomically_blocking(|tx| {
        tx.or_else(
            |tx| {
                tx.write(&trace, 1)?;
                tx.or_else(
                    |tx| {
                        tx.write(&trace, 2)?;
                        take(tx, &vars[0])
                    },
                    |tx| {
                        assert_eq!(tx.read(&trace)?, 1);
                        tx.write(&trace, 3)?;
                        take(tx, &vars[1])
                    },
                )
            },
            |tx| {
                assert_eq!(tx.read(&trace)?, 0);
                take(tx, &vars[2])
            },
        )
    });
    assert_eq!((taken, trace.load()), (3, 0));
}

#[test]
fn an_inner_transaction_is_undone_alone() {
    let (a, b) = (TVar::new(1), TVar::new(2));
    let outcome = atomically_blocking(|tx| {
        tx.write(&a, 10)?;
        let failed = tx.nested(|tx| {
            tx.write(&a, 11)?;
            tx.write(&b, 12)?;
            let deeper = tx.nested(|tx| -> Result<(), Abort<&str>> {
                tx.write(&b, 13)?;
                Err(Abort::Error("deep"))
            })?;
            assert_eq!((deeper, tx.read(&b)?), (Err("deep"), 12));
            Err::<(), _>(Abort::Error("shallow"))
        })?;
        assert_eq!((tx.read(&a)?, tx.read(&b)?), (10, 2));
        let succeeded: Result<(), &str> = tx.nested(|tx| Ok(tx.write(&b, 20)?))?;
        Ok((failed, succeeded))
    });
    assert_eq!(outcome, (Err("shallow"), Ok(())));
    assert_eq!((a.load(), b.load()), (10, 20));
}

#[test]
fn giving_up_writes_nothing() {
    let (a, b) = (TVar::new(1), TVar::new(String::from("x")));
    let outcome = atomically_or_abort(|tx| {
        tx.write(&a, 2)?;
        tx.write(&b, String::from("y"))?;
        Err::<(), _>(Abort::Error(7))
    });
    assert_eq!(outcome.blocking(), Err(7));
    assert_eq!((a.load(), b.load().as_str()), (1, "x"));
}

#[test]
fn a_retry_that_is_not_passed_on_undoes_its_alternatives() {
    let a = TVar::new(1);
    atomically_blocking(|tx| {
        let outcome = tx.or_else(
            |tx| tx.retry(),
            |tx| {
                tx.write(&a, 5)?;
                tx.retry::<()>()
            },
        );
        assert!(outcome.is_err());
        Ok(())
    });
    assert_eq!(a.load(), 1);
}

#[test]
fn a_transaction_sees_what_it_wrote() {
    let vars: Vec<_> = (0..100).map(TVar::new).collect();
    atomically_blocking(|tx| {
        for var in &vars {
            tx.modify(var, |number| number + 1)?;
        }
        for (index, var) in vars.iter().enumerate() {
            assert_eq!(tx.read(var)?, index + 1);
            tx.write(var, 0)?;
            assert_eq!(tx.replace(var, 7)?, 0);
        }
        Ok(())
    });
    assert!(vars.iter().all(|var| var.load() == 7));
}
