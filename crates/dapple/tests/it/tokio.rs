//! Colors and state inside a tokio program: a Dapple runtime beside it, awaited across.

use dapple::{Color, Colored};

#[test]
fn state_and_tasks_are_awaited_from_tokio() {
    let dapple = dapple::builder().workers(2).build().unwrap();
    let _entered = dapple.enter();
    let state = Colored::new(Vec::new());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let handle = dapple.handle().clone();
    let sum = tokio.block_on(async {
        let tasks: Vec<_> = (0..64u64)
            .map(|n| {
                let (state, handle) = (state.clone(), handle.clone());
                tokio::spawn(async move {
                    for _ in 0..100 {
                        state.with(|list| list.push(n)).await;
                        tokio::task::yield_now().await;
                    }
                    // A Dapple task, joined by a tokio one; it runs on a Dapple worker.
                    handle.spawn(async move { (n, dapple::on_worker()) }).await.unwrap()
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            let (n, on_worker) = task.await.unwrap();
            assert!(on_worker);
            sum += n;
        }
        sum
    });
    assert_eq!(sum, (0..64).sum::<u64>());
    assert_eq!(state.with_blocking(|list| list.len()), 6_400);
}

#[test]
fn tokio_is_awaited_from_dapple() {
    let dapple = dapple::builder().workers(2).build().unwrap();
    let _entered = dapple.enter();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let state = Colored::new(0);
    let (tx, mut rx) = tokio::sync::mpsc::channel(4);
    let inner = state.clone();
    let reader = Color::new().spawn(async move {
        while let Some(n) = rx.recv().await {
            inner.with(|sum| *sum += n).await;
        }
    });
    tokio.spawn(async move {
        for n in 1..=100 {
            tx.send(n).await.unwrap();
        }
    });
    dapple.block_on(reader).unwrap();
    assert_eq!(state.with_blocking(|sum| *sum), 5_050);
}
