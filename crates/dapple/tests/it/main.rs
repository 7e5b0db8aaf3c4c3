//! The attributes and entry points of the crate that users add.

mod behind_a_database;
mod examples;
mod first_hour;
mod own_scheduler;
mod simulated;
mod small_web_server;
mod spin_server;
mod standing_clock;
mod test_attribute;
mod tokio;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dapple::prelude::*;

#[dapple::test]
async fn a_test_has_two_workers() {
    assert_eq!(Handle::current().workers(), 2);
}

#[dapple::test(workers = 3)]
async fn a_test_has_as_many_workers_as_it_says() -> Result<(), dapple::JoinError> {
    assert_eq!(Handle::current().workers(), 3);
    dapple::spawn(async { assert!(dapple::on_worker()) }).await
}

#[dapple::test]
#[should_panic(expected = "on purpose")]
async fn other_attributes_are_kept() {
    panic!("on purpose");
}

#[test]
fn block_on_gives_back_the_result_and_may_borrow() {
    let text = String::from("borrowed");
    let len = dapple::block_on(async {
        dapple::time::sleep(Duration::from_millis(1)).await;
        text.len()
    });
    assert_eq!(len, 8);
}

#[test]
fn runtimes_live_side_by_side() {
    let one = dapple::builder().workers(1).build().unwrap();
    let two = dapple::builder().workers(2).build().unwrap();
    let workers = |runtime: &Runtime| runtime.block_on(runtime.spawn(async { Handle::current().workers() })).unwrap();
    assert_eq!((workers(&one), workers(&two)), (1, 2));
}

#[dapple::test]
async fn tasks_of_one_color_take_turns() {
    let color = Color::new();
    let inside = Arc::new(AtomicU32::new(0));
    let tasks: Vec<JoinHandle<()>> = (0..100)
        .map(|_| {
            let inside = inside.clone();
            color.spawn(async move {
                for _ in 0..10 {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
