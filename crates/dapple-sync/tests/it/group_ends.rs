//! Nothing outlives its group: however a scope ends, all members, also of nested groups, are over
//! before it returns.

use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{block_on, spawn, yield_now};
use dapple_sync::sync::oneshot;
use dapple_sync::task::{Group, Members};

use crate::group::Alive;
use crate::{LONG, run, runtime, thread};

/// A member that never ends, with a task that blocks a worker in its first poll until it is
/// released: an abort alone does not end it.
fn busy(alive: &Alive, started: oneshot::Sender<()>, let_go: Receiver<()>) -> impl Future<Output = ()> + Send + use<> {
    let one = alive.one();
    async move {
        let _one = one;
        started.send(()).expect("the test waits");
        let_go.recv_timeout(LONG).expect("the test releases it");
        pending().await
    }
}

/// Runs `body` on two workers, with a group of ten idle members and one in a long poll. Returns its
/// result, and checks that all are over by then and that the long poll was awaited.
fn left<F, Fut, R>(body: F) -> Result<R, String>
where
    F: FnOnce(Members<()>) -> Fut + Send + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    run(2, async {
        let alive = Alive::default();
        let (let_go, waits) = channel();
        let (started_tx, started) = oneshot::channel();
        let (at_end, ours) = (alive.clone(), alive.clone());
        let scope = spawn(async move {
            let scope = Group::scope(|group| async move {
                for _ in 0..10 {
                    let one = ours.one();
                    group
                        .spawn(async move {
                            let _one = one;
                            pending().await
                        })
                        .await;
                }
                group.spawn(busy(&ours, started_tx, waits)).await;
                started.await.unwrap();
                body(group).await
            });
            let caught = CatchPanic(Box::pin(scope)).await;
            (caught, at_end.count())
        });
        for _ in 0..200 {
            yield_now().await;
        }
        assert!(!scope.is_finished(), "it returned while a member was in its poll");
        let_go.send(()).unwrap();
        let (result, alive) = scope.await.unwrap();
        assert_eq!(alive, 0, "it returned before all members were over");
        result
    })
}

struct CatchPanic<F>(std::pin::Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(output) => output.map(Ok),
            Err(payload) => std::task::Poll::Ready(Err((*payload.downcast_ref::<&str>().expect("a text")).to_owned())),
        }
    }
}

#[test]
fn by_returning() {
    assert_eq!(left(|group| async move { group.len() }), Ok(11));
}

#[test]
fn by_an_error() {
    let error = left(|_| async { "seven".parse::<u8>() });
    assert!(error.unwrap().is_err());
}

#[test]
fn by_a_panic() {
    assert_eq!(left(|_| async { panic!("of the body") }), Err::<(), _>("of the body".to_owned()));
}

#[test]
fn by_a_panic_before_the_first_await() {
    let panics = |_: Members<()>| -> std::future::Ready<()> { panic!("of the function") };
    assert_eq!(left(panics), Err("of the function".to_owned()));
}

#[test]
fn by_a_members_panic_that_is_not_joined() {
    let result = left(|group| async move {
        let (tx, rx) = oneshot::channel::<()>();
        group
            .spawn(async move {
                let _tx = tx;
                panic!("of a member")
            })
            .await;
        assert!(rx.await.is_err());
    });
    assert_eq!(result, Err("of a member".to_owned()));
}

#[test]
fn a_panic_that_was_joined_is_no_panic_of_the_scope() {
    let result = left(|group| async move {
        group.spawn(async { panic!("of a member") }).await;
        group.join_next().await.unwrap().unwrap_err().is_panic()
    });
    assert_eq!(result, Ok(true));
}

#[test]
fn by_dropping_its_future() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        let (tx, rx) = oneshot::channel();
        let scope = spawn(Group::scope(|group: Members<()>| async move {
            for _ in 0..1_000 {
                let one = ours.one();
                group
                    .spawn(async move {
                        let _one = one;
                        pending().await
                    })
                    .await;
            }
            tx.send(group).unwrap();
            pending::<()>().await;
        }));
        let members = rx.await.unwrap();
        assert_eq!(alive.count(), 1_000);
        scope.abort();
        assert!(scope.await.unwrap_err().is_aborted());
        assert!(members.is_over());
        // It cannot wait; but any other handle can.
        members.all_ended().await;
        assert_eq!(alive.count(), 0);
    });
}

// The result comes after the group was dropped, because the member has dropped it in the poll that
// returns the result. No task can join the member, so nothing keeps the result.
#[test]
fn by_a_member_that_drops_it() {
    run(1, async {
        let (alive, group) = (Alive::default(), Arc::new(Mutex::new(Some(Group::new()))));
        let members = group.lock().unwrap().as_ref().unwrap().members().clone();
        let one = alive.one();
        let started = members.try_spawn(async move {
            drop(group.lock().unwrap().take());
            one
        });
        assert!(started.is_ok());
        members.all_ended().await;
        assert!(members.is_over());
        assert_eq!(alive.count(), 0, "the result still exists");
    });
}

/// The outer scope ends while a member of an inner one, opened by a member that is aborted with it,
/// is in a long poll.
#[test]
fn groups_inside_of_aborted_members_are_over_too() {
    run(2, async {
        let alive = Alive::default();
        let (started_tx, started) = oneshot::channel();
        let (let_go, waits) = channel();
        let inner = alive.clone();
        let scope = spawn(Group::scope(|outer| async move {
            let member = Group::scope(|group| async move {
                group.spawn(busy(&inner, started_tx, waits)).await;
                pending::<()>().await;
            });
            outer.spawn(member).await;
            started.await.unwrap();
        }));
        for _ in 0..200 {
            yield_now().await;
        }
        assert!(!scope.is_finished(), "it returned while a member of an inner group was in its poll");
        let_go.send(()).unwrap();
        scope.await.unwrap();
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_group_that_leaves_its_member_ends_with_the_outer_one() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        let inner = Group::scope(|outer| async move {
            let member = async move {
                let inner = Group::<()>::new();
                let one = ours.one();
                inner
                    .spawn(async move {
                        let _one = one;
                        pending().await
                    })
                    .await;
                inner
            };
            outer.spawn(member).await;
            while outer.is_empty() {
                yield_now().await;
            }
            let mut inner = None;
            while inner.is_none() {
                yield_now().await;
                if let Some(joined) = outer.join_next().await {
                    inner = Some(joined.unwrap());
                }
            }
            inner.unwrap()
        })
        .await;
        assert!(inner.is_over());
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn groups_ten_deep() {
    fn deep(depth: usize, alive: Alive) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let _one = alive.one();
            if depth == 0 {
                return pending().await;
            }
            Group::scope(|group| async move {
                for _ in 0..2 {
                    group.spawn(deep(depth - 1, alive.clone())).await;
                }
                pending::<()>().await;
            })
            .await;
        })
    }
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        Group::scope(|group| async move {
            group.spawn(deep(10, ours.clone())).await;
            while ours.count() < 2_047 {
                yield_now().await;
            }
        })
        .await;
        assert_eq!(alive.count(), 0);
    });
}

/// The runtime stops while members run, end, start and are awaited: from a plain thread, which is
/// released, and in a task.
#[test]
fn with_the_runtime_in_the_middle() {
    for round in 0..20 {
        let runtime = runtime(2);
        let alive = Alive::default();
        let handle = runtime.handle().clone();
        let (tx, rx): (Sender<()>, _) = channel();
        let members = |group: Members<()>, alive: Alive| async move {
            for n in 0..1_000 {
                let one = alive.one();
                let member = async move {
                    let _one = one;
                    match n % 3 {
                        0 => pending().await,
                        1 => yield_now().await,
                        _ => {}
                    }
                };
                group.spawn(member).await;
            }
        };
        let (ours, theirs) = (alive.clone(), alive.clone());
        let task = runtime.spawn(Group::scope(move |group| async move {
            members(group, ours).await;
            pending::<()>().await;
        }));
        let plain = std::thread::spawn(move || {
            let _entered = handle.enter();
            block_on(Group::scope(move |group| async move {
                members(group.clone(), theirs).await;
                tx.send(()).unwrap();
                let ended = group.join_all().await;
                assert_eq!(ended.len(), 1_000, "members that cannot start any more are aborted, not lost");
            }));
        });
        if round % 2 == 0 {
            rx.recv_timeout(LONG).unwrap();
        }
        runtime.shutdown(Duration::ZERO);
        plain.join().unwrap();
        assert!(task.is_finished());
        assert_eq!(alive.count(), 0);
    }
}

/// Members start and end on two workers while a plain thread ends the group: admitted members are
/// over at the end, and the others are dropped.
#[test]
fn by_another_thread_while_members_start() {
    run(2, async {
        for round in 0..300 {
            let alive = Alive::default();
            let group = Group::limited(if round % 2 == 0 { 3 } else { 1_000 });
            let starters = [0, 1].map(|_| {
                let (members, alive) = (group.members().clone(), alive.clone());
                spawn(async move {
                    for n in 0.. {
                        if members.is_over() {
                            return n;
                        }
                        let one = alive.one();
                        let member = async move {
                            let _one = one;
                            if n % 2 == 0 { yield_now().await } else { pending().await }
                        };
                        members.spawn(member).await;
                        yield_now().await;
                    }
                    unreachable!()
                })
            });
            let theirs = group.members().clone();
            thread(move || theirs.cancel()).await;
            for starter in starters {
                starter.await.unwrap();
            }
            group.all_ended().await;
            assert_eq!((alive.count(), group.len()), (0, 0));
            while let Some(ended) = group.join_next().await {
                assert!(ended.is_ok() || ended.unwrap_err().is_aborted());
            }
        }
    });
}

#[test]
fn plain_threads_have_scopes_too() {
    let runtime = runtime(2);
    let sum = runtime.block_on(Group::scope(|group| async move {
        for n in 0..100 {
            group.spawn(async move { n }).await;
        }
        group.join_all().await.into_iter().map(Result::unwrap).sum::<u32>()
    }));
    assert_eq!(sum, 4_950);
    runtime.block_on(async {
        let group = Group::new();
        group.spawn(async { 7 }).await;
        let members = group.members().clone();
        assert_eq!(thread(move || block_on(members.join_next())).await.unwrap().unwrap(), 7);
    });
}
