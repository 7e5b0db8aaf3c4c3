//! Values that a task carries.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use dapple_sched::{Color, spawn, yield_now};

use crate::{LONG, run, runtime};

dapple_sync::task_local! {
    static NAME: String;
    static DEPTH: u32;
}

#[test]
fn each_task_has_its_own_across_awaits_and_workers() {
    run(2, async {
        let tasks: Vec<_> = (0..100)
            .map(|n| {
                spawn(NAME.scope(format!("task {n}"), async move {
                    for _ in 0..100 {
                        yield_now().await;
                        assert_eq!(NAME.get(), format!("task {n}"));
                    }
                }))
            })
            .collect();
        for task in tasks {
            assert!(NAME.try_get().is_err());
            task.await.unwrap();
        }
    });
}

#[test]
fn nothing_is_inherited() {
    run(
        1,
        DEPTH.scope(1, async {
            assert!(spawn(async { DEPTH.try_get() }).await.unwrap().is_err());
            let (tx, rx) = dapple_sync::sync::oneshot::channel();
            Color::new().post(move || tx.send(DEPTH.try_get()).unwrap());
            assert!(rx.await.unwrap().is_err());
            assert_eq!(DEPTH.get(), 1);
        }),
    );
}

#[test]
fn scopes_of_the_same_and_of_others_are_inside_each_other() {
    run(1, async {
        let inner = async {
            yield_now().await;
            (DEPTH.get(), NAME.get())
        };
        let outer = async {
            assert_eq!(DEPTH.scope(2, NAME.scope("inner".to_owned(), inner)).await, (2, "inner".to_owned()));
            yield_now().await;
            (DEPTH.get(), NAME.get())
        };
        assert_eq!(DEPTH.scope(1, NAME.scope("outer".to_owned(), outer)).await, (1, "outer".to_owned()));
    });
}

struct SaysDepth(Sender<Option<u32>>);

impl Drop for SaysDepth {
    fn drop(&mut self) {
        self.0.send(DEPTH.try_get().ok()).unwrap();
    }
}

#[test]
fn destructors_see_it_however_the_future_ends() {
    let runtime = runtime(1);
    let (tx, rx) = channel();
    let carries = |waits: bool| {
        let says = SaysDepth(tx.clone());
        DEPTH.scope(7, async move {
            let _says = says;
            if waits {
                std::future::pending::<()>().await;
            }
        })
    };
    drop(carries(true));
    assert_eq!(rx.recv_timeout(LONG), Ok(Some(7)), "never polled");
    runtime.block_on(runtime.spawn(carries(false))).unwrap();
    assert_eq!(rx.recv_timeout(LONG), Ok(Some(7)), "ended");
    let task = runtime.spawn(carries(true));
    task.abort();
    assert_eq!(rx.recv_timeout(LONG), Ok(Some(7)), "aborted");
    drop(runtime.spawn(carries(true)));
    drop(runtime);
    assert_eq!(rx.recv_timeout(LONG), Ok(Some(7)), "dropped with the runtime");
}

#[test]
fn a_panic_leaves_the_thread_as_it_was() {
    DEPTH.sync_scope(1, || {
        let panics = || DEPTH.sync_scope(2, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(DEPTH.get(), 1);
    });
    assert!(DEPTH.try_get().is_err());
    let inside_of_a_look = || DEPTH.sync_scope(1, || DEPTH.with(|_| DEPTH.sync_scope(2, || ())));
    assert!(catch_unwind(AssertUnwindSafe(inside_of_a_look)).is_err());
    assert!(DEPTH.try_get().is_err());
}
