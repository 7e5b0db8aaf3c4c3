//! Scopes that end at the first error.

use std::future::pending;

use dapple_sched::{spawn, yield_now};
use dapple_sync::task::{Group, TryMembers};

use crate::group::Alive;
use crate::run;

#[test]
fn results_without_errors() {
    run(2, async {
        let numbers = Group::try_scope_limited(3, |group| async move {
            for n in 0..100 {
                let member = async move {
                    yield_now().await;
                    Ok::<_, String>(n)
                };
                group.spawn(member).await;
            }
            Ok(group.join_all().await)
        });
        let mut numbers = numbers.await.unwrap();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn the_first_error_ends_siblings_and_body() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        let result = Group::try_scope(|group| async move {
            let _body = ours.one();
            for _ in 0..100 {
                let one = ours.one();
                group
                    .spawn(async move {
                        let _one = one;
                        pending::<Result<(), String>>().await
                    })
                    .await;
            }
            group.spawn(async { Err("first".to_owned()) }).await;
            // Something that the error could not end by itself.
            pending::<Result<(), _>>().await
        });
        assert_eq!(result.await, Err("first".to_owned()));
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn an_error_outranks_the_bodys_success() {
    run(2, async {
        for _ in 0..200 {
            let result = Group::try_scope(|group: TryMembers<(), u8>| async move {
                for n in 0..4 {
                    group.spawn(async move { Err(n) }).await;
                }
                group.join_all().await;
                Ok(())
            });
            assert!(result.await.unwrap_err() < 4);
        }
    });
}

#[test]
fn the_bodys_error_ends_the_members() {
    run(2, async {
        let alive = Alive::default();
        let ours = alive.clone();
        let result = Group::try_scope(|group| async move {
            let one = ours.one();
            group
                .spawn(async move {
                    let _one = one;
                    pending::<Result<(), u8>>().await
                })
                .await;
            Err::<(), _>(7)
        });
        assert_eq!(result.await, Err(7));
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn a_panic_of_a_member_is_that_of_the_scope() {
    for joins in [false, true] {
        let message = run(2, async move {
            let alive = Alive::default();
            let ours = alive.clone();
            let scope = spawn(Group::try_scope(move |group| async move {
                let one = ours.one();
                group
                    .spawn(async move {
                        let _one = one;
                        pending::<Result<(), u8>>().await
                    })
                    .await;
                group.spawn(async { panic!("of a member") }).await;
                if joins {
                    group.join_all().await;
                }
                pending::<Result<(), u8>>().await
            }));
            let message = scope.await.unwrap_err().to_string();
            assert_eq!(alive.count(), 0);
            message
        });
        assert_eq!(message, "the task panicked: of a member");
    }
}

#[test]
fn ended_by_the_body_without_an_error() {
    run(1, async {
        let result = Group::try_scope(|group: TryMembers<(), u8>| async move {
            group.spawn(pending()).await;
            group.cancel();
            group.join_all().await;
            assert!(group.token().is_cancelled());
            Ok(group.len())
        });
        assert_eq!(result.await, Ok(0));
    });
}
