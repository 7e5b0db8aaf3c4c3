//! `tokio::sync` on Dapple: tasks of different colors wait for one another, and no tokio runtime is
//! there.

use std::sync::Arc;

use dapple::Color;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};

#[dapple::main]
async fn main() {
    let (total, slots) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(2)));
    let (tx, mut rx) = mpsc::channel(1); // so that senders wait
    let (level_tx, mut level_rx) = watch::channel(0);
    let (over_tx, over_rx) = oneshot::channel();

    // One color for all that is counted: its tasks take turns.
    Color::new().spawn(async move {
        let mut count = 0;
        while let Some(number) = rx.recv().await {
            count += 1;
            level_tx.send_replace(count);
            println!("{number} is number {count}");
        }
        over_tx.send(count)
    });
    for number in 0..10 {
        let (total, slots, tx) = (total.clone(), slots.clone(), tx.clone());
        // A color for each of these: they run in parallel, two at a time.
        dapple::spawn(async move {
            let _slot = slots.acquire().await.expect("nobody closes it");
            *total.lock().await += number;
            tx.send(number).await.expect("the counter is there");
        });
    }
    drop(tx);
    let seen = *level_rx.wait_for(|count| *count >= 5).await.expect("it comes to five");
    assert!(seen >= 5);
    assert_eq!(over_rx.await, Ok(10));
    assert_eq!(*total.lock().await, 45);
}
