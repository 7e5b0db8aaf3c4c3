//! Groups: members that start, end, are joined and are ended, on the scheduler's own workers, which
//! are threads of the model. A member that outlives its group fails a check; a wait that never ends
//! is a deadlock.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use dapple_sched::{Handle, yield_now};
use dapple_sync::task::{Group, Members, TrySpawnError};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::support::{self, Count, block_on, check, with};

const SCHEDULES: usize = 4_000;

/// Runs a scene in a runtime of two workers, and checks that it leaves nothing behind.
fn scene(schedules: usize, scene: impl Fn(&Handle) + Send + Sync + 'static) {
    check(schedules, move || support::scene(&scene));
}

/// Futures that were made and have not been dropped.
#[derive(Clone)]
struct Alive {
    made: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Alive {
    fn new() -> Alive {
        Alive { made: Arc::new(AtomicUsize::new(0)), dropped: Arc::new(AtomicUsize::new(0)) }
    }

    /// Owned by one future.
    fn one(&self) -> Count {
        self.made.fetch_add(1, Ordering::SeqCst);
        Count(self.dropped.clone())
    }

    fn count(&self) -> usize {
        self.made.load(Ordering::SeqCst) - self.dropped.load(Ordering::SeqCst)
    }
}

// Two threads join the members that a third one starts.
//
// Caught: `join_next` that looks before it registers (deadlock), `end` that does not notify of the
// last one (deadlock), and `ended` that counts a member off before it is in `ended` (one is not
// joined).
#[test]
fn each_member_is_joined_once() {
    scene(SCHEDULES, |handle| {
        let group = Group::new();
        for n in 0..2 {
            assert!(group.try_spawn(async move { n }).is_ok());
        }
        let joiners = [0, 1].map(|_| {
            let members = group.members().clone();
            with(handle, move || {
                let mut joined = Vec::new();
                while let Some(result) = block_on(members.join_next()) {
                    joined.push(result.expect("the task does not panic"));
                }
                joined
            })
        });
        let late = group.try_spawn(async {
            yield_now().await;
            2
        });
        assert!(late.is_ok());
        let mut joined: Vec<i32> = block_on(group.join_all()).into_iter().map(|result| result.unwrap()).collect();
        for joiner in joiners {
            joined.extend(joiner.join().unwrap());
        }
        joined.sort_unstable();
        assert_eq!(joined, [0, 1, 2]);
    });
}

// A thread ends the group while two others start members that would never end by themselves.
//
// Caught: `start` that does not check whether the group has ended since the member was counted
// (deadlock), and `begin` that counts members of a group that is over (one is admitted).
#[test]
fn members_started_during_the_end_are_ended_or_refused() {
    scene(SCHEDULES, |handle| {
        let alive = Alive::new();
        let group = Group::<()>::new();
        let starters = [0, 1].map(|_| {
            let (members, alive) = (group.members().clone(), alive.clone());
            with(handle, move || {
                let one = alive.one();
                let future = async move {
                    let _one = one;
                    pending().await
                };
                members.try_spawn(future).is_ok()
            })
        });
        group.cancel();
        assert!(matches!(group.try_spawn(async {}), Err(TrySpawnError::Over(_))), "it is over");
        let started = starters.map(|starter| starter.join().unwrap());
        block_on(group.all_ended());
        assert_eq!(alive.count(), 0, "admitted members are over, the others were never started: {started:?}");
        assert!(group.is_empty() && group.token().is_cancelled());
        let results = block_on(group.join_all());
        assert_eq!(results.len(), started.iter().filter(|started| **started).count());
        assert!(results.into_iter().all(|result| result.unwrap_err().is_aborted()));
    });
}

/// Opens a scope inside its poller, with a member that never ends by itself.
async fn inner_scope(alive: Alive) {
    Group::scope(|inner: Members<()>| async move {
        let one = alive.one();
        let _started = inner.try_spawn(async move {
            let _one = one;
            pending().await
        });
        pending().await
    })
    .await
}

// A scope with a body that returns at once, while its member opens its own scope.
//
// Caught: `end` that does not count for the outer group (deadlock).
#[test]
fn a_scope_returns_when_all_inside_of_it_are_over() {
    scene(SCHEDULES, |_handle| {
        let alive = Alive::new();
        let inner = alive.clone();
        block_on(Group::scope(|outer: Members<()>| async move {
            let one = inner.one();
            let started = outer.try_spawn(async move {
                let _one = one;
                inner_scope(inner).await
            });
            assert!(started.is_ok());
        }));
        assert_eq!(alive.count(), 0, "members outlive their scope");
    });
}

// A member makes a group and passes it out, so that it is not dropped with the member: it still
// ends with the outer one. (Not a scope, which ends its group again when it is over.)
//
// Caught: a new group that does not check whether the outer one has ended since it was adopted (it
// is not over), `end_all` that skips nested groups (deadlock), and `begin` that does not count for
// the outer group.
#[test]
fn a_group_of_a_member_ends_with_the_outer_one() {
    scene(SCHEDULES, |_handle| {
        let alive = Alive::new();
        let handed_out = Arc::new(Mutex::new(None));
        let (inner, place) = (alive.clone(), handed_out.clone());
        let outer = Group::<()>::new();
        let started = outer.try_spawn(async move {
            let group = Group::<()>::new();
            let one = inner.one();
            let _started = group.try_spawn(async move {
                let _one = one;
                pending().await
            });
            *place.lock().unwrap() = Some(group);
        });
        assert!(started.is_ok());
        outer.cancel();
        block_on(outer.all_ended());
        assert_eq!(alive.count(), 0, "members outlive their group");
        let group = handed_out.lock().unwrap().take();
        assert!(group.is_none_or(|group| group.is_over()), "a group outlives its outer group");
    });
}

// Three threads start members in a group with one slot; one of them gives up while it waits.
//
// Caught: `ended` that gives no place back (deadlock), and a place that is forgotten before the
// member counts (two at once).
#[test]
fn a_limit_is_kept_and_no_place_is_lost() {
    scene(SCHEDULES, |handle| {
        let inside = Arc::new(AtomicUsize::new(0));
        let group = Group::<()>::limited(1);
        let work = {
            let inside = inside.clone();
            move || {
                let inside = inside.clone();
                async move {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        let starters = [0, 1].map(|_| {
            let (members, future) = (group.members().clone(), work());
            with(handle, move || block_on(members.spawn(future)))
        });
        let hasty = {
            let (members, future) = (group.members().clone(), work());
            with(handle, move || {
                let mut spawn = pin!(members.spawn(future));
                let polled = spawn.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                thread::yield_now();
                polled.is_ready()
            })
        };
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        let started = 2 + usize::from(hasty.join().unwrap());
        assert_eq!(block_on(group.join_all()).len(), started);
        // A newcomer has a place now.
        assert!(group.try_spawn(work()).is_ok());
        block_on(group.all_ended());
    });
}

// A group with one place ends while another thread waits for it.
//
// Caught: a place that is taken without a check whether the group has ended (more ends are counted
// than begins).
#[test]
fn a_wait_for_a_place_ends_with_the_group() {
    scene(SCHEDULES, |handle| {
        let alive = Alive::new();
        let group = Group::<()>::limited(1);
        let starters = [0, 1, 2].map(|n| {
            let (members, alive) = (group.members().clone(), alive.clone());
            with(handle, move || {
                let one = alive.one();
                block_on(members.spawn(async move {
                    let _one = one;
                    if n > 0 {
                        pending().await
                    }
                }))
            })
        });
        group.cancel();
        starters.into_iter().for_each(|starter| starter.join().unwrap());
        block_on(group.all_ended());
        assert_eq!(alive.count(), 0);
    });
}

// Two members fail while the body waits for ever.
//
// Caught: a scope that returns at the first error without waiting for the others (a member is
// left).
#[test]
fn the_first_error_ends_all() {
    scene(SCHEDULES, |_handle| {
        let alive = Alive::new();
        let inner = alive.clone();
        let result: Result<(), u32> = block_on(Group::try_scope(|group| async move {
            for n in 1..=2 {
                let one = inner.one();
                group
                    .spawn(async move {
                        let _one = one;
                        yield_now().await;
                        Err::<(), u32>(n)
                    })
                    .await;
            }
            let one = inner.one();
            group
                .spawn(async move {
                    let _one = one;
                    pending::<Result<(), u32>>().await
                })
                .await;
            pending().await
        }));
        assert!(matches!(result, Err(1 | 2)));
        assert_eq!(alive.count(), 0, "members outlive their scope");
    });
}

// A group is dropped, which cannot wait, while a member ends by itself. Its result has no joiner
// any more.
//
// Caught: dropping a group without ending it (deadlock), and `forget` that keeps later results (one
// is left).
#[test]
fn a_group_that_is_dropped_leaves_nothing_behind() {
    scene(SCHEDULES, |_handle| {
        let alive = Alive::new();
        let group = Group::new();
        for n in 0..2 {
            let one = alive.one();
            let started = group.try_spawn(async move {
                if n == 0 {
                    pending::<()>().await;
                }
                one
            });
            assert!(started.is_ok());
        }
        let members = group.members().clone();
        drop(group);
        block_on(members.all_ended());
        assert_eq!(alive.count(), 0, "a future or a result is left");
    });
}
