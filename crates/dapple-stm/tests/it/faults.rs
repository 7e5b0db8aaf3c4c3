//! Foreign wakers that panic: the neighbors are woken, and the waking transaction succeeds.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use dapple_stm::{TVar, atomically, atomically_blocking};

use crate::bombs::{bomb, counting, drop_bomb};

#[test]
fn waiters_are_woken_next_to_a_waker_that_panics() {
    for bad in [bomb, drop_bomb] {
        let number = TVar::new(0_u64);
        let (calls, waker) = counting();
        let mut waits: Vec<_> = (0..9)
            .map(|_| {
                let number = number.clone();
                Box::pin(async move {
                    atomically(|tx| {
                        let now = tx.read(&number)?;
                        tx.check(now > 0)?;
                        Ok(now)
                    })
                    .await
                })
            })
            .collect();
        for (n, wait) in waits.iter_mut().enumerate() {
            let waker = if n % 3 == 1 { bad() } else { waker.clone() };
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        atomically_blocking(|tx| tx.write(&number, 7));
        assert_eq!(calls.count(), 6);
        for mut wait in waits {
            assert_eq!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(7));
        }
    }
}
