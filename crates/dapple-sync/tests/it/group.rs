//! Groups: their members, their limits, and the reports of ends.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use dapple_sched::{Color, Runtime, block_on, spawn, yield_now};
use dapple_sync::task::{Group, TrySpawnError};

use crate::{LONG, run, runtime, thread};

/// Counts the living members.
#[derive(Clone, Default)]
pub(crate) struct Alive(Arc<AtomicUsize>);

impl Alive {
    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, SeqCst);
        One(self.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

pub(crate) struct One(Alive);

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, SeqCst);
    }
}

#[test]
#[cfg_attr(miri, ignore = "this many take hours")]
fn a_hundred_thousand_members_are_joined() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        let sum = Group::scope(|group| async move {
            for n in 0..100_000_u64 {
                let one = ours.one();
                group
                    .spawn(async move {
                        yield_now().await;
                        drop(one);
                        n
                    })
                    .await;
            }
            let mut sum = 0;
            while let Some(member) = group.join_next().await {
                sum += member.unwrap();
            }
            assert!(group.is_empty());
            sum
        });
        assert_eq!(sum.await, (0..100_000).sum::<u64>());
        assert_eq!(alive.count(), 0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "this many take hours")]
fn a_hundred_thousand_members_are_ended() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        Group::scope(|group| async move {
            for _ in 0..100_000 {
                let one = ours.one();
                group
                    .spawn(async move {
                        let _one = one;
                        pending::<()>().await;
                    })
                    .await;
            }
            assert_eq!(group.len(), 100_000);
        })
        .await;
        assert_eq!(alive.count(), 0, "all over when the scope returns");
    });
}

#[test]
fn the_limit_is_kept_and_waiters_come_in_order() {
    run(2, async {
        let (alive, most, order) = (Alive::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let group = Arc::new(Group::limited(4));
        for n in 0..1_000 {
            let (alive, most, order) = (alive.clone(), most.clone(), order.clone());
            let member = async move {
                let _one = alive.one();
                order.lock().unwrap().push(n);
                most.fetch_max(alive.count(), SeqCst);
                yield_now().await;
            };
            group.spawn_in(&Color::named(7), member).await;
            assert!(group.len() <= 4);
        }
        assert_eq!(group.join_all().await.len(), 1_000);
        assert!(most.load(SeqCst) <= 4);
        assert_eq!(*order.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    });
}

#[test]
fn a_full_group_refuses_try_spawn_and_a_dropped_wait_is_no_member() {
    run(1, async {
        let (group, alive) = (Group::limited(1), Alive::default());
        group.spawn(pending::<()>()).await;
        let one = alive.one();
        let refused = group.try_spawn(async move {
            let _one = one;
            pending().await
        });
        assert!(matches!(refused, Err(TrySpawnError::Full(_))));
        assert_eq!(alive.count(), 1, "the future is in the error");
        drop(refused);
        let one = alive.one();
        let waits = group.spawn(async move {
            let _one = one;
            pending().await
        });
        drop(waits);
        assert_eq!((alive.count(), group.len()), (0, 1));
    });
}

#[test]
fn ending_a_group_ends_the_waits_for_a_place() {
    run(1, async {
        let group = Arc::new(Group::limited(1));
        group.spawn(pending::<()>()).await;
        let ours = group.clone();
        let waits = spawn(async move { ours.spawn(pending()).await });
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(!waits.is_finished());
        group.cancel();
        waits.await.unwrap();
        group.all_ended().await;
        assert_eq!(group.join_all().await.len(), 1);
    });
}

#[test]
fn members_start_members_and_callbacks_do() {
    run(2, async {
        let total = Arc::new(AtomicUsize::new(0));
        let ours = total.clone();
        Group::scope(|group| async move {
            for _ in 0..10 {
                let (inside, total) = (group.clone(), ours.clone());
                group
                    .spawn(async move {
                        for _ in 0..10 {
                            let total = total.clone();
                            inside
                                .spawn(async move {
                                    total.fetch_add(1, SeqCst);
                                })
                                .await;
                        }
                    })
                    .await;
            }
            let (inside, total) = (group.clone(), ours.clone());
            let (tx, rx) = dapple_sync::sync::oneshot::channel();
            Color::new().post(move || {
                assert!(
                    inside
                        .try_spawn(async move {
                            total.fetch_add(1, SeqCst);
                        })
                        .is_ok()
                );
                tx.send(()).unwrap();
            });
            rx.await.unwrap();
            assert_eq!(group.join_all().await.len(), 111);
        })
        .await;
        assert_eq!(total.load(SeqCst), 101);
    });
}

#[test]
fn several_join_and_each_gets_another() {
    run(2, async {
        let group = Arc::new(Group::new());
        for n in 0..1_000 {
            group.spawn(async move { n }).await;
        }
        let joiners = [0, 1, 2].map(|_| {
            let group = group.clone();
            spawn(async move { group.join_all().await })
        });
        let ours = group.clone();
        let mut all = thread(move || block_on(ours.join_all())).await;
        for joiner in joiners {
            all.extend(joiner.await.unwrap());
        }
        let mut all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
        all.sort_unstable();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>());
    });
}

#[test]
fn a_dropped_join_loses_no_result() {
    run(1, async {
        let group = Group::new();
        let (tx, rx) = dapple_sync::sync::oneshot::channel();
        group.spawn(async move { rx.await.unwrap() }).await;
        for _ in 0..10 {
            let mut join = Box::pin(group.join_next());
            std::future::poll_fn(|cx| {
                assert!(join.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        tx.send(7).unwrap();
        assert_eq!(group.join_next().await.unwrap().unwrap(), 7);
        assert!(group.join_next().await.is_none());
    });
}

#[test]
fn a_panic_reaches_the_joiner() {
    run(2, async {
        let group = Group::new();
        group.spawn(async { panic!("on purpose") }).await;
        group.spawn(async { 7 }).await;
        let mut results = group.join_all().await;
        results.sort_by_key(Result::is_err);
        assert_eq!(results.remove(0).unwrap(), 7);
        assert_eq!(results.remove(0).unwrap_err().to_string(), "the task panicked: on purpose");
    });
}

#[test]
fn a_panic_not_joined_reaches_the_handler_when_the_group_is_dropped() {
    let (tx, rx) = channel();
    let handler = move |panic: &dapple_sched::PanicInfo<'_>| tx.send(panic.message.to_owned()).unwrap();
    let runtime = Runtime::builder().workers(1).panic_handler(handler).build().unwrap();
    runtime.block_on(async {
        let group = Group::<()>::new();
        group.spawn(async { panic!("before") }).await;
        group.all_ended().await;
        drop(group);
    });
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "before");

    struct PanicsInDrop;
    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("after");
        }
    }
    runtime.block_on(async {
        let group = Group::<()>::new();
        let value = PanicsInDrop;
        group
            .spawn(async move {
                let _value = value;
                pending().await
            })
            .await;
        drop(group);
    });
    assert_eq!(rx.recv_timeout(LONG).unwrap(), "after");
}

#[test]
fn a_late_member_is_dropped() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (group, alive) = (Group::<()>::new(), Alive::default());
    let members = group.members().clone();
    drop(group);
    let member = |one| async move {
        let _one = one;
        pending().await
    };
    assert!(matches!(members.try_spawn(member(alive.one())), Err(TrySpawnError::Over(_))));
    block_on(members.spawn(member(alive.one())));
    assert_eq!((alive.count(), members.len()), (0, 0));
    assert!(block_on(members.join_next()).is_none());
}

#[test]
fn bodies_may_hold_what_borrows_across_awaits() {
    let notify = Arc::new(dapple_sync::sync::Notify::new());
    let mutex = Arc::new(dapple_sync::sync::Mutex::new(0));
    run(2, async move {
        // Spawned futures must be `Send`, which rustc must see through the scope.
        let scope = spawn(Group::scope(|group| async move {
            let (ours, theirs) = (notify.clone(), mutex.clone());
            group
                .spawn(async move {
                    *theirs.lock().await += 1;
                    ours.notify_one();
                })
                .await;
            notify.notified().await;
            let mut sum = mutex.lock().await;
            group.join_all().await;
            *sum += 1;
            *sum
        }));
        assert_eq!(scope.await.unwrap(), 2);
    });
}
