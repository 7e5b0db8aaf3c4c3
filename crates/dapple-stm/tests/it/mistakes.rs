//! Panics and misuse.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use dapple_stm::{TVar, atomically, atomically_blocking};

use crate::support::runtime;

fn panic_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => (*other.downcast::<&str>().expect("a text")).to_owned(),
    }
}

#[test]
fn a_panic_leaves_everything_as_it_was() {
    let (number, text) = (TVar::new(1), TVar::new(String::from("a")));
    let message = panic_of(|| {
        atomically_blocking(|tx| {
            tx.write(&number, 2)?;
            tx.nested(|tx| Ok::<_, dapple_stm::Abort<()>>(tx.write(&text, String::from("b"))?))?.ok();
            if tx.read(&number)? == 2 {
                panic!("on purpose");
            }
            Ok(())
        });
    });
    assert_eq!(message, "on purpose");
    assert_eq!((number.load(), text.load().as_str()), (1, "a"));
    // The thread can run more transactions.
    atomically_blocking(|tx| tx.write(&number, 3));
    assert_eq!(number.load(), 3);
}

#[test]
fn a_panic_in_a_task_reaches_its_joiner() {
    let runtime = runtime(1);
    let number = TVar::new(1);
    let inner = number.clone();
    let task = runtime.spawn(async move {
        atomically(|tx| {
            tx.write(&inner, 2)?;
            if tx.read(&inner)? == 2 { panic!("on purpose") } else { Ok(()) }
        })
        .await
    });
    assert!(runtime.block_on(task).is_err());
    let task = runtime.spawn({
        let number = number.clone();
        async move { atomically(|tx| tx.modify(&number, |number| number + 10)).await }
    });
    runtime.block_on(task).unwrap();
    assert_eq!(number.load(), 11);
}

#[test]
fn a_transaction_inside_of_a_transaction_is_a_panic_that_says_so() {
    let var = TVar::new(1);
    let message = panic_of(|| {
        atomically_blocking(|_| {
            atomically_blocking(|tx| tx.write(&var, 2));
            Ok(())
        });
    });
    assert!(message.contains("a transaction was begun inside of a transaction"), "{message}");
    let message = panic_of(|| assert_eq!(atomically_blocking(|_| Ok(var.load())), 1));
    assert!(message.contains("TVar::load was called inside of a transaction"), "{message}");
    assert_eq!(var.load(), 1);
}

#[test]
fn a_retry_without_a_read_is_a_panic_that_says_so() {
    let var = TVar::new(1);
    let message = panic_of(|| {
        atomically_blocking(|tx| {
            tx.write(&var, 2)?;
            tx.retry::<()>()
        });
    });
    assert!(message.contains("before it had read a variable"), "{message}");
}

#[test]
fn blocking_on_a_worker_is_a_panic_that_says_so() {
    let runtime = runtime(1);
    let task = runtime.spawn(async {
        panic_of(|| {
            atomically_blocking(|_| Ok(()));
        })
    });
    assert!(runtime.block_on(task).unwrap().contains("would block a worker"));
}

/// Values are dropped and wakers invoked after the transaction: both may run transactions.
#[test]
fn destructors_may_run_transactions() {
    #[derive(Clone)]
    struct Bell(Arc<Rope>);
    struct Rope(TVar<u32>);
    impl Drop for Rope {
        fn drop(&mut self) {
            atomically_blocking(|tx| tx.modify(&self.0, |rung| rung + 1));
        }
    }
    let rung = TVar::new(0);
    let bell = TVar::new(Some(Bell(Arc::new(Rope(rung.clone())))));
    atomically_blocking(|tx| tx.write(&bell, None));
    assert_eq!(rung.load(), 1);
    drop(TVar::new(Bell(Arc::new(Rope(rung.clone())))));
    assert_eq!(rung.load(), 2);
    let bell = TVar::new(Bell(Arc::new(Rope(rung.clone()))));
    assert_eq!(bell.load().0.0.load(), 2);
    drop(bell);
    assert_eq!(rung.load(), 3);
}

#[test]
fn a_variable_that_is_dropped_by_the_transaction_that_wrote_it() {
    let kept = TVar::new(0);
    for round in 1..200 {
        let mut attempts = 0;
        atomically_blocking(|tx| {
            attempts += 1;
            let short = TVar::new(vec![round]);
            tx.write(&short, vec![round, round])?;
            let length = tx.read(&short)?.len();
            drop(short);
            tx.write(&kept, length)
        });
        assert_eq!((attempts, kept.load()), (1, 2));
    }
}

/// Variables come and go during other transactions: reused memory is never mistaken for the earlier
/// variable.
#[test]
fn variables_come_and_go() {
    let list: TVar<Arc<Vec<TVar<String>>>> = TVar::default();
    thread::scope(|threads| {
        for name in ["a", "b"] {
            let list = &list;
            threads.spawn(move || {
                for round in 0..crate::support::rounds(3_000) {
                    let fresh = TVar::new(format!("{name}{round}"));
                    let other = TVar::new(round);
                    atomically_blocking(|tx| {
                        let mut all = (*tx.read(list)?).clone();
                        for var in &all {
                            let text = tx.read(var)?;
                            assert!(text.starts_with(['a', 'b']), "{text}");
                            tx.write(var, text)?;
                        }
                        all.push(fresh.clone());
                        if all.len() > 5 {
                            all.remove(0);
                        }
                        tx.write(&other, 7)?;
                        tx.write(list, Arc::new(all))
                    });
                    assert_eq!(other.load(), 7);
                }
            });
        }
    });
}

/// Makes every attempt fail until the transaction is on the serial path, where it cannot. Returns
/// the number of attempts.
fn forced_to_the_serial_path(number: &TVar<u64>, other: &TVar<u64>, then: impl Fn()) -> u64 {
    let mut attempts = 0;
    atomically_blocking(|tx| {
        attempts += 1;
        let seen = tx.read(number)?;
        if attempts <= 64 {
            thread::scope(|threads| {
                threads.spawn(|| atomically_blocking(|tx| tx.modify(number, |number| number + 1)));
            });
        } else {
            then();
        }
        tx.write(other, seen)
    });
    attempts
}

#[test]
fn a_transaction_that_always_fails_ends_on_the_serial_path() {
    let (number, other) = (TVar::new(0), TVar::new(0));
    assert_eq!(forced_to_the_serial_path(&number, &other, || ()), 65);
    assert_eq!((number.load(), other.load()), (64, 64));
}

#[test]
fn a_panic_on_the_serial_path_blocks_no_other() {
    let (number, other) = (TVar::new(0), TVar::new(0));
    let message = panic_of(|| {
        forced_to_the_serial_path(&number, &other, || panic!("on purpose"));
    });
    assert_eq!(message, "on purpose");
    assert_eq!((number.load(), other.load()), (64, 0));
    // Neither the variables nor the path are taken.
    atomically_blocking(|tx| tx.modify(&number, |number| number + 1));
    assert_eq!(forced_to_the_serial_path(&number, &other, || ()), 65);
}

#[test]
fn a_future_that_was_ready_does_not_run_its_transaction_again() {
    let number = TVar::new(1);
    let mut transfer = std::pin::pin!(atomically(|tx| tx.modify(&number, |number| number + 1)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(transfer.as_mut().poll(&mut cx).is_ready());
    let message = panic_of(|| _ = transfer.as_mut().poll(&mut cx));
    assert!(message.contains("not polled again"), "{message}");
    assert_eq!(number.load(), 2);
}

/// A worker, and a transaction that runs for long on the serial path.
#[test]
fn c9_no_worker_waits_for_a_transaction_that_runs() {
    let runtime = runtime(1);
    let (number, text) = (TVar::new(0), TVar::new(String::from("before")));
    let on_worker = || {
        let (number, text) = (number.clone(), text.clone());
        let (tx, seen) = std::sync::mpsc::channel();
        drop(runtime.spawn(async move {
            let added = atomically(|tx| tx.modify(&number, |number| number + 1)).now();
            tx.send((added, number.load(), text.load())).unwrap();
        }));
        seen.recv_timeout(Duration::from_secs(20)).expect("the worker waits")
    };
    let mut attempts = 0;
    atomically_blocking(|tx| {
        attempts += 1;
        let seen = tx.read(&number)?;
        tx.write(&number, seen + 1_000)?;
        tx.write(&text, String::from("after"))?;
        if attempts > 64 {
            // Both are kept and unchanged. The other transaction cannot run, and does not wait.
            assert_eq!(on_worker(), (None, 64, String::from("before")));
        } else {
            let (added, _, _) = on_worker();
            assert_eq!(added, Some(()));
        }
        Ok(())
    });
    assert_eq!(on_worker(), (Some(()), 1_065, String::from("after")));
}
